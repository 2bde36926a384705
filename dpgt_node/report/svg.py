"""From a matplotlib figure to SVG that belongs to an HTML page: its colours and fonts are the page's own.

A figure is drawn with marker colours; here each becomes a CSS variable, so that one drawing serves the light and the
dark scheme.  Equal data give equal text.
"""

from __future__ import annotations

import io
import re
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SERIES_MAX = 8
# Marker colour in matplotlib -> CSS variable in the page.  Values are arbitrary but must differ from each other.
INK, MUTED, LINE, SURFACE, WORST, ACCENT = (f"#0{i}0b0c" for i in range(1, 7))
SERIES = tuple(f"#0a0b0{i}" for i in range(1, SERIES_MAX + 1))
VARIABLES = {
    INK: "--ink",
    MUTED: "--muted",
    LINE: "--line",
    SURFACE: "--surface",
    WORST: "--worst",
    ACCENT: "--accent",
    **{colour: f"--s{i}" for i, colour in enumerate(SERIES, start=1)},
}
_COLOUR = re.compile(r"#[0-9a-f]{6}\b")
_LONG_NUMBER = re.compile(r"-?\d+\.\d{3,}")
_STYLE = {
    "svg.fonttype": "none",
    "text.parse_math": False,
    "font.size": 9.5,
    "axes.edgecolor": LINE,
    "axes.labelcolor": MUTED,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "grid.color": LINE,
    "grid.linewidth": 0.7,
    "xtick.color": LINE,
    "xtick.labelcolor": MUTED,
    "ytick.color": LINE,
    "ytick.labelcolor": MUTED,
    "ytick.major.size": 0,
    "ytick.minor.size": 0,
    "lines.linewidth": 1.6,
    "lines.solid_capstyle": "round",
    "text.color": INK,
}


def style(salt: str) -> AbstractContextManager[None]:
    """matplotlib settings to draw under; equal ``salt`` and equal data give equal ids."""
    import matplotlib

    settings: Any = {**_STYLE, "svg.hashsalt": salt}
    return matplotlib.rc_context(settings)


def inline(figure: Figure, key: str, label: str, titles: Mapping[str, str]) -> str:
    """``figure`` as an ``<svg>`` element.

    ``key``: letters, unique in the page; prefixes every id.  ``label``: what a screen reader says.  ``titles``: gid of
    an artist -> text shown when the pointer rests on it.  Call it under :func:`style`.
    """
    file = io.StringIO()
    figure.savefig(file, format="svg", metadata={"Date": None})
    root = ET.fromstring(file.getvalue())
    _clean(root, key, titles)
    width, height = root.attrib["viewBox"].split()[2:]
    root.attrib.clear()
    root.attrib |= {"viewBox": f"0 0 {width} {height}", "role": "img", "aria-label": label, "class": f"plot {key}"}
    return ET.tostring(root, encoding="unicode")


def printable(name: str) -> str:
    """``name`` without characters that XML cannot hold."""
    return "".join(c if c.isprintable() else "·" for c in name)


def _clean(root: ET.Element, key: str, titles: Mapping[str, str]) -> None:
    targets = {reference for element in root.iter() for reference in _references(element)}
    for element in root.iter():
        element.tag = _local(element.tag)
        for child in list(element):
            # matplotlib's style sheet has a rule for "*", which would reach the whole page; the page repeats it.
            if _local(child.tag) in ("metadata", "style"):
                element.remove(child)
        gid = element.attrib.get("id")
        attributes = {_local(name): value for name, value in element.attrib.items()}
        if gid is not None and gid not in targets:
            del attributes["id"]
        element.attrib.clear()
        for name, value in attributes.items():
            if name == "id":
                value = f"{key}-{value}"
            elif name == "href":
                value = f"#{key}-{value[1:]}"
            elif name == "clip-path":
                value = value.replace("url(#", f"url(#{key}-")
            elif name == "style":
                value = ";".join(_declaration(part) for part in value.split(";"))
            elif name in ("d", "x", "y", "transform"):
                value = _LONG_NUMBER.sub(lambda match: f"{float(match.group()):.2f}", " ".join(value.split()))
            element.set(name, value)
        element.tail = None
        if len(element):
            element.text = None
        if gid is not None and gid in titles:
            title = ET.Element("title")
            title.text = printable(titles[gid])
            element.insert(0, title)


def _references(element: ET.Element) -> list[str]:
    found = []
    for name, value in element.attrib.items():
        if _local(name) == "href":
            found.append(value[1:])
        elif name == "clip-path":
            found.append(value.removeprefix("url(#").removesuffix(")"))
    return found


def _declaration(text: str) -> str:
    """One CSS declaration with the page's colours and font; matplotlib writes ``font: 10px 'Name'`` or the parts."""
    name, _, value = text.strip().partition(": ")
    if name == "font-family":
        value = "var(--sans)"
    elif name == "font":
        value = value.split("px")[0] + "px var(--sans)"
    return f"{name}:{_COLOUR.sub(_variable, value)}"


def _variable(match: re.Match[str]) -> str:
    name = VARIABLES.get(match.group())
    return f"var({name})" if name else match.group()


def _local(name: str) -> str:
    return name.rsplit("}", 1)[-1]
