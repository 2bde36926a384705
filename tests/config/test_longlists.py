"""Long lists of numbers in TOML: what tomllib reads and says, whoever reads them."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable
from typing import Any

import pytest

from dpgt_node.config.declare import longlists

ROWS = ",\n".join(f"  [{i}, {i + 1}, {i / 7!r}]" for i in range(400))
LONG = f"[\n{ROWS},\n  [-0, 0, -1.5E+07], [], [1e999]\n]"
FLAT = str(list(range(2000)))
WORD = "a long list"


def both(text: str) -> tuple[Any, Any]:
    """What either makes of ``text``, types and signs of zero included, or what it raises."""

    def outcome(loads: Callable[[str], Any]) -> Any:
        try:
            return repr(loads(text))
        except (ValueError, RecursionError) as error:
            return type(error), str(error)

    return outcome(longlists.loads), outcome(tomllib.loads)


GOOD = {
    "a key": f"a = {LONG}",
    "two, and what stands around": f"x = 1\na = {LONG} # words = [1]\nb={LONG}\n[t]\nc.d = {LONG}\ny = 2",
    "in tables": f"[graph]\nR = {{ generator = 'edges', edges = {LONG} }}\n[[more]]\na = {LONG}\n[[more]]\na = {LONG}",
}
LEFT = {
    "a comma at the end": f"a = {LONG[:-2]},\n]",
    "a comment inside": f"a = {LONG[:-1]}, # here\n]",
    "a comment around": f"# a = {LONG}".replace("\n", " ") + "\nb = 1",
    "a text around": f'a = """b = {LONG}"""',
    "a text that reads like a word": f'b = "\\u0061 long list! 0"\na = {LONG}',
    "a text that reads like a word, and what that stands for": f'b = "\\u0061 long list! 0"\n# a = {FLAT}',
    "a text in two lines that reads like a word": f'b = """a long \\\n list! 0"""\n# a = {FLAT}',
    "a word taken": f'b = "{WORD} 0"\na = {LONG}',
    "words taken": f'b = "{WORD}! 0"\nc = "{WORD}!! 0"\na = {LONG}',
    "a word for every mark": f'b = "{WORD}{"!" * 1_000_000}"',
    "lists of tables in lists": f"a = [[{{ b = {LONG} }}]]",
    "lines as on Windows": f"a = {LONG}".replace("\n", "\r\n"),
    "no JSON": f"a = {LONG[:-1]}, 0x10, 1_000, +1, inf, 1979-05-27]",
}
BAD = {
    "no end": f"a = {LONG[:-1]}\nb = 1",
    "something behind": f"a = {LONG} 7",
    "one end too many": f"a = {LONG}]\nb = 1",
    "twice": f"a = {LONG}\na = {LONG}",
    "a number that is none": f"a = {LONG[:-1]}, 1.]",
    "a zero in front": f"a = {LONG[:-1]}, 01]",
    "an error elsewhere": f"a = {LONG}\n\nb = = 1",
    "not a number": f"a = {LONG[:-1]}, NaN]",
    "too many digits": f"a = {LONG[:-1]}, {'9' * 5000}]",
    "too deep": f"a = {'[' * 100_000}",
}


@pytest.mark.parametrize("text", (GOOD | LEFT | BAD).values(), ids=(GOOD | LEFT | BAD).keys())
def test_it_is_what_tomllib_makes_of_it(text: str) -> None:
    ours, theirs = both(text)
    assert ours == theirs


@pytest.mark.parametrize("text", GOOD.values(), ids=GOOD.keys())
def test_tomllib_sees_no_long_list(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen, loads = list[int](), tomllib.loads
    monkeypatch.setattr(tomllib, "loads", lambda text: seen.append(len(text)) or loads(text))
    found = longlists.loads(text)
    assert len(seen) == 1 and seen[0] < 200
    assert math.inf in next(iter(_lists(found)))[-1]


def _lists(value: Any) -> list[Any]:
    """The long lists in a document."""
    if isinstance(value, dict):
        return [one for inner in value.values() for one in _lists(inner)]
    if isinstance(value, list):
        return [value] if len(value) > 400 else [one for inner in value for one in _lists(inner)]
    return []
