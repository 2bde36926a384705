"""Step sizes, sampling number and noise scales of a run: Schemes S1 and S2.

Everything here depends only on the run file; the steps are constant within a run (they depend on K, not on k).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

from dpgt_node.config import model
from dpgt_node.errors import ConfigError

Stream = Literal["X", "Y"]
Law = Literal["S1", "S2"]
_SOURCE = "run file"


@dataclass(frozen=True, slots=True)
class Schedule:
    """alpha_K, beta_K, gamma_K, m_K and sigma_k of one run of rounds k = 0..K.

    ``m`` None is "full": every agent samples all of its own D.
    """

    kind: Law
    K: int
    alpha: float
    beta: float
    gamma: float
    m: int | None
    multiplier: float
    zeta: model.NoiseStream | None
    eta: model.NoiseStream | None

    @classmethod
    def from_config(cls, run: model.RunConfig) -> Schedule:
        """Evaluate the scheme at K.  ConfigError when a power leaves the range of float64."""
        scheme, K = run.scheme, run.K
        if isinstance(scheme, model.SchemeS1):
            alpha = _power("scheme.p_alpha", lambda: scheme.a1 / (K + 1) ** scheme.p_alpha)
            beta = _power("scheme.p_beta", lambda: scheme.a2 / (K + 1) ** scheme.p_beta)
            gamma = _power("scheme.p_gamma", lambda: scheme.a3 / (K + 1) ** scheme.p_gamma)
        else:
            alpha, beta, gamma = scheme.alpha, scheme.beta, scheme.gamma
        schedule = cls(
            kind=scheme.kind,
            K=K,
            alpha=alpha,
            beta=beta,
            gamma=gamma,
            m=sampling_number(scheme, K) if scheme.samples is None else _given(scheme.samples),
            multiplier=run.noise.multiplier,
            zeta=run.noise.zeta,
            eta=run.noise.eta,
        )
        schedule._check_scales(run.n)
        return schedule

    @property
    def noisy(self) -> bool:
        """Whether any noise is drawn at all."""
        return self.multiplier > 0.0

    def m_for(self, D: int | None) -> int:
        """Samples per gradient of an agent that holds ``D``.  ConfigError for "full" where there are no samples."""
        if self.m is not None:
            return self.m
        if D is None:
            raise ConfigError.one(_SOURCE, "scheme.samples", '"full" needs a data set with a known number of samples')
        return D

    def sigma(self, stream: Stream, agent: int, k: int) -> float:
        """Scale of the noise on x̆ ("X": zeta) or y̆ ("Y": eta) of 0-based ``agent`` in round k; 0.0 is no noise.

        Laplace: the scale, pdf exp(-|x|/s)/(2s) (the paper calls it "variance parameter").  Gaussian: the standard
        deviation.  S1 exponents give (k+1)^p, S2 exponents p^K in every round.
        """
        noise = self.zeta if stream == "X" else self.eta
        if noise is None or self.multiplier == 0.0:
            return 0.0
        value = noise.values[agent]
        if noise.kind == "exponent":
            value = float(k + 1) ** value if self.kind == "S1" else value**self.K
        return self.multiplier * value

    def _check_scales(self, n: int) -> None:
        """A scale that underflows would silently be "no noise"; every law is monotone in k, so the ends suffice."""
        streams: tuple[tuple[Stream, model.NoiseStream | None, str], ...]
        streams = (("X", self.zeta, "p_zeta"), ("Y", self.eta, "p_eta"))
        for stream, noise, key in streams:
            if noise is None or not self.noisy or noise.kind == "constant":
                continue
            for agent in range(n):
                for k in (0, self.K):
                    _power(f"noise.{key}", partial(self.sigma, stream, agent, k))


def sampling_number(scheme: model.Scheme, K: int) -> int:
    """m_K by the scheme's formula (``samples`` overrides it): S1 floor(a4 K^p_m) + 1, S2 floor(p_m^K) + 1."""
    if isinstance(scheme, model.SchemeS1):
        size = _power("scheme.p_m", lambda: scheme.a4 * float(K) ** scheme.p_m, zero_ok=True)
    else:
        size = _power("scheme.p_m", lambda: float(scheme.p_m) ** K, zero_ok=True)
    return math.floor(size) + 1


def _given(samples: model.Samples) -> int | None:
    return None if isinstance(samples, str) else samples


def _power(key: str, evaluate: Callable[[], float], *, zero_ok: bool = False) -> float:
    try:
        value = float(evaluate())
    except (OverflowError, ZeroDivisionError):
        value = math.inf
    if not math.isfinite(value) or (value == 0.0 and not zero_ok):
        what = "underflows to 0" if value == 0.0 else "overflows"
        raise ConfigError.one(_SOURCE, key, f"the power {what} in float64; take a smaller exponent or fewer iterations")
    return value
