"""The run that measurements of speed share: "quadratic" on a ring, one evaluation, noise on both vectors."""

from __future__ import annotations

RUN = """
name = "ring"
[algorithm]
iterations = {K}
[scheme]
kind = "S2"
alpha = 0.1
beta = 0.01
gamma = 0.01
p_m = 1.0
samples = 1
[noise]
scale_zeta = 0.1
scale_eta = 0.1
[graph]
agents = {n}
R = {{ generator = "ring" }}
C = {{ generator = "ring" }}
[data]
dataset = "quadratic"
dimension = {d}
[evaluate]
every = {K}
[runtime]
channel = "{channel}"
"""


def ring(n: int, d: int, rounds: int, channel: str = "mtls") -> str:
    """Its text, for ``rounds`` >= 2 rounds of ``n`` agents with vectors of ``d`` coordinates."""
    return RUN.format(K=rounds - 1, n=n, d=d, channel=channel)
