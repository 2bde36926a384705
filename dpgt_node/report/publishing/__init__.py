"""What is said beside a published model."""
