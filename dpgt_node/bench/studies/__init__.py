"""Studies: what runs learn, what they leak, and whether epsilon holds.  Some take hours; ``dpgt bench NAME --help``."""
