"""The templates of ``report.html``: every value is escaped unless a template says ``safe``.

``safe`` are the style sheet and drawings (:mod:`dpgt_node.report.svg` escapes what it writes).  jinja2 is imported by
the first page, never by a daemon that only writes metrics.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from dpgt_node.values import dataclass

if TYPE_CHECKING:
    from jinja2 import Environment

FOLDER = Path(__file__).with_name("templates")


@dataclass(frozen=True, slots=True)
class Mark:
    """A patch of colour beside a name: ``kind`` is a class, ``colour`` a variable of the style sheet."""

    kind: str
    colour: str
    label: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """A question of the first screen; ``kind``: "bad" where the answer should stop a reader, "good", or neither."""

    question: str
    value: str
    sub: str
    kind: str = ""


@cache
def environment(*, autoescape: bool = True) -> Environment:
    """What renders them; a name that a template misspells is an error."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(
        loader=FileSystemLoader(FOLDER),
        autoescape=autoescape,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def rendered(name: str, values: dict[str, object]) -> str:
    """The page ``name`` with the style sheet in it."""
    css = (FOLDER / "report.css").read_text(encoding="utf-8")
    return environment().get_template(name).render({**values, "css": css.strip()})
