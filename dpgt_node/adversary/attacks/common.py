"""What the attacks share: whom they attack, settings, ground truth beside estimates, numbers that may be missing."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import numpy as np

from dpgt_node.adversary.attack import Finding, NotApplicable, Options, Result
from dpgt_node.adversary.inference.knowledge import Samples, class_count, public_samples
from dpgt_node.adversary.inference.observation import Observation
from dpgt_node.errors import ConfigError
from dpgt_node.record.truth import Truth, TruthRound
from dpgt_node.types import F64

T = TypeVar("T")
Curves = dict[str, tuple[F64, F64]]
NO_TRUTH = "no ground truth of this agent was given"


def targets(observation: Observation, options: Options) -> list[int]:
    """Indices of the agents attacked: those of ``options``, else all but the observers, who know their own side.

    ConfigError for a name that the run does not have; NotApplicable where everybody is an observer.
    """
    names = observation.facts.names
    unknown = [name for name in options.agents if name not in names]
    if unknown:
        raise ConfigError.one("command line", "--agent", f"{', '.join(unknown)}: the run has {', '.join(names)}")
    if options.agents:
        return [i for i, name in enumerate(names) if name in options.agents]
    observers = {name for header in observation.headers for name in header.observers}
    found = [i for i, name in enumerate(names) if name not in observers]
    if not found:
        message = "every agent of the run is an observer: name one with --agent to attack it all the same"
        raise NotApplicable.one("command line", "TRANSCRIPT", message)
    return found


def setting(options: Options, key: str, default: T, read: Callable[[str], T]) -> T:
    """KEY of ``--set``; ConfigError when ``read`` refuses its text."""
    if key not in options.extra:
        return default
    try:
        return read(options.extra[key])
    except ValueError as error:
        raise ConfigError.one("command line", f"--set {key}", str(error)) from error


def between(low: int, high: int | None = None) -> Callable[[str], int]:
    """A reader of integers from ``low`` to ``high`` (None: without end), for :func:`setting`."""

    def read(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise ValueError(f"{text!r} is not a whole number") from None
        if value < low or (high is not None and value > high):
            raise ValueError(f"{text} is not a number " + (f">= {low}" if high is None else f"from {low} to {high}"))
        return value

    return read


def positive(text: str) -> int:
    """An integer >= 1."""
    return between(1)(text)


def last_round(observation: Observation, options: Options) -> int | None:
    """``--set through``: attack rounds 0..THROUGH only; None: not given.  ConfigError beyond the run's end."""
    value, K = setting(options, "through", None, positive), observation.facts.run.K
    if value is not None and value > K:
        raise ConfigError.one("command line", "--set through", f"{value}: the run ends at round {K}")
    return value


def classes_of(observation: Observation, options: Options) -> int:
    """Number of classes: ``--set classes``, or of the data set's name."""
    given = setting(options, "classes", None, between(2, observation.dimension))
    return class_count(observation.facts.run, None if given is None else str(given))


def flag(text: str) -> bool:
    """``yes`` or ``no``."""
    if text not in ("yes", "no"):
        raise ValueError(f"{text!r} is neither yes nor no")
    return text == "yes"


def auxiliary(observation: Observation, options: Options, *, count: int) -> Samples | None:
    """Public samples like the agents': the test part of the run's data set, with ``--set aux=yes``."""
    if not setting(options, "aux", False, flag):
        return None
    root = options.extra.get("data")
    return public_samples(observation.facts.run, None if root is None else Path(root), count)


def whole(observation: Observation, attack: str) -> None:
    """ConfigError unless every coordinate was kept: ``attack`` reads them by their place in the model."""
    if observation.coordinates is not None:
        message = f"{attack} needs every coordinate; these transcripts keep {observation.coordinates.size}"
        raise NotApplicable.one("command line", "TRANSCRIPT", message)


def known_rounds(
    truth: Truth | None, name: str, rounds: Sequence[int], observation: Observation
) -> dict[int, TruthRound]:
    """The rounds of agent ``name`` whose truth was kept, x, y and g in the coordinates of the observation.

    A round that took no gradient is none of them: there is nothing to recover.  Class sums come with their factor.
    ConfigError when one is of another model.
    """
    if truth is None or name not in truth:
        return {}
    kept = set(truth[name].rounds())
    rounds_kept = {k: truth[name].round(k) for k in rounds if k in kept}
    factor = observation.facts.schedule.factor
    found = {
        k: one if factor(k) == 1.0 else replace(one, g=factor(k) * one.g)
        for k, one in rounds_kept.items()
        if one.g.size
    }
    for k, one in found.items():
        if one.g.shape != (observation.dimension,):
            message = f"ground truth of round {k} has d = {one.g.size}, the transcript {observation.dimension}"
            raise ConfigError.one(str(truth[name].folder), "", message)
        at = observation.coordinates
        if at is not None:
            found[k] = replace(one, x=one.x[at], y=one.y[at], g=one.g[at])
    return found


def stacked(found: Mapping[int, TruthRound], what: str, rounds: int, dimension: int) -> F64:
    """x, y or g as (rounds, d), NaN in rounds of which there is no truth."""
    out = np.full((rounds, dimension), np.nan)
    for k, one in found.items():
        out[k] = getattr(one, what)
    return out


def rms(values: F64) -> float | None:
    """Root mean square of what is not NaN; None where there is nothing."""
    total, count = float(np.nansum(np.square(values))), int(np.count_nonzero(~np.isnan(values)))
    return math.sqrt(total / count) if count else None


def mean(values: Sequence[float] | F64) -> float | None:
    """Of what is not NaN; None where there is nothing."""
    array = np.asarray(values, dtype=np.float64)
    array = array[~np.isnan(array)]
    return float(array.mean()) if array.size else None


def _noisy(observation: Observation) -> bool:
    """Whether any release of the run has noise, by its run file."""
    facts = observation.facts
    cells = ((stream, i) for stream in facts.network.streams for i in range(len(facts.names)))
    return any(facts.schedule.sigma(stream, i, facts.schedule.last_release(0)) > 0.0 for stream, i in cells)


def _told(note: str) -> str:
    return "; ".join(filter(None, (note, "there is no noise: the attack is too weak, the run is not safe")))


def result(
    attack: str,
    summary: str,
    findings: Sequence[Finding],
    observation: Observation,
    *,
    curves: Curves | None = None,
    pictures: Mapping[str, F64] | None = None,
) -> Result:
    """With vantage point and missing data, as every result must have them.

    An attack that fails where there is no noise says something of itself and nothing of the run: it had no power.
    """
    silent = not _noisy(observation)
    return Result(
        attack,
        summary,
        tuple(
            replace(f, verdict="no power", note=_told(f.note)) if silent and f.verdict == "fails" else f
            for f in findings
        ),
        observation.vantage,
        observation.missing(),
        pictures or {},
        curves or {},
    )
