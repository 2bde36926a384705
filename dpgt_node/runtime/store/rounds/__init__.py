"""The rounds of a run as rows and files: written, read back, and dropped when every agent has them."""
