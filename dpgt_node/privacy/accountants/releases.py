"""One agent's releases in one run, as accountants see them: numbers, and what several accountants compute from them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property, lru_cache
from typing import Literal

import numpy as np

from dpgt_node.privacy.accountants import concentrated
from dpgt_node.privacy.accountants.responses.response import Response, Steps
from dpgt_node.privacy.accountants.rounding import PrivateState, inflated, private_state, private_sum
from dpgt_node.privacy.counts.code import BinomialCode
from dpgt_node.privacy.laws.law import Law
from dpgt_node.privacy.mechanisms import Accounted, Mechanism
from dpgt_node.types import F64, STREAMS, Stream
from dpgt_node.values import dataclass

Leftover = Callable[[float, float | None], float]


@dataclass(frozen=True, eq=False)
class Releases:
    """``a`` = alpha r_i, ``b`` = beta c_i, ``gamma``: steps of the run.  ``m``: batch size, ``D``: number of samples.

    ``C``: adjacency constant in L1, ``C2`` in L2; ``clip``: what enforces it, None where it is declared only.
    ``noisy``: whether there is any noise; ``scale(stream, k)``: its scale.  ``leftover(scale, norm)``: what the sampler
    adds to every release whatever the shift, ``norm`` bounds the L1 norm of the private part; ``dimension``: d.
    None: not known.  ``share(k)``: how far one sample moves the gradient of round ``k``, as a part of C/m or C2/m; 0 in
    a round that takes none, which only a mechanism that perturbs each gradient once may have.

    Where each gradient is perturbed once scales stand relative to that share: a gradient that moves by w C under noise
    of scale s costs what one that moves by C costs under s/w, in every account.  Where no gradient is taken they are
    infinite: nothing is drawn or charged.

    ``rounds``: a, b and gamma where they change from round to round.  ``sizes``: m_k, float64 (K+1,), where batches
    grow; ``m`` is then the least of them.  ``arriving``: a sample takes part in every batch since it arrived.
    ``range``: r of the quantiser that is the only noise.  ``code``: of gradients with coins in it.
    """

    mechanism: Mechanism
    law: Law
    K: int
    a: float
    b: float
    gamma: float
    m: int | None
    D: int | None
    C: float | None
    C2: float | None
    clip: Literal["l1", "l2"] | None
    delta: float
    noisy: bool
    scale: Callable[[Stream, int], float]
    leftover: Leftover | None
    dimension: int | None
    share: Callable[[int], float] = lambda k: 1.0
    even: bool = False
    rounds: Steps | None = None
    sizes: F64 | None = None
    arriving: bool = False
    range: float | None = None
    code: BinomialCode | None = None

    @cached_property
    def sigma_x(self) -> F64:
        """Scales of x̆ over their shares, float64 (K+1,)."""
        return self._relative("X")

    @cached_property
    def sigma_y(self) -> F64:
        """Scales of y̆, or of g~, over their shares, float64 (K+1,)."""
        return self._relative("Y")

    @cached_property
    def shares(self) -> F64:
        """``share`` of every round, float64 (K+1,)."""
        if self.even:
            return np.full(self.K + 1, self.share(0))
        return np.array([self.share(k) for k in range(self.K + 1)])

    @cached_property
    def steps(self) -> Steps:
        """a, b and gamma of every round, with the shares."""
        constant = Steps.constant(self.a, self.b, self.gamma, self.K) if self.rounds is None else self.rounds
        return replace(constant, share=self.shares)

    @cached_property
    def response(self) -> Response:
        """How a sampled gradient enters later releases."""
        return self.mechanism.accounted.response(self.steps)

    @property
    def largest_batch(self) -> int:
        """The largest m_k."""
        return self.batch if self.sizes is None else int(self.sizes.max())

    @property
    def rate(self) -> float | F64:
        """m_k/D, one for all rounds or one a round, (K+1,)."""
        return (self.batch if self.sizes is None else self.sizes) / (self.D or 1)

    @property
    def batch(self) -> int:
        """m, where it is known."""
        if self.m is None:
            raise ValueError("the batch size is not known")
        return self.m

    @property
    def constant(self) -> float:
        """C with the rounding of a mean over a batch; ValueError where it is not known."""
        if self.C is None:
            raise ValueError("no L1 adjacency constant is known")
        return inflated(self.C, self.largest_batch)

    @property
    def unit(self) -> float:
        """The most that one sample moves a mean gradient, in L1."""
        return self.constant / self.batch

    def left(self, stream: Stream, spread: float = 1.0) -> F64:
        """What a row costs beside its exact shift, (K+1,): the sampler's part over ``spread``, and rounding."""
        first = stream == STREAMS[0]
        sigma = np.where(self.shares > 0.0, self._scales(stream), math.inf)
        left = np.zeros(self.K + 1)
        if stream not in self.mechanism.charged or not (sigma > 0.0).all():
            return left  # nothing is drawn, or everything is infinite anyway
        state = self.private_bounds
        if state is not None:
            left += (state.error_x if first else state.error_y) / sigma
        if self.leftover is not None:
            norm = None if state is None else float((state.norm_x if first else state.norm_y).max())
            if norm is not None and self.clip == "l2":
                norm *= math.sqrt(self.dimension or math.inf)
            scales, where = np.unique(sigma, return_inverse=True)
            each = [0.0 if math.isinf(scale) else self.leftover(scale, norm) for scale in scales.tolist()]
            left += np.array(each)[where] / spread
        if first:
            left[0] = 0.0  # the same bits in both worlds
        return left

    @property
    def drift_x(self) -> F64:
        """How far rounding may move x's private part apart between two worlds, (K+1,); 0 where C is only declared."""
        return np.zeros(self.K + 1) if self.private_bounds is None else self.private_bounds.error_x

    @cached_property
    def shift_norms(self) -> F64:
        """L2 shift of the transcript in scales after every row, (2(K+1),)."""
        if self.C2 is None:
            raise ValueError("no L2 adjacency constant is known")
        # An L1 leftover is spread evenly over d coordinates, each of them concentrated by itself.
        spread = math.sqrt(self.dimension or 1) if self.law.leftover_l1 else 1.0
        left = np.empty(2 * (self.K + 1))
        left[0::2], left[1::2] = (self.left(stream, spread) for stream in STREAMS)
        scales = (self.sigma_x.tobytes(), self.sigma_y.tobytes())
        shift = _shift(self.mechanism.accounted, self.steps.tobytes(), *scales)
        return concentrated.shift_norm(shift, inflated(self.C2, self.largest_batch) / self.batch, left)

    @cached_property
    def private_bounds(self) -> PrivateState | None:
        """How large the private parts become, and how far rounding moves them apart; None: nothing clips."""
        if self.C2 is None or self.clip is None:
            return None
        accounted, C = self.mechanism.accounted, self.C2 * max(1.0, float(self.shares.max()))
        if not accounted.constant_steps:
            s = self.steps
            summed = 1.0 - s.b if accounted.recursion == "sum" else None
            return private_sum(keep_a=1.0 - s.a, keep_b=summed, gamma_k=s.gamma, C=C)
        once = accounted.once
        return private_state(
            keep_a=1.0 - self.a,
            keep_b=0.0 if once else 1.0 - self.b,
            gamma_K=0.0 if once else self.gamma,
            C=C,
            K=self.K,
        )

    def _relative(self, stream: Stream) -> F64:
        """A product and a quotient more than the scales themselves: within what every curve rounds up by."""
        if not self.mechanism.accounted.once:
            return self._scales(stream)
        relative = np.full(self.K + 1, math.inf)
        np.divide(self._scales(stream), self.shares, out=relative, where=self.shares > 0.0)
        return relative

    def _scales(self, stream: Stream) -> F64:
        if self.even:
            return np.full(self.K + 1, self.scale(stream, 0))
        return np.array([self.scale(stream, k) for k in range(self.K + 1)])


@lru_cache(maxsize=32)
def _shift(accounted: Accounted, steps: bytes, sigma_x: bytes, sigma_y: bytes) -> F64:
    """The one costly curve, O(K^2); agents with equal weights and scales share it."""
    return accounted.response(Steps.read(steps)).norms(np.frombuffer(sigma_x), np.frombuffer(sigma_y))
