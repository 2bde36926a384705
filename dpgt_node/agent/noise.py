"""Which sampler draws a run's noise, what it costs, and whether its range suffices."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dpgt_node.accounts.account import AgentAccount, agent_accounts
from dpgt_node.algo.graph import Topology
from dpgt_node.algo.methods import steps_of
from dpgt_node.algo.schedule import Schedule
from dpgt_node.config.model import RunConfig
from dpgt_node.config.privacy.cancelling import masks
from dpgt_node.errors import Broken, ConfigError, Problem
from dpgt_node.privacy.cancelling.masks import MaskGraph
from dpgt_node.privacy.laws.noise import ByteStream, CancellingSampler, Sampler, SoundSampler
from dpgt_node.privacy.laws.pairs import PairKeys, pair_stream
from dpgt_node.privacy.laws.registry import LAWS
from dpgt_node.privacy.laws.ternary import TernaryQuantiser
from dpgt_node.privacy.mechanisms import MECHANISMS
from dpgt_node.types import F64, Stream


def sampler_for(run: RunConfig, compiled: bool | None = None) -> SoundSampler:
    """The sound sampler of the run's law: on a grid, exact to the last bit (privacy.md, section 6); or the quantiser
    that stands in for it.  ``compiled``: with numba (True), or for long vectors where it is installed (None).
    """
    if not MECHANISMS[run.algorithm.mechanism].noises:
        return TernaryQuantiser()
    return LAWS[run.noise.law].sampler(compiled)


class SharedNoise:
    """The noise of one agent, its own and what it shares: the agent that comes first in the run file adds.

    ValueError where the run's sampler draws none that cancels.
    """

    __slots__ = ("_keys", "_partners", "_r", "_sampler", "_signs")

    def __init__(self, index: int, graph: MaskGraph, r: int, sampler: Sampler, keys: PairKeys) -> None:
        if not isinstance(sampler, CancellingSampler):
            raise ValueError("this sampler draws no noise that cancels")
        self._sampler, self._keys, self._r = sampler, keys, r
        self._partners = graph.partners(index)
        self._signs = tuple(1 if index < partner else -1 for partner in self._partners)

    def perturb(self, private: F64, scale: float, stream: ByteStream, k: int) -> F64:
        """``private`` with the noise of round ``k``."""
        streams = [pair_stream(self._keys.key(partner, k)) for partner in self._partners]
        shared = list(zip(self._signs, streams, strict=True))
        return self._sampler.perturb_shared(private, scale, stream, shared, self._r)


def shared_noise(run: RunConfig, index: int, sampler: Sampler, keys: PairKeys | None) -> SharedNoise | None:
    """What agent ``index`` draws with, None where noise is everybody's own.  ``keys`` of its pairs."""
    graph = masks(run)
    if graph is None or run.noise.cancel is None:
        return None
    if keys is None:
        raise Broken("noise is shared, and the keys of the pairs are missing")
    return SharedNoise(index, graph, run.noise.cancel, sampler, keys)


def account_for(
    run: RunConfig,
    topology: Topology,
    schedule: Schedule,
    agent: int,
    samples: int | None,
    dimension: int,
) -> AgentAccount:
    """The account of 0-based ``agent``: its releases and what the sampler's arithmetic adds to each.

    ``samples``: D.  ``dimension``: d.
    """
    sampler = sampler_for(run)
    return AgentAccount(
        run,
        topology,
        schedule,
        agent,
        samples,
        dimension=dimension,
        leftover=lambda scale, norm: sampler.lam(dimension, scale, norm),
    )


def accounts_for(
    run: RunConfig, topology: Topology, schedule: Schedule, samples: Sequence[int | None], dimension: int
) -> tuple[AgentAccount, ...]:
    """:func:`account_for` of every agent; those alike in everything share the work."""
    sampler = sampler_for(run)
    return agent_accounts(
        run,
        topology,
        schedule,
        samples,
        dimension=dimension,
        leftover=lambda scale, norm: sampler.lam(dimension, scale, norm),
    )


def check_range(run: RunConfig, topology: Topology, schedule: Schedule, agent: int) -> None:
    """ConfigError when noise is so small that clipped coordinates of the private part would lie beyond the
    sampler's range.

    Every coordinate of p is at most C in magnitude, of px at most gamma C min(1/a, K + 1); a method with a recursion of
    its own has bounds by round.  Without a clip nothing bounds them.
    """
    clip = run.privacy.clip_l1 if run.privacy.clip_l1 is not None else run.privacy.clip_l2
    if clip is None or not schedule.noisy:
        return
    sampler, accounted = sampler_for(run), MECHANISMS[run.algorithm.mechanism].accounted
    problems = []
    # The other stream is drawn without noise, whatever its scale.
    for stream in accounted.noised:
        by_round = _covered if accounted.constant_steps else _covered_by_round
        pairs = by_round(run, topology, schedule, agent, stream, 2.0 * clip)
        scale, largest, first = min(pairs, key=lambda pair: pair[0] / pair[1] if pair[1] else float("inf"))
        reach = sampler.range(scale) if scale > 0.0 else float("inf")
        if reach < largest:
            key = "noise.scale_zeta" if stream == "X" else "noise.scale_eta"
            grown = f" ({first:g} in round 0; they add up over {run.K + 1:,} rounds)" if largest > first else ""
            message = (
                f"scale {scale:g} reaches {reach:g}, but values of up to {largest:g} may have to be covered{grown}: "
                f"take a larger scale or a smaller clip{', or fewer rounds' if grown else ''}"
            )
            problems.append(Problem("run file", key, message))
    if problems:
        raise ConfigError(problems)


Covered = Iterable[tuple[float, float, float]]
"""(scale, the largest magnitude it may have to cover, that of round 0) of some rounds, the tightest among them."""


def _covered(run: RunConfig, topology: Topology, schedule: Schedule, agent: int, stream: Stream, C: float) -> Covered:
    a = float(steps_of(run, topology, schedule)[0][agent])
    first = C if stream != "X" else schedule.gamma * C
    most = first if stream != "X" else first * min(1.0 / a if a > 0 else float("inf"), schedule.K + 1.0)
    shares = {(schedule.sigma(stream, agent, k), schedule.share(k)) for k in _telling(schedule)}
    return {(sigma, share * most, share * first) for sigma, share in shares}


def _covered_by_round(
    run: RunConfig, topology: Topology, schedule: Schedule, agent: int, stream: Stream, C: float
) -> Covered:
    bounds = AgentAccount(run, topology, schedule, agent, None).releases.private_bounds
    if bounds is None:
        raise Broken("a run that clips has bounds")
    norms = bounds.norm_x if stream == "X" else bounds.norm_y
    return [(schedule.sigma(stream, agent, k), float(norm), float(norms[0])) for k, norm in enumerate(norms)]


def _telling(schedule: Schedule) -> Sequence[int]:
    """Rounds among which the tightest release is: a scale is monotone where nothing is said by release, but for the
    product of a decay and a power of k + 1 under S1.
    """
    if schedule.kind == "S1" and not schedule.noise_decay == schedule.clip_decay == 1.0:
        return schedule.releases
    said = max(len(schedule.by_release), len(schedule.clips))
    return [*schedule.releases[:said], schedule.releases[-1]]
