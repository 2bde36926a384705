"""Whether an exchange pays: a run file's worst agent, beside what agents reach alone and one holder at its epsilon.

RUN.toml is a study run (metrics = "study") whose data are on this machine.  It is launched --draws times, each with
noise of its own, or simulated with --fast.  Accuracy is that of x_{i,K+1} on the test set, and of the agent that has
the least in each draw.  "alone" is ``dpgt launch --alone``'s.  "central" holds all samples, and keeps the run's model,
clip, releases, path and largest epsilon (``sim.rivals``).  What is in --out already is not done again.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from dpgt_node.bench.children import run_dpgt
from dpgt_node.bench.figures import Around, Row, Spread, option, required
from dpgt_node.config import RunConfig, load_run
from dpgt_node.durable import write_text
from dpgt_node.errors import ConfigError
from dpgt_node.record.rivals import load_rivals, write_rivals
from dpgt_node.sim.rivals import central, check_rivals, rivals
from dpgt_node.values import dataclass


@dataclass(frozen=True, slots=True)
class Settings:
    run: Path = required("", metavar="RUN.toml", positional=True)
    out: Path = required("Where runs are kept.", metavar="DIR")
    draws: int = option(5, "Runs, each with its own noise; of the central rival, too.", least=1)
    fast: bool = option(False, "dpgt simulate --fast instead of dpgt launch.")


@dataclass(frozen=True, slots=True)
class Rival:
    """Test accuracy in [0, 1].  ``alone``: of every agent; ``central``: one a draw."""

    alone: tuple[float, ...]
    central: tuple[float, ...]

    def cells(self) -> dict[str, float | Spread | None]:
        """As columns of a table; the least of ``alone`` is that of the worst agent."""
        return {
            "alone, worst agent": min(self.alone, default=None),
            "alone, median agent": statistics.median(self.alone) if self.alone else None,
            "central at this epsilon": Spread.over(self.central) if self.central else None,
        }


def figures(settings: Settings, around: Around) -> Iterator[Row]:
    run = load_run(settings.run)
    check_rivals(run, str(settings.run))
    settings.out.mkdir(parents=True, exist_ok=True)
    folders = [settings.out / f"draw-{draw}" for draw in range(settings.draws)]
    found = [measured(settings.run, folder, settings.fast, around) for folder in folders]
    done = [summary for summary in found if summary is not None]
    worst = [min(agent["accuracy_test"] for agent in summary["agents"]) for summary in done]
    lost = len(found) - len(done)
    rival = rival_of(run, settings.out, settings.draws, around)
    yield Row(
        "test accuracy of the worst agent, over draws of the noise",
        {
            "run": run.name,
            "how": "simulate --fast" if settings.fast else "launch",
            "mean": statistics.fmean(worst) if worst else None,
            "accuracy": Spread.over(worst) if worst else None,
            **rival.cells(),
            "epsilon at most": epsilon_of(done),
        },
        f"{lost} of {len(found)} draws did not finish" if lost else "",
    )


def measured(run_file: Path, out: Path, fast: bool, around: Around) -> dict[str, Any] | None:
    """The summary of one draw; None where the run failed."""
    path = out / "summary.json"
    if not path.exists():
        how = ("simulate", run_file, "--fast") if fast else ("launch", run_file)
        run_dpgt(around.environment, *how, "--out", out, expect=None)
    summary: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return summary if summary.get("status") == "finished" else None


def rival_of(run: RunConfig, out: Path, draws: int, around: Around) -> Rival:
    """The rivals of ``run``, kept in ``out``."""
    out.mkdir(parents=True, exist_ok=True)
    alone = load_rivals(out)
    if alone is None or not alone.alone:
        alone = rivals(run, around.data_root)
        write_rivals(out, alone)
    kept = out / "central.json"
    found: list[float] = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else []
    while len(found) < draws:
        accuracy = central(run, around.data_root)
        if accuracy is None:
            raise ConfigError.one(str(out), "", "there is no test set to judge by")
        found.append(accuracy)
        write_text(kept, json.dumps(found))
    return Rival(tuple(alone.alone.values()), tuple(found[:draws]))


def epsilon_of(done: Sequence[dict[str, Any]]) -> float | None:
    """The largest epsilon of any agent and draw under the headline accountant; None without one."""
    costs = [agent["epsilon"][one["headline"]] for one in done if one["headline"] for agent in one["agents"]]
    return max(costs, default=None)
