"""Study files with the ground truth of a run: written by agents (and the simulator), read by adversaries' reports only.

One file a round, ``FOLDER/0000012.npz``, replaced as a whole, so that a crash leaves whole rounds; an agent writes
them when its own run file says ``[adversary] truth = true``, which needs ``metrics = "study"``.  They hold what no
message may: a folder of them is as private as the data.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field
from pathlib import Path

import numpy as np

from dpgt_node.durable import replacing
from dpgt_node.errors import ConfigError
from dpgt_node.types import F64, I64
from dpgt_node.values import dataclass

SAMPLES_BYTES = 1 << 20
"""The samples of a batch are kept where they take at most this much."""
_RUN = "run"


@dataclass(frozen=True, slots=True)
class TruthRound:
    """Round ``k`` of one agent, private: x_k, y_k, g_k (without noise), float64 (d,), y_k empty where the method has
    none, g_k in a round that takes none; the indices of its batch, int64 (m,) (of stochastic toys: their xi, as the
    oracle draws them); their labels, int64 (m,), and their samples as the model takes them, float64 (m, ...).  Labels
    and samples are empty where there are none; samples also where they would take more than SAMPLES_BYTES.
    """

    k: int
    x: F64 = field(repr=False)
    y: F64 = field(repr=False)
    g: F64 = field(repr=False)
    batch: I64 = field(repr=False)
    labels: I64 = field(repr=False)
    samples: F64 = field(repr=False)


@dataclass(frozen=True, slots=True)
class AgentTruth:
    """The rounds of one agent that were kept, in its folder; read one at a time."""

    folder: Path

    def rounds(self) -> tuple[int, ...]:
        """Those that are there, ascending."""
        return tuple(sorted(int(p.stem) for p in self.folder.glob("*.npz") if p.stem.isdigit()))

    def round(self, k: int) -> TruthRound:
        """Round ``k``; ConfigError when it is absent or no such file."""
        path = _path(self.folder, k)
        try:
            with np.load(path, allow_pickle=False) as file:
                return TruthRound(k, *(file[name] for name in ("x", "y", "g", "batch", "labels", "samples")))
        except (OSError, KeyError, ValueError) as error:
            raise ConfigError.one(str(path), "", f"no ground truth of round {k}: {error}") from error

    def run_id(self) -> bytes:
        """Of the run that they are of, 16 bytes; empty where that is not known."""
        try:
            return bytes.fromhex((self.folder / _RUN).read_text(encoding="ascii"))
        except (OSError, ValueError):
            return b""

    def __iter__(self) -> Iterator[TruthRound]:
        return (self.round(k) for k in self.rounds())


Truth = dict[str, AgentTruth]
"""By agent name."""


def begin(folder: Path, run_id: bytes) -> None:
    """Make ``folder`` that of this run (16 bytes): what another run left there goes."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    mark = folder / _RUN
    if mark.is_file() and mark.read_text(encoding="ascii").strip() == run_id.hex():
        return
    for path in folder.iterdir():
        path.unlink()
    mark.write_text(run_id.hex() + "\n", encoding="ascii")


def cut(folder: Path, low: int) -> None:
    """Drop the rounds from ``low`` on."""
    for k in AgentTruth(folder).rounds():
        if k >= low:
            _path(folder, k).unlink()


def write_round(folder: Path, truth: TruthRound, *, sync: bool = False) -> None:
    """Write one round; atomic.  ``sync``: durable on return, also against a power cut."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = _path(folder, truth.k)
    with replacing(path, "whole" if sync else "process") as file:
        np.savez(
            file,
            x=truth.x,
            y=truth.y,
            g=truth.g,
            batch=truth.batch,
            labels=truth.labels,
            samples=truth.samples,
        )


def find_truth(out: Path, names: Sequence[str], run_id: bytes = b"") -> Truth:
    """The study files under a run's output folder, ``OUT/agents/NAME/state/truth``.

    ConfigError: there are none, or they are of another run than ``run_id`` (where that is known).
    """
    found = {name: AgentTruth(out / "agents" / name / "state" / "truth") for name in names}
    found = {name: truth for name, truth in found.items() if truth.rounds()}
    if not found:
        raise ConfigError.one(
            str(out), "", 'no ground truth: none of its agents ran with [adversary] truth = true and metrics = "study"'
        )
    for truth in found.values():
        if run_id and truth.run_id() not in (run_id, b""):
            raise ConfigError.one(
                str(truth.folder), "", f"ground truth of run {truth.run_id().hex()}, not of run {run_id.hex()}"
            )
    return found


def _path(folder: Path, k: int) -> Path:
    return folder / f"{k:07d}.npz"
