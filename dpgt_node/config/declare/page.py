"""The reference page's tables, made of the declarations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import fill

from dpgt_node.config.declare.keys import UNSET, When
from dpgt_node.config.declare.kinds import Worded
from dpgt_node.config.declare.tables import Row, Table


def sections(tables: Sequence[Table]) -> Iterator[str]:
    """Markdown: each table of a file with its keys, then what the words of its keys mean and their own keys."""
    for table in tables:
        if not table.rows:
            continue
        yield from _table(table)


def _table(table: Table) -> Iterator[str]:
    if table.name:
        yield f"### {table.name}" if " " in table.name else f"### `[{table.name}]`"
    notes = [table.sentence, *([table.only.text] if table.only is not None else [])]
    notes += [f"at most one of {_listed(group.names)}" for group in table.exclusive if group.blamed == ""]
    if notes := [note for note in notes if note]:
        yield _sentences(notes)
    words = [row for row in table.rows if isinstance(row.entry.kind, Worded) and row.entry.kind.meanings()]
    own = [row for row in table.rows if any(_owned(row, chooser) for chooser in words)]
    far = next((row.only.key.rpartition(".")[2] for row in table.rows if row.only and "." in row.only.key), "")
    yield _keys([row for row in table.rows if row not in own], far)
    for chooser in words:
        yield from _words(chooser, [row for row in own if _owned(row, chooser)])


def _owned(row: Row, chooser: Row) -> bool:
    """Whether ``row`` is a key of some words of ``chooser`` alone."""
    return row.only is not None and row.only.key == chooser.name and row.only.text == ""


def _words(chooser: Row, own: Sequence[Row]) -> Iterator[str]:
    kind = chooser.entry.kind
    if not isinstance(kind, Worded):
        return
    yield f"#### {kind.title}"
    rows = (_line([f'"{word}"', text]) for word, text in kind.meanings())
    yield "\n".join([_line([f"`{chooser.name}`", "meaning"]), "|---|---|", *rows])
    if own:
        yield "Own keys:"
        yield _keys(own, chooser.name)


def _keys(rows: Sequence[Row], chooser: str = "") -> str:
    """A table of keys; with ``chooser`` the first column says which of its words has the key."""
    head = [*([f"`{chooser}`"] if chooser else []), "key", "values", "default", "meaning"]
    lines = [_line(head), _line(["---"] * len(head)).replace(" ", "")]
    for row in rows:
        cells = [f"`{row.name}`", _values(row), _default(row), _meaning(row, told=bool(chooser))]
        if chooser and row.only is not None:
            cells.insert(0, ", ".join(f'"{word}{"PATH" if word.endswith(":") else ""}"' for word in row.only.words))
        lines.append(_line(cells))
    return "\n".join(lines)


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _values(row: Row) -> str:
    words = row.entry.kind.words()
    return f"{row.entry.key.unit}, {words}" if row.entry.key.unit else words


def _default(row: Row) -> str:
    default, absent = row.entry.default, row.entry.key.absent
    if default is UNSET:
        return "required"
    if absent or default is None:
        return absent
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, tuple):
        return str(list(default))
    return f'"{default}"' if isinstance(default, str) else f"{default}"


def _meaning(row: Row, *, told: bool) -> str:
    sentence = row.entry.key.sentence
    return sentence if told or row.only is None else f"{condition(row.only)}: {sentence}"


def condition(only: When) -> str:
    """A condition for people, e.g. ``kind = "S1"``."""
    if only.text:
        return only.text
    words = " or ".join(f'"{word}"' for word in only.words)
    return f"{only.key} {'=' if only.holds else 'not'} {words}"


def _listed(names: Sequence[str]) -> str:
    short = [f"`{name.rpartition('.')[2]}`" for name in names]
    return f"{', '.join(short[:-1])} and {short[-1]}"


def _sentences(notes: Sequence[str]) -> str:
    text = " ".join(f"{note[0].upper()}{note[1:]}." for note in notes)
    return fill(text, 120, break_long_words=False, break_on_hyphens=False)
