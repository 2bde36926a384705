"""``dpgt ledger``: what an agent has released and what it cost."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dpgt_node.cli import common
from dpgt_node.cli.wrapping import say
from dpgt_node.errors import ConfigError, ExitCode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dpgt_node.config import RunConfig
    from dpgt_node.runtime.store.ledger import Ledger
    from dpgt_node.runtime.store.runs import RunInfo

_WORDS = {
    "chain": "by the chain alone, which finds accidents; --key and --head find forgers, too",
    "key": "signed with the owner's key",
    "head": "passed through every head that was asked for",
}
"""How a ledger was verified, for people."""


@click.command()
@click.argument("state_dir", metavar="STATE_DIR", type=click.Path(path_type=Path))
@click.option("--format", "format_", type=click.Choice(["text", "json", "csv"]), default="text", show_default=True)
@click.option("--verify", is_flag=True, help="Only verify: one line with the number of rows and the head.")
@click.option(
    "--head",
    "heads",
    metavar="HEX|@DIR",
    multiple=True,
    help="A head written down earlier, or the output folder of a run, whose coordinator remembers one: exit 1 unless "
    "the chain passed through it.  May be given several times.",
)
@click.option(
    "--key", metavar="FILE", type=click.Path(path_type=Path), help="The owner's: exit 1 unless it signed the head."
)
@click.option("--sign", is_flag=True, help="Sign the ledger as it stands with --key; its agent must not run.")
@click.option(
    "--what-if",
    "run_file",
    metavar="RUN.toml",
    type=click.Path(path_type=Path),
    help="What that run would cost on the data set, and how much of it fits: exit 1 unless all of it does.",
)
@click.option(
    "--node",
    "node_file",
    metavar="NODE.toml",
    type=click.Path(path_type=Path),
    help="With --what-if: whose agent, data, data set and policy.",
)
@click.option("--agent", help="With --what-if: who in the run file.  [default: that of --node, else of STATE_DIR]")
@click.option(
    "--data-id", metavar="ID", help="With --what-if: the data set.  [default: that of --node, else of STATE_DIR]"
)
def ledger(
    state_dir: Path,
    format_: str,
    verify: bool,
    heads: tuple[str, ...],
    key: Path | None,
    sign: bool,
    run_file: Path | None,
    node_file: Path | None,
    agent: str | None,
    data_id: str | None,
) -> ExitCode:
    """Show, export and verify the ledger in an agent's state directory; reads only, also while the agent runs.

    The chain is verified in any case: exits 1 and names the first bad row when it does not hold.  It finds accidents;
    --key and --head find forgers, too.
    """
    from dpgt_node.runtime.store import statement
    from dpgt_node.runtime.store.keyed import OwnerKey, read_signed
    from dpgt_node.runtime.store.ledger import DATABASE, NO_HEAD, Ledger, read_ledger
    from dpgt_node.runtime.store.store import Store

    asked = {"--node": node_file, "--agent": agent, "--data-id": data_id}
    if run_file is None and (given := next((name for name, value in asked.items() if value is not None), None)):
        raise click.UsageError(f"{given} needs --what-if RUN.toml")
    if run_file is not None and (verify or format_ == "csv"):
        raise click.UsageError(f"--what-if has no {'--verify' if verify else '--format csv'}")
    owner = None if key is None else OwnerKey.read(key, state_dir)
    if sign:
        if owner is None:
            raise click.UsageError("--sign needs --key")
        read_ledger(state_dir)  # there is one, and its chain is whole
        Store(state_dir, "power", owner, sign=True).close()
    if run_file is not None and owner is None and not heads and not (state_dir / DATABASE).exists():
        return _what_if(Ledger((), NO_HEAD), state_dir, run_file, node_file, agent, data_id, format_)
    found = read_ledger(state_dir) if owner is None else read_signed(state_dir, owner)
    for head in heads:
        _passed_through(found, state_dir, head)
    shown_by = ["chain", *(["key"] if owner else []), *(["head"] if heads else [])]
    words = ", ".join(_WORDS[one] for one in shown_by[1:] or shown_by)
    if run_file is not None:
        return _what_if(found, state_dir, run_file, node_file, agent, data_id, format_)
    if verify:
        say(f"verified: {len(found.entries)} rows, head {found.head.hex()} ({words})")
    elif format_ == "json":
        document = statement.document(found) | {"verified_by": shown_by}
        click.echo(json.dumps(document, indent=2, allow_nan=False))
    elif format_ == "csv":
        statement.write_csv(found, sys.stdout)
    else:
        say(common.reddened(f"{statement.render(found)}\n{words}"))
    return ExitCode.DONE


def _what_if(
    found: Ledger,
    state_dir: Path,
    run_file: Path,
    node_file: Path | None,
    agent: str | None,
    data_id: str | None,
    format_: str,
) -> ExitCode:
    """ConfigError: it is not clear whose run on which data it would be, or they do not fit together."""
    from dpgt_node.config import check_node_in_run, load_node, load_run
    from dpgt_node.config.node_model import DATA_ID
    from dpgt_node.runtime.agent import whatif
    from dpgt_node.runtime.store.ledger import DATABASE, last_charges, look_on
    from dpgt_node.runtime.store.runs import select_runs

    run, node = load_run(run_file), None if node_file is None else load_node(node_file)
    charges = last_charges((entry, found.terms[entry.run_id]) for entry in found.entries)
    runs: Sequence[RunInfo] = ()
    if first := not (state_dir / DATABASE).exists():
        say(f"note: {state_dir} holds no ledger yet: this would be the first run", err=True)
        agent, data_id = agent or (None if node else _only(run)), data_id or (None if node else DATA_ID)
    else:
        runs = look_on(state_dir, select_runs)
    if node is not None:
        if node.state_dir.absolute() != state_dir.absolute():
            raise _unclear("--node", f"the state_dir of {node_file} is {node.state_dir}, not {state_dir}")
        check_node_in_run(replace(node, run=run_file), run)
    of_node = (None, None) if node is None else (node.name, node.data_id)
    names = [agent or ""] if first else list(dict.fromkeys(known.name for known in runs))
    ids = [data_id or ""] if first else list(dict.fromkeys(charge.terms.data_id for charge in charges))
    who, which = _one_of("--agent", agent, of_node[0], names), _one_of("--data-id", data_id, of_node[1], ids)
    answer = whatif.what_if(run, who, which, charges, runs, node, common.data_root())
    if format_ == "json":
        click.echo(json.dumps(whatif.document(answer), indent=2, allow_nan=False, ensure_ascii=False))
    else:
        say(common.reddened(whatif.render(answer)))
    return ExitCode.DONE if answer.allowed else ExitCode.CHECK_FAILED


def _only(run: RunConfig) -> str:
    """The agent of a run that has one; no ledger says whose the directory is to be."""
    if len(run.graph.agents) > 1:
        names = ", ".join(run.graph.agents[:10])
        raise _unclear("--agent", f"is needed, or --node NODE.toml: there is no ledger yet, and the agents are {names}")
    return run.graph.agents[0]


def _one_of(option: str, given: str | None, of_node: str | None, known: list[str]) -> str:
    """What the option says, or NODE.toml, or the ledger where it leaves no choice."""
    if of_node is not None:
        if given not in (None, of_node):
            raise _unclear(option, f"--node says {of_node!r}, not {given!r}")
        return of_node
    if given is None:
        if len(known) != 1:
            raise _unclear(option, f"is needed: this ledger knows {', '.join(map(repr, known)) or 'none'}")
        return known[0]
    if given not in known:
        hint = "--node NODE.toml asks about a new one"
        raise _unclear(option, f"this ledger knows {', '.join(map(repr, known)) or 'none'}, not {given!r}; {hint}")
    return given


def _unclear(option: str, message: str) -> ConfigError:
    return ConfigError.one("command line", option, message)


def _passed_through(found: Ledger, state_dir: Path, head: str) -> None:
    """LedgerBroken: the chain never had ``head``.  ConfigError: ``head`` is a folder that remembers none."""
    from dpgt_node.runtime.store.ledger import NO_HEAD, LedgerBroken

    hexadecimal, whose = (head.lower(), "") if not head.startswith("@") else _remembered(state_dir, Path(head[1:]))
    if hexadecimal not in {NO_HEAD.hex(), *(entry.head.hex() for entry in found.entries)}:
        raise LedgerBroken(
            f"{state_dir}: the chain never had the head {hexadecimal}{whose}: rows are missing or were changed, "
            "or it is another's"
        )


def _remembered(state_dir: Path, folder: Path) -> tuple[str, str]:
    """The head that the coordinator of ``folder`` remembers of the agent of ``state_dir``, and whose it is."""
    from dpgt_node.runtime.coordinator.heads import remembered
    from dpgt_node.runtime.store.ledger import LedgerBroken, look_on
    from dpgt_node.runtime.store.runs import select_runs

    run_id, heads = remembered(folder)
    names = [run.name for run in look_on(state_dir, select_runs) if run.run_id == run_id]
    if not names:
        raise LedgerBroken(
            f"{state_dir}: knows nothing of run {run_id.hex()} in {folder}: it is another's, or was emptied"
        )
    if names[0] not in heads:
        raise ConfigError.one(str(folder), "", f"its coordinator remembers no head of {names[0]}")
    k, head = heads[names[0]]
    return head.hex(), f", which the coordinator of {folder} remembers of {names[0]} after round {k}"
