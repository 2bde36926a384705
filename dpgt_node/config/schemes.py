"""[scheme]: step sizes, batch sizes and releases, under S1 or S2; declared as ``declare.keys`` says."""

from __future__ import annotations

from typing import Annotated, Literal

from dpgt_node.config.declare.keys import AtMostOne, Key, When
from dpgt_node.config.declare.kinds import Choice, Integer, Number
from dpgt_node.config.own_kinds import SampleCount
from dpgt_node.config.privacy.releases import Rounds
from dpgt_node.config.vocabulary import MAX_ITERATIONS
from dpgt_node.values import dataclass

Samples = int | Literal["full"]

_RELEASE_EVERY = Key(
    "a gradient is released in rounds 0, q, 2q, ..., and no other round is charged; above 1: noise-once only",
    Integer(1, MAX_ITERATIONS),
    absent="1",
)
_RELEASES = Key(
    "instead of release_every: the rounds that release a gradient, ascending from 0",
    Rounds(),
    absent="by release_every",
)
_NOT_BOTH = AtMostOne(("release_every", "releases"), "releases")
_SETTLE = Key(
    "so many last rounds only average x: gamma = 0, and no gradient is released; above 0: noise-once only",
    Integer(0, MAX_ITERATIONS),
    later=True,
)
_FIRST = Key(
    "what the first release is of: the gradient at x_0, or the features summed by class (softmax, bounded features)",
    Choice(("gradient", "class-sums")),
    later=True,
)
_FIRST_SCALE = Key(
    "times the class sums once they are noised: x moves by gamma times this a round, until the second release",
    Number(above=0.0),
    only=When("first", ("class-sums",), text='first = "class-sums" only'),
    later=True,
)
_SAMPLES = Key('overrides m_K; "full" is all of an agent\'s samples', SampleCount(), absent="m_K")
_KIND = Key("which of the two sets of keys below", required=True)


class _Releasing:
    """What both schemes say of releases."""

    __slots__ = ()
    release_every: int | None
    releases: tuple[int, ...] | None
    settle: int
    first: Literal["gradient", "class-sums"]
    first_scale: float

    @property
    def apart(self) -> bool:
        """Whether some rounds release nothing."""
        return (self.release_every or 1) > 1 or self.releases is not None or self.settle > 0


@dataclass(frozen=True, slots=True)
class SchemeS1(_Releasing):
    """alpha_K = a1/(K+1)^p_alpha, beta_K = a2/(K+1)^p_beta, gamma_K = a3/(K+1)^p_gamma, m_K = floor(a4 K^p_m) + 1."""

    a1: Annotated[float, Key("alpha_K = a1/(K+1)^p_alpha", Number(above=0.0))]
    a2: Annotated[float, Key("beta_K = a2/(K+1)^p_beta", Number(above=0.0))]
    a3: Annotated[float, Key("gamma_K = a3/(K+1)^p_gamma", Number(above=0.0))]
    a4: Annotated[float, Key("m_K = floor(a4 K^p_m) + 1, at most 2^53", Number(above=0.0))]
    p_alpha: Annotated[float, Key("see a1")]
    p_beta: Annotated[float, Key("see a2")]
    p_gamma: Annotated[float, Key("see a3")]
    p_m: Annotated[float, Key("see a4", Number(at_least=0.0))]
    samples: Annotated[Samples | None, _SAMPLES] = None
    release_every: Annotated[int | None, _RELEASE_EVERY, _NOT_BOTH] = None
    releases: Annotated[tuple[int, ...] | None, _RELEASES] = None
    settle: Annotated[int, _SETTLE] = 0
    first: Annotated[Literal["gradient", "class-sums"], _FIRST] = "gradient"
    first_scale: Annotated[float, _FIRST_SCALE] = 1.0
    kind: Annotated[Literal["S1"], _KIND] = "S1"


@dataclass(frozen=True, slots=True)
class SchemeS2(_Releasing):
    """Constant alpha, beta, gamma; m_K = floor(p_m^K) + 1."""

    alpha: Annotated[float, Key("the step size alpha of every round", Number(above=0.0))]
    beta: Annotated[float, Key("the step size beta of every round", Number(above=0.0))]
    gamma: Annotated[float, Key("the step size gamma of every round", Number(above=0.0))]
    p_m: Annotated[float, Key("m_K = floor(p_m^K) + 1, at most 2^53", Number(above=0.0))]
    samples: Annotated[Samples | None, _SAMPLES] = None
    release_every: Annotated[int | None, _RELEASE_EVERY, _NOT_BOTH] = None
    releases: Annotated[tuple[int, ...] | None, _RELEASES] = None
    settle: Annotated[int, _SETTLE] = 0
    first: Annotated[Literal["gradient", "class-sums"], _FIRST] = "gradient"
    first_scale: Annotated[float, _FIRST_SCALE] = 1.0
    kind: Annotated[Literal["S2"], _KIND] = "S2"


Scheme = SchemeS1 | SchemeS2
