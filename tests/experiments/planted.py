"""The table of planted bugs: what catches each, in how many runs or trials and CPU seconds; and false alarms.

``python -m tests.experiments.planted [--honest N] [--most TRIALS] [--labels N] [--only TEXT]``, or ``make planted
ARGS="..."``.

    noise fit   one simulated run of four agents (digits, d = 650, K = 8; 60 where one coordinate has half its noise)
    event       canaries at K = 0 and a claim of 1, looked at after 200, 400, 800, ... trials a world, at 95 %
    renyi       the same trials, at 1 - 10^-9
    labels      the clip, which canaries do not pass: both tests again, of labels of simulated runs of two agents whose
                audit clips as it should
    ledger      rows of one run's ledger, recounted
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

from dpgt_node.adversary.audit.noise import audit_noise
from dpgt_node.agent.noise import sampler_for
from dpgt_node.bench.studies.audit import calibrated, launch_run
from dpgt_node.config import RunConfig
from dpgt_node.experiments import launches
from dpgt_node.experiments.canary_runs import conduct
from dpgt_node.experiments.trials import Test, Trials, lower_bound, runs_for
from dpgt_node.learning.nets.clipping import Clip
from dpgt_node.privacy.laws.noise import Sampler
from tests.adversary.audit import test_ledger as ledgers
from tests.adversary.audit.test_noise import BUGS, Planted, clipped
from tests.adversary.record import Play, play

LOOKS: tuple[tuple[Test, float], ...] = (("event", 0.95), ("renyi", 1.0 - 1e-9))
CLIPS = {"no clip": 1e3, "clip x 2": 2.0, "": 1.0}
ALONE = 18
"""Coordinates, where the fault is in the last of them alone."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--honest", type=int, default=20, help="honest runs of the noise fit and of the ledger audit")
    parser.add_argument("--most", type=int, default=51_200, help="trials a world, after which canaries give up")
    parser.add_argument("--labels", type=int, default=12_800, help="labels a world, after which these audits give up")
    parser.add_argument("--only", default="", help="bugs whose name has this in it")
    given = parser.parse_args()
    for bug in (name for name in BUGS if given.only in name):
        print(f"{bug}: {fitted(bug)}; {'; '.join(told(bug, given.most))}", flush=True)
    for bug, factor in CLIPS.items():
        if given.only in bug and (bug or not given.only):
            print(f"{bug or 'no bug, labels'}: {'; '.join(labelled(factor, given.labels))}", flush=True)
    for name, seconds in ledger_lies(given.only):
        print(f"ledger, {name}: {seconds}", flush=True)
    print(honest(given.honest), flush=True)
    print(f"no bug: {'; '.join(told('', given.most))}", flush=True)


def fitted(bug: str) -> str:
    """The noise fit of one run with ``bug``."""
    run, since = clipped(K=60 if "half the noise in one" in bug else 8), time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        p = play(run, sampler=planted(bug, run), samples=False, hex_digits=os.urandom(8).hex())
        found = sorted({one.question for one in audit_noise(p.observe(Path(folder) / "t"), p.memory()) if one.refuted})
    said = f"1 run: {', '.join(found)}" if found else "not"
    return f"noise fit {said}, {time.process_time() - since:.1f} s"


def told(bug: str, most: int) -> Iterator[str]:
    """Canaries under ``bug``: after how many trials each test refutes the claim."""
    width = ALONE if "one coordinate" in bug else 1000
    campaign = calibrated("noise-once", "laplace", 1.0, 0, width=width, test_keystream=None)
    campaign = replace(campaign, lawless=True, sampler=planted(bug, campaign.run))
    for test, confidence in LOOKS:
        trials = campaign.kept_in(None)
        yield looked(test, confidence, trials, most, partial(conduct, campaign, trials), "trials")


def labelled(factor: float, most: int) -> Iterator[str]:
    """Labels of simulated runs whose agents clip at ``factor`` times the run file's bound: as :func:`told`."""

    def faulty(*given: Any, **named: Any) -> Any:
        with mock.patch.object(Clip, "from_config", lambda privacy: right(privacy).times(factor)):
            return honestly(*given, **named)

    right, honestly = Clip.from_config, launches.simulate
    for test, confidence in LOOKS:
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(launches, "simulate", faulty):
            run = launch_run("noise-once", 0, 0.02)
            flips = launches.Flips.of(run, 0, None, Path(folder), lawless=True, simulated=True)
            trials = flips.kept()
            yield looked(
                test, confidence, trials, most,
                lambda n, of=flips, to=trials: launches.conduct(of, to, runs_for(of.count, n)), "labels",
            )  # fmt: skip


def looked(test: Test, confidence: float, trials: Trials, most: int, make: Callable[[int], Any], what: str) -> str:
    """After how many trials a world ``test`` refutes a claim of 1; ``make(n)`` makes those that ``n`` still lack."""
    since, n, refuted = time.process_time(), 100, False
    while not refuted and 2 * n <= most:
        n *= 2
        make(n)
        worlds, canaries = trials.worlds(n), trials.canaries(n)
        found, _ = lower_bound("tight", *worlds, delta=0.0, test=test, confidence=confidence, canaries=canaries)
        refuted = found > 1.0 + 1e-4  # labels' claim is 1 to five digits
    said = f"{n} {what}, {len(trials.done)} runs" if refuted else f"not in {n} {what}"
    sure = "95 %" if confidence < 0.96 else "1 - 10^-9"
    return f"{test} at {sure}: {said}, {time.process_time() - since:.1f} s"


def planted(bug: str, run: RunConfig) -> Callable[[RunConfig], Sampler]:
    if not bug:
        return sampler_for
    plant = BUGS[bug][0]
    return lambda of: Planted(sampler_for(of), plant(sampler_for(of), run.noise.law))


def ledger_lies(only: str) -> Iterator[tuple[str, str]]:
    with tempfile.TemporaryDirectory() as folder:
        p = play(ledgers.clipped())
        path = p.transcript(Path(folder) / "t")
        rows = ledgers.rows_of(p)
        for name, (change, _, _) in ledgers.MUTANTS.items():
            if only in name:
                since = time.process_time()
                found = sorted(ledgers.refuted(p, path, change(rows)))
                yield name, f"1 run, {', '.join(found) or 'not'}, {time.process_time() - since:.1f} s"


def honest(count: int) -> str:
    """False alarms of the noise fit and of the ledger audit, each on runs of its own."""
    alarms = lies = 0
    since = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        for r in range(count):
            p: Play = play(clipped(K=8, law=("laplace", "gaussian")[r % 2]), hex_digits=os.urandom(8).hex())
            alarms += any(one.refuted for one in audit_noise(p.observe(Path(folder) / f"{r}"), p.memory()))
            lies += bool(ledgers.refuted(p, p.transcript(Path(folder) / f"l{r}"), ledgers.rows_of(p)))
    seconds = time.process_time() - since
    return f"honest: {alarms} of {count} runs accused by the noise fit, {lies} by the ledger audit, {seconds:.1f} s"


if __name__ == "__main__":
    main()
