"""What may be attached to a public issue: versions, configuration, checks and logs, without secrets or data.

Nothing is taken out of these texts; what may stay is let through.  A word stays when the package's own source uses it,
and the run's own files do not use it for data.  So no path, name of a column or label, host, key or hash is left.
Numbers stay in configuration, and in what our own loggers say at info.  No other file is read.
"""

from __future__ import annotations

import io
import json
import os
import platform
import re
import ssl
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from dpgt_node.durable import write_new
from dpgt_node.errors import ConfigError
from dpgt_node.protocol.messages import PROTOCOL_VERSION
from dpgt_node.record.summary import versions
from dpgt_node.runtime.launch.doctor import Row
from dpgt_node.runtime.requirements import outdated

PACKAGE = Path(__file__).resolve().parents[2]
HIDDEN = "\N{HORIZONTAL ELLIPSIS}"
LOG_BYTES = 1 << 19
"""So much of the end of each log."""
LOGS = ("coordinator.log", "events.jsonl")
_WORD = re.compile(r"[^\W\d_]+")
_QUOTED = re.compile(r'"([A-Za-z]\w{0,30})"')
_TOKEN = re.compile(r"[\w./:@%+~\\-]+")
_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?(e[+-]?\d+)?%?")
_HOST_NUMBER = re.compile(r"\d+(\.\d+){3}")
_OURS = re.compile(r"[\d: ,-]+ INFO dpgt_node\.[\w.]+: ")
_STAMP = re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(,\d+)?")
_FRAME = re.compile(r'^\s*File ".*?(dpgt_node/[\w/]+\.py)", line (\d+), in (\w+)$')
_MEASURED = re.compile(r"\b(accuracy|loss|norm)\b([^\d,;]{0,24})[\d.]+")
_NUMBERED = re.compile(r"agent-\d{1,4}")
_SINGLE = frozenset("aikKmnsS")
ABOUT = f"""Made by `dpgt doctor --bundle` to be attached to an issue.  Read it before you do.

{HIDDEN} stands for what was not let through: every word that dpgt-node's own source does not use, paths, addresses,
hashes, and numbers in warnings and errors.  State directories, keys, data and recordings were not opened.
"""


@cache
def vocabulary() -> frozenset[str]:
    """Every word of the package's own source, in lower case, and as they are the names that it quotes (``p_m``)."""
    found: set[str] = set()
    for path in PACKAGE.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        found.update(word.lower() for word in _WORD.findall(text) if len(word) > 1)
        found.update(_QUOTED.findall(text))
    return frozenset(found)


class Filter:
    """Lets through what says nothing about data; ``private``: texts whose words never stay."""

    def __init__(self, private: Iterable[str] = ()) -> None:
        self._private = frozenset(word.lower() for text in private for word in _WORD.findall(text))

    def text(self, text: str, *, numbers: bool) -> str:
        """``text`` with everything else hidden; ``numbers``: whether they stay."""
        return _TOKEN.sub(lambda match: self._token(match[0], numbers), text)

    def _token(self, token: str, numbers: bool) -> str:
        core = token.strip(".:-")
        if _NUMBER.fullmatch(core):
            return token if numbers else token.replace(core, HIDDEN)
        if "/" in core or "\\" in core or _HOST_NUMBER.search(core):
            return HIDDEN
        words = _WORD.findall(core)
        if core in vocabulary() and self._private.isdisjoint(word.lower() for word in words):
            return token
        if not words or (re.search(r"\d", core) and not re.fullmatch(r"(agent-\d{1,4}|[A-Za-z_]{2,}\d{1,3})", core)):
            return token if not re.search(r"\w", core) else HIDDEN
        return token if all(map(self._known, words)) else HIDDEN

    def _known(self, word: str) -> bool:
        if word.lower() in self._private:
            return False
        return word in _SINGLE if len(word) == 1 else word.lower() in vocabulary()

    def line(self, line: str) -> str:
        """One line of a log."""
        if (frame := _FRAME.match(line)) is not None and (PACKAGE.parent / frame[1]).is_file():
            return f'  File "{frame[1]}", line {frame[2]}, in {frame[3]}'
        stamp = _STAMP.match(line)
        begin = "" if stamp is None else stamp[0]
        rest = _MEASURED.sub(rf"\1\2{HIDDEN}", line[len(begin) :])
        return begin + self.text(rest, numbers=_OURS.match(line) is not None)

    def tree(self, value: Any) -> Any:
        """A configuration: numbers and truth values stay, texts and names are filtered."""
        if isinstance(value, Mapping):
            return {self.text(str(key), numbers=True): self.tree(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.tree(item) for item in value]
        return self.text(value, numbers=False) if isinstance(value, str) else value


PRIVATE_KEYS = ("bounds", "categories", "classes", "columns", "data_id", "label", "missing", "path", "test")
"""Of [data]: what may say something about somebody's data; only that it is there stays."""

_FILES = ("path", "test")


def configuration(document: Mapping[str, Any], passing: Filter) -> dict[str, Any]:
    """The tables of a run file or node file, as far as they may leave."""
    tables = {}
    for name, table in document.items():
        if name == "data" and isinstance(table, Mapping):
            table = {key: HIDDEN if key in PRIVATE_KEYS else value for key, value in table.items()}
        elif name == "graph" and isinstance(table, Mapping) and isinstance(table.get("agents"), list):
            table = {**table, "agents": len(table["agents"])}
        tables[name] = table
    filtered: dict[str, Any] = passing.tree(tables)
    return filtered


def private_words(*documents: Mapping[str, Any]) -> Iterator[str]:
    """Texts in configurations that are names of somebody's: of data, classes, columns, agents, files."""
    for document in documents:
        data, graph = document.get("data"), document.get("graph")
        if isinstance(graph, Mapping) and isinstance(graph.get("agents"), list):
            yield from (name for name in graph["agents"] if isinstance(name, str) and not _NUMBERED.fullmatch(name))
        if isinstance(data, Mapping):
            yield from _texts([value for key, value in data.items() if key in PRIVATE_KEYS and key not in _FILES])
            files = [data.get(key) for key in (*_FILES, "dataset")]  # their folders are hidden with every path
            yield from (Path(file.rpartition(":")[2]).name for file in files if isinstance(file, str) and ":" in file)
            yield from (Path(file).name for file in files[:-1] if isinstance(file, str))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from _texts(list(value))
        yield from _texts(list(value.values()))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _texts(item)


def environment() -> dict[str, Any]:
    """Versions and the machine, without its name."""
    return {
        **versions(),
        "protocol": PROTOCOL_VERSION,
        "openssl": ssl.OPENSSL_VERSION,
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "libc": " ".join(platform.libc_ver()),
        "cores": os.cpu_count(),
        "not as asked for": outdated(),
    }


def write_bundle(
    path: Path,
    *,
    documents: Mapping[str, Mapping[str, Any]],
    checks: Sequence[Row],
    logs: Sequence[Path],
    problem: str = "",
) -> tuple[str, ...]:
    """Write the archive, which must not be there yet; the names in it.

    ``documents``: tables of configuration files by name; ``problem``: why they could not be read.
    Raises ConfigError naming --bundle or --log.
    """
    passing = Filter(private_words(*documents.values()))
    rows = [
        {
            "check": passing.text(row.check, numbers=False),
            "status": row.status,
            "found": passing.text(row.found, numbers=False),
            "todo": passing.text(row.todo, numbers=False),
        }
        for row in checks
    ]
    members = {"README.txt": ABOUT, "versions.json": _json(environment()), "checks.json": _json(rows)}
    members |= {f"{name}.json": _json(configuration(document, passing)) for name, document in documents.items()}
    if problem:
        members["problem.txt"] = passing.text(problem, numbers=False) + "\n"
    for i, log in enumerate(logs, 1):
        members[f"logs/{i}.txt"] = "\n".join(map(passing.line, _tail(log))) + "\n"
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        for name, text in members.items():
            file.writestr(f"dpgt-bundle/{name}", text)
    try:
        write_new(path, archive.getvalue())
    except FileExistsError as error:
        raise ConfigError.one("command line", "--bundle", f"{path} is there already; choose another name") from error
    except OSError as error:
        raise ConfigError.one("command line", "--bundle", f"{path} cannot be written: {error.strerror}") from error
    return tuple(members)


def found_logs(out: Path | None, state_dir: Path | None) -> list[Path]:
    """Logs of the daemons where launch puts them: of the output folder, or of the agent with that state directory."""
    folders = [] if out is None else [out / name for name in LOGS] + sorted(out.glob("agents/*/node.log"))
    if state_dir is not None:
        folders.append(state_dir.parent / "node.log")
    return [path for path in folders if path.is_file()]


def _tail(path: Path) -> list[str]:
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - LOG_BYTES))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except OSError as error:
        raise ConfigError.one("command line", "--log", f"{path} cannot be read: {error.strerror}") from error
    return lines[1:] if size > LOG_BYTES else lines


def _json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"
