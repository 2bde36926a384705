"""``dpgt export``: a model that may be published, with its privacy statement."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING

import click
import numpy as np

from dpgt_node.cli import common
from dpgt_node.cli.wrapping import say
from dpgt_node.config import RunConfig, load_run, run_sha256, to_toml
from dpgt_node.config.data import without_paths
from dpgt_node.documents import read_json
from dpgt_node.errors import ConfigError, ExitCode
from dpgt_node.values import dataclass

if TYPE_CHECKING:
    from dpgt_node.report.publishing.all_runs import DataSet
    from dpgt_node.report.publishing.export import Source, Which
    from dpgt_node.runtime.store.ledger import Charge
    from dpgt_node.types import F64


@click.command()
@click.argument("folder", metavar="DIR", type=common.FOLDER)
@click.option("--out", required=True, type=common.FOLDER, help="A new folder for the model.")
@click.option("--agent", help="Whose releases.  [default: the first agent of the run file]")
@click.option(
    "--as",
    "which",
    type=click.Choice(["average", "last", "final"]),
    help="The mean of the x released in the second half of the run, the last one, or x_(K+1).  [default: final where "
    "the mechanism makes it public, else average]",
)
@click.option(
    "--run", "run_file", type=click.Path(path_type=Path), help="The run file, where DIR is a state directory."
)
@click.option(
    "--data",
    "data_path",
    type=click.Path(path_type=Path),
    help="The agent's own data file, for their shape, where the run file does not give it.",
)
@click.option(
    "--key",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="The ledger key of the agent's owner: exit 1 unless it signed the ledger that PRIVACY.md is made of.",
)
@common.format_option
def export(
    folder: Path,
    out: Path,
    agent: str | None,
    which: Which | None,
    run_file: Path | None,
    data_path: Path | None,
    key: Path | None,
    format_: str,
) -> ExitCode:
    """Make a folder of what may be published of the run in DIR: a run's output folder, or an agent's state_dir.

    The model is a function of what was released already, so it costs nothing more; PRIVACY.md says what that cost.
    """
    from dpgt_node.durable import contents, write_text
    from dpgt_node.learning.published import frame_of, notes, write_model
    from dpgt_node.report.publishing import export as exporting

    found = _of_state(folder, run_file, agent) if _is_state(folder) else _of_run(folder, agent)
    run = found.run
    if key is not None:
        _require_signed(folder, found.agent, key)
    chosen = exporting.choose(run, found.agent, which, last=found.last, mean=found.mean, final=found.final)
    if contents(out):
        raise ConfigError.one("command line", "--out", f"{out} is not empty; choose another folder")
    frame = frame_of(run, common.data_root(), data_path, chosen.x.size)
    out.parent.mkdir(parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
    try:
        about = {
            "format": "pt",
            "mechanism": run.algorithm.mechanism,
            "run_sha256": run_sha256(run),
            "as": chosen.which,
        }
        names = write_model(part, run, frame, chosen.x, about)
        write_text(part / exporting.RUN_FILE, to_toml(without_paths(run)))
        exporting.write_statement(part, run, chosen, found.source, [*names, exporting.RUN_FILE], notes(run, frame))
        part.chmod(0o755)
        for path in part.iterdir():
            path.chmod(0o644)
        if out.exists():
            out.rmdir()
        os.rename(part, out)
    except OSError as error:
        raise ConfigError.one("command line", "--out", f"{out} cannot be written: {error.strerror or error}") from error
    finally:
        shutil.rmtree(part, ignore_errors=True)
    names = (*names, exporting.PRIVACY_FILE, exporting.STATEMENT_FILE, exporting.RUN_FILE)
    if format_ == "json":
        privacy = read_json(out / exporting.PRIVACY_FILE)
        click.echo(json.dumps({"model": str(out), "files": list(names), "privacy": privacy}, indent=2, allow_nan=False))
        return ExitCode.DONE
    say((out / exporting.STATEMENT_FILE).read_text(encoding="utf-8").split("\n\n")[1].replace("**", ""))
    say(f"{out}: {', '.join(names)}")
    return ExitCode.DONE


@dataclass(frozen=True, slots=True)
class _Found:
    run: RunConfig
    agent: str
    source: Source
    last: tuple[int, F64] | None = field(repr=False)
    mean: tuple[int, int, F64] | None = field(repr=False)
    final: F64 | None = field(repr=False)


def _is_state(folder: Path) -> bool:
    from dpgt_node.runtime.store.ledger import DATABASE

    return (folder / DATABASE).is_file()


def _require_signed(folder: Path, agent: str, key: Path) -> None:
    """ConfigError: no ledger of ``agent`` is here.  LedgerBroken: ``key`` did not sign it."""
    from dpgt_node.runtime.store.keyed import OwnerKey, read_signed

    state = folder if _is_state(folder) else folder / "agents" / agent / "state"
    if not _is_state(state):
        raise ConfigError.one("command line", "--key", f"no ledger of {agent} is in {folder}: give its state_dir")
    read_signed(state, OwnerKey.read(key, state))


def _of_state(folder: Path, run_file: Path | None, agent: str | None) -> _Found:
    """From an agent's own state directory: it knows its own cost and nobody else's."""
    from dpgt_node.record.costs import Epsilon
    from dpgt_node.report.publishing.export import Party, Source
    from dpgt_node.runtime.store.ledger import TEST
    from dpgt_node.runtime.store.released import read_released

    if run_file is None:
        beside = folder.absolute().parents[2] / "run.toml" if len(folder.absolute().parents) > 2 else folder
        if not beside.is_file():
            message = f"{folder} is a state directory, which holds no run file: give the agent's own"
            raise ConfigError.one("command line", "--run", message)
        run_file = beside
    run = load_run(run_file)
    kept = read_released(folder, run.K)
    if kept.run_sha256 != run_sha256(run):
        message = (
            f"{run_file} is another run (sha256 {run_sha256(run)[:12]}) than {folder} holds ({kept.run_sha256[:12]})"
        )
        raise ConfigError.one("command line", "--run", message)
    if agent not in (None, kept.name):
        raise ConfigError.one("command line", "--agent", f"{folder} is {kept.name}'s, not {agent}'s")
    party = Party(kept.name, Epsilon.of(kept.charge.cost), _data_set(kept.charge.terms.data_id, kept.charges))
    keystream = TEST if kept.charge.terms.keystream == TEST else _keystream(run_file.parent)
    source = Source(kept.run_id.hex(), kept.last_k, keystream, (party,), samples=kept.charge.terms.samples)
    mean = None if kept.mean is None else (kept.first, kept.last_k, kept.mean)
    return _Found(run, kept.name, source, (kept.last_k, kept.last), mean, kept.final)


def _of_run(folder: Path, agent: str | None) -> _Found:
    """From the output folder of launch, simulate or a coordinator."""
    from dpgt_node.record.identity import another_run
    from dpgt_node.record.summary import load_summary
    from dpgt_node.report.publishing.export import Party, Source

    run_file = folder / "run.toml"
    if not run_file.is_file():
        message = f"{folder} is neither a run's output folder (no run.toml) nor an agent's state directory"
        raise ConfigError.one("command line", "DIR", message)
    run, summary = load_run(run_file), load_summary(folder)
    if (other := another_run(folder, run)) is not None:
        raise ConfigError.one(str(run_file), "", f"{other}; put the run's own file there")
    if summary is None:
        message = f"{folder} has no summary.json: the run has not ended; end it first, or export an agent's state"
        raise ConfigError.one("command line", "DIR", message)
    name = run.graph.agents[0] if agent is None else agent
    if name not in run.graph.agents:
        message = f"{name} is not in the run, whose agents are {', '.join(run.graph.agents[:10])}"
        raise ConfigError.one("command line", "--agent", message)
    state = folder / "agents" / name / "state"
    last, mean, final, through = None, None, None, summary.rounds - 1
    data: dict[str, DataSet | None] = {}
    if _is_state(state):
        own = _of_state(state, run_file, name)
        last, mean, final = own.last, own.mean, own.final
    else:
        last, mean = _simulated(state)
        for path in (state / "x_final.npy", folder / "agents" / name / "x_final.npy"):
            if final is None and path.is_file():
                final = np.load(path, allow_pickle=False)
    for other in run.graph.agents:
        if _is_state(folder / "agents" / other / "state"):
            there = _of_state(folder / "agents" / other / "state", run_file, other)
            data[other], through = there.source.parties[0].data, max(through, there.source.released_through)
    parties = tuple(Party(a.name, a.epsilon, data.get(a.name)) for a in summary.agents)
    D = summary.privacy.samples
    source = Source(summary.run_id, through, summary.keystream, parties, summary.reasons, D)
    return _Found(run, name, source, last, mean, final)


def _data_set(data_id: str, charges: Sequence[Charge]) -> DataSet:
    """What all runs on ``data_id`` have cost together."""
    from dpgt_node.privacy.accountants.composition import tally
    from dpgt_node.privacy.accountants.registry import SOUND
    from dpgt_node.report.publishing.all_runs import DataSet
    from dpgt_node.runtime.agent.budget import known_as, spent_on

    spent, ids = spent_on(data_id, charges), known_as(data_id, charges)
    mine = [charge for charge in charges if charge.terms.data_id in ids]
    runs = tuple(charge.run_id.hex() for charge in mine)
    D = max((samples for charge in mine if (samples := charge.terms.samples) is not None), default=None)
    return DataSet(data_id, runs, tally(spent, SOUND), any(run.declared for run in spent), D, ids[1:])


def _simulated(state: Path) -> tuple[tuple[int, F64] | None, tuple[int, int, F64] | None]:
    """What ``simulate`` wrote of the released x."""
    from dpgt_node.record.released import LAST_FILE, SUM_FILE, read_sum

    total = read_sum(state / SUM_FILE)
    if total is None or not (state / LAST_FILE).is_file():
        return None, None
    last: F64 = np.load(state / LAST_FILE, allow_pickle=False)
    mean = (total.first, total.through, total.mean()) if total.rounds else None
    return (total.through, last), mean


def _keystream(folder: Path) -> str | None:
    """What the run's folder says of its entropy, where the ledger of an older version says nothing."""
    try:
        held = read_json(folder / "run_id.json")
        return None if held["keystream"] is None else str(held["keystream"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
