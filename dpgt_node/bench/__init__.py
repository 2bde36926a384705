"""Measurements of this machine: performance here, accuracy and attacks in ``studies``; ``dpgt bench`` runs them.

Each module has ``Settings``, a dataclass of options, and ``figures(settings, around)``, which yields rows as they are
measured.  What is compared is measured in turn in the same run, and ratios are taken pair by pair, so that a machine
that drifts favours nothing.
"""
