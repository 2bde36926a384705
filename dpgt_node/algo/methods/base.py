"""What a method is: a frozen value, and the recursion of each of its mechanisms, written once.

A recursion is told in five moves, on vectors that have names:

    begin       the state of round 0 at the public x_0
    release     round k: draw noise, say what is sent
    complete    the same state after a crash: round k was released before, nothing is drawn
    advance     the state of round k+1 from that of round k and from what came in
    final       x_{K+1}: there is no later gradient and no later release

The same code runs in three places, which differ in what a vector is and in what a :class:`Site` does for it:

    one agent                        vectors (d,), in blocks that stay in the cache; gradients, noise, payloads
    all agents (simulate --fast)     matrices (n, d), a row an agent; what was sent is mixed by one product
    many worlds, one transcript      private parts (worlds, d), all else (d,); noise is read off what was sent

So equations are elementwise on the last axis, and every sum over neighbours goes through :meth:`Site.mixing`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, TypeVar

import numpy as np

from dpgt_node.algo.edges import Edges
from dpgt_node.algo.graph import Edge, Topology
from dpgt_node.algo.methods.sums import Alone, kept_part
from dpgt_node.algo.schedule import Schedule
from dpgt_node.config.methods import NoOptions
from dpgt_node.config.model import RunConfig
from dpgt_node.privacy.counts.code import BinomialCode
from dpgt_node.types import F64, Codes, Stream
from dpgt_node.values import dataclass

Vectors = Mapping[str, F64]
"""A state by the names of its vectors; never changed in place."""
Number = TypeVar("Number", float, F64)
"""A number of one agent, or a column (n, 1) with one of each."""
Pick = Callable[[F64], Number]
"""Of values (n,) the one of this agent, or all of them as a column."""
Mix = Callable[[float, F64, slice], None]
"""``mix(step, into, block)``: ``into += step * sum_j w_ij v_j[..., block]`` over the in-neighbours j, ascending."""
GRADIENT_NOISE: Stream = "Y"
"""The stream whose scale (eta) noise on a gradient has, whatever carries it."""


def at(i: int) -> Callable[[F64], float]:
    """Of values (n,) that of agent ``i``."""
    return lambda values: float(values[i])


def column(values: F64) -> F64:
    """Values (n,) of all agents as a column, for matrices (n, d)."""
    return values[:, None]


class Rounds(Protocol):
    """What of a vector is sent, by public randomness."""

    def __call__(self, values: F64) -> F64:
        """What is sent of ``values``."""
        ...

    def between(self, sent: F64) -> tuple[F64, F64]:
        """(low, high): ``sent`` is sent of all that lies above ``low`` and not above ``high``, float64 (d,) each."""
        ...


@dataclass(frozen=True, slots=True)
class Seen:
    """How a transcript shows a perturbed gradient: ``stream`` carries ``base + factor * (g + noise)``.

    ``base`` as a function: it follows from what came in, which an agent that draws does not know yet.  ``later``: the
    next round's vector carries it; what the last round draws is then in x_{K+1} alone.  ``rounded``: what of that is
    sent; None: all of it.
    """

    stream: Stream
    base: F64 | Callable[[], F64]
    factor: float = 1.0
    later: bool = False
    rounded: Rounds | None = None


class Exchanged(NamedTuple):
    """A table of per-sample gradients after a batch: ``table``, (numbers,) or one row an agent.

    ``change``: mean over the batch of the new gradients less those that were in the table.  ``drift``: how far the
    mean of the table moved.
    """

    change: F64
    table: F64
    drift: F64


class Site(Protocol):
    """Where a recursion runs, and what it asks for there."""

    @property
    def block(self) -> int:
        """Coordinates to work on at a time."""

    @property
    def alone(self) -> Alone | None:
        """Who does the arithmetic of private parts, which meet no neighbour; None: the caller."""

    def gradient(self, k: int, x: F64) -> F64:
        """g_k at ``x``, on the batch of round ``k``."""
        ...

    def again(self, k: int, x: F64) -> F64:
        """The gradient at another ``x``, on the batch that :meth:`gradient` took in round ``k``."""
        ...

    def whole(self, k: int, x: F64) -> F64:
        """The gradient at ``x`` over all of the agent's samples; nothing is drawn."""
        ...

    def table(self, x: F64) -> F64:
        """The gradients of all samples at ``x``, as they are kept: float64 (numbers,)."""
        ...

    def exchanged(self, k: int, x: F64, table: F64) -> Exchanged:
        """``table`` with the gradients at ``x`` of a fresh batch of round ``k``, or of the recorded one."""
        ...

    def noised(self, stream: Stream, k: int, private: F64, public: F64, rounded: Rounds | None = None) -> None:
        """Send ``(private + noise) + public``: noise need only cover the small private part (privacy.md, section 6).

        ``rounded``: what of that sum is sent instead, by public randomness.
        """
        ...

    def perturbed(self, k: int, private: F64, seen: Seen) -> F64:
        """g~_k = ``private`` + noise, of the scale eta.  ``seen``: how it will show in what is sent."""
        ...

    def coined(self, k: int, private: F64, code: BinomialCode) -> F64:
        """What the codes of ``private`` stand for, coins of ``code`` among them: to be sent as it is, on X."""
        ...

    def send(self, stream: Stream, k: int, values: F64) -> None:
        """Send ``values`` as they are; numbers that the method's codes stand for, where it has codes."""
        ...

    def own(self, stream: Stream, k: int) -> F64:
        """What this agent sent in round ``k``, as its receivers read it."""
        ...

    def drawn(self, k: int) -> F64:
        """g~_k as it was drawn before a crash."""
        ...

    def mixing(self, stream: Stream, k: int) -> Mix:
        """The weighted sum of what came in on ``stream`` in round ``k``."""
        ...


class Rule(ABC):
    """A method's recursion under one mechanism, at one agent or at all of them."""

    state: ClassVar[tuple[str, ...]]
    """Names of the state's vectors, in the order of a checkpoint."""
    raw_gradient: ClassVar[str | None] = None
    """The state's vector that is g_k without noise; None: the state holds no such thing."""
    pending: ClassVar[bool] = False
    """The state of round k is complete only once that round is released: noise decides where or what g_k is."""
    keeps_table: ClassVar[bool] = False
    """The state's vector "table" holds gradients of all samples, whatever their number."""
    keeps_drawn: ClassVar[bool] = False
    """g~_k is stored with what was sent, which does not tell it to the last bit."""

    @classmethod
    @abstractmethod
    def build(cls, run: RunConfig, topology: Topology, schedule: Schedule, pick: Pick[Any]) -> Rule:
        """The numbers of the agents that ``pick`` picks; the method's own keys are in ``run``."""

    @staticmethod
    def point(v: Vectors) -> F64:
        """x_k."""
        return v["x"]

    @staticmethod
    def tracker(v: Vectors) -> F64 | None:
        """y_k of a complete state; None where the method has none."""
        return None

    @abstractmethod
    def begin(self, site: Site, x0: F64) -> Vectors:
        """The state of round 0."""

    @abstractmethod
    def release(self, site: Site, k: int, v: Vectors) -> Vectors:
        """Round ``k``: noise is drawn here and nowhere else.  The complete state."""

    def complete(self, site: Site, k: int, v: Vectors) -> Vectors:
        """The complete state of a round that was released before a crash."""
        return v

    @abstractmethod
    def advance(self, site: Site, k: int, v: Vectors) -> Vectors:
        """The state of round ``k + 1``; complete once it is released where the noise decides where or what g is."""

    @abstractmethod
    def final(self, site: Site, k: int, v: Vectors) -> F64:
        """x_{k+1} alone."""


@dataclass(frozen=True, slots=True)
class Mixing:
    """``stream`` is mixed with ``weights(run, topology)``: row i has whom agent i receives it from.

    ``graph``: what these weights are, in words for messages.  ``unbounded``: why no robust mixing of it has a meaning.
    """

    stream: Stream
    graph: str
    weights: Callable[[RunConfig, Topology], Edges]
    unbounded: str = ""


@dataclass(frozen=True, slots=True)
class Setting:
    """What a method may make demands of.  ``samples``: D of every agent, None where this machine does not know it."""

    run: RunConfig
    topology: Topology
    schedule: Schedule
    samples: Sequence[int | None]


@dataclass(frozen=True, slots=True)
class Demand:
    """``what`` must hold; ``breakers``: names of the agents by which it does not.  ``key``: where in the run file."""

    what: str
    key: str
    breakers: Callable[[Setting], tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Method:
    """``rules``: by mechanism, the default first.  ``sends``: what is sent, and over which weights.

    ``status``: a rule that was published as it stands, or our reading of one; ``source``: whose.  ``noisy``: draws
    noise; where not, the run file must switch it off.  ``demands``: a run that breaks one of them is refused.
    ``couplings``: r_i and c_i (n,), of which a_i = alpha r_i and b_i = beta c_i: how much of its own x and y an agent
    gives up for what it mixes in a round.
    ``theorems``: the paper's conditions and theorems speak of it.  ``options``: its own keys, [method] of a run file.
    ``codes``: what the integers stand for that it sends, a function of its keys; None: it sends numbers.
    ``coins``: the code of its gradients, where a count of fair coins in it is the noise.
    ``simulated``: why daemons do not carry it out; empty: they do.
    """

    name: str
    title: str
    status: Literal["known", "ours"]
    source: str
    rules: Mapping[str, type[Rule]]
    sends: tuple[Mixing, ...]
    noisy: bool = True
    demands: tuple[Demand, ...] = ()
    couplings: Callable[[Topology], tuple[F64, F64]] = lambda topology: (topology.r, topology.c)
    theorems: bool = True
    options: type = NoOptions
    codes: Callable[[RunConfig], Codes | None] = lambda run: None
    coins: Callable[[RunConfig], BinomialCode | None] = lambda run: None
    simulated: str = ""

    @property
    def streams(self) -> tuple[Stream, ...]:
        """What an agent sends in a round, in order."""
        return tuple(one.stream for one in self.sends)


@dataclass(frozen=True, slots=True)
class AgentEdges:
    """What agent ``index`` (0-based) receives and sends: by stream, neighbours ascending, itself on a self-loop.

    ``point``: x_k of a state.
    """

    index: int
    name: str
    incoming: Mapping[Stream, tuple[Edge, ...]]
    outgoing: Mapping[Stream, tuple[int, ...]]
    point: Callable[[Vectors], F64]

    @property
    def streams(self) -> tuple[Stream, ...]:
        """What an agent sends in a round, in order."""
        return tuple(self.outgoing)


@dataclass(frozen=True, slots=True, eq=False)
class Network:
    """Who sends what to whom in one run: ``weights`` by stream, in the order in which streams are sent; row i has
    whom agent i receives it from.
    """

    names: tuple[str, ...]
    weights: Mapping[Stream, Edges]
    point: Callable[[Vectors], F64]

    @property
    def streams(self) -> tuple[Stream, ...]:
        """What an agent sends in a round, in order."""
        return tuple(self.weights)

    def incoming(self, i: int) -> dict[Stream, tuple[Edge, ...]]:
        """(j, weight) of everyone whose vector agent ``i`` mixes, ascending, itself included on a self-loop."""
        return {stream: weights.row(i) for stream, weights in self.weights.items()}

    def outgoing(self, i: int) -> dict[Stream, tuple[int, ...]]:
        """Agents that mix what agent ``i`` sends, ascending, itself included on a self-loop."""
        return {s: tuple(j for j, _ in weights.reverse.row(i)) for s, weights in self.weights.items()}

    def edges(self, i: int) -> AgentEdges:
        """All of agent ``i``."""
        return AgentEdges(i, self.names[i], self.incoming(i), self.outgoing(i), self.point)

    def peers(self, i: int) -> dict[int, tuple[Stream, ...]]:
        """Where agent ``i`` sends: neighbour other than itself -> the streams it gets, neighbours ascending."""
        return self._others(i, {s: frozenset(out) for s, out in self.outgoing(i).items()})

    def senders(self, i: int) -> dict[int, tuple[Stream, ...]]:
        """Who sends to agent ``i``: neighbour other than itself -> the streams it sends, neighbours ascending."""
        return self._others(i, {s: frozenset(j for j, _ in edges) for s, edges in self.incoming(i).items()})

    def _others(self, i: int, by_stream: Mapping[Stream, frozenset[int]]) -> dict[int, tuple[Stream, ...]]:
        every = sorted(frozenset().union(*by_stream.values()) - {i})
        return {j: tuple(s for s, there in by_stream.items() if j in there) for j in every}


# --- arithmetic that equations share -------------------------------------------------------------------------------

_WHOLE = (slice(None),)


def empty(*vectors: F64) -> F64:
    """A new array for a sum of ``vectors``, which may be rows (worlds, d) and vectors (d,)."""
    shape = vectors[0].shape
    for v in vectors:
        if v.shape != shape:
            return np.empty(np.broadcast_shapes(*(v.shape for v in vectors)))
    return np.empty(shape)


def blocks(vectors: F64, block: int) -> Sequence[slice]:
    """Parts of the last axis that stay in the cache: whole temporary vectors would cost more than the arithmetic."""
    columns = int(vectors.shape[vectors.ndim - 1])
    return _WHOLE if columns <= block else [slice(start, start + block) for start in range(0, columns, block)]


def added(base: F64, factor: float, vector: F64, block: int) -> F64:
    """``base + factor * vector``, a new array: one product and one sum a number, whoever computes it."""
    out = empty(base, vector)
    for at in blocks(out, block):
        part = np.multiply(vector[..., at], factor, out=out[..., at])
        part += base[..., at]
    return out


def combined(
    keep: Any, vector: F64, step: float, mix: Mix | None, block: int, less: float = 0.0, other: F64 | None = None
) -> F64:
    """``keep * vector + step * (what came in) - less * other``, a new array; without what there is none of.

    A ``mix`` may have ``combine(keep, vector, step, less, other, out)``, which may do it all in one pass and says
    whether, and ``empty(shape)``, which makes the array.
    """
    make = getattr(mix, "empty", None)
    out = make(vector.shape) if make is not None else empty(vector) if other is None else empty(vector, other)
    combine = kept_part if mix is None else getattr(mix, "combine", None)
    if combine is not None and combine(keep, vector, step, less, other, out):
        return out
    for at in blocks(out, block):
        part = np.multiply(vector[..., at], keep, out=out[..., at])
        if mix is not None:
            mix(step, part, at)
        if other is not None:
            part -= less * other[..., at]
    return out


def relaxed(a: Any, vector: F64, step: float, mix: Mix, block: int) -> F64:
    """``(1 - a) vector + step * (what came in)``, a new array."""
    return combined(1.0 - a, vector, step, mix, block)


def mixed(site: Site, stream: Stream, k: int, like: F64) -> F64:
    """What came in on ``stream`` in round ``k``, weighted and summed: a new array with the shape of ``like``."""
    mix, out = site.mixing(stream, k), np.zeros(like.shape)
    for at in blocks(out, site.block):
        mix(1.0, out[..., at], at)
    return out
