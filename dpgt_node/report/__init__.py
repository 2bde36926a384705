"""What a run leaves behind: metrics.csv, summary.json, TensorBoard events, report.html."""
