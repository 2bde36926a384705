"""Methods that send states with noise on them: each a file, as everywhere in ``algo.methods``."""
