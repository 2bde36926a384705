"""Quantised DSGD: the output form of sampled DSGD whose noisy x is sent rounded to a grid.

    x_{k+1} = (1 - alpha_k s_i) x_k + alpha_k sum_{j != i} w_ij Q(x_j + noise)_k - gamma_k g_k              (qs,1)

Q rounds to multiples of a step, up or down at random and without bias (:class:`Rounding`).  It comes after the noise
and its randomness is public, so a run costs what its x + noise cost.  The multiples cross the wire as integers of 32
bits.  Step 0.0 is sampled DSGD.
"""

from __future__ import annotations

from typing import Annotated, Any

from dpgt_node.algo.graph import Topology
from dpgt_node.algo.methods.base import Method, Pick, Rounds
from dpgt_node.algo.methods.derived import CONNECTED, LAZY, NEIGHBOURS, closure_couplings
from dpgt_node.algo.methods.rounding import Rounding
from dpgt_node.algo.methods.states.forms import ReleasedForm, StateForm
from dpgt_node.algo.methods.states.pace import DecayOptions
from dpgt_node.algo.schedule import Schedule
from dpgt_node.config.declare.keys import Key
from dpgt_node.config.declare.kinds import Number
from dpgt_node.config.methods import method_options
from dpgt_node.config.model import RunConfig
from dpgt_node.privacy.mechanisms import RELEASED_STATE, STATE_NOISE
from dpgt_node.types import Codes
from dpgt_node.values import dataclass

_LAST = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class Options(DecayOptions):
    """``step``: of the grid."""

    step: Annotated[float, Key("x + noise is sent as a multiple of it; 0.0: as it is", Number(at_least=0.0))] = 0.0625


class QuantisedForm(StateForm):
    """g_k at the private x_k; what is sent is rounded."""

    def __init__(self, s: Any, schedule: Schedule, rounding: Rounding) -> None:
        super().__init__(s, schedule)
        self._rounding = rounding

    @classmethod
    def build(cls, run: RunConfig, topology: Topology, schedule: Schedule, pick: Pick[Any]) -> StateForm:
        rounding = Rounding(run, topology.n, pick, method_options(run, Options).step)
        return cls(pick(closure_couplings(topology)[0]), schedule, rounding)

    def rounded(self, k: int) -> Rounds | None:
        """Q of round ``k``."""
        return self._rounding.of(k)


class ReleasedQuantisedForm(QuantisedForm, ReleasedForm):
    """g_k at the agent's own Q(x_k + noise) as it is released."""


def _codes(run: RunConfig) -> Codes | None:
    step = method_options(run, Options).step
    return Codes(step, 0.0, -_LAST, _LAST) if step else None


QUANTISED_DSGD = Method(
    name="quantised-dsgd",
    title="decentralised SGD that sends its noisy x rounded to a grid",
    status="ours",
    source="Chen, Wang and Zhang 2024, from the abstract; weights, exponents and grid are ours",
    rules={STATE_NOISE.name: QuantisedForm, RELEASED_STATE.name: ReleasedQuantisedForm},
    sends=(NEIGHBOURS,),
    demands=(CONNECTED, LAZY),
    couplings=closure_couplings,
    options=Options,
    theorems=False,
    codes=_codes,
)
