"""Releases apart from rounds: which rounds release a gradient, and what each release has of its own.

A round that releases nothing sends what follows from earlier releases, so it costs nothing; that holds only where each
gradient is perturbed once.  Elsewhere every round's y carries private state and needs noise of its own.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from dpgt_node.config.declare.kinds import Integer, Number, Schema, quantity
from dpgt_node.config.declare.reader import Section
from dpgt_node.config.vocabulary import MAX_ITERATIONS, MAX_RELEASES, TOYS
from dpgt_node.privacy.mechanisms import MECHANISMS
from dpgt_node.values import dataclass

if TYPE_CHECKING:
    from dpgt_node.config.model import Algorithm, Data, Model, Privacy, Scheme

_BOUNDED = ("hog", "hog-shapes", "edges")
"""Features whose norm is a constant, whatever the sample."""
_PIXELS = ("digits", "mnist", "fashion-mnist", "cifar10", "folder")
"""Data sets of values between 0 and 1."""


@dataclass(frozen=True, slots=True)
class PerRelease:
    """A number > 0 for each release in order; the last one holds for all further ones."""

    @property
    def placeholder(self) -> tuple[float, ...]:
        return (1.0,)

    def read(self, section: Section, key: str, value: object) -> tuple[float, ...]:
        if not isinstance(value, list) or not 1 <= len(value) <= MAX_RELEASES:
            section.problem(key, f"must be a list of 1 to {quantity(MAX_RELEASES)} numbers, one a release")
            return self.placeholder
        return tuple(Number(above=0.0).read(section, f"{key}[{i}]", entry) for i, entry in enumerate(value))

    def schema(self) -> Schema:
        number = Number(above=0.0).schema()
        return {"type": "array", "items": number, "minItems": 1, "maxItems": MAX_RELEASES}

    def words(self) -> str:
        return "list of numbers > 0"


@dataclass(frozen=True, slots=True)
class Rounds:
    """Rounds in ascending order, the first one 0.  Whether there are so many is not known here."""

    @property
    def placeholder(self) -> tuple[int, ...]:
        return (0,)

    def read(self, section: Section, key: str, value: object) -> tuple[int, ...]:
        if not isinstance(value, list) or not 1 <= len(value) <= MAX_RELEASES:
            section.problem(key, f"must be a list of 1 to {quantity(MAX_RELEASES)} rounds")
            return self.placeholder
        rounds = tuple(Integer(0, MAX_ITERATIONS).read(section, f"{key}[{i}]", k) for i, k in enumerate(value))
        if not section.ok(key):
            return self.placeholder
        if rounds[0] != 0:
            section.problem(key, f"must begin with round 0, not {rounds[0]}: before a release nothing moves x")
        for before, k in pairwise(rounds):
            if k <= before:
                section.problem(key, f"must ascend: {k} comes after {before}")
                break
        return rounds

    def schema(self) -> Schema:
        rounds = Integer(0, MAX_ITERATIONS).schema()
        return {"type": "array", "items": rounds, "minItems": 1, "maxItems": MAX_RELEASES, "uniqueItems": True}

    def words(self) -> str:
        return "list of rounds, ascending from 0"


def check_releases(section: Section, scheme: Scheme, algorithm: Algorithm) -> None:
    """Report what of [scheme] does not fit the mechanism or the number of rounds."""
    apart = {
        "release_every": (scheme.release_every or 1) > 1,
        "releases": scheme.releases is not None,
        "settle": scheme.settle,
    }
    if not MECHANISMS[algorithm.mechanism].accounted.once:
        for key in (key for key, given in apart.items() if given):
            section.problem(
                key,
                f'mechanism "{algorithm.mechanism}" sends private state in every round, so every round needs noise and '
                "is charged; noise-once has rounds that release nothing",
            )
        return
    K = algorithm.iterations
    if scheme.settle > K:
        section.problem("settle", f"leaves no round that moves x: there are {K + 1} rounds, so at most {K} may settle")
        return
    last = K - scheme.settle
    for k in (k for k in scheme.releases or () if k > last):
        where = f"rounds {last + 1}..{K} settle" if k <= K else f"the last round is {K}"
        section.problem("releases", f"holds round {k}, but {where}")
        break


def check_clips(section: Section, privacy: Privacy, algorithm: Algorithm) -> None:
    """Report a clip by release where none is enforced, or where a gradient is part of several releases."""
    for key in ("by_release", "decay"):
        if getattr(privacy, key) is None:
            continue
        if not MECHANISMS[algorithm.mechanism].accounted.once:
            why = f'a release under mechanism "{algorithm.mechanism}" holds several gradients, so there is one clip'
            section.problem(key, f"{why}; noise-once may have another for each release")
        elif not privacy.enforced:
            section.problem(key, "multiplies a clip: set clip_l1 or clip_l2")


def check_first(
    section: Section, scheme: Scheme, algorithm: Algorithm, data: Data, model: Model, privacy: Privacy
) -> None:
    """Report why class sums cannot be the first release, where the run file wants them to."""
    if scheme.first == "class-sums" and (why := no_class_sums(algorithm, data, model, privacy)) is not None:
        section.problem("first", f"class sums: {why}")


def no_class_sums(algorithm: Algorithm, data: Data, model: Model, privacy: Privacy) -> str | None:
    """Why class sums cannot be the first release of such a run; None where they can."""
    if not MECHANISMS[algorithm.mechanism].accounted.once:
        return f'mechanism "{algorithm.mechanism}" has no release of its own for them; noise-once has'
    if data.dataset in TOYS:
        return f'"{data.dataset}" has no classes'
    if model.name != "softmax":
        return f'they are the gradient of a linear model, softmax; "{model.name}" has other parameters'
    if not privacy.enforced:
        return "need clip_l1 or clip_l2, which bounds each sample's features in them"
    if not _bounded(data):
        return (
            f'features "{data.features}" of "{data.dataset}" are not bounded, so no clip fits them: set normalise, or '
            "take features of a fixed norm"
        )
    return None


def _bounded(data: Data) -> bool:
    """Whether a sample's features have a norm that is known without looking at the data."""
    if data.normalise != "none" or data.features in _BOUNDED:
        return True
    return data.features in ("raw", "pool14") and data.dataset.partition(":")[0] in _PIXELS
