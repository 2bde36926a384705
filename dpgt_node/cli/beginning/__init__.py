"""``dpgt init``: a run file from data and an epsilon."""
