"""One comparison of the accountants' formulas with the explicit-matrix oracles; the mutants must not survive it."""

from __future__ import annotations

import importlib
import math
import sys
import types
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from types import SimpleNamespace

import numpy as np

from tests.oracles import accountants as oracle

NAMES = ("rounding", "kernels", "pure", "concentrated", "gaussian")
TOLERANCE = 1e-9


def modules(mutated: str | None = None, old: str = "", new: str = "") -> SimpleNamespace:
    """The accountants' modules, one of them with ``old`` replaced by ``new``."""
    found = {name: importlib.import_module(f"dpgt_node.privacy.accountants.{name}") for name in NAMES}
    if mutated is not None:
        with open(found[mutated].__file__) as file:
            source = file.read()
        assert source.count(old) == 1, f"the mutant of {mutated} must name one place: {old!r}"
        module = types.ModuleType("mutant")
        sys.modules["mutant"] = module  # dataclasses look their module up
        exec(compile(source.replace(old, new), "mutant", "exec"), module.__dict__)
        found[mutated] = module
    return SimpleNamespace(**found)


def settings() -> list[dict]:
    """r_i, c_i != 1 and self-loops are in a and b; a = 0, b = 0, a = b, unequal exponents, K = 0."""
    chosen = [
        (0.12, 0.034, 0.7, 12, 0.1, -0.2),
        (0.0, 0.2, 0.3, 9, 0.0, 0.0),
        (0.3, 0.0, 0.4, 9, 0.2, 0.1),
        (0.25, 0.25, 1.3, 10, -0.1, 0.3),
        (0.0, 0.0, 0.5, 6, 0.1, 0.1),
        (0.9, 0.05, 2.0, 14, 0.0, 0.5),
        (0.04, 0.5, 0.05, 1, 0.3, 0.3),
        (0.5, 0.5, 0.05, 0, 0.3, 0.3),
        (0.3, 0.1, 0.8, 40, 0.0, 0.0),
    ]
    keys = ("a", "b", "gamma", "K", "p_zeta", "p_eta")
    return [dict(zip(keys, row, strict=True)) for row in chosen]


def close(got: float, exact: float, slack: float = TOLERANCE) -> bool:
    """An upper bound, and tight to ``slack``."""
    return exact * (1 - 1e-15) <= got <= exact * (1 + slack) + 1e-300


MECHANISMS = ("published-point", "public-state", "noise-once")
UNIT = 0.37
RATES = (0.05, 0.7, 1.0)
DELTA = 1e-5


@dataclass(frozen=True)
class Reference:
    """What one setting must give, from the oracles alone."""

    label: str
    case: dict
    mechanism: str
    sx: np.ndarray
    sy: np.ndarray
    tight: list
    weights: list
    amplified: dict
    energy: float
    energy_at_least: list
    zcdp: float


@cache
def references() -> tuple[Reference, ...]:
    return tuple(reference(case, name) for case in settings() for name in MECHANISMS)


def reference(case: dict, mechanism: str) -> Reference:
    K = case["K"]
    rounds = np.arange(1.0, K + 2.0)
    sx, sy = 1.3 * rounds ** case["p_zeta"], 0.7 * rounds ** case["p_eta"]
    cx, cy = oracle.response_matrices(*(Fraction(case[n]) for n in ("a", "b", "gamma")), K, mechanism)
    fx, fy = ([Fraction(v) for v in s] for s in (sx, sy))
    w = [float(v) for v in oracle.weights(cx, cy, Fraction(UNIT), fx, fy)]
    M = oracle.gram(cx, cy, sx, sy)
    return Reference(
        label=f"{mechanism} {case}",
        case=case,
        mechanism=mechanism,
        sx=sx,
        sy=sy,
        tight=[float(v) for v in oracle.tight(cx, cy, Fraction(UNIT), fx, fy)],
        weights=w,
        amplified={(q, k): oracle.amplified(w[: k + 1], q) for q in RATES for k in (0, K)},
        energy=oracle.energy(M),
        energy_at_least=[_worst(cx, cy, sx, sy, k + 1) for k in range(K + 1)],
        zcdp=oracle.zcdp(M, UNIT, DELTA),
    )


def disagreements(m: SimpleNamespace, only: tuple[Reference, ...] | None = None) -> list[str]:
    """Every formula on ``settings()``; ``only``: those settings instead, and nothing that does not depend on them."""
    out: list[str] = []

    def expect(what: str, got: float, exact: float, slack: float = TOLERANCE) -> None:
        if not close(float(got), float(exact), slack):
            out.append(f"{what}: {got!r} against {exact!r}")

    for r in references() if only is None else only:
        _laplace(m, r, expect)
        _concentrated(m, r, expect)
    if only is not None:
        return out
    expect("zcdp epsilon", m.concentrated.zcdp_epsilon(0.3, 1e-6), 0.3 + 2 * math.sqrt(0.3 * math.log(1e6)))
    _large(m, expect)
    _corrected(m, expect)
    expect("mean of few", m.rounding.inflated(2.0, 10), 2.0 * (1 + 2.0**-20))
    expect("mean of many", m.rounding.inflated(2.0, 10**6), 2.0 * (1 + 10**12 * 2.0**-53), 1e-8)
    return out


def _kernel(m, r: Reference):
    a, b, gamma, K = (r.case[n] for n in ("a", "b", "gamma", "K"))
    if r.mechanism == "published-point":
        return m.kernels.published_point(a, b, gamma, K)
    return m.kernels.public_state(b, K) if r.mechanism == "public-state" else m.kernels.noise_once(K)


def _extra(K: int) -> tuple[np.ndarray, np.ndarray]:
    rounds = np.arange(1.0, K + 2.0)
    lx = 0.001 * rounds
    lx[0] = 0.0
    return lx, 0.002 * rounds


def _laplace(m, r: Reference, expect) -> None:
    kernel, K = _kernel(m, r), r.case["K"]
    none = np.zeros(K + 1)
    lx, ly = _extra(K)
    with_x = r.mechanism == "published-point"
    curve = m.pure.tight(kernel, UNIT, r.sx, r.sy, none, none)
    for k, exact in enumerate(r.tight):
        expect(f"tight {k} {r.label}", curve[2 * k + 1], exact)
    extra = ly.sum() + (lx.sum() if with_x else 0.0)
    expect(f"tight + leftover {r.label}", m.pure.tight(kernel, UNIT, r.sx, r.sy, lx, ly)[-1], r.tight[-1] + extra)
    w = m.pure.participation_weights(kernel, UNIT, r.sx, r.sy, lx, ly)
    for at, exact in enumerate(r.weights):
        expect(f"w_{at} {r.label}", w[at], exact + ly[at:].sum() + (lx[at + 1 :].sum() if with_x else 0.0))
    plain = m.pure.participation_weights(kernel, UNIT, r.sx, r.sy, none, none)
    for (q, k), exact in r.amplified.items():
        expect(f"amplified {q} {k} {r.label}", m.pure.amplified(plain, q)[k], exact)


def _concentrated(m, r: Reference, expect) -> None:
    K = r.case["K"]
    shift = m.concentrated.shift(_kernel(m, r), r.sx, r.sy)
    energy = np.square(shift)
    expect(f"energy {r.label}", energy[-1], r.energy)
    for k, least in enumerate(r.energy_at_least):
        expect(f"energy of the prefix {k} {r.label}", max(energy[k], least), energy[k])
    norms = m.concentrated.shift_norm(shift, UNIT, np.zeros(2 * K + 2))
    expect(f"zcdp {r.label}", m.concentrated.zcdp(norms, DELTA)[-1], r.zcdp)
    both = np.empty(2 * K + 2)
    both[0::2], both[1::2] = _extra(K)
    expected = UNIT * math.sqrt(r.energy) + math.sqrt((both**2).sum())
    expect(f"norms {r.label}", m.concentrated.shift_norm(shift, UNIT, both)[-1], expected)


def _worst(cx: list, cy: list, sx: np.ndarray, sy: np.ndarray, rounds: int) -> float:
    """A lower bound of the prefix's worst energy."""
    M = oracle.gram(
        [row[:rounds] for row in cx[:rounds]], [row[:rounds] for row in cy[:rounds]], sx[:rounds], sy[:rounds]
    )
    return oracle.worst_energy(M) * (1 - 1e-12)


def _large(m, expect) -> None:
    w = np.array([0.1, 900.0, 3.0])
    exact = math.log(1 + 0.2 * math.expm1(0.1)) + (900.0 + math.log(0.2)) + math.log(1 + 0.2 * math.expm1(3.0))
    expect("amplified beyond e^w", m.pure.amplified(w, 0.2)[-1], exact)


def _corrected(m, expect) -> None:
    a, b, gamma, samples, C, K = 0.3, 0.2, 0.25, 5, 2.0, 12
    sx, sy = np.linspace(1.0, 2.0, K + 1), np.linspace(2.0, 1.0, K + 1)
    none = np.zeros(K + 1)
    args = {"a": a, "b": b, "gamma": gamma, "m": samples, "C": C, "K": K}
    exact = oracle.corrected(
        *(Fraction(v) for v in (a, b, gamma)),
        *(samples, Fraction(C), K, None),
        *([Fraction(v) for v in scales] for scales in (sx, sy)),
    )
    shifts = m.pure.corrected_shifts(**args)
    expect("corrected", m.pure.corrected(shifts, sx, sy, none, none)[-1], exact)
    cx, cy = oracle.response_matrices(a, b, gamma, K)
    moves = [C / samples] + [C] * K
    expect("corrected: y", shifts.y[1], abs(cy[1][0]) * moves[0] + moves[1])
    for k in range(K + 1):
        if shifts.x[k] < sum(abs(v) * g for v, g in zip(cx[k], moves, strict=True)) * (1 - 1e-12):
            expect(f"corrected: x {k}", -1.0, 0.0)
