"""``dpgt predict``: the class of every sample of a file, by an exported model."""

from __future__ import annotations

import csv
import json
import sys
import zipfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dpgt_node.cli import common
from dpgt_node.cli.results.evaluate import run_of_model
from dpgt_node.cli.wrapping import say
from dpgt_node.config.data import expanded
from dpgt_node.errors import ConfigError, ExitCode
from dpgt_node.values import dataclass

if TYPE_CHECKING:
    import numpy.typing as npt

    from dpgt_node.config import RunConfig
    from dpgt_node.learning.published import Rows


@click.command()
@click.argument("folder", metavar="FOLDER", type=common.FOLDER)
@click.option(
    "--data",
    required=True,
    metavar="FILE|FOLDER",
    help="A table (.csv, .parquet) with the model's columns; a picture or a folder of them; or an array of samples, in "
    "an .npy file or as the only one, x or x_test of an .npz file.",
)
@click.option("--chances", is_flag=True, help="Also the model's probability of every class.")
@click.option(
    "--temperature",
    type=click.FloatRange(min=0.0, min_open=True),
    help="With --chances: divide the logits by it once more.  `dpgt evaluate` says which one fits its rows.",
)
@click.option("--format", "format_", type=click.Choice(["csv", "json"]), default="csv", show_default=True)
def predict(folder: Path, data: str, chances: bool, temperature: float | None, format_: str) -> ExitCode:
    """The class of every sample of FILE, by the model that `dpgt export` wrote into FOLDER: one line a sample, in the
    order of the file; of pictures in files with their names, sorted.

    A column with the labels may be there and is not looked at, nor are the names of the folders that pictures lie in.
    Exits 2 unless the model's files are as PRIVACY.md says.
    """
    from dpgt_node.learning.published import predicted

    if temperature is not None and not chances:
        raise ConfigError.one("command line", "--temperature", "changes no class, only chances: add --chances")
    run = run_of_model(folder)
    given = _given(run, folder, expanded(data))
    for line in given.odd:
        say(f"dpgt predict: warning: {data}: {line}", err=True)
    labels, probabilities, names = predicted(folder, run, given.rows, temperature or 1.0, given.divisor)
    if chances:
        say(f"dpgt predict: {_worth(run, temperature)}", err=True)
    files = [{"file": name} for name in given.files] or [{} for _ in labels]
    if format_ == "json":
        found = [
            {**file, "class": names[label], **({"chances": dict(zip(names, row, strict=True))} if chances else {})}
            for file, label, row in zip(files, labels.tolist(), probabilities.tolist(), strict=True)
        ]
        click.echo(json.dumps(found, indent=2, allow_nan=False, ensure_ascii=False))
        return ExitCode.DONE
    writer = csv.writer(sys.stdout, lineterminator="\n")
    head = ["class", *(f"chance of {name}" for name in names if chances)]
    writer.writerow([*files[0], *head])
    for file, label, row in zip(files, labels.tolist(), probabilities.tolist(), strict=True):
        writer.writerow([*file.values(), names[label], *(f"{chance:.6f}" for chance in row if chances)])
    return ExitCode.DONE


def _worth(run: RunConfig, given: float | None) -> str:
    """What the chances are worth, in a sentence."""
    if given is not None:
        return f"chances at the temperature {given:g} that you gave: as good as the rows that it was found on"
    stated, check = run.model.temperature, "`dpgt evaluate` on rows that you may look at says how far off they are"
    if stated is None:
        return (
            f"chances: nothing says that they fit; noise and long steps make a model far too sure. Trust the classes; "
            f"{check}"
        )
    return (
        f"chances: at the temperature {stated:g} of the run file. Where `dpgt plan` or `init` chose it, it fits "
        f"stand-in data, which yours need not be like; {check}"
    )


@dataclass(frozen=True, slots=True)
class _Given:
    """``rows`` (N, p), divided by ``divisor``: samples before the run's features.  ``files``: their names, of pictures
    alone.  ``odd``: what is odd about them.
    """

    rows: Rows
    divisor: float = 1.0
    files: tuple[str, ...] = ()
    odd: tuple[str, ...] = ()


def _given(run: RunConfig, folder: Path, path: Path) -> _Given:
    """The samples at ``path`` for the model in ``folder``.  ConfigError: they cannot be read, or do not fit it."""
    from dpgt_node.learning.data.columns import Columns
    from dpgt_node.learning.data.pictures.folders import SUFFIXES
    from dpgt_node.learning.data.tables import KINDS, load_features

    ending = path.suffix.lower()
    if path.is_dir() or ending in SUFFIXES:
        return _pictures(run, folder, path)
    if ending in (".npy", ".npz"):
        return _array(run, folder, path)
    if (kind := KINDS.get(ending)) is None:
        known = f"{', '.join((*KINDS, '.npy', '.npz', 'a picture (.png, .jpg, ...)'))} or a folder of pictures"
        said = f"{path} is none of {known}" if path.exists() else f"there is no {path} here; data are {known}"
        raise ConfigError.one("command line", "--data", said)
    label = run.data.params.get("label")
    rows, odd = load_features(kind, path, None if label is None else str(label), Columns.of(run.data.params))
    return _Given(rows, odd=odd)


def _pictures(run: RunConfig, folder: Path, path: Path) -> _Given:
    from dpgt_node.learning.data.pictures.folders import WHITE
    from dpgt_node.learning.data.pictures.given import given_pictures, picture_files
    from dpgt_node.learning.published import held_frame, takes_pixels

    frame, pixels = held_frame(folder), takes_pixels(run)
    if frame is None or pixels is False or len(frame.shape) != 3 or frame.shape[0] not in (1, 3):
        takes = "its run's data" if frame is None else f"samples of {' x '.join(map(str, frame.shape))} numbers"
        ways = "a table (.csv, .parquet)" if "label" in run.data.params else "an array (.npy)"
        message = f"{path} is of pictures, and the model takes {takes}: give {ways}"
        raise ConfigError.one("command line", "--data", message)
    files = picture_files(path)
    rows, odd = given_pictures(files, frame.shape)
    if pixels is None:
        line = "the model was trained on an array; a pixel counts as its byte / 255, which the array must have had too"
        odd = (*odd, line)
    names = tuple(str(file.relative_to(path)) if path.is_dir() else str(path) for file in files)
    return _Given(rows, WHITE, names, odd)


def _array(run: RunConfig, folder: Path, path: Path) -> _Given:
    import numpy as np

    from dpgt_node.learning.data.pictures.layout import Unlike, arranged, divisor
    from dpgt_node.learning.published import held_frame, takes_pixels

    held, odd = _held(path)
    if held.dtype.kind not in "fiu" or held.ndim < 2 or not held.size:
        raise ConfigError.one("command line", "--data", f"{path} must hold real numbers (N, p), N > 0")
    if not np.isfinite(held).all():
        raise ConfigError.one("command line", "--data", f"{path} has values that are not finite")
    frame, stated = held_frame(folder), run.data.params.get("layout")
    try:
        by = divisor(held) if takes_pixels(run) else 1.0
        shape = (held.shape[1],) if frame is None else frame.shape
        rows = arranged(held, shape, None if stated is None else str(stated))
    except Unlike as error:
        raise ConfigError.one("command line", "--data", f"{path} {error}") from error
    return _Given(rows.astype(np.float64), by, odd=odd)


def _held(path: Path) -> tuple[npt.NDArray[Any], tuple[str, ...]]:
    """The array of an .npy or .npz file, and a remark where it was chosen among several."""
    import numpy as np

    names: list[str] = []
    try:
        found = np.load(path, allow_pickle=False)
        if isinstance(found, np.ndarray):
            return found, ()
        with found:
            names = list(found)
            name = names[0] if len(names) == 1 else next((n for n in ("x", "x_test") if n in names), None)
            if name is not None:
                return found[name], () if len(names) == 1 else (f"its array {name!r} is looked at",)
    except (OSError, ValueError, EOFError, KeyError, zlib.error, zipfile.BadZipFile) as error:
        raise ConfigError.one("command line", "--data", f"{path} cannot be read as an array: {error}") from error
    message = f"{path} holds {', '.join(sorted(names)) or 'nothing'}: the array to look at must be alone, x or x_test"
    raise ConfigError.one("command line", "--data", message)
