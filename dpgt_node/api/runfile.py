"""A run file as the API takes it: a path, a value, or its tables as a dictionary."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, Union

if TYPE_CHECKING:
    from dpgt_node.config import RunConfig

RunFile: TypeAlias = Union[str, "PathLike[str]", "Mapping[str, Any]", "RunConfig"]
"""RUN.toml by path; or its tables, ``{"scheme": {"kind": "S2", ...}, ...}``, in which NumPy arrays serve as lists; or
what :func:`load_run` returned.
"""


def load_run(run: RunFile) -> RunConfig:
    """The run as a frozen value, with every default filled in.

    Paths in a dictionary are relative to the current folder.  Raises ConfigError with all problems.
    """
    from dpgt_node import config

    if isinstance(run, config.RunConfig):
        return run
    if isinstance(run, Mapping):
        return config.parse_document(_plain(run), "run", Path.cwd())
    return config.load_run(Path(run))


@contextlib.contextmanager
def as_file(run: RunFile) -> Iterator[Path]:
    """A path of ``run``, which is valid while the context is open."""
    if isinstance(run, str | PathLike):
        yield Path(run)
        return
    from dpgt_node.config import to_toml

    with tempfile.TemporaryDirectory(prefix="dpgt-run-") as folder:
        path = Path(folder) / "run.toml"
        path.write_text(to_toml(load_run(run), absolute_paths=True), encoding="utf-8")
        yield path


def _plain(value: Any) -> Any:
    """``value`` as TOML has it: arrays and tuples as lists, numbers of NumPy as Python's."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value.tolist() if hasattr(value, "tolist") else value
