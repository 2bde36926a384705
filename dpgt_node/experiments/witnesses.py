"""One transcript under two adjacent data sets: the counterexample as it is played here, and captured runs."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from dpgt_node.accounts.account import AgentAccount
from dpgt_node.adversary.audit import counterexample
from dpgt_node.adversary.audit.replay import Replay, Unseen, World
from dpgt_node.adversary.audit.report import Audit
from dpgt_node.adversary.audit.witness import log_ratio, witness
from dpgt_node.adversary.inference.observation import Facts, Observation
from dpgt_node.agent.noise import account_for
from dpgt_node.algo.schedule import Schedule
from dpgt_node.config import RunConfig, load_node
from dpgt_node.errors import ConfigError
from dpgt_node.learning.common import Oracle
from dpgt_node.learning.oracle import build_oracle
from dpgt_node.learning.releases import Sources
from dpgt_node.privacy.accountants.corrected import CORRECTED
from dpgt_node.privacy.accountants.registry import ACCOUNTANTS
from dpgt_node.privacy.mechanisms import MECHANISMS, TRACKING
from dpgt_node.record.truth import Truth
from dpgt_node.sim.scripted import ScriptedOracle, together
from dpgt_node.types import F64, I64, Stream
from dpgt_node.wire.transcript import TranscriptError

CANDIDATES = 32
"""Samples among which the pair with the most different gradients is looked for."""
TRUTH_TOLERANCE = 1e-6
UNTIED = "nothing here ties this transcript to this run file's data: a wrong seed, clip or data set gives a wrong |T|."
BATCHES_FIXED = (
    "m < D: the batches are those of the study files, so only `tight` is at stake, which holds whatever they are."
)


# ---------------------------------------------------------------- the counterexample
def counterexample_audits(test_keystream: str | None = None) -> list[Audit]:
    """One run of each mechanism on the counterexample's functions; agent 1's data differ in one sample."""
    return [_counterexample(mechanism, test_keystream) for mechanism in (one.name for one in TRACKING)]


def _counterexample(mechanism: str, test_keystream: str | None) -> Audit:
    run = counterexample.run_of(mechanism)
    facts = Facts.of(run)
    slopes = counterexample.SLOPES

    def script(slope: float) -> Callable[[int, F64, I64], F64]:
        return lambda k, x, batch: slope * x

    vectors = together(run, [ScriptedOracle(1, counterexample.SAMPLES, script(s)) for s in slopes], test_keystream)
    offset = counterexample.CONSTANT / counterexample.SAMPLES
    ratio = log_ratio(
        Replay(facts, 0, np.zeros(1), vectors, "float64"),
        lambda k, x: slopes[0] * x,
        lambda k, x: slopes[0] * x + offset,
    )
    account = account_for(run, facts.topology, facts.schedule, 0, counterexample.SAMPLES, 1)
    claimed = _pure(account)
    if MECHANISMS[mechanism].printed:
        params = facts.steps(0)
        scales = tuple(facts.schedule.sigma("X", 0, k) for k in range(run.K + 1))
        claimed[CORRECTED.name] = counterexample.corrected(a=params.a, b=params.b, gamma=params.gamma, scales=scales)
    return Audit(
        "agent-1",
        "an observer of every link",
        tuple(witness(mechanism, claimed, ratio, fixed=False)),
        ratio.total,
        1,
        notes=(
            "Counterexample: every assumption of the paper holds, full batch, adjacency constant 1e-6. For k >= 1 all "
            "of agent 1's sampled gradients differ between the two worlds, because its private x_k does; Lemma 4 drops "
            f"that. `corrected` is told the Hessian bound {counterexample.LAM}.",
        ),
    )


def _pure(account: AgentAccount) -> dict[str, float | None]:
    return {name: account.total(name) for name, one in ACCOUNTANTS.items() if one.pure}


# ---------------------------------------------------------------- captured transcripts
def transcript_audits(
    observation: Observation,
    truth: Truth | None,
    *,
    agents: Sequence[str] = (),
    out: Path | None = None,
    data_root: Path | None = None,
    tied: bool = False,
) -> list[Audit]:
    """Every agent of ``observation`` but those who look (or ``agents``) that was seen well enough, its own data here.

    ``out``: a run's output folder; an agent with a data file of its own is found there.  ``tied``: the run file is
    known to be of the transcripts' run; where neither that nor study files say so, a note does.  Raises
    TranscriptError where what was seen does not determine a named agent's ratio, or no agent's; ConfigError for data
    that are not the run's.
    """
    run = observation.facts.run
    audits, reasons = [], []
    observers = {name for header in observation.headers for name in header.observers}
    for name in agents or [name for name in run.graph.agents if name not in observers]:
        if name not in run.graph.agents:
            raise ConfigError.one("command line", "--agent", f"{name} is not in the run file")
        try:
            audits.append(_transcript(observation, truth, run.graph.agents.index(name), out, data_root, tied))
        except TranscriptError as error:
            if agents:
                raise
            reasons.append(str(error))
    if not audits:
        raise TranscriptError("; ".join(reasons) or "every agent that was seen is one of those who look: name one")
    return [replace(audit, notes=(*audit.notes, *(f"Not audited: {reason}" for reason in reasons))) for audit in audits]


def _transcript(
    observation: Observation, truth: Truth | None, index: int, out: Path | None, data_root: Path | None, tied: bool
) -> Audit:
    facts = observation.facts
    run, name = facts.run, facts.names[index]
    if not facts.schedule.noisy:
        raise ConfigError.one("run file", "noise.multiplier", "the noise is off: there is no claim to audit")
    skip = _complete(observation, index)
    oracle = _oracle(run, name, index, out, data_root)
    if oracle.dimension != observation.dimension:
        raise ConfigError.one(
            "run file", "data", f"d = {oracle.dimension} here, {observation.dimension} in the transcript"
        )
    D, m = oracle.samples, facts.schedule.m_for(oracle.samples)
    fixed = m < D if D is not None else run.data.dataset.startswith("pl-")  # stochastic toys: their batch is their xi
    batches = _batches(truth, name, fixed, D, run.K)
    account = account_for(run, facts.topology, facts.schedule, index, D, oracle.dimension)
    here, there, pair = _worlds(oracle, account, batches, m, run, facts.schedule, truth, name)
    replay = Replay(facts, index, oracle.initial(), observation.vectors, observation.dtype, skip=skip)
    try:
        ratio = log_ratio(replay, here, there)
    except Unseen as error:
        agent, stream, k = error.args[0]
        raise TranscriptError(f"{name}: {stream} of round {k} of {facts.names[agent]} was not seen") from error
    notes = [pair, *([BATCHES_FIXED] if fixed else [])]
    if not tied and (truth is None or name not in truth):
        notes.append(UNTIED)
    if skip:
        notes.append(f"Nobody saw {', '.join(sorted(skip))} of {name}: the ratio is that of the other stream.")
    claims = witness(run.algorithm.mechanism, account.epsilon_after(run.K), ratio, fixed=fixed)
    return Audit(name, observation.vantage, tuple(claims), ratio.total, 1, notes=tuple(notes))


def _complete(observation: Observation, index: int) -> frozenset[Stream]:
    """Streams of the agent that nobody saw in any round.  TranscriptError where something was seen in part only."""
    name, K = observation.facts.names[index], observation.facts.run.K
    streams = observation.facts.network.streams
    skip: set[Stream] = set()
    for stream in streams:
        rounds = [k for k in range(K + 1) if (index, stream, k) in observation.vectors]
        if not rounds:
            skip.add(stream)
        elif len(rounds) <= K:
            raise TranscriptError(f"{name}: {K + 1 - len(rounds)} of {K + 1} vectors of {stream} were not seen")
        for k in rounds:
            if np.isnan(observation.vectors[index, stream, k]).any():
                raise TranscriptError(f"{name}: coordinates of {stream} of round {k} are missing")
    if len(skip) == len(streams):
        raise TranscriptError(f"{name}: nothing of it was seen")
    for sender, sent in observation.facts.network.senders(index).items():
        for stream in sent:
            for k in range(K):
                vector = observation.vectors.get((sender, stream, k))
                if vector is not None and np.isnan(vector).any():
                    other = observation.facts.names[sender]
                    raise TranscriptError(f"{name}: coordinates of {stream} of round {k} of {other} are missing")
    return frozenset(skip)


def _oracle(run: RunConfig, name: str, index: int, out: Path | None, data_root: Path | None) -> Oracle:
    node_file = None if out is None else out / "agents" / name / "node.toml"
    if node_file is None or not node_file.exists():
        return build_oracle(run, index, data_root=data_root)
    node = load_node(node_file)
    shard = index if node.shard is None else node.shard - 1
    return build_oracle(run, shard, data_root=data_root, data_path=node.data_path, data_test=node.data_test)


def _batches(truth: Truth | None, name: str, fixed: bool, D: int | None, K: int) -> Callable[[int], I64]:
    """The batch of each round: everything where m = D, else what the study files say."""
    if not fixed:
        whole = np.arange(D or 0, dtype=np.int64)
        return lambda k: whole
    if truth is None or name not in truth:
        raise ConfigError.one(
            "command line", "--truth", f"{name} samples batches (m < D): its study files are needed for the witness"
        )
    missing = set(range(K + 1)) - set(truth[name].rounds())
    if missing:
        raise ConfigError.one(str(truth[name].folder), "", f"no study file of round {min(missing)}")
    of = truth[name]
    return lambda k: of.round(k).batch


def _worlds(
    oracle: Oracle,
    account: AgentAccount,
    batches: Callable[[int], I64],
    m: int,
    run: RunConfig,
    schedule: Schedule,
    truth: Truth | None,
    name: str,
) -> tuple[World, World, str]:
    """(D, D', what D' is).  D' replaces one sample by a copy of another, or moves the gradient by C/m where D is
    unknown.
    """
    sources = Sources(oracle, schedule)

    def here(k: int, point: F64) -> F64:
        return sources.at(k).gradient(point, batches(k))

    def checked(k: int, point: F64) -> F64:
        g = here(k, point)
        if truth is not None and name in truth and k in truth[name].rounds():
            told = truth[name].round(k).g
            if not np.allclose(
                g, told, rtol=TRUTH_TOLERANCE, atol=TRUTH_TOLERANCE * float(np.abs(told).max(initial=0.0))
            ):
                raise ConfigError.one(
                    str(truth[name].folder), "", f"round {k}: the data here give another gradient: not this run's data"
                )
        return g

    if oracle.samples is None or oracle.samples < 2:
        C = run.privacy.adjacency
        if C is None:
            raise ConfigError.one("run file", "privacy.C", "no adjacency constant: there is no claim to audit")

        def moved(k: int, point: F64) -> F64:
            g = here(k, point).copy()
            g[k % len(g)] += schedule.share(k) * C / m
            return g

        return checked, moved, f"D' moves one coordinate of {name}'s mean gradient by C/m in every round."
    s, t = _most_different(oracle)

    def swapped(k: int, point: F64) -> F64:
        batch, g = batches(k), here(k, point)
        if s not in batch:
            return g
        one, other = (sources.at(k).gradient(point, np.array([sample])) for sample in (s, t))
        return g + (other - one) / m

    return (
        checked,
        swapped,
        (
            f"D' is {name}'s own data with sample {s} replaced by a copy of sample {t}: natural gradients, which "
            "seldom move by all that a claim allows."
        ),
    )


def _most_different(oracle: Oracle) -> tuple[int, int]:
    """Two of the first samples whose gradients at x_0 are furthest apart in L1."""
    assert oracle.samples is not None
    x0 = oracle.initial()
    gradients = [oracle.gradient(x0, np.array([s])).copy() for s in range(min(CANDIDATES, oracle.samples))]
    pairs = itertools.combinations(range(len(gradients)), 2)
    return max(pairs, key=lambda pair: float(np.abs(gradients[pair[0]] - gradients[pair[1]]).sum()))
