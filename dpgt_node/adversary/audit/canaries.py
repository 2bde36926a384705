"""Canaries: samples whose gradient is as large as the claim allows, and who each of them is in a run's coordinates.

A canary's per-sample gradient is -C/2 in one coordinate of release r in the data set D and +C/2 in D', whatever the
point, so the mean gradient moves by C/m: all that adjacency allows.  Coordinates never meet on their way out, so
canaries in different coordinates are audits of their own, each with its own world; all other samples have gradient 0.
Where batches are sampled, the other samples have the canary's gradient in D instead: then a batch without the canary
looks as in D, and `amplified` is attained at R = 0 (docs/howto/audit.md).

    spread    release r's part lies in coordinate r mod width, width = R + 1 where d allows: every release then shifts
              by all that `tight` charges (the L1 sum is attained)
    stacked   one coordinate for all releases, signs chosen so that shifts add up: power is L2, so Gaussian noise, and
              noise-once under either law, are best tested so
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dpgt_node.adversary.audit.events import positions
from dpgt_node.adversary.audit.replay import Replay, World
from dpgt_node.adversary.audit.witness import log_likelihoods
from dpgt_node.errors import ConfigError
from dpgt_node.privacy.laws.registry import LAWS
from dpgt_node.privacy.mechanisms import MECHANISMS
from dpgt_node.types import F64, I64
from dpgt_node.values import dataclass

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Canaries:
    """``count`` canaries in ``dimension`` coordinates; canary c is sample c of D = ``samples``, batches hold ``m``.

    ``width``: coordinates of each.  ``alternate``: signs (-1)^r instead of +1.  ``half``: C/2.
    """

    dimension: int
    count: int
    width: int
    alternate: bool
    half: float
    m: int
    samples: int

    @classmethod
    def plan(
        cls,
        *,
        mechanism: str,
        law: str,
        releases: int,
        dimension: int,
        samples: int,
        m: int,
        C: float,
        count: int | None = None,
        stacked: bool | None = None,
    ) -> Canaries:
        """As many as fit, or ``count``; where batches are sampled (m < D) one, because one batch is drawn for all."""
        once = MECHANISMS[mechanism].accounted.once
        if stacked is None:
            stacked = m == samples and (LAWS[law].norm == 2 or once)
        width = 1 if stacked else min(releases, dimension)
        if m < samples and width < releases:
            raise ConfigError.one(
                "run file",
                "data",
                f"a canary in sampled batches needs {releases} coordinates, one a release; the model has {dimension}",
            )
        most = 1 if m < samples else min(dimension // width, samples)
        if count is not None and not 1 <= count <= most:
            raise ConfigError.one("command line", "--canaries", f"must be in 1..{most} here, got {count}")
        return cls(dimension, count or most, width, stacked and not once, 0.5 * C, m, samples)

    def gradient(self, r: int, signs: F64, share: float = 1.0) -> F64:
        """The mean gradient of release ``r``, float64 (d,).  ``signs`` (count,): -1 as in D, +1 as in D'.  ``share``:
        of the clip, in this release.
        """
        g = np.zeros(self.dimension)
        size = share * self.half / self.m * (-1.0 if self.alternate and r % 2 else 1.0)
        others = self.m - 1.0 if self.sampled else 0.0
        g[r % self.width : self.count * self.width : self.width] = size * (signs - others)
        return g

    @property
    def sampled(self) -> bool:
        """m < D."""
        return self.m < self.samples

    def drawn(self, batch: I64, signs: F64) -> F64:
        """``signs`` where the canary is in ``batch``; elsewhere another sample takes its place, as in D."""
        return np.where(np.isin(np.arange(self.count), batch), signs, -1.0)

    def ratios(self, replay: Replay) -> tuple[F64, int]:
        """T of every canary, float64 (count,), and how many noised vectors were foreign to the run's sampler.

        With sampled batches each coordinate holds one release's part, in the batch or not, independently: T is the
        ratio of the mixtures, coordinate by coordinate.
        """
        one = np.ones(self.count)
        worlds: list[World] = [self._world(replay, -one), self._world(replay, one)]
        logs, foreign = log_likelihoods(replay, worlds)
        T = (logs[1] - logs[0])[: self.count * self.width]
        if self.sampled:
            q = self.m / self.samples
            T = np.logaddexp(np.log(q) + T, np.log1p(-q))
        return T.reshape(self.count, self.width).sum(axis=1), foreign

    def positions(self, replay: Replay) -> F64:
        """Where the releases of every canary lie between its worlds, float64 (count,): no law is presumed."""
        one = np.ones(self.count)
        at = positions(replay, self._world(replay, -one), self._world(replay, one))
        return np.asarray(at[: self.count * self.width].reshape(self.count, self.width).sum(axis=1))

    def _world(self, replay: Replay, signs: F64) -> World:
        return lambda k, point: self.gradient(replay.release(k), signs, replay.share(k))
