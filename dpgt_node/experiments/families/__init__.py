"""Families of runs: the paper's figures, its Table 1, and the comparison that it could not make.

A family names its runs and says what they show (``schemes``, ``comparison``, ``table1``, ``ours``).  ``runs`` carries
them out and keeps them, ``conduct`` does so for families, ``verdicts`` judges.
"""
