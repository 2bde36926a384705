"""From an agent's numbers to the bytes that it sends: what cannot be sent is found here, before anything leaves."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from dpgt_node.agent.roles import Sources
from dpgt_node.algo.methods import codes_of
from dpgt_node.config.model import RunConfig
from dpgt_node.config.roles import NOBODY, Roles
from dpgt_node.errors import DpgtError, ExitCode, invariant
from dpgt_node.privacy.laws.compiled import Loop, fixed
from dpgt_node.protocol.types import Payload
from dpgt_node.types import F64, Codes, Stream, WireDtype

FLOAT32_FROM = 100_000
PIECE = 1 << 18
"""Coordinates that are drawn, rounded, checked and hashed at a time: they stay in the cache from step to step.

A multiple of every sampler's CHUNK, so that the pieces have the bits of the whole.
"""
_COPY_BELOW = 1 << 20
_F8 = np.dtype("<f8")
_LARGEST = np.finfo(np.float32).max
Part = F64 | tuple[F64, F64]
"""Some of a vector's numbers in their order, or two vectors whose sum they are; the first of the two may be spoilt."""


def narrow(noisy: F64, public: F64, out: npt.NDArray[np.float32]) -> bool:
    """``out`` = noisy + public, rounded to float32; (n,) each.  Whether all of it is finite.  For numba, but plain
    Python.
    """
    finite = True
    for i in range(out.size):
        out[i] = np.float32(noisy[i] + public[i])
        finite &= abs(out[i]) <= _LARGEST
    return finite


_NARROW = Loop(narrow)


def added(part: Part) -> F64:
    """The numbers of ``part``."""
    if isinstance(part, np.ndarray):
        return part
    noisy, public = part
    noisy += public
    return noisy


class Diverged(DpgtError):
    """A vector left the range of numbers: the operator's step sizes, not a bug and not a peer."""

    exit_code = ExitCode.CONFIG
    told = "has numbers that are no longer finite: the run diverged"

    @classmethod
    def at(cls, name: str, k: int, what: str, attackers: Sequence[str] = ()) -> Diverged:
        """``what`` of agent ``name`` in round ``k``.  ``attackers``: agents that had a role until then."""
        advice = (
            "the run diverged. Lower the step sizes (gamma first; `dpgt check` prints their bounds) or the "
            'noise, or use wire_dtype = "float64"'
        )
        return cls(f"{name}: {what} is no longer finite in round {k}: {blamed(attackers) or advice}")


class OutOfReach(Diverged):
    """A value lies so far beyond the scale of its noise that the sampler would clip it: the run would learn something
    else without a word.
    """

    told = "has values that its noise does not reach"

    @classmethod
    def beyond(cls, name: str, k: int, stream: Stream, reach: float, attackers: Sequence[str] = ()) -> OutOfReach:
        """In ``stream`` of agent ``name`` in round ``k``; ``reach``: the largest magnitude that its noise covers.
        ``attackers`` as of ``Diverged``.
        """
        key = "noise.scale_zeta" if stream == "X" else "noise.scale_eta"
        advice = (
            f"take a larger {key}, clip gradients (privacy.clip_l1 or clip_l2), or lower the step sizes if the run "
            "diverged"
        )
        return cls(
            f"{name}: in round {k} a value lies beyond {reach:.4g}, as far as noise of this scale reaches, and would "
            f"be released as that: {blamed(attackers) or advice}"
        )

    @classmethod
    def of_codes(cls, name: str, k: int, stream: Stream, codes: Codes, attackers: Sequence[str] = ()) -> OutOfReach:
        """A value of ``stream`` has no code.  ``attackers`` as of ``Diverged``."""
        low, high = codes.offset + codes.step * codes.low, codes.offset + codes.step * codes.high
        advice = "take a larger step in [method], or lower the step sizes if the run diverged"
        return cls(
            f"{name}: in round {k} a value of {stream} lies beyond {low:.4g} to {high:.4g}, as far as the codes of "
            f"{codes.dtype} reach: {blamed(attackers) or advice}"
        )


def blamed(attackers: Sequence[str]) -> str:
    """What a run says that came to grief while ``attackers`` acted by their roles; empty: nobody did."""
    who = ", ".join(attackers)
    return f"the active adversary did it ({who}), unless it comes to this without its role, too" if who else ""


def float_wire_of(run: RunConfig, dimension: int) -> Literal["float64", "float32"]:
    """dtype of numbers on the wire; "auto" is float64 below d = 100,000 and float32 from there on."""
    if run.runtime.wire_dtype != "auto":
        return run.runtime.wire_dtype
    return "float64" if dimension < FLOAT32_FROM else "float32"


def wire_dtype_of(run: RunConfig, dimension: int) -> WireDtype:
    """dtype on the wire: of the method's codes where it sends integers."""
    codes = codes_of(run)
    return float_wire_of(run, dimension) if codes is None else codes.dtype


def coded(codes: Codes, values: F64, name: str, k: int, stream: Stream, active: Roles = NOBODY) -> npt.NDArray[Any]:
    """``values`` (..., d), all of them on the lattice of ``codes``, as the integers that cross the wire.  ``active``:
    the run's.

    Raises OutOfReach where one lies beyond the last code.
    """
    found = codes.nearest(values)
    if found.size and not (codes.low <= found.min() and found.max() <= codes.high):
        raise OutOfReach.of_codes(name, k, stream, codes, active.acting(k))
    whole = found.astype(np.dtype(codes.dtype).newbyteorder("<"))
    invariant(np.array_equal(codes.values(whole), values), "a method sends what its codes stand for, and nothing else")
    return whole


def checked(vector: F64, name: str, k: int, what: str, active: Roles = NOBODY) -> F64:
    """``vector``, all of it finite.  ``active``: the run's.  Raises Diverged."""
    # One sum sees every NaN and infinity; only when it overflows by itself is a look at each value needed.
    if math.isfinite(vector.dot(vector)) or np.isfinite(vector).all():
        return vector
    raise Diverged.at(name, k, what, active.acting(k))


def pieces(d: int) -> list[slice]:
    """``d`` coordinates in order, PIECE at a time; the last one is longer, so that none is short."""
    starts = range(0, max(d - PIECE, 0) + 1, PIECE)
    return [slice(start, d if start == starts[-1] else start + PIECE) for start in starts]


class Encoder:
    """Of agent ``name``, whose vectors have ``dimension`` numbers.  ``role``: what it does to them, None: nothing.
    ``active``: everybody's, for messages.
    """

    __slots__ = ("_active", "_codes", "_dimension", "_dtype", "_name", "_plain", "_role")

    def __init__(
        self,
        name: str,
        dimension: int,
        dtype: WireDtype,
        codes: Codes | None,
        role: Sources | None = None,
        active: Roles = NOBODY,
    ) -> None:
        self._name, self._dimension, self._dtype, self._codes, self._role = name, dimension, dtype, codes, role
        self._active = active
        small = 8 * dimension < _COPY_BELOW
        self._plain = small and role is None and codes is None and dtype == "float64"

    def __call__(self, stream: Stream, k: int, values: F64 | Iterable[Part]) -> Payload:
        """The payload of ``values``, (d,), or of parts of it in their order; it may share memory with them.

        Raises Diverged, and OutOfReach where a code is missing.
        """
        if self._plain and isinstance(values, np.ndarray) and (values.size, values.dtype) == (self._dimension, _F8):
            sent = checked(values, self._name, k, stream.lower(), self._active).tobytes()
            return Payload(stream, k, "float64", self._dimension, sent, hashlib.sha256(sent).digest())
        parts: Iterator[Part] = iter((values,) if isinstance(values, np.ndarray) else values)
        first, digest, as_it_is = next(parts), hashlib.sha256(), self._role is None and self._codes is None
        if as_it_is and (not isinstance(first, np.ndarray) or first.size < self._dimension):
            wire = self._in_parts(stream, k, chain((first,), parts), digest)
        elif as_it_is and self._dtype == "float32":
            whole = added(first)
            wire = self._in_parts(stream, k, (whole[at] for at in pieces(whole.size)), digest)
        else:
            whole = added(first)
            if whole.size < self._dimension:
                whole = np.concatenate((whole, *map(added, parts)))
            wire = self._whole(stream, k, whole)
            digest.update(np.ascontiguousarray(wire).data)
        data: bytes | memoryview
        if wire.nbytes < _COPY_BELOW:
            data = wire.tobytes()
        else:
            wire = wire.view()
            wire.setflags(write=False)
            data = wire.data.cast("B")
        return Payload(stream, k, self._dtype, self._dimension, data, digest.digest(), self._codes)

    def _whole(self, stream: Stream, k: int, values: F64) -> npt.NDArray[Any]:
        if self._role is not None:
            values = self._role.released(stream, k, values)
        if self._codes is not None:
            values = checked(values, self._name, k, stream.lower(), self._active)
            return coded(self._codes, values, self._name, k, stream, self._active)
        return checked(values.astype(self._format, copy=False), self._name, k, stream.lower(), self._active)

    def _in_parts(self, stream: Stream, k: int, parts: Iterable[Part], digest: Any) -> npt.NDArray[Any]:
        wire, end = np.empty(self._dimension, self._format), 0
        fast = _NARROW.of(self._dimension) if self._dtype == "float32" else None
        for values in parts:
            size = values.size if isinstance(values, np.ndarray) else values[0].size
            part = wire[end : end + size]
            if fast is None or isinstance(values, np.ndarray) or not fast(*map(fixed, values), part):
                part[:] = added(values)
                # A value beyond the range of float32 would be sent as infinity.
                checked(part, self._name, k, stream.lower(), self._active)
            digest.update(part)
            end += size
        invariant(end == self._dimension, "the parts are the whole vector")
        return wire

    @property
    def _format(self) -> str:
        return "<f8" if self._dtype == "float64" else "<f4"
