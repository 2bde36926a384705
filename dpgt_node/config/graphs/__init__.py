"""R and C of a run file: their forms, and what is kept of them."""
