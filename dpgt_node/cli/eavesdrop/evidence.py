"""Checks of a run's evidence: of its ledgers (``--ledger``), its noise and its clips (``--noise``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dpgt_node.cli import common
from dpgt_node.errors import ConfigError
from dpgt_node.values import dataclass

if TYPE_CHECKING:
    from dpgt_node.adversary.audit.finding import Finding
    from dpgt_node.adversary.audit.ledger import Books
    from dpgt_node.config import RunConfig
    from dpgt_node.wire.transcript import Transcript


@dataclass(frozen=True, slots=True)
class Captured:
    """Transcripts of one run.  ``out``: its output folder, where that is what --run names.  ``run_id``: 16 bytes; empty
    where neither says it.
    """

    run: RunConfig
    files: tuple[Path, ...]
    out: Path | None
    run_id: bytes

    @classmethod
    def of(cls, files: Sequence[Path], run_file: Path) -> Captured:
        """ConfigError: no run file, or transcripts of another run."""
        from dpgt_node.runtime.coordinator.outdir import held_run_id

        out = run_file if run_file.is_dir() else None
        run = common.load_local_run(run_file / "run.toml" if out is not None else run_file)
        named = None if out is None else held_run_id(out)
        one = cls(run, tuple(files), out, named or b"")
        ids = {transcript.header.run_id for transcript in one.transcripts()} - {b""}
        if len(ids | ({named} if named else set())) > 1:
            raise ConfigError.one("command line", "", "the transcripts and --run are of different runs")
        return cls(run, one.files, out, named or next(iter(ids), b""))

    def transcripts(self) -> list[Transcript]:
        from dpgt_node.wire.transcript import Transcript

        return [Transcript(path) for path in self.files]


def ledger_findings(seen: Captured, ledgers: Sequence[str], agents: Sequence[str]) -> list[Finding]:
    """Every agent whose ledger ``ledgers`` names: OUT, an output folder, or NAME=STATE_DIR."""
    from dpgt_node.adversary.audit.ledger import audit_ledger, captured
    from dpgt_node.adversary.inference.observation import Facts

    facts, found = Facts.of(seen.run), []
    state_dirs, out = _state_dirs(seen.run, ledgers)
    asked = agents or [name for name in seen.run.graph.agents if name in state_dirs]
    for name in asked:
        if name not in state_dirs:
            raise ConfigError.one("command line", "--ledger", f"there is none of {name}")
        books = _books(name, state_dirs[name], seen.run_id, out or seen.out)
        index = seen.run.graph.agents.index(name)
        found += audit_ledger(facts, index, books, captured(seen.transcripts(), name))
    return found


def noise_findings(seen: Captured, truth: Path | None, agents: Sequence[str]) -> list[Finding]:
    """Of all agents that left study files under ``truth`` (None: under the run's output folder), or of ``agents``."""
    from dpgt_node.adversary.audit.noise import audit_noise
    from dpgt_node.adversary.inference.observation import Observation
    from dpgt_node.record.truth import find_truth

    folder = truth or seen.out
    if folder is None:
        raise ConfigError.one("command line", "--truth", "name the output folder with the agents' study files")
    unknown = sorted(set(agents) - set(seen.run.graph.agents))
    if unknown:
        raise ConfigError.one("command line", "--agent", f"{', '.join(unknown)}: not in the run file")
    if not seen.files:
        raise ConfigError.one("command line", "--noise", "name the transcripts")
    observation = Observation.load(seen.files, seen.run, run_id=seen.run_id or None)
    return audit_noise(observation, find_truth(folder, seen.run.graph.agents, observation.run_id), agents)


def _state_dirs(run: RunConfig, ledgers: Sequence[str]) -> tuple[dict[str, Path], Path | None]:
    """State directories by agent, and the output folder where one was named."""
    found: dict[str, Path] = {}
    out = None
    for text in ledgers:
        name, equals, folder = text.partition("=")
        if equals and name in run.graph.agents:
            found[name] = Path(folder)
            continue
        out = Path(text)
        held = {one: out / "agents" / one / "state" for one in run.graph.agents}
        found |= {one: path for one, path in held.items() if path.is_dir()}
    if not found:
        raise ConfigError.one("command line", "--ledger", f"no agent's state directory under {', '.join(ledgers)}")
    return found, out


def _books(name: str, state_dir: Path, run_id: bytes, out: Path | None) -> Books:
    """The ledger of one agent as it stands, verified, and what others remember of it."""
    from dpgt_node.adversary.audit.ledger import Books
    from dpgt_node.runtime.store.ledger import TEST, LedgerBroken, read_ledger

    try:
        held = read_ledger(state_dir)
    except LedgerBroken as error:
        return Books((), broken=str(error))
    runs = {entry.run_id for entry in held.entries}
    run_id = run_id or (next(iter(runs)) if len(runs) == 1 else b"")
    if not run_id and runs:
        message = f"{state_dir} holds {len(runs)} runs, and nothing says which is meant: give --run OUT"
        raise ConfigError.one("command line", "--ledger", message)
    entries = [entry for entry in held.entries if entry.run_id == run_id]
    terms = held.terms.get(run_id)
    return Books(
        tuple(entry.row for entry in entries),
        None if terms is None else terms.samples,
        heads=tuple(entry.head for entry in entries),
        remembered=_remembered(name, run_id, out),
        told=_told(name, run_id, out),
        hides=terms is None or terms.keystream != TEST,
    )


def _remembered(name: str, run_id: bytes, out: Path | None) -> tuple[int, bytes] | None:
    from dpgt_node.runtime.coordinator.heads import HEADS_FILE, remembered

    if out is None or not (out / HEADS_FILE).exists():
        return None
    known, heads = remembered(out)
    return heads.get(name) if known == run_id else None


def _told(name: str, run_id: bytes, out: Path | None) -> Mapping[str, float | None] | None:
    from dpgt_node.record.summary import load_summary

    summary = None if out is None else load_summary(out)
    if summary is None or summary.run_id != run_id.hex():
        return None
    return next((agent.epsilon for agent in summary.agents if agent.name == name), None)
