"""The run that measurements of speed share: a closed form on a ring, one evaluation, noise on both vectors."""

from __future__ import annotations

_RUN = """
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
{noise}
[graph]
agents = {n}
R = {{ generator = "ring" }}
C = {{ generator = "ring" }}
[data]
dataset = "{dataset}"
dimension = {d}
[evaluate]
every = {K}
[runtime]
channel = "{channel}"
"""


def ring(n: int, d: int, rounds: int, channel: str = "mtls", *, dataset: str = "quadratic", noise: float = 0.1) -> str:
    """Its text, for ``rounds`` >= 2 rounds of ``n`` agents with vectors of ``d`` coordinates.

    ``noise``: the scale of both noises, 0: none.  Keys of [runtime] may be appended: its table is the last.
    """
    scales = f"scale_zeta = {noise}\nscale_eta = {noise}" if noise else "multiplier = 0.0"
    return _RUN.format(K=rounds - 1, n=n, d=d, channel=channel, dataset=dataset, noise=scales)
