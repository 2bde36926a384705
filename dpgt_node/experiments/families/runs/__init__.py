"""Single runs: what one is, who carries it out, where it is kept, and what it says."""
