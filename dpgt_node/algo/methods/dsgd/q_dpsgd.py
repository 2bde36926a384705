"""Q-DPSGD: sampled DSGD in its gradient form, with what is sent rounded to a grid.

    x_{k+1} = (1 - alpha s_i) x_k + alpha sum_{j != i} w_ij Q(x_{j,k}) - gamma g~_k                   (qd,1)

Q rounds to multiples of a step, up or down at random and without bias (:class:`Rounding`).  Its randomness is public:
Q(x_k) is a function of the perturbed gradients and of what came in, so a run costs what its g~ cost.  alpha is the
paper's epsilon, and gamma its product of both step sizes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Final

from dpgt_node.algo.graph import Topology
from dpgt_node.algo.methods.base import Pick, Seen, Site, Vectors
from dpgt_node.algo.methods.dsgd.sampled_dsgd import SAMPLED_DSGD, GradientForm
from dpgt_node.algo.methods.rounding import Rounding
from dpgt_node.algo.schedule import Schedule
from dpgt_node.config.declare.keys import Key
from dpgt_node.config.declare.kinds import Number
from dpgt_node.config.methods import method_options
from dpgt_node.config.model import RunConfig
from dpgt_node.privacy.mechanisms import NOISE_ONCE
from dpgt_node.types import F64, Codes
from dpgt_node.values import dataclass

LAST: Final = (1 << 15) - 1


@dataclass(frozen=True, slots=True)
class Options:
    """``step``: of the grid."""

    step: Annotated[float, Key("x is sent as a multiple of it; 0.0: as it is", Number(at_least=0.0))] = 0.0625


class QDpsgd(GradientForm):
    """The state is that of the gradient form; x itself stays unrounded."""

    def __init__(self, s: Any, schedule: Schedule, rounding: Rounding) -> None:
        super().__init__(s, schedule)
        self._rounding = rounding

    @classmethod
    def build(cls, run: RunConfig, topology: Topology, schedule: Schedule, pick: Pick[Any]) -> QDpsgd:
        rounding = Rounding(run, topology.n, pick, method_options(run, Options).step)
        return cls(cls.coupling(topology, pick), schedule, rounding)

    def told(self, k: int, x: F64) -> F64:
        """Q(x_k)."""
        return self._rounding(k, x)

    def seen(self, site: Site, k: int, v: Vectors) -> Seen:
        """Q(x_{k+1}) shows g~_k as far as Q lets it."""
        return replace(super().seen(site, k, v), rounded=self._rounding.of(k + 1))


def _codes(run: RunConfig) -> Codes | None:
    """Two bytes a number: x may go up to 32,767 steps from 0."""
    step = method_options(run, Options).step
    return Codes(step, 0.0, -LAST, LAST) if step else None


Q_DPSGD = replace(
    SAMPLED_DSGD,
    name="q-dpsgd",
    title="decentralised SGD with a quantised exchange, each gradient perturbed once",
    source="Ding et al. 2021, from the abstract; weights and grid are ours",
    rules={NOISE_ONCE.name: QDpsgd},
    options=Options,
    codes=_codes,
)
