"""Exact tests of many draws against one law, whatever the law is: every draw first becomes a uniform value.

With F the law of a draw given its private part, and W uniform, U = F(below) + W P(at) is uniform on [0, 1), exactly,
and independent from draw to draw.  So under every law

    T = -ln(2 min(U, 1 - U))  is Exp(1): sums of n are Gamma(n), T > t has chance e^-t
    U > 1/2                   is a fair coin, and so is the low bit of the cell, by the symmetry of both laws
    F_n - F                   of n draws: P(sup > e) <= 2 exp(-2 n e^2)                        (DKW, Massart)
    mean of cos 2 pi h.U      over n tuples, integers h: P(|mean| > e) <= 2 exp(-n e^2/2)       (Hoeffding)

Each p-value is exact or an upper bound, and all of them together are corrected by Bonferroni.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import field
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt

from dpgt_node.types import F64, I64, Stream
from dpgt_node.values import dataclass

TAILS: Final = np.array([1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 10.0, 13.0, 16.0])
"""T beyond which draws are counted: under Laplace noise, scales."""
BINS: Final = 4096
LAGS: Final = 8
SIGNS: Final = 4096
"""Coordinates whose signs are compared between vectors."""
ROWS: Final = 1024
"""Vectors compared with one another at a time: a block with itself and with the next one."""
LATTICE: Final = 1 << 14
"""Coordinates of a vector that are taken in threes."""
TRIPLES: Final = np.array(
    [(a, b, 0) for a, b in itertools.product(range(-12, 13), repeat=2) if (a, b) > (0, 0)]
    + [(a, b, c) for a, b, c in itertools.product(range(-3, 4), repeat=3) if c > 0]
    + [(9, -6, 1)],
    dtype=np.float64,
)
"""Integers h of the lattice: none is the negative of another.  The last is that of RANDU."""

N = TypeVar("N", np.int64, np.float64)
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Uniform:
    """One vector's draws.  ``fold``: min(U, 1 - U), float64 (d,); ``upper``: U > 1/2; ``odd``: low bits of the cells,
    None where there are no cells.  ``known``: coordinates that were seen.  Values elsewhere mean nothing.
    """

    fold: F64 = field(repr=False)
    upper: Bools = field(repr=False)
    odd: Bools | None = field(repr=False)
    known: Bools = field(repr=False)


@dataclass(frozen=True, slots=True)
class Score:
    """The least likely of ``tests`` answers to one question: its ``p``, and in words where it was found."""

    question: str
    p: float
    tests: int
    where: str
    numbers: dict[str, float] = field(default_factory=dict)


class Tally:
    """Draws of one run: ``names`` of its agents, ``dimension`` d."""

    def __init__(self, names: Sequence[str], dimension: int) -> None:
        shape = (len(names), dimension)
        self.names, self.draws = tuple(names), 0
        self._T = np.zeros(shape)
        self._n, self._high = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
        self._bits, self._odd = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
        self._groups: dict[str, tuple[int, float]] = {}
        self._tails: dict[str, I64] = {}
        self._counts: dict[str, I64] = {}
        self._waves, self._tuples = np.zeros(len(TRIPLES)), 0
        self._rows: dict[tuple[int, Stream, int], npt.NDArray[np.int8]] = {}
        step = max(1, -(-dimension // SIGNS))
        self._some = slice(0, None, step)

    def add(self, agent: int, stream: Stream, k: int, one: Uniform) -> None:
        """The draws of one vector."""
        fold = np.maximum(one.fold[one.known], 1e-300)
        upper = one.upper[one.known]
        T = -np.log(2.0 * fold)
        U = np.where(upper, 1.0 - fold, fold)
        at = agent, one.known
        self.draws += len(T)
        self._T[at] += T
        self._n[at] += 1
        self._high[at] += upper
        if one.odd is not None:
            self._bits[at] += 1
            self._odd[at] += one.odd[one.known]
        total = float(T.sum())
        beyond = (T[:, None] > TAILS).sum(axis=0)
        counts = np.bincount(np.minimum((U * BINS).astype(np.int64), BINS - 1), minlength=BINS)
        name = f"{self.names[agent]}, {stream}"
        for group in ("all draws", name):
            self._tails[group] = self._tails.get(group, np.zeros(len(TAILS), dtype=np.int64)) + beyond
            self._counts[group] = self._counts.get(group, np.zeros(BINS, dtype=np.int64)) + counts
        for group in ("all draws", name, f"{stream} of round {k}"):
            n, before = self._groups.get(group, (0, 0.0))
            self._groups[group] = n + len(T), before + total
        self._wave(U[: min(len(U), LATTICE) // 3 * 3].reshape(-1, 3))
        if one.known.all():
            self._rows[agent, stream, k] = np.where(one.upper[self._some], 1, -1).astype(np.int8)

    def _wave(self, triples: F64) -> None:
        self._waves += np.cos(2.0 * math.pi * (triples @ TRIPLES.T)).sum(axis=0)
        self._tuples += len(triples)

    def scores(self) -> list[Score]:
        """Every question that these draws answer."""
        found = [
            self._scale(),
            self._coordinates(),
            self._tail(),
            self._shape(),
            self._coins("sign", self._high, self._n),
        ]
        if self._bits.any():
            found.append(self._coins("low bit", self._odd, self._bits))
        found += [one for one in (self._reuse(), self._series(), self._lattice()) if one is not None]
        return found

    def _scale(self) -> Score:
        names = list(self._groups)
        n, total = (np.array(column, dtype=float) for column in zip(*self._groups.values(), strict=True))
        p = _gamma(n, total)
        at = int(p.argmin())
        where = f"{names[at]}: mean {total[at] / n[at]:.4f} of {n[at]:.0f} draws, 1 expected"
        mean = self._groups["all draws"][1] / self._groups["all draws"][0]
        return Score("scale", float(p[at]), len(p), where, {"mean": mean})

    def _coordinates(self) -> Score:
        T, n = self._with_all(self._T), self._with_all(self._n)
        p = np.where(n > 0, _gamma(np.maximum(n, 1), T), 1.0)
        row, column = np.unravel_index(int(p.argmin()), p.shape)
        mean, draws = T[row, column] / max(1, n[row, column]), int(n[row, column])
        where = f"coordinate {column} of {self._who(int(row))}: mean {mean:.4f} of {draws} draws, 1 expected"
        return Score("coordinates", float(p[row, column]), p.size, where, {"mean": float(mean)})

    def _tail(self) -> Score:
        names = list(self._tails)
        beyond = np.array([self._tails[name] for name in names])
        n = np.array([self._groups[name][0] for name in names])[:, None]
        p = _binomial(beyond, n, np.exp(-TAILS))
        row, column = np.unravel_index(int(p.argmin()), p.shape)
        t, seen = TAILS[column], int(beyond[row, column])
        where = f"{names[row]}: {seen} draws beyond {t:g} scales, {n[row, 0] * math.exp(-t):.4g} expected"
        return Score("tails", float(p[row, column]), p.size, where, {"seen": seen})

    def _shape(self) -> Score:
        edges = np.arange(1, BINS + 1) / BINS
        best = (1.0, "", 0.0)
        for name, counts in self._counts.items():
            n = int(counts.sum())
            off = float(np.abs(np.cumsum(counts) / max(1, n) - edges).max())
            p = min(1.0, 2.0 * math.exp(-2.0 * n * off * off))
            if p < best[0] or not best[1]:
                best = p, f"{name}: shares of {n} draws are off by {off:.5f} at most", off
        return Score("shape", best[0], len(self._counts), best[1], {"distance": best[2]})

    def _coins(self, what: str, heads: I64, n: I64) -> Score:
        heads, n = self._with_all(heads), self._with_all(n)
        whole = heads[-1].sum(), n[-1].sum()
        p = np.where(n > 0, _binomial(heads, n, 0.5), 1.0)
        all_p = float(_binomial(np.array([whole[0]]), np.array([whole[1]]), 0.5)[0])
        row, column = np.unravel_index(int(p.argmin()), p.shape)
        least = float(p[row, column])
        where = f"coordinate {column} of {self._who(int(row))}: {heads[row, column]} of {n[row, column]}"
        if all_p <= least:
            least, where = all_p, f"all draws: {whole[0]} of {whole[1]}"
        return Score(what, least, p.size + 1, f"{where}, half expected")

    def _reuse(self) -> Score | None:
        keys = sorted(self._rows, key=lambda key: (key[2], key[0], key[1]))
        if len(keys) < 2:
            return None
        width, tests, best = len(self._rows[keys[0]]), 0, (2.0, "", 0)
        blocks = [keys[i : i + ROWS] for i in range(0, len(keys), ROWS)]
        rows = [np.array([self._rows[key] for key in block], dtype=np.float32) for block in blocks]
        for i, j in itertools.chain(((i, i) for i in range(len(blocks))), itertools.pairwise(range(len(blocks)))):
            agree = np.rint(0.5 * (rows[i] @ rows[j].T + width)).astype(np.int64)
            far = np.abs(2 * agree - width)
            if i == j:
                far[np.tril_indices(len(far))] = -1
            tests += int((far >= 0).sum())
            a, b = np.unravel_index(int(far.argmax()), far.shape)
            p = float(_binomial(agree[a, b : b + 1], np.array([width]), 0.5)[0])
            if p < best[0]:
                pair = " and ".join(self._vector(key) for key in (blocks[i][a], blocks[j][b]))
                best = p, f"{pair}: {agree[a, b]} of {width} signs alike, half expected", int(agree[a, b])
        return Score("reuse", min(1.0, best[0]), tests, best[1], {"alike": best[2]})

    def _series(self) -> Score | None:
        """Signs of one coordinate along rounds, between streams and between neighbouring agents: products of signs
        along a chain are fair coins, too.
        """
        found = [(what, alike, n) for what, alike, n in self._chains() if n]
        if not found:
            return None
        p = _binomial(np.array([one[1] for one in found]), np.array([one[2] for one in found]), 0.5)
        at = int(p.argmin())
        what, alike, n = found[at]
        return Score("series", float(p[at]), len(found), f"{what}: {alike} of {n} signs alike, half expected")

    def _chains(self) -> Iterator[tuple[str, int, int]]:
        steps = [(f"{lag} rounds apart", (0, lag)) for lag in range(1, LAGS + 1)] + [("agents side by side", (1, 0))]
        for what, (agents, rounds) in steps:
            pairs = [((i, s, k), (i + agents, s, k + rounds)) for i, s, k in self._rows]
            yield what, *self._alike(pairs)
        yield "X and Y of a round", *self._alike([((i, "X", k), (i, "Y", k)) for i, s, k in self._rows if s == "X"])

    def _alike(self, pairs: Sequence[tuple[tuple[int, Stream, int], tuple[int, Stream, int]]]) -> tuple[int, int]:
        alike = n = 0
        for one, other in pairs:
            if other in self._rows:
                same = self._rows[one] == self._rows[other]
                alike, n = alike + int(same.sum()), n + same.size
        return alike, n

    def _lattice(self) -> Score | None:
        if not self._tuples:
            return None
        mean = self._waves / self._tuples
        at = int(np.abs(mean).argmax())
        p = min(1.0, 2.0 * math.exp(-0.5 * self._tuples * float(mean[at]) ** 2))
        h = ", ".join(f"{x:g}" for x in TRIPLES[at])
        where = (
            f"three coordinates in a row: mean of cos 2 pi ({h}).U is {mean[at]:.5f} over {self._tuples}, 0 expected"
        )
        return Score("lattice", p, len(mean), where, {"mean": float(mean[at])})

    def _with_all(self, values: npt.NDArray[N]) -> npt.NDArray[N]:
        """By agent, and of all together in the last row; of a single agent just that."""
        if len(values) == 1:
            return values
        return np.concatenate([values, values.sum(axis=0, keepdims=True)])

    def _who(self, row: int) -> str:
        return self.names[row] if row < len(self.names) else "all agents"

    def _vector(self, key: tuple[int, Stream, int]) -> str:
        return f"{key[1]} of round {key[2]} of {self.names[key[0]]}"


def _gamma(n: F64 | I64, total: F64) -> F64:
    """Two-sided p-values of sums of ``n`` draws of Exp(1)."""
    from scipy.special import gammainc, gammaincc

    return np.asarray(np.minimum(1.0, 2.0 * np.minimum(gammainc(n, total), gammaincc(n, total))))


def _binomial(heads: I64, n: I64, chance: F64 | float) -> F64:
    """Two-sided p-values of ``heads`` of ``n``."""
    from scipy.special import betainc

    # P(X >= h) = I_p(h, n - h + 1);  P(X <= h) = I_{1-p}(n - h, h + 1)
    least = np.where(heads > 0, betainc(np.maximum(heads, 1), n - heads + 1, chance), 1.0)
    most = np.where(heads < n, betainc(np.maximum(n - heads, 1), heads + 1, 1.0 - chance), 1.0)
    return np.asarray(np.minimum(1.0, 2.0 * np.minimum(least, most)))
