"""Is the noise of a run the noise that its run file states?  From what was captured and the study's files.

The gradients of the study's files give every release's private part (:class:`Replay`), so what was added to each
coordinate is known, and its exact law given that part.  Exact tests of all draws follow (:mod:`.tally`): a run whose
noise has that law is refuted with probability 1e-9 at most, all questions together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from dpgt_node.adversary.audit.clip import ClipCheck
from dpgt_node.adversary.audit.finding import Finding
from dpgt_node.adversary.audit.likelihood import Draw
from dpgt_node.adversary.audit.replay import Replay, Unseen
from dpgt_node.adversary.audit.tally import Tally, Uniform
from dpgt_node.adversary.inference.observation import Facts, Observation
from dpgt_node.errors import ConfigError
from dpgt_node.privacy.laws.registry import LAWS
from dpgt_node.privacy.mechanisms import MECHANISMS
from dpgt_node.record.truth import AgentTruth, Truth
from dpgt_node.types import F64, Stream

CHANCE: Final = 1e-9
"""That an honest run is refuted, all questions together."""
EVERY: Final = "every agent"
MOST_NUMBERS: Final = 1 << 27
"""Of the tables by agent and coordinate."""


def audit_noise(observation: Observation, truth: Truth, agents: Sequence[str] = ()) -> list[Finding]:
    """Every question, of ``agents`` (none: of all that left study files) together; clips by agent."""
    facts = observation.facts
    why = _why_not(facts)
    if not why and facts.run.n * observation.dimension * 5 > MOST_NUMBERS:
        why = f"{facts.run.n} agents times {observation.dimension} coordinates are more than are kept here"
    if why:
        return [Finding("noise", EVERY, "law", "not tested", why)]
    chosen = [name for name in facts.names if name in agents or (not agents and name in truth)]
    tally, grid = Tally(facts.names, observation.dimension), _Grid()
    rng = np.random.default_rng(0)  # of W: any numbers that the noise does not know
    found: list[Finding] = []
    for name in chosen:
        clip = ClipCheck(facts, name, observation.dimension)
        if name not in truth:
            found.append(Finding("noise", name, "law", "not tested", "it left no study files"))
            continue
        try:
            _one(observation, facts.names.index(name), truth[name], clip, tally, grid, rng)
        except Unseen as error:
            agent, stream, k = error.args[0]
            why = f"{stream} of round {k} of {facts.names[agent]} was not seen: later rounds are not tested"
            found.append(Finding("noise", name, "law", "not tested", why))
        except ConfigError as error:
            found.append(Finding("noise", name, "law", "not tested", error.problems[0].message))
        found += clip.findings()
    return [*grid.findings(), *_judged(tally), *found]


def _why_not(facts: Facts) -> str:
    if not facts.schedule.noisy or not MECHANISMS[facts.run.algorithm.mechanism].noises:
        return "no noise of the run file's laws is drawn"
    if facts.run.noise.cancel is not None:
        return "a part of the noise is shared between agents, and study files do not tell it apart"
    return ""


def _judged(tally: Tally) -> list[Finding]:
    if not tally.draws:
        return []
    scores = tally.scores()
    tests = sum(score.tests for score in scores)
    found = []
    for score in scores:
        p = min(1.0, score.p * tests)
        verdict = "refuted" if p <= CHANCE else "not refuted"
        numbers = {"tests": float(tests), "draws": float(tally.draws), **score.numbers}
        found.append(Finding("noise", EVERY, score.question, verdict, score.where, p, numbers))  # type: ignore[arg-type]
    return found


def _one(
    observation: Observation,
    index: int,
    truth: AgentTruth,
    clip: ClipCheck,
    tally: Tally,
    grid: _Grid,
    rng: np.random.Generator,
) -> None:
    """All draws of one agent.  Raises Unseen, and ConfigError where a study file is missing."""
    facts, d = observation.facts, observation.dimension

    def world(k: int, point: F64) -> F64:
        there = truth.round(k)
        if there.g.shape != (d,):
            raise ConfigError.one(str(truth.folder), "", f"round {k} has no gradient of d = {d}")
        clip.look(k, point, there)
        return there.g

    streams = facts.network.streams
    unseen = {s for s in streams if not any((index, s, k) in observation.vectors for k in range(facts.run.K + 1))}
    replay = Replay(
        facts, index, truth.round(0).x, observation.vectors, observation.dtype, skip=frozenset[Stream](unseen)
    )
    for one in replay.run((world,)):
        if not isinstance(one.draw, Draw):
            method = facts.run.algorithm.method
            message = f'what "{method}" sends is rounded and does not tell its noise; that of method.step = 0.0 does'
            raise ConfigError.one("run file", "algorithm.method", message)
        uniform = grid.uniform(facts.names[index], one.k, one.stream, one.draw, one.private[0], rng)
        if uniform is not None:
            tally.add(index, one.stream, one.k, uniform)


class _Grid:
    """Turns draws into uniform values, and counts those that lie on no grid of the law."""

    def __init__(self) -> None:
        self._seen = self._off = self._hidden = 0
        self._where = ""

    def uniform(
        self, name: str, k: int, stream: Stream, draw: Draw, private: F64, rng: np.random.Generator
    ) -> Uniform | None:
        """None where the wire's rounding hides which grid point was drawn."""
        known = np.isfinite(draw.values) & np.isfinite(private)
        if draw.kind == "rounded":
            self._hidden += 1
            return None
        law = LAWS[draw.law]
        cells, off = draw.cells, np.zeros(len(known), dtype=bool)
        if draw.kind == "foreign":  # coordinates that are on the grid are judged by its law
            g = law.cell(draw.scale)
            at = np.rint(np.where(known, draw.values, 0.0) / g - 0.5)
            points = (at + 0.5) * g
            off = known & (np.abs(draw.values - points) > draw.error + 2.0**-50 * np.abs(points))
            cells = at.astype(np.int64)
        self._seen += int(known.sum())
        if off.any():
            if not self._off:
                self._where = f"first in coordinate {int(off.argmax())} of {stream} of round {k} of {name}"
            self._off += int(off.sum())
        private = np.where(known, private, 0.0)
        exact = Draw(draw.law, draw.scale, "exact", draw.values, cells, draw.error)
        at_cell = np.exp(exact.log_probability(private))
        W = rng.random(len(cells))
        below = law.below(cells, private, draw.scale) + W * at_cell
        above = law.below(-1 - cells, -private, draw.scale) + (1.0 - W) * at_cell
        fold, upper = np.minimum(below, above), below > above
        odd = (cells & 1).astype(bool)
        if off.any():
            t = (draw.values - private) / draw.scale
            fold, upper = np.where(off, _folded(law.norm, t), fold), np.where(off, t > 0.0, upper)
        return Uniform(fold, upper, None if off.any() else odd, known)

    def findings(self) -> list[Finding]:
        """One question, answered for certain."""
        if not self._seen:
            why = "no draw was seen" if not self._hidden else f"the wire's rounding hides all {self._hidden} vectors"
            return [Finding("noise", EVERY, "grid", "not tested", why)]
        numbers = {"off": float(self._off), "draws": float(self._seen), "hidden": float(self._hidden)}
        if self._off:
            text = f"{self._off} of {self._seen} draws lie on no grid of the run file's law and scale, {self._where}"
            return [Finding("noise", EVERY, "grid", "refuted", text, numbers=numbers)]
        hidden = f"; the wire's rounding hides {self._hidden} vectors" if self._hidden else ""
        text = f"{self._seen} draws, of what the agents' own study files say they hid{hidden}"
        return [Finding("noise", EVERY, "grid", "not refuted", text, numbers=numbers)]


def _folded(norm: int, t: F64) -> F64:
    """The chance of the tail beyond ``t`` scales under the density of the law, float64 (d,)."""
    if norm == 1:
        return np.asarray(0.5 * np.exp(-np.abs(t)))
    from scipy.special import ndtr

    return np.asarray(ndtr(-np.abs(t)))
