"""Families of runs: the paper's figures, its Table 1, and the comparison that it could not make.

A family names its runs (:mod:`.job`), the engine carries them out (:mod:`.engine`), a folder keeps them
(:mod:`.folder`), and what they say is drawn and judged (:mod:`.figures`, :mod:`.verdicts`).
"""
