"""Step sizes, sampling number and noise scales of a run: Schemes S1 and S2.

Everything here depends only on the run file.  Algorithm 1 has constant steps (they depend on K, not on k); keys of
[method] make those of a comparison method decay and its batches grow.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import Literal

from dpgt_node.config import model
from dpgt_node.config.vocabulary import METHOD_WORDS
from dpgt_node.errors import ConfigError, invariant
from dpgt_node.privacy.mechanisms import MECHANISMS
from dpgt_node.types import Stream
from dpgt_node.values import dataclass

SchemeKind = Literal["S1", "S2"]
_SOURCE = "run file"


@dataclass(frozen=True, slots=True)
class Schedule:
    """alpha_K, beta_K, gamma_K, m_K and sigma_k of one run of rounds k = 0..K.

    ``m`` None is "full": every agent samples all of its own D.  ``releases``: the rounds that take a gradient,
    ascending from 0.  ``powers``: of alpha, beta and gamma, which round k has times (k+1)^-power.  ``growth``: (a, p)
    of m_k = floor(a k^p) + 1, and ``m`` is m_K.  ``arriving``: round k takes the first k+1 samples, and ``m`` is K+1.
    ``settle``: so many last rounds have gamma = 0.  ``by_release``: times every scale, one number a
    release, the last one for all further releases; ``clips``: times the clip.  ``noise_decay``, ``clip_decay``: times
    their (-k/K)-th power in round k.  ``class_sums``: the first release is of
    the features summed by class, times ``first_scale`` once they are noised.  ``range``: r of the quantiser that stands
    in for all noise.
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
    releases: Sequence[int]
    settle: int = 0
    by_release: tuple[float, ...] = (1.0,)
    clips: tuple[float, ...] = (1.0,)
    noise_decay: float = 1.0
    clip_decay: float = 1.0
    class_sums: bool = False
    first_scale: float = 1.0
    powers: tuple[float, float, float] = (0.0, 0.0, 0.0)
    growth: tuple[float, float] | None = None
    arriving: bool = False
    range: float | None = None

    @classmethod
    def from_config(cls, run: model.RunConfig) -> Schedule:
        """Evaluate the scheme at K (``config`` refuses powers outside the range of float64)."""
        scheme, K = run.scheme, run.K
        # Elsewhere every round's y carries private state: without a draw it would be sent bare.
        once = MECHANISMS[run.algorithm.mechanism].accounted.once
        invariant(
            once or not scheme.apart, "only a mechanism that perturbs each gradient once has rounds without a draw"
        )
        if isinstance(scheme, model.SchemeS1):
            alpha = scheme.a1 / (K + 1) ** scheme.p_alpha
            beta = scheme.a2 / (K + 1) ** scheme.p_beta
            gamma = scheme.a3 / (K + 1) ** scheme.p_gamma
        else:
            alpha, beta, gamma = scheme.alpha, scheme.beta, scheme.gamma
        pace = Pace.of(run)
        m = sampling_number(scheme, K) if scheme.samples is None else _given(scheme.samples)
        if pace.growth is not None:
            m = grown(pace.growth, K)
        return cls(
            kind=scheme.kind,
            K=K,
            alpha=alpha,
            beta=beta,
            gamma=gamma,
            m=K + 1 if pace.arriving else m,
            multiplier=run.noise.multiplier,
            zeta=run.noise.zeta,
            eta=run.noise.eta,
            releases=range(0, K - scheme.settle + 1, scheme.release_every or 1)
            if scheme.releases is None
            else scheme.releases,
            settle=scheme.settle,
            by_release=run.noise.by_release or (1.0,),
            clips=run.privacy.by_release or (1.0,),
            noise_decay=run.noise.decay or 1.0,
            clip_decay=run.privacy.decay or 1.0,
            class_sums=scheme.first == "class-sums",
            first_scale=scheme.first_scale,
            powers=pace.powers,
            growth=pace.growth,
            arriving=pace.arriving,
            range=None if MECHANISMS[run.algorithm.mechanism].noises else pace.range,
        )

    @property
    def noisy(self) -> bool:
        """Whether any noise is drawn at all."""
        return self.multiplier > 0.0

    def release(self, k: int) -> int | None:
        """Which release round ``k`` makes, counted from 0; None: it makes none."""
        if isinstance(self.releases, range):  # every agent asks this of every round
            return self.releases.index(k) if k in self.releases else None
        at = bisect_left(self.releases, k)
        return at if at < len(self.releases) and self.releases[at] == k else None

    @property
    def apart(self) -> str:
        """Which rounds release, in words."""
        first = [str(k) for k in self.releases[:8]]
        more = "" if len(self.releases) <= 8 else f", ..., {self.releases[-1]}"
        settling = f"; the last {self.settle} settle" if self.settle else ""
        return f"{len(self.releases)} of {self.K + 1} rounds release: {', '.join(first)}{more}{settling}"

    def last_release(self, k: int) -> int:
        """The last round up to ``k`` that releases a gradient."""
        return self.releases[bisect_right(self.releases, k) - 1]

    def share(self, k: int) -> float:
        """How far one sample moves the gradient of round ``k``, as a part of C; 0.0 in a round that takes none."""
        release = self.release(k)
        return 0.0 if release is None else self.clip_of(release)

    def clip_of(self, release: int) -> float:
        """The clip of that release, as a part of the run's."""
        clip = self.clips[min(release, len(self.clips) - 1)]
        return clip if self.clip_decay == 1.0 else clip * self._decayed(self.clip_decay, self.releases[release])

    @property
    def alike(self) -> bool:
        """Whether every release has the noise and the clip of the first, but for powers of k + 1 under S1."""
        return len(self.by_release) == len(self.clips) == 1 and self.noise_decay == self.clip_decay == 1.0

    @property
    def even(self) -> bool:
        """Whether every round releases, with the noise and the clip of the first."""
        changes = self.kind == "S1" and any(n is not None and n.kind == "exponent" for n in (self.zeta, self.eta))
        return self.alike and len(self.releases) == self.K + 1 and not changes

    def _decayed(self, decay: float, k: int) -> float:
        return math.pow(decay, -k / max(self.K, 1))

    def sums(self, k: int) -> bool:
        """Whether round ``k`` releases class sums in place of a gradient."""
        return self.class_sums and k == 0

    def factor(self, k: int) -> float:
        """Times what round ``k`` releases, once it is noised."""
        return self.first_scale if self.sums(k) else 1.0

    @property
    def moving(self) -> bool:
        """Whether steps or batch sizes change from round to round."""
        return self.powers != (0.0, 0.0, 0.0) or self.growth is not None or self.arriving

    def alpha_at(self, k: int) -> float:
        """alpha of round ``k``."""
        return decayed(self.alpha, self.powers[0], k)

    def beta_at(self, k: int) -> float:
        """beta of round ``k``."""
        return decayed(self.beta, self.powers[1], k)

    def gamma_at(self, k: int) -> float:
        """gamma of round ``k``: 0 in the rounds that settle."""
        return decayed(self.gamma, self.powers[2], k) if k <= self.K - self.settle else 0.0

    def m_at(self, k: int, D: int | None) -> int:
        """Samples of the gradient of round ``k``, as :meth:`m_for`."""
        if self.arriving and D is not None:
            return k + 1
        return self.m_for(D) if self.growth is None else grown(self.growth, k)

    def m_for(self, D: int | None) -> int:
        """The most samples of a gradient of an agent that holds ``D``.

        ConfigError for "full" where there are no samples.
        """
        if self.m is not None:
            return self.m
        if D is None:
            raise ConfigError.one(_SOURCE, "scheme.samples", '"full" needs a data set with a known number of samples')
        return D

    def sigma(self, stream: Stream, agent: int, k: int) -> float:
        """Scale of the noise on x̆ ("X": zeta) or y̆ ("Y": eta) of 0-based ``agent`` in round k; 0.0 is no noise.

        Laplace: the scale, pdf exp(-|x|/s)/(2s) (the paper calls it "variance parameter").  Gaussian: the standard
        deviation.  S1 exponents give (k+1)^p, S2 exponents p^K in every round.  A round that releases nothing draws
        nothing: 0.0.  A quantiser that is the only noise has r for its scale.
        """
        if self.range is not None:
            return self.range if stream == "X" else 0.0
        noise, release, factors = self.zeta if stream == "X" else self.eta, self.release(k), self.by_release
        if noise is None or self.multiplier == 0.0 or release is None:
            return 0.0
        value = noise.values[agent]
        if noise.kind == "exponent":
            value = float(k + 1) ** value if self.kind == "S1" else value**self.K
        value = self.multiplier * value * (factors[release] if release < len(factors) else factors[-1])
        return value if self.noise_decay == 1.0 else value * self._decayed(self.noise_decay, k)

    def scales(self, stream: Stream, agent: int) -> Iterator[float]:
        """The scale of every release, in order."""
        return (self.sigma(stream, agent, k) for k in self.releases)


@dataclass(frozen=True, slots=True)
class Pace:
    """What [method] says of steps and batches, and what the method's word does: see :class:`Schedule`."""

    powers: tuple[float, float, float]
    growth: tuple[float, float] | None
    arriving: bool
    range: float | None

    @classmethod
    def of(cls, run: model.RunConfig) -> Pace:
        """By the keys of ``PaceOptions``, each of which only some methods have."""
        given = run.method_options

        def number(key: str, default: float) -> float:
            value = given.get(key, default)
            return float(value) if isinstance(value, int | float) else default

        alpha, beta, gamma = (number(f"power_{step}", 0.0) for step in ("alpha", "beta", "gamma"))
        growth = (number("samples_factor", 1.0), number("samples_power", 0.0)) if "samples_power" in given else None
        r = number("r", 0.0) or None
        return cls((alpha, beta, gamma), growth, METHOD_WORDS[run.algorithm.method].arriving, r)


def decayed(step: float, power: float, k: int) -> float:
    """``step`` (k+1)^-``power``."""
    return step * float(k + 1) ** -power if power else step


def grown(growth: tuple[float, float], k: int) -> int:
    """floor(a k^p) + 1."""
    factor, power = growth
    return math.floor(factor * math.pow(k, power)) + 1


def sampling_number(scheme: model.Scheme, K: int) -> int:
    """m_K by the scheme's formula (``samples`` overrides it): S1 floor(a4 K^p_m) + 1, S2 floor(p_m^K) + 1."""
    if isinstance(scheme, model.SchemeS1):
        return math.floor(scheme.a4 * math.pow(K, scheme.p_m)) + 1
    return math.floor(math.pow(scheme.p_m, K)) + 1


def _given(samples: model.Samples) -> int | None:
    return None if isinstance(samples, str) else samples
