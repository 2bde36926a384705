"""Step sizes, sampling number and noise scales of a run: Schemes S1 and S2.

Everything here depends only on the run file; the steps are constant within a run (they depend on K, not on k).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from dpgt_node.config import model
from dpgt_node.errors import ConfigError
from dpgt_node.types import Stream

SchemeKind = Literal["S1", "S2"]
_SOURCE = "run file"


@dataclass(frozen=True, slots=True)
class Schedule:
    """alpha_K, beta_K, gamma_K, m_K and sigma_k of one run of rounds k = 0..K.

    ``m`` None is "full": every agent samples all of its own D.
    """

    kind: SchemeKind
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
        """Evaluate the scheme at K (``config`` refuses powers outside the range of float64)."""
        scheme, K = run.scheme, run.K
        if isinstance(scheme, model.SchemeS1):
            alpha = scheme.a1 / (K + 1) ** scheme.p_alpha
            beta = scheme.a2 / (K + 1) ** scheme.p_beta
            gamma = scheme.a3 / (K + 1) ** scheme.p_gamma
        else:
            alpha, beta, gamma = scheme.alpha, scheme.beta, scheme.gamma
        return cls(
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


def sampling_number(scheme: model.Scheme, K: int) -> int:
    """m_K by the scheme's formula (``samples`` overrides it): S1 floor(a4 K^p_m) + 1, S2 floor(p_m^K) + 1."""
    if isinstance(scheme, model.SchemeS1):
        return math.floor(scheme.a4 * math.pow(K, scheme.p_m)) + 1
    return math.floor(math.pow(scheme.p_m, K)) + 1


def _given(samples: model.Samples) -> int | None:
    return None if isinstance(samples, str) else samples
