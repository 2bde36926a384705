"""What ``dpgt check`` finds, and how it is printed: in brief, or all of it."""
