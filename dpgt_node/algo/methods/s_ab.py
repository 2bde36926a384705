"""S-AB: stochastic gradient tracking over two directed graphs, without noise.

    x_{k+1} = A x_k - gamma y_k,    y_{k+1} = B y_k + g_{k+1} - g_k,    A = I - alpha L1, B = I - beta L2

It is Algorithm 1 with the noise off: no x̆ or y̆ differs from x or y, so nothing is private and every epsilon is
infinite.  Its convergence needs both graphs strongly connected; Algorithm 1 itself asks for less.
"""

from __future__ import annotations

from dpgt_node.algo.graph import separated
from dpgt_node.algo.methods.base import Demand, Method, Setting
from dpgt_node.algo.methods.dpgt import DPGT
from dpgt_node.privacy.mechanisms import PAPER


def _apart_in_R(setting: Setting) -> tuple[str, ...]:
    return separated(setting.topology.names, setting.topology.R)


def _apart_in_C(setting: Setting) -> tuple[str, ...]:
    return separated(setting.topology.names, setting.topology.C)


S_AB = Method(
    name="s-ab",
    title="S-AB, stochastic gradient tracking without noise",
    status="known",
    source="Xin, Sahu, Khan, Kar 2019",
    rules={PAPER.name: DPGT.rules[PAPER.name]},
    sends=DPGT.sends,
    noisy=False,
    demands=(
        Demand("R is strongly connected", "graph.R", _apart_in_R),
        Demand("C is strongly connected", "graph.C", _apart_in_C),
    ),
)
