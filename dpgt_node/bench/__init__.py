"""Measurements of this machine: ``speed``, and ``studies`` of accuracy and attacks; ``dpgt bench`` runs them.

Each module has ``Settings``, a dataclass of options, and ``figures(settings, around)``, which yields rows as they are
measured.  What is compared is measured in turn in the same run, and ratios are taken pair by pair, so that a machine
that drifts favours nothing.

A new one is a module, its line in ``catalogue``, and its smallest size in ``tests/bench/smallest.py``.
"""
