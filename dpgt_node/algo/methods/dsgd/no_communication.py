"""No communication: every agent for itself, x_{k+1} = x_k - gamma g~_k.

A bound beside the methods: what an exchange has to beat.  Nothing is sent.  Its noise is what publishing x would cost;
an agent that keeps its model needs none.
"""

from __future__ import annotations

from dataclasses import replace

from dpgt_node.algo.methods.derived import NOBODY
from dpgt_node.algo.methods.dsgd.atc_dsgd import ATC_DSGD

NO_COMMUNICATION = replace(
    ATC_DSGD,
    name="no-communication",
    title="every agent by itself, each gradient perturbed once",
    status="ours",
    source="a bound, not a method of anybody's",
    sends=(NOBODY,),
    demands=(),
)
