"""Noise on the rows of a matrix: the samplers' own, to the bit."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dpgt_node.agent.encoding import pieces
from dpgt_node.privacy.laws.noise import ByteStream, SoundSampler
from dpgt_node.privacy.laws.sampler import CHUNK
from dpgt_node.sim.team import Team
from dpgt_node.types import F64

_TOGETHER = 2 * CHUNK
"""Coordinates of rows that are drawn at once: they stay in the cache until the public part is added."""


def perturb(
    samplers: Sequence[SoundSampler],
    private: F64,
    scales: F64,
    streams: Sequence[ByteStream],
    team: Team,
    public: F64 | None = None,
) -> F64:
    """``private`` (n, d) + noise, a new matrix: row i is ``sampler.perturb(private[i], scales[i], streams[i])``.

    ``samplers``: alike, one a thread of ``team``.  ``public``: is added to that.
    """
    out, d = team.empty(private.shape), private.shape[1]
    together = max(1, _TOGETHER // max(d, 1))

    def short(rows: slice, index: int) -> None:
        for start in range(rows.start, rows.stop, together):
            part = slice(start, min(start + together, rows.stop))
            noisy = samplers[index].perturb_rows(private[part], scales[part], streams[part])
            np.add(noisy, 0.0 if public is None else public[part], out=out[part])

    def long(rows: slice, index: int) -> None:
        # The samplers work in pieces that stay in the cache, or compiled.
        for i in range(rows.start, rows.stop):
            for at in pieces(d):
                noisy = samplers[index].perturb(private[i, at], float(scales[i]), streams[i])
                np.add(noisy, 0.0 if public is None else public[i, at], out=out[i, at])

    team.over(len(out), short if 2 * d <= CHUNK else long)
    return out
