"""One agent's alarm over what it receives, with the run file's noise: see ``protocol.outliers``.

Distances are between released vectors: what came in, and what the agent itself released of that stream and round.  A
distance to the private x_i would let the alarm's lines and counts tell of it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from dpgt_node.algo.methods.robust import guards_of
from dpgt_node.algo.schedule import Schedule
from dpgt_node.config.model import RunConfig
from dpgt_node.privacy.laws.registry import LAWS
from dpgt_node.privacy.mechanisms import MECHANISMS
from dpgt_node.protocol.outliers import Outlier, OutlierWatch
from dpgt_node.types import Stream


class Outliers:
    """Of agent ``index``; ``dimension``: d.  Where nothing is bounded nothing is measured."""

    def __init__(self, run: RunConfig, schedule: Schedule, index: int, dimension: int) -> None:
        self._guards, self._schedule, self._index, self._d = guards_of(run), schedule, index, dimension
        self._law, self._accounted = LAWS[run.noise.law], MECHANISMS[run.algorithm.mechanism].accounted
        self._watch = OutlierWatch(run.graph.agents)

    def after(self, k: int, far: Mapping[Stream, Mapping[int, float]]) -> tuple[Outlier, ...]:
        """Whom to name after round ``k``; ``far``: distances by stream and sender."""
        found: list[Outlier] = []
        for stream, lengths in far.items():
            noise = {j: self._noise(stream, j, k) for j in lengths}
            found += self._watch.note(stream, k, lengths, self._guards[stream].radius, noise)
        return tuple(found)

    def _noise(self, stream: Stream, j: int, k: int) -> float:
        """sqrt(E ||noise of j - own noise||^2) of what is drawn for the round, without own noise where the centre is 0.

        Noise on the gradient reaches y whole; of x it is taken for 0, and so is all noise in a round that draws none.
        """
        carried = stream == "Y" if self._accounted.once else stream in self._accounted.noised
        if not carried:
            return 0.0
        ends = (j,) if self._guards[stream].rule == "norm-clip" else (j, self._index)
        return math.sqrt(self._d * sum(self._law.variance(self._schedule.sigma(stream, i, k)) for i in ends))
