"""A run file from data and a few words: ``dpgt init``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from dpgt_node.api.children import ask
from dpgt_node.values import dataclass

if TYPE_CHECKING:
    from dpgt_node.config import RunConfig


@dataclass(frozen=True)
class Begun:
    """What ``dpgt init`` wrote.

    ``out``: the run file, or for owners the folder with a folder for each host.  ``text``: the run file, TOML with the
    reasons as comments; ``run``: the same as a value.  ``told``: what to expect and what to do next, for people.
    """

    out: Path
    text: str = field(repr=False)
    run: RunConfig = field(repr=False)
    told: str = field(repr=False)


def init(
    data: str | PathLike[str] | Sequence[str | PathLike[str]],
    out: str | PathLike[str],
    *,
    label: str | None = None,
    agents: int | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    bounds: Mapping[str, tuple[float, float]] | Literal["table"] | None = None,
    missing: Literal["middle"] | None = None,
    ignore: Sequence[str] = (),
    owners: bool = False,
    hosts: Mapping[str, str] | None = None,
) -> Begun:
    """``dpgt init``: write a run file that learns at ``epsilon``, with its reasons as comments, to ``out``, a new path.

    ``data``: a table, an .npz file, a folder of pictures or a set by name; with ``owners`` one of each owner.
    ``bounds``: what is publicly known of columns' ranges; "table": those in the table are public.  ``hosts``: with
    ``owners``, where coordinator, agent-1, ... are reached.  The rest as the options of the command.  Takes minutes.
    Raises ConfigError.
    """
    names = [data] if isinstance(data, str | PathLike) else list(data)
    options = [word for name in names for word in ("--data", str(name))]
    values = {"--label": label, "--agents": agents, "--epsilon": epsilon, "--delta": delta, "--missing": missing}
    options += [word for name, value in values.items() if value is not None for word in (name, str(value))]
    ranges = [] if bounds is None or isinstance(bounds, str) else bounds.items()
    stated = [bounds] if isinstance(bounds, str) else [f"{name}={low!r}:{high!r}" for name, (low, high) in ranges]
    options += [word for one in stated for word in ("--bounds", one)]
    options += [word for column in ignore for word in ("--ignore", column)]
    options += ["--owners"] * owners
    options += [word for name, address in (hosts or {}).items() for word in ("--host", f"{name}={address}")]
    _, child = ask(["init", *options, "--out", str(out)])
    from dpgt_node.config import load_run

    path = Path(out) / "coordinator" / "run.toml" if owners else Path(out)
    return Begun(Path(out), path.read_text(encoding="utf-8"), load_run(path), child.output())
