"""The mechanisms as values: where the gradient is taken, what the noise goes on, what of it is released and charged.

Adding one: its value here, in ``MECHANISMS``, and its recursion beside the method that it belongs to.  Everything else
reads these facts: the run file's words, the accountants, the store, the simulator, the adversary and the report.

What an accountant needs to know is a value of its own, :class:`Accounted`: releases that hold the gradients alike are
accounted alike, whatever method or mechanism they are of.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from dpgt_node.privacy.accountants import kernels
from dpgt_node.privacy.accountants.responses.pair import Pair
from dpgt_node.privacy.accountants.responses.response import Response, Steps, Tracking
from dpgt_node.privacy.accountants.responses.state import State
from dpgt_node.types import Stream
from dpgt_node.values import dataclass


@dataclass(frozen=True, slots=True)
class Accounted:
    """The noised releases of one agent, as accountants see them.

    ``streams``: those that are drawn with noise and charged, in the order of their draws; what is sent on another one
    is a function of these.  ``noise_on``: the states x and y themselves, or the gradient g_k, once, before it enters y;
    the latter is drawn and charged as stream Y.  "coins": g_k, once, by a count of fair coins in its integer code.
    "nothing": a random quantiser of x hides it alone.
    ``at_release``: g_k is taken at the agent's own x̆_k, as released.  ``recursion``: how gradients enter the states:
    Algorithm 1; x alone; or x by the differences of the running sum of gradients, which travels as y.
    """

    streams: tuple[Stream, ...]
    noise_on: Literal["states", "gradient", "coins", "nothing"]
    at_release: bool = False
    recursion: Literal["tracking", "state", "sum"] = "tracking"

    @property
    def x_public(self) -> bool:
        """Whether x is a function of the transcript: it is sent as it is, and x_{K+1} may be published."""
        return "X" not in self.streams

    @property
    def public_point(self) -> bool:
        """Whether the gradient is taken at a function of the transcript, as every rigorous accountant but one asks."""
        return self.x_public or self.at_release

    @property
    def once(self) -> bool:
        """Whether each gradient is perturbed once, and everything sent is post-processing of that."""
        return self.noise_on in ("gradient", "coins")

    @property
    def noised(self) -> tuple[Stream, ...]:
        """Streams whose noise scales the run file gives."""
        return () if self.noise_on in ("coins", "nothing") else self.streams

    @property
    def constant_steps(self) -> bool:
        """Whether alpha, beta, gamma and m are the same in every round."""
        return self.recursion == "tracking"

    def response(self, steps: Steps) -> Response:
        """How gradients enter later releases, one agent's steps given."""
        if self.recursion != "tracking":
            return State(steps) if self.recursion == "state" else Pair(steps)
        a, b, gamma = (float(of[0]) for of in (steps.a, steps.b, steps.gamma))
        if self.once:
            return Tracking(kernels.noise_once(steps.K), steps)
        if self.x_public:
            return Tracking(kernels.public_state(b, steps.K), steps)
        return Tracking(kernels.published_point(a, b, gamma, steps.K), steps)


@dataclass(frozen=True, slots=True)
class Mechanism:
    """``name``: the run file's word.  ``text``: what it does, in one line; ``advantage``: why a plan takes it.

    ``printed``: Algorithm 1 as the paper prints it, which its theorems speak of.
    """

    name: str
    accounted: Accounted
    text: str
    advantage: str = ""
    printed: bool = False

    @property
    def charged(self) -> tuple[Stream, ...]:
        """Streams whose releases are noised and cost something."""
        return self.accounted.streams

    @property
    def noises(self) -> int:
        """How many vectors of noise an agent draws a round."""
        return len(self.accounted.noised)

    @property
    def x_public(self) -> bool:
        """Whether x is a function of the transcript."""
        return self.accounted.x_public

    @property
    def at_release(self) -> bool:
        """Whether g_k is taken at the agent's own x̆_k, as released; else at x_k."""
        return self.accounted.at_release


PAPER: Final = Mechanism(
    "paper",
    Accounted(("X", "Y"), "states"),
    "Algorithm 1 as printed: g_k at the private x_k, noise on x and on y",
    printed=True,
)
PUBLISHED_POINT: Final = Mechanism(
    "published-point",
    Accounted(("X", "Y"), "states", at_release=True),
    "g_k at the agent's own released x, noise on x and on y",
)
PUBLIC_STATE: Final = Mechanism(
    "public-state",
    Accounted(("Y",), "states"),
    "the own step uses the released y, so x is a function of what was released; noise on y",
)
NOISE_ONCE: Final = Mechanism(
    "noise-once",
    Accounted(("Y",), "gradient"),
    "noise on g_k, once; x and y are functions of the perturbed gradients and are sent as they are",
    advantage="one release a round, of g_k itself; noise in y cancels instead of adding up",
)
STATE_NOISE: Final = Mechanism(
    "state-noise",
    Accounted(("X",), "states", recursion="state"),
    "g_k at the private x_k, noise on x; x is all that is sent",
)
RELEASED_STATE: Final = Mechanism(
    "released-state",
    Accounted(("X",), "states", at_release=True, recursion="state"),
    "g_k at the agent's own released x, noise on x; x is all that is sent",
)
SUM_NOISE: Final = Mechanism(
    "sum-noise",
    Accounted(("X", "Y"), "states", recursion="sum"),
    "g_k at the private x_k, noise on x and on the running sum of the gradients",
)
RELEASED_SUM: Final = Mechanism(
    "released-sum",
    Accounted(("X", "Y"), "states", at_release=True, recursion="sum"),
    "g_k at the agent's own released x, noise on x and on the running sum of the gradients",
)
QUANTISED_STATE: Final = Mechanism(
    "quantised-state",
    Accounted(("X",), "nothing", recursion="state"),
    "x leaves through a random quantiser, which is the only noise",
)
CODED_COINS: Final = Mechanism(
    "coded-coins",
    Accounted(("Y",), "coins"),
    "g_k as an integer code with a count of fair coins in it, once; what is sent is that code",
)

TRACKING: Final = (PAPER, PUBLISHED_POINT, PUBLIC_STATE, NOISE_ONCE)
"""Those of Algorithm 1, the paper's own first; each draws no more noise than those before it."""
MECHANISMS: Final[Mapping[str, Mechanism]] = {
    one.name: one
    for one in (*TRACKING, STATE_NOISE, RELEASED_STATE, SUM_NOISE, RELEASED_SUM, QUANTISED_STATE, CODED_COINS)
}
"""By the run file's word; the first is its default."""
DEFAULT: Final = PAPER
