"""Membership inference: signals of a sample in what was released, tests on them, the most that their rates may be."""
