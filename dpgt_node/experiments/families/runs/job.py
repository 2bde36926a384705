"""One run of a family as a value, and how it is carried out: anywhere, from text alone, to a few plain files."""

from __future__ import annotations

import gc
import hashlib
import json
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from dpgt_node.algo.methods.dsgd.central import curated
from dpgt_node.algo.schedule import Schedule
from dpgt_node.config import RunConfig, canonical_json, parse_run, to_toml
from dpgt_node.errors import ConfigError, DpgtError, ExitCode
from dpgt_node.experiments.families.runs.epsilons import EPSILON_FILE, table
from dpgt_node.experiments.families.runs.private import at_epsilon, on_training_samples
from dpgt_node.experiments.families.runs.problems import RATE_FILE, measure
from dpgt_node.learning.oracle import build_oracle
from dpgt_node.record.metrics import METRICS_FILE
from dpgt_node.record.rivals import RIVALS_FILE, write_rivals
from dpgt_node.record.summary import SUMMARY_FILE
from dpgt_node.runtime.process import give_back, tune_malloc
from dpgt_node.sim.fast import simulate_fast
from dpgt_node.sim.rivals import rivals
from dpgt_node.sim.simulate import simulate
from dpgt_node.values import dataclass

RUN_FILE = "run.toml"
JOB_FILE = "job.json"
Kind = Literal["fast", "exact", "alone", "epsilon", "rate", "private"]
"""``fast``: ``simulate --fast``; ``exact``: ``simulate``; ``alone``: every agent by itself, without noise;
``epsilon``: no training, the accountants alone, as the run's length grows; ``rate``: many repetitions on a problem with
a known minimiser; ``private``: ``fast`` with the least noise for an epsilon.
"""
Files = dict[str, bytes]
"""What a run leaves, by the name of the file."""


class RunFailed(DpgtError):
    """A run did not end as it should."""

    exit_code = ExitCode.CHECK_FAILED


@dataclass(frozen=True)
class Job:
    """``run`` as ``kind`` says, with batches and noise from ``seed``.

    Its name holds a hash of all that its results depend on, so two families that ask for the same run share it.
    ``lengths``, ``both``: of ``epsilon``, whose table says what they are.  ``lengths``, ``detail``: of
    ``rate``; the latter of ``private``, too.
    """

    run: RunConfig
    seed: int
    kind: Kind = "fast"
    device: str = field(default="cpu", compare=False)
    lengths: tuple[int, ...] = ()
    both: bool = False
    detail: tuple[tuple[str, str | float], ...] = ()

    @cached_property
    def name(self) -> str:
        """Of its folder."""
        content = json.dumps([canonical_json(self.run), self.seed, self.kind, self.lengths, self.both, self.detail])
        slug = re.sub(r"[^a-z0-9.]+", "-", self.run.name.lower()).strip("-.")[:48]
        which = f"seed{self.seed}" if self.kind in ("fast", "exact") else self.kind
        return f"{slug}-{which}-{hashlib.sha256(content.encode()).hexdigest()[:10]}"

    @property
    def keystream(self) -> str:
        """Of its noise and batches, hexadecimal digits: whoever has the seed has the run, bit for bit."""
        return hashlib.sha256(f"dpgt experiment, seed {self.seed}".encode()).hexdigest()[:32]

    def arguments(self, data_root: Path | None) -> tuple[Any, ...]:
        """Of :func:`carry_out`: plain text, for a process that shares nothing with this one but the package."""
        root = None if data_root is None else str(data_root.absolute())
        toml = to_toml(self.run, absolute_paths=True)
        return toml, self.keystream, self.kind, root, self.device, self.lengths, self.both, self.detail


def carry_out(
    run_toml: str,
    keystream: str,
    kind: Kind,
    data_root: str | None,
    device: str = "cpu",
    lengths: Sequence[int] = (),
    both: bool = False,
    detail: Sequence[tuple[str, str | float]] = (),
) -> Files:
    """The run in ``run_toml``, in a temporary folder of this process; the files to keep.

    ``data_root``: where this machine keeps picture sets.  Raises RunFailed, and ConfigError for a run file or data that
    cannot be used here.
    """
    run = curated(parse_run(run_toml, RUN_FILE, Path.cwd()))
    _make_room(run)
    root = None if data_root is None else Path(data_root)
    found: dict[str, str | float] = {}
    with tempfile.TemporaryDirectory(prefix="dpgt-run-") as name:
        out = Path(name)
        if kind == "epsilon":
            (out / EPSILON_FILE).write_text(table(run, lengths, root, both=both), encoding="utf-8")
        elif kind == "rate":
            (out / RATE_FILE).write_text(_rate(run, lengths, dict(detail), keystream), encoding="utf-8")
        elif kind == "private":
            held = dict(detail)
            run = on_training_samples(run, out, root) if held["tuning"] else run
            private = at_epsilon(run, float(held["epsilon"]), root)
            run, found = private.run, {"accountant": private.accountant, "reached": private.reached}
            _simulate(run, out, keystream, root, device, exact=False)
            run_toml = to_toml(run)
        elif kind == "alone":
            write_rivals(out, rivals(run, root))
        else:
            _simulate(run, out, keystream, root, device, exact=kind == "exact")
        files = {one: (out / one).read_bytes() for one in _LEFT[kind]}
        facts = {} if kind == "rate" else _facts(run, root)
    about = {"kind": kind, "how": _HOW[kind], "keystream": keystream, **facts, **dict(detail), **found}
    return {RUN_FILE: run_toml.encode(), JOB_FILE: (json.dumps(about, indent=2) + "\n").encode(), **files}


def _make_room(run: RunConfig) -> None:
    """Of the runs before, whose matrices of a large network may be gigabytes and lie in cycles."""
    tune_malloc()  # matrices come and go; without it their pages do too
    if run.model.name != "softmax":
        gc.collect()
        give_back()


def _simulate(run: RunConfig, out: Path, keystream: str, root: Path | None, device: str, *, exact: bool) -> None:
    run_id = hashlib.sha256(f"{canonical_json(run)}{keystream}".encode()).digest()[:16]
    if exact and device != "cpu":
        raise ConfigError.one("command line", "--device", f"{device} is for the fast simulator: leave out --exact")
    if exact:
        conclude, _ = simulate(run, out, run_id, data_root=root, test_keystream=keystream)
    else:
        conclude, _ = simulate_fast(run, out, run_id, data_root=root, test_keystream=keystream, device=device)
    if conclude.exit_code is not ExitCode.DONE:
        raise RunFailed(conclude.reason)


def _rate(run: RunConfig, lengths: Sequence[int], detail: Mapping[str, str | float], keystream: str) -> str:
    seed, along = int(keystream[:8], 16), bool(detail["along"])
    return measure(run, str(detail["problem"]), lengths, int(detail["repetitions"]), seed, along=along)


def _facts(run: RunConfig, root: Path | None) -> dict[str, int]:
    """What captions state: n, K, m, d, and the least D of an agent."""
    oracles = [build_oracle(run, i, data_root=root) for i in range(run.n)]
    counts = [oracle.samples for oracle in oracles if oracle.samples is not None]
    m = Schedule.from_config(run).m_for(min(counts, default=None))
    return {"n": run.n, "K": run.K, "m": m, "d": oracles[0].dimension, "D": min(counts, default=0)}


_LEFT: Mapping[Kind, tuple[str, ...]] = {
    "fast": (METRICS_FILE, SUMMARY_FILE),
    "exact": (METRICS_FILE, SUMMARY_FILE),
    "alone": (RIVALS_FILE,),
    "epsilon": (EPSILON_FILE,),
    "rate": (RATE_FILE,),
    "private": (METRICS_FILE, SUMMARY_FILE),
}
_HOW: Mapping[Kind, str] = {
    "fast": "dpgt simulate --fast --test-keystream KEYSTREAM",
    "exact": "dpgt simulate --test-keystream KEYSTREAM",
    "alone": "dpgt simulate --alone, of which only the part alone",
    "epsilon": "dpgt check, for every K",
    "private": "dpgt simulate --fast --test-keystream KEYSTREAM, noise set for the epsilon named here",
    "rate": "the method's own rule on the problem named here, repetitions side by side, seeded noise",
}
