"""The four mechanisms with all agents as the rows of matrices; :mod:`dpgt_node.agent.mechanisms` defines them.

As there, x = px + tx and y = p + t, noise goes on the private parts px and p alone, and a mechanism keeps only the
parts it has.  Private parts are computed by the very operations of an agent; transcript parts are mixed by one product.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np

from dpgt_node.sim.matrix import MatrixForm
from dpgt_node.types import F64, Stream


class Work(Protocol):
    """What a mechanism calls; float64 (n, d) throughout."""

    def gradient(self, k: int, x: F64) -> F64:
        """Every agent's gradient at its row, on a batch drawn for round ``k``."""
        ...

    def perturb(self, stream: Stream, k: int, private: F64) -> F64:
        """``private`` + round k's noise: a new matrix."""
        ...

    def wire(self, stream: Stream, k: int, values: F64) -> F64:
        """What receivers read."""
        ...


class Rows:
    """``x``: x_k of every agent.  ``step(k)`` goes from round k to k+1, ``last``: no gradient and no y after it."""

    def __init__(self, form: MatrixForm, work: Work, x0: F64) -> None:
        self._form, self._work = form, work
        self.x = self._tx = x0
        self._t: F64 = np.zeros(x0.shape)

    def step(self, k: int, last: bool) -> None:
        """One round."""
        raise NotImplementedError


class Paper(Rows):
    """Algorithm 1 as it is printed."""

    def __init__(self, form: MatrixForm, work: Work, x0: F64) -> None:
        super().__init__(form, work, x0)
        self._px: F64 = np.zeros(x0.shape)
        self._p = self._g = work.gradient(0, x0)

    def step(self, k: int, last: bool) -> None:
        """(alg,1), g at the new x, (alg,2)."""
        form, work = self._form, self._work
        x_sent = work.wire("X", k, _plus(work.perturb("X", k, self._px), self._tx))
        y_sent = work.wire("Y", k, _plus(work.perturb("Y", k, self._p), self._t))
        self._px, self._tx = form.own_x(self._px, self._p), form.next_x(self._tx, self._t, x_sent)
        self.x = self._px + self._tx
        if not last:
            g = work.gradient(k + 1, self.x)
            self._p, self._t = form.own_y(self._p, self._g, g), form.mixed_y(self._t, y_sent)
            self._g = g


class PublishedPoint(Rows):
    """g_k at the released point; between rounds p still lacks it."""

    def __init__(self, form: MatrixForm, work: Work, x0: F64) -> None:
        super().__init__(form, work, x0)
        self._px: F64 = np.zeros(x0.shape)
        self._p = self._px

    def step(self, k: int, last: bool) -> None:
        """Draw x̆, take g there, draw y̆; then as in ``paper`` up to the next g."""
        form, work = self._form, self._work
        x_sent = work.wire("X", k, _plus(work.perturb("X", k, self._px), self._tx))
        g = work.gradient(k, x_sent)
        p = self._p + g
        y_sent = work.wire("Y", k, _plus(work.perturb("Y", k, p), self._t))
        self._px, self._tx = form.own_x(self._px, p), form.next_x(self._tx, self._t, x_sent)
        self.x = self._px + self._tx
        if not last:
            self._p, self._t = form.own_y(p, g, 0.0), form.mixed_y(self._t, y_sent)


class PublicState(Rows):
    """The own step uses the released y̆; x is a function of the transcript."""

    def __init__(self, form: MatrixForm, work: Work, x0: F64) -> None:
        super().__init__(form, work, x0)
        self._p = self._g = work.gradient(0, x0)

    def step(self, k: int, last: bool) -> None:
        """The public step, g at the public x, (alg,2)."""
        form, work = self._form, self._work
        x_sent = work.wire("X", k, self.x)
        y_sent = work.wire("Y", k, _plus(work.perturb("Y", k, self._p), self._t))
        self.x = form.next_x(self.x, y_sent, x_sent)
        if not last:
            g = work.gradient(k + 1, self.x)
            self._p, self._t = form.own_y(self._p, self._g, g), form.mixed_y(self._t, y_sent)
            self._g = g


class NoiseOnce(Rows):
    """Noise goes on g_k; x and y are functions of all g~, and ``_t`` is y without the g~ of its round."""

    def __init__(self, form: MatrixForm, work: Work, x0: F64) -> None:
        super().__init__(form, work, x0)
        self._g = work.gradient(0, x0)

    def step(self, k: int, last: bool) -> None:
        """g~_k, then (alg,1) and (alg,2) on public values up to the next g~."""
        form, work = self._form, self._work
        noisy = work.perturb("Y", k, self._g)
        y = self._t + noisy
        x_sent, y_sent = work.wire("X", k, self.x), work.wire("Y", k, y)
        self.x = form.next_x(self.x, y, x_sent)
        if not last:
            self._t = form.mixed_y(y, y_sent)
            self._t -= noisy
            self._g = work.gradient(k + 1, self.x)


ROWS: Mapping[str, type[Rows]] = {
    "paper": Paper,
    "published-point": PublishedPoint,
    "public-state": PublicState,
    "noise-once": NoiseOnce,
}


def _plus(noisy: F64, transcript: F64) -> F64:
    """``noisy + transcript`` in the memory of ``noisy``, which nobody else holds."""
    noisy += transcript
    return noisy
