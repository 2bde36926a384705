"""How keys are declared, read, and described: knows no key of ours, only kinds of values and tables of keys."""
