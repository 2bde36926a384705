"""The runs of a comparison, each as its folder has it, and why some cannot stand beside each other."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from pathlib import Path
from string import ascii_uppercase

from dpgt_node.config import load_run, resolved_dataset, resolved_test
from dpgt_node.config.model import RunConfig
from dpgt_node.config.vocabulary import TOYS
from dpgt_node.errors import ConfigError, Problem
from dpgt_node.privacy.accountants.registry import ACCOUNTANTS, EPSILONS
from dpgt_node.record import epsilons
from dpgt_node.record.rivals import Rivals, load_rivals
from dpgt_node.record.summary import SUMMARY_FILE, Summary, load_summary
from dpgt_node.report import adversary_html, attack_table, text
from dpgt_node.values import dataclass

RUNS_MAX = len(ascii_uppercase)
_OF_THE_TEST_SET = ("label", "test_fraction", "own_test_fraction", "classes")


@dataclass(frozen=True, slots=True)
class Compared:
    """One run.  ``letter``: its name in the comparison.  ``attacks``: what each attack on this very run reached."""

    letter: str
    folder: Path
    run: RunConfig
    summary: Summary
    rivals: Rivals | None
    attacks: Sequence[attack_table.Reached]

    @property
    def accuracies(self) -> tuple[float, ...]:
        """Test accuracy of every agent that has one, in [0, 1], least first."""
        return tuple(sorted(a.accuracy_test for a in self.summary.agents if a.accuracy_test is not None))

    @property
    def worst(self) -> float:
        """Test accuracy of the worst agent."""
        return self.accuracies[0]

    @property
    def alone(self) -> float | None:
        """Test accuracy of the worst agent without exchange and noise; None where nobody trained them."""
        return None if self.rivals is None or not self.rivals.alone else self.rivals.worst

    @property
    def accountant(self) -> str | None:
        """Whose epsilon stands for the run; None where there is none, or a delta alone."""
        name = epsilons.shown(self.summary)
        return name if name in EPSILONS else None

    @property
    def epsilon(self) -> float:
        """The largest of any agent; infinite where there is none."""
        value = None if self.accountant is None else text.largest_epsilon(self.summary, self.accountant)
        return math.inf if value is None else value

    @property
    def delta(self) -> float | None:
        """Of that epsilon: 0 for a pure one, which holds at every delta; None where there is no epsilon."""
        name = self.accountant
        return None if name is None else 0.0 if ACCOUNTANTS[name].pure else self.summary.privacy.delta

    @property
    def word(self) -> str:
        """What that epsilon is worth."""
        return "none" if self.accountant is None else epsilons.word(self.summary, self.accountant, self.epsilon)

    @property
    def protected(self) -> float:
        """Epsilon where it protects, else infinite: what a run without a guarantee is ordered by."""
        return math.inf if self.word == "none" else self.epsilon


def load_runs(folders: Sequence[Path], *, least: int = 2) -> list[Compared]:
    """The runs in ``folders``, at least so many, named A, B, ...

    Raises :class:`ConfigError` with every reason why they cannot be compared: a folder without a result, a run whose
    accuracy nobody knows, other test samples, another delta, one run twice.
    """
    if not least <= len(folders) <= RUNS_MAX:
        raise ConfigError.one("command line", "DIR", f"{least} to {RUNS_MAX} runs can be compared, not {len(folders)}")
    problems: list[Problem] = []
    found: list[Compared] = []
    places: set[Path] = set()
    for letter, folder in zip(ascii_uppercase, folders, strict=False):
        place = folder.resolve()
        if place in places:
            problems.append(Problem(str(folder), "", "is given twice"))
            continue
        places.add(place)
        try:
            one = _load(letter, folder)
        except ConfigError as error:
            problems += error.problems
            continue
        if (why := _without_accuracy(one)) is not None:
            problems.append(Problem(str(folder), "", why))
        else:
            found.append(one)
    problems += [Problem(str(one.folder), "", why) for one in found[1:] for why in _unlike(found[0], one)]
    problems += _deltas(found)
    problems += _twice(found)
    if problems:
        raise ConfigError(problems)
    return found


def _load(letter: str, folder: Path) -> Compared:
    summary = load_summary(folder)
    if summary is None:
        raise ConfigError.one(str(folder), "", f"has no {SUMMARY_FILE}: only runs that have ended can be compared")
    attacked = adversary_html.load(folder)
    reached = [] if attacked is None else adversary_html.reached(attacked)
    return Compared(
        letter,
        folder,
        load_run(folder / "run.toml"),
        summary,
        load_rivals(folder),
        # An entry with a setting behind its name is of a study beside this run, with other noise.
        [one for one in reached if attack_table.base_of(one.attack) == one.attack],
    )


def _without_accuracy(one: Compared) -> str | None:
    if one.accuracies:
        return None
    if one.run.data.dataset in TOYS:
        return f'"{one.run.data.dataset}" has no samples: there is neither an accuracy nor an epsilon to compare'
    if one.run.evaluate.metrics == "local":
        return (
            'its agents keep their accuracy to themselves (metrics = "local"): there is nothing to compare by. Where '
            'all data may be studied, [evaluate] metrics = "study" tells it'
        )
    return f"it is {one.summary.status} and no agent has a test accuracy: there is nothing to compare by"


def _unlike(first: Compared, other: Compared) -> list[str]:
    found = []
    mine, theirs = (_test_set(one.run) for one in (other, first))
    found += [
        f"{mine[key]}, and {first.folder} {theirs[key]}: accuracies on different test samples cannot be compared"
        for key in mine
        if mine[key] != theirs[key] and not (key == "dataset" and _same_bytes(other.run, first.run))
    ]
    return found


def _test_set(run: RunConfig) -> dict[str, str]:
    """What decides which samples judge the run, in words, by key."""
    found = {"dataset": f"is judged on {resolved_dataset(run)}"}
    test = resolved_test(run)
    found["test"] = "takes its test samples from that" if test is None else f"takes its test samples from {test}"
    samples = run.evaluate.samples
    found["samples"] = f"is judged by {'all' if samples is None else samples} test samples"
    found |= {key: f"has data.{key} = {run.data.params.get(key, 'none')}" for key in _OF_THE_TEST_SET}
    return found


def _same_bytes(one: RunConfig, other: RunConfig) -> bool:
    """Whether both name files of one kind with equal content, wherever they lie."""
    (kind, _, path), (other_kind, _, other_path) = (resolved_dataset(run).partition(":") for run in (one, other))
    paths = Path(path), Path(other_path)
    if kind != other_kind or not all(p.is_file() for p in paths) or paths[0].stat().st_size != paths[1].stat().st_size:
        return False
    try:
        mine, theirs = (_digest(p) for p in paths)
    except OSError:
        return False
    return mine == theirs


def _digest(path: Path) -> bytes:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()


def _deltas(found: Sequence[Compared]) -> list[Problem]:
    """Epsilons at two deltas are two scales; a pure epsilon holds at both."""
    first = next((one for one in found if one.delta), None)
    return [
        Problem(
            str(one.folder),
            "",
            f"its epsilon is for delta {one.delta:g}, that of {first.folder} for {first.delta:g}: they cannot be "
            "compared; give the runs one [privacy] delta",
        )
        for one in found
        if first is not None and one.delta and one.delta != first.delta
    ]


def _twice(found: Sequence[Compared]) -> list[Problem]:
    seen: dict[str, Compared] = {}
    problems = []
    for one in found:
        before = seen.setdefault(one.summary.run_id or str(one.folder.resolve()), one)
        if before is not one:
            problems.append(Problem(str(one.folder), "", f"is the same run as {before.folder}"))
    return problems
