"""What can be said of a run before it starts."""

from __future__ import annotations

import json
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpgt_node.api.children import ask
from dpgt_node.api.runfile import RunFile, as_file, load_run
from dpgt_node.errors import ExitCode
from dpgt_node.values import dataclass

if TYPE_CHECKING:
    from dpgt_node.config import RunConfig
    from dpgt_node.types import F64


@dataclass(frozen=True)
class Checked:
    """What ``dpgt check`` found.

    ``passed``: whether the run would start.  ``document``: the whole answer, as ``dpgt check --format json`` prints it
    (interface.md).
    """

    passed: bool
    document: dict[str, Any]

    @property
    def refused(self) -> str | None:
        """Why the data or the model would be refused; None where they would not."""
        found: str | None = self.document["refused"]
        return found

    @property
    def failed(self) -> tuple[dict[str, Any], ...]:
        """The conditions that do not hold, as { name, passed, lhs, rhs, note }; most are warnings."""
        return tuple(row for row in self.document["checks"] if row["passed"] is False)

    @property
    def epsilon(self) -> dict[str, F64]:
        """What the whole run would cost every agent, shape (n,), by accountant; inf: no promise; nan: not known."""
        import numpy as np

        found = self.document["epsilon"]
        return {name: np.array(values, dtype=object).astype(np.float64) for name, values in found.items()}


@dataclass(frozen=True)
class Planned:
    """What ``dpgt plan`` chose.

    ``text``: the run file, TOML with the reasons as comments.  ``warnings``: what is to be known of it, for instance
    that nothing learns at that epsilon.  ``run``: the same as a value.
    """

    text: str
    warnings: tuple[str, ...]
    run: RunConfig

    def save(self, path: str | PathLike[str]) -> Path:
        """Write the run file; paths of data in it are as they were in the file that was planned from."""
        target = Path(path)
        target.write_text(self.text, encoding="utf-8")
        return target


def check(run: RunFile, *, alone: bool = False) -> Checked:
    """``dpgt check``: assumptions, step bounds, theorem conditions, predicted rates, epsilon under every accountant.

    ``alone``: also rehearse the run beside every agent alone.  A condition that fails is an answer, not an error.
    Raises ConfigError for a run file that cannot be read, with all its problems, and for data files that are not there.
    """
    load_run(run)
    with as_file(run) as path:
        code, child = ask(["check", str(path), "--format", "json", *(["--alone"] if alone else [])], fails=True)
    return Checked(code == ExitCode.DONE, json.loads(child.output()))


def plan(
    run: RunFile,
    epsilon: float,
    *,
    delta: float | None = None,
    accountant: str | None = None,
    mechanism: str | None = None,
    towards: int | None = None,
    shape: tuple[int, int, int] | None = None,
    public: str | None = None,
    alike: str | None = None,
    keep_features: bool = False,
    keep_clip: bool = False,
    keep_steps: bool = False,
) -> Planned:
    """``dpgt plan``: a run file by which every agent's whole transcript costs at most ``epsilon``.

    ``shape``: numbers a sample, classes, samples an agent, where the data are not here.  The rest as the options of
    the command.  Takes about a minute.  Raises ConfigError.
    """
    values = {
        "--delta": delta,
        "--accountant": accountant,
        "--mechanism": mechanism,
        "--towards": towards,
        "--shape": None if shape is None else ",".join(map(str, shape)),
        "--public": public,
        "--alike": alike,
    }
    options = [text for name, value in values.items() if value is not None for text in (name, str(value))]
    options += ["--keep-features"] * keep_features + ["--keep-clip"] * keep_clip + ["--keep-steps"] * keep_steps
    loaded = load_run(run)
    with as_file(run) as path:
        _, child = ask(["plan", str(path), "--epsilon", repr(float(epsilon)), "--format", "json", *options])
    from dpgt_node.config import parse_run

    document = json.loads(child.output())
    text = str(document["run_file"])
    return Planned(text, tuple(document["warnings"]), parse_run(text, "plan", loaded.base or Path.cwd()))
