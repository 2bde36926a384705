"""Run files as mistakes make them: shipped examples with a few keys changed, taken out or moved.

``python -m tests.cli.fuzzed COUNT [SEED]`` hunts: what ``dpgt check`` accepts must start and finish, what it refuses
must not, and nothing may be called a bug, print a traceback or take a minute.
"""

from __future__ import annotations

import contextlib
import copy
import io
import json
import random
import shutil
import signal
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tomli_w

from dpgt_node import cli

ROOT = Path(__file__).parents[2]
SCHEMA = json.loads((ROOT / "dpgt_node/config/run.schema.json").read_text(encoding="utf-8"))
EXAMPLES = (
    "demo", "demo-private", "paper-s1", "paper-s2", "pl-linear-s1", "pl-sine-s1", "pl-sine-s2", "quadratic",
    "spanning-trees", "zeros",
)  # fmt: skip
ON_DIGITS = ("mnist-pure", "mnist-cancelling", "mnist-two-classes", "mnist-hundred")
"""Examples whose pictures a test does not have: here with digits in their place."""
EDGES: list[Any] = [
    0, 1, 2, 3, -1, 7, 100, 10**6, 2**31, 2**53, 2**63, 2**64, 0.0, -0.0, 0.5, 1.0, 1.5, 1e-9, 1e-100, 1e-308, 5e-324,
    1e9, 1e100, 1e308, -1.0, float("inf"), float("-inf"), float("nan"), "", "full", "auto", "no-such", "\u00e9", "a b",
    "../x", True, False, [], [0], [1, 2], ["a", "b"], [[1]], {}, {"generator": "ring"},
]  # fmt: skip
LIMIT_S = 60
MOST_ROUNDS = 20
_AT_WORK = ("a value lies beyond", "no longer finite", "out of memory")
Document = dict[str, Any]


class TooLong(BaseException):
    """A command took longer than a user in a hurry waits."""


def _words(node: Any) -> Iterator[Any]:
    """Every literal that the schema knows."""
    if isinstance(node, dict):
        yield from node.get("enum", [])
        if "const" in node:
            yield node["const"]
        for value in node.values():
            yield from _words(value)
    elif isinstance(node, list):
        for value in node:
            yield from _words(value)


def _keys(node: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every key that the schema knows, with its tables."""
    if isinstance(node, dict):
        for name, value in node.get("properties", {}).items():
            yield (*path, name)
            yield from _keys(value, (*path, name))
        for part in ("allOf", "anyOf", "oneOf"):
            for value in node.get(part, []):
                yield from _keys(value, path)
        for part in ("if", "then", "else"):
            yield from _keys(node.get(part), path)


WORDS = sorted({word for word in _words(SCHEMA) if isinstance(word, str)})
KEYS = sorted({path for path in _keys(SCHEMA) if len(path) <= 2})


def bases() -> dict[str, Document]:
    """The documents to start from, of two rounds each."""
    found = {}
    for name in (*EXAMPLES, *ON_DIGITS):
        document = tomllib.loads((ROOT / f"examples/{name}.toml").read_text(encoding="utf-8"))
        if name in ON_DIGITS:
            document["data"]["dataset"] = "digits"
        document["algorithm"]["iterations"] = 1
        found[name] = document
    return found


def _places(document: Document, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    found = []
    for key, value in document.items():
        found.append((*path, key))
        if isinstance(value, dict):
            found += _places(value, (*path, key))
    return found


def _table(document: Document, path: tuple[str, ...]) -> Document | None:
    at: Any = document
    for key in path[:-1]:
        at = at.setdefault(key, {})
        if not isinstance(at, dict):
            return None
    return at if isinstance(at, dict) else None


def mutated(rng: random.Random, documents: dict[str, Document]) -> Document:
    """One of ``documents`` with one to three mistakes."""
    document = copy.deepcopy(documents[rng.choice(sorted(documents))])
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3))):
        other = documents[rng.choice(sorted(documents))]
        path = rng.choice(_places(document) if rng.random() < 0.5 else KEYS)
        table = _table(document, path)
        if table is None:
            continue
        key, kind = path[-1], rng.random()
        if kind < 0.12:
            table.pop(key, None)
        elif kind < 0.32:  # what the same key is elsewhere
            there = _table(copy.deepcopy(other), path)
            if there is not None and key in there:
                table[key] = there[key]
        elif kind < 0.5 and isinstance(table.get(key), int | float) and not isinstance(table[key], bool):
            factor = rng.choice((0, 2, 10, 0.1, 1e-3, 1e3, -1, 1e6, 1e-6, 1 + 1e-9))
            table[key] = type(table[key])(table[key] * factor)
        elif kind < 0.7:
            table[key] = rng.choice(WORDS)
        else:
            table[key] = copy.deepcopy(rng.choice(EDGES))
    algorithm = document.get("algorithm")
    if isinstance(algorithm, dict) and isinstance(K := algorithm.get("iterations"), int) and K > 1000:
        algorithm["iterations"] = 1000  # what takes long by its nature hides what hangs
    return document


def run(*arguments: object) -> tuple[int, str]:
    """Exit code and what stood on standard error."""

    def ended(_: int, __: object) -> None:
        raise TooLong

    said, before = io.StringIO(), signal.signal(signal.SIGALRM, ended)
    signal.alarm(LIMIT_S)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said):
            code = cli.run([str(argument) for argument in arguments])
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    return int(code), said.getvalue()


def judge(document: Document, folder: Path) -> tuple[str, str]:
    """(verdict, what was said): "runs", "refused", or what is wrong with dpgt."""
    file, out = folder / "run.toml", folder / "out"
    try:
        file.write_text(tomli_w.dumps(document), encoding="utf-8")
    except (TypeError, ValueError, UnicodeEncodeError):
        return "no TOML", ""
    shutil.rmtree(out, ignore_errors=True)
    try:
        code, said = run("check", file)
        if code not in (0, 1, 2) or "Traceback" in said:
            return f"check ends with {code}", said
        if code == 0 and document["algorithm"]["iterations"] > MOST_ROUNDS:
            return "runs too long to try", said
        began, tried = run("simulate", file, "--out", out)
    except TooLong:
        return "takes too long", ""
    if began not in (0, 1, 2) or "Traceback" in tried:
        return f"simulate ends with {began}", tried
    if code == 0 and any(words in tried for words in _AT_WORK):  # it started, and such things show in its rounds only
        return "runs", said
    if (code == 0) != (began == 0):
        return f"check says {code}, simulate {began}", f"check: {said}\nsimulate: {tried}"
    return ("runs" if code == 0 else "refused"), said


def main(count: int, seed: int) -> int:
    """Hunt, and print what is wrong."""
    documents, verdicts = bases(), Counter[str]()
    with tempfile.TemporaryDirectory() as name:
        for number in range(count):
            document = mutated(random.Random(f"{seed}/{number}"), documents)
            began = time.monotonic()
            verdict, said = judge(document, Path(name))
            verdicts[verdict] += 1
            took = time.monotonic() - began
            if verdict not in ("runs", "refused", "no TOML", "runs too long to try") or took > LIMIT_S / 3:
                print(f"--- {seed}/{number}: {verdict} ({took:.1f} s)\n{tomli_w.dumps(document)}\n{said}", flush=True)
    print(dict(verdicts))
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0))
