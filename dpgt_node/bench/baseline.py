"""A measurement beside an earlier one of the same kind, which ``dpgt bench --json`` wrote."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from dpgt_node.bench.figures import Row, Value
from dpgt_node.errors import ConfigError

_MACHINE = ("dpgt", "python", "system", "cores", "load")


class Baseline:
    """What ``--json`` of one measurement, or of ``all``, printed into a file."""

    def __init__(self, path: Path) -> None:
        """ConfigError: no such file, or not one of these."""
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
            each = document.get("all", [document])
            self._found: dict[str, Any] = {}
            for one in each:
                _check(one)
                self._found[one["bench"]] = one
        except OSError as error:
            raise ConfigError.one("command line", "--baseline", f"{path}: {error.strerror or error}") from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            said = f"{path}: not what `dpgt bench NAME --json` prints"
            raise ConfigError.one("command line", "--baseline", said) from error
        self._path = path

    def has(self, name: str) -> bool:
        return name in self._found

    def must_have(self, name: str) -> None:
        """ConfigError unless measurement ``name`` is in it."""
        if not self.has(name):
            said = f"{self._path}: of {', '.join(self._found) or 'nothing'}, not of {name}"
            raise ConfigError.one("command line", "--baseline", said)

    def differences(self, found: Mapping[str, Any]) -> Iterator[str]:
        """What was not as it is now, in settings and machine: a phrase each."""
        before = self._found[found["bench"]]
        for part, keys in (
            ("settings", sorted(found["settings"].keys() | before["settings"].keys())),
            ("machine", _MACHINE),
        ):
            for key in keys:
                then, now = before[part].get(key), json.loads(json.dumps(found[part].get(key)))
                if then != now:
                    yield f"{key} was {then}, is {now}"

    def rows(self, name: str, rows: Sequence[Mapping[str, Any]]) -> Iterator[Row]:
        """Each figure of ``rows`` that the baseline has, too: then, now, now/then, and whether the spreads meet.

        Rows belong together by table, words and order, figures by their heading.  Whole numbers that stayed the same
        are left out: most of them are sizes that were asked for.
        """
        then, now = _figures(self._found[name]["rows"]), _figures(rows)
        for key in now:
            if key in then and not then[key] == now[key] == (round(now[key][0]),) * 3:
                (a, a_least, a_most), (b, b_least, b_most) = then[key], now[key]
                table, words, heading, _ = key
                cells: dict[str, Value] = {
                    "figure": ", ".join((*words, heading)),
                    "baseline": a,
                    "now": b,
                    "now/baseline": b / a if a else None,
                    "spreads": "meet" if a_least <= b_most and b_least <= a_most else "apart",
                }
                yield Row(f"beside the baseline: {table}", cells)


_Key = tuple[str, tuple[str, ...], str, int]
_Numbers = tuple[float, float, float]


def _check(one: Any) -> None:
    """ValueError, KeyError, TypeError or AttributeError unless ``one`` has the form of a measurement."""
    if not isinstance(one["bench"], str) or not isinstance(one["rows"], list):
        raise TypeError
    one["settings"].keys(), one["machine"].keys()
    for row in one["rows"]:
        if not isinstance(row["table"], str):
            raise TypeError
        for value in row.values():
            if isinstance(value, dict):
                _numbers(value)


def _numbers(value: Any) -> _Numbers | None:
    """Median, least and largest of a figure; None for words, truth values and what is not known."""
    if isinstance(value, dict):
        return float(value["median"]), float(value["least"]), float(value["most"])
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value), float(value), float(value)
    return None


def _figures(rows: Sequence[Mapping[str, Any]]) -> dict[_Key, _Numbers]:
    found: dict[_Key, _Numbers] = {}
    seen: Counter[tuple[str, tuple[str, ...]]] = Counter()
    for row in rows:
        words = tuple(v for key, v in row.items() if key != "table" and isinstance(v, str) and v)
        number = seen[row["table"], words]
        seen[row["table"], words] += 1
        for heading, value in row.items():
            numbers = _numbers(value)
            if numbers is not None:
                found[row["table"], words, heading, number] = numbers
    return found
