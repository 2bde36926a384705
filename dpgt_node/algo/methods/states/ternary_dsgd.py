"""Ternary DSGD: the output form of sampled DSGD whose only noise is a quantiser to three values.

    x_{k+1} = (1 - alpha_k s_i) x_k + alpha_k sum_{j != i} w_ij Q(x_{j,k}) - gamma_k g_k                    (td,1)
    Q(x) = r sign(x) Bernoulli(|x|/r), x clipped to [-r, r]

The own x enters unquantised.  Q crosses the wire as -1, 0 or 1.  It is drawn once a round and is stored before it is
sent, as noise is: a second draw would tell more.  It gives no epsilon, but a delta (``variation``), and conditionally:
g_k sits at the private x_k.  At a released point nothing is left of x: it would be one of three values.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np

from dpgt_node.algo.methods.base import Demand, Method, Setting, Site, Vectors
from dpgt_node.algo.methods.derived import CONNECTED, LAZY, NEIGHBOURS, closure_couplings
from dpgt_node.algo.methods.states.forms import StateForm
from dpgt_node.algo.methods.states.pace import DecayOptions
from dpgt_node.config.declare.keys import Key
from dpgt_node.config.declare.kinds import Number
from dpgt_node.config.methods import method_options
from dpgt_node.config.model import RunConfig
from dpgt_node.privacy.laws.laplace import LAPLACE
from dpgt_node.privacy.mechanisms import QUANTISED_STATE
from dpgt_node.types import Codes
from dpgt_node.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Options(DecayOptions):
    """``r``: the largest magnitude that is sent."""

    r: Annotated[float, Key("x is sent as -r, 0 or r; delta of a round is at most its shift over r", Number(above=0.0))]


class TernaryForm(StateForm):
    """g_k at the private x_k; the quantiser draws what noise would."""

    def release(self, site: Site, k: int, v: Vectors) -> Vectors:
        """Q of the whole x_k: unlike noise it does not act on a part."""
        x = self.point(v)
        site.noised("X", k, x, np.zeros(x.shape))
        return v


def _scaled(setting: Setting) -> tuple[str, ...]:
    return () if setting.run.noise.multiplier == 1.0 else setting.topology.names


def _lawful(setting: Setting) -> tuple[str, ...]:
    return () if setting.run.noise.law == LAPLACE.name else setting.topology.names


def _codes(run: RunConfig) -> Codes | None:
    return Codes(method_options(run, Options).r, 0.0, -1, 1)


TERNARY_DSGD = Method(
    name="ternary-dsgd",
    title="decentralised SGD that sends x quantised to three values, without noise",
    status="ours",
    source="Wang and Basar 2023, from the abstract; weights, exponents and r are ours",
    rules={QUANTISED_STATE.name: TernaryForm},
    sends=(NEIGHBOURS,),
    demands=(
        CONNECTED,
        LAZY,
        Demand("a quantiser is the noise and has no law: leave noise.law out", "noise.law", _lawful),
        Demand("a quantiser has no scale, so noise.multiplier = 1.0", "noise.multiplier", _scaled),
    ),
    couplings=closure_couplings,
    options=Options,
    theorems=False,
    codes=_codes,
)
