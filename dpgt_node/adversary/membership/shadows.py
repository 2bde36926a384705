"""Shadow runs: what signals samples leave in runs whose members the adversary chose.

The game: there is a pool of samples, of which the run used some, each by one agent, chosen without regard to what they
are.  The adversary has the pool, the run file and public samples, and is to tell who used what.  Its shadow runs deal
the pool anew, draw noise of their own, and are seen from where the run was seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from dpgt_node.adversary.membership.rates import Guarantee
from dpgt_node.types import F64, I64
from dpgt_node.values import dataclass

NOBODY = -1
"""The holder of a sample that no agent holds."""


@dataclass(frozen=True, slots=True)
class Pool:
    """``phi`` (N, ...), ``labels`` (N,): samples that are scored; ``public_phi`` (P, ...), ``public_labels``: those
    that no run ever holds.  ``size``: of the whole pool.  ``shape``: of a sample, as torch models take it.
    """

    phi: F64 = field(repr=False)
    labels: I64 = field(repr=False)
    public_phi: F64 = field(repr=False)
    public_labels: I64 = field(repr=False)
    classes: int
    size: int
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Signals:
    """Of one run, by agent (n): ``matched`` (n, N), T of the matched filter on the transcript; ``confidence`` (n, N)
    and ``public`` (n, P), ln of the probability that the agent's published model gives the right label.  NaN: not seen.
    """

    matched: F64 = field(repr=False)
    confidence: F64 = field(repr=False)
    public: F64 = field(repr=False)


@dataclass(frozen=True, slots=True)
class Shadows:
    """``held`` (S, N): 0-based agent that holds a sample in each shadow run, or NOBODY; ``signals``: as of one run,
    with S in front.  ``samples``: D of every agent.  ``guarantees``: of every agent, by name.  ``seed``: of the deals.

    ``own`` (N,): the holders in the run itself; used for nothing but ``measured``.
    """

    pool: Pool
    held: I64 = field(repr=False)
    signals: Signals = field(repr=False)
    own: I64 = field(repr=False)
    samples: tuple[int, ...]
    guarantees: Mapping[str, tuple[Guarantee, ...]]
    seed: int

    @property
    def count(self) -> int:
        """S."""
        return len(self.held)
