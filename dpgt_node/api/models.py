"""What becomes of a run: a model that may be published, what it says, a page to read."""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Iterator
from dataclasses import field
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from dpgt_node.api.children import ask
from dpgt_node.api.table import Table
from dpgt_node.values import dataclass

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from dpgt_node.types import F64


@dataclass(frozen=True)
class Exported:
    """What ``dpgt export`` wrote into ``folder``.

    ``statement``: PRIVACY.md, what the model cost and what that leaves out; ``privacy``: the same as data.
    """

    folder: Path
    statement: str = field(repr=False)
    privacy: dict[str, Any] = field(repr=False)


@dataclass(frozen=True)
class Evaluated:
    """What a model says on data: ``accuracy`` in [0, 1] and ``loss`` in nats, means over ``samples`` samples.

    ``dataset``, ``part``: which.  ``calibrated``: how many of them BatchNorm took its statistics from.
    ``mean_highest_chance`` in [0, 1]: far above ``accuracy``, the model is too sure.  ``temperature``: what its logits
    must be divided by for the least loss on these samples, ``loss_at_temperature``.
    """

    dataset: str
    part: str
    samples: int
    accuracy: float
    loss: float
    calibrated: int
    mean_highest_chance: float
    temperature: float
    loss_at_temperature: float


def export(
    folder: str | PathLike[str],
    out: str | PathLike[str],
    *,
    agent: str | None = None,
    which: Literal["average", "last", "final"] | None = None,
    run: str | PathLike[str] | None = None,
    data: str | PathLike[str] | None = None,
    key: str | PathLike[str] | None = None,
) -> Exported:
    """``dpgt export``: make a new folder ``out`` of what may be published of the run in ``folder``.

    ``folder``: a run's output folder or an agent's state directory.  ``which``: as the command's ``--as``.  The rest as
    its options.  Raises ConfigError, and DpgtError with exit code 1 where ``key`` did not sign the ledger.
    """
    options = _given({"--agent": agent, "--as": which, "--run": run, "--data": data, "--key": key})
    ask(["export", str(folder), "--out", str(out), *options])
    made = Path(out)
    told = json.loads((made / "privacy.json").read_text(encoding="utf-8"))
    return Exported(made, (made / "PRIVACY.md").read_text(encoding="utf-8"), told)


def evaluate(
    folder: str | PathLike[str],
    *,
    data: str | None = None,
    run: str | PathLike[str] | None = None,
    node: str | PathLike[str] | None = None,
    label: str | None = None,
    part: Literal["test", "train"] = "test",
) -> Evaluated:
    """``dpgt evaluate``: what the exported model in ``folder`` says on data, by default those of its run file.

    ``data``: as [data] dataset names them, for instance "csv:new.csv".  The rest as the options of the command.
    Raises ConfigError.
    """
    options = _given({"--data": data, "--run": run, "--node": node, "--label": label, "--part": part})
    _, child = ask(["evaluate", str(folder), *options, "--format", "json"])
    said = json.loads(child.output())
    return Evaluated(
        said["dataset"],
        said["part"],
        said["samples"],
        said["accuracy"],
        said["loss"],
        said["calibrated"] or 0,
        said["mean_highest_chance"],
        said["temperature"],
        said["loss_at_temperature"],
    )


def predict(
    folder: str | PathLike[str],
    data: str | PathLike[str] | F64 | npt.NDArray[np.uint8],
    *,
    chances: bool = False,
    temperature: float | None = None,
) -> Table:
    """``dpgt predict``: the class of every sample of ``data`` by the exported model in ``folder``, a row each.

    ``data``: as the command's FILE, a picture or a folder of pictures among them, or samples of shape (N, p) or, for
    a model of pictures, (N, channels, height, width).  The column ``class`` has names, ``file`` those of pictures
    in files; with ``chances`` the column ``chance of NAME`` the model's probability of each, its logits divided by
    ``temperature`` (see :class:`Evaluated`).  Raises ConfigError.
    """
    import numpy as np

    with _as_file(data) as path:
        options = [*["--chances"] * chances, *_given({"--temperature": temperature})]
        _, child = ask(["predict", str(folder), "--data", str(path), "--format", "json", *options])
    rows = json.loads(child.output())
    named = {"file": np.array([row["file"] for row in rows], dtype=np.str_)} if rows and "file" in rows[0] else {}
    table = Table({**named, "class": np.array([row["class"] for row in rows], dtype=np.str_)})
    for name in rows[0]["chances"] if chances and rows else ():
        table[f"chance of {name}"] = np.array([row["chances"][name] for row in rows], dtype=np.float64)
    return table


def report(*folders: str | PathLike[str], out: str | PathLike[str] | None = None) -> Path:
    """``dpgt report``: rebuild report.html of one run; of several, write the page that compares them to ``out``.

    Returns the page's path.  Raises ConfigError.
    """
    _, child = ask(["report", *map(str, folders), *_given({"--out": out})])
    return Path(child.output().rstrip("\n"))


def _given(values: dict[str, object]) -> list[str]:
    return [word for name, value in values.items() if value is not None for word in (name, str(value))]


@contextlib.contextmanager
def _as_file(data: str | PathLike[str] | F64 | npt.NDArray[np.uint8]) -> Iterator[Path]:
    if isinstance(data, str | PathLike):
        yield Path(data)
        return
    import numpy as np

    with tempfile.TemporaryDirectory(prefix="dpgt-data-") as folder:
        path = Path(folder) / "samples.npy"
        samples = np.asarray(data)
        kept = samples if samples.dtype == np.uint8 else samples.astype(np.float64)  # bytes are pixels
        np.save(path, kept, allow_pickle=False)
        yield path
