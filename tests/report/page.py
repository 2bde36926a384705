"""A strict reader of the report's HTML: nesting, text, tags and attributes, and what the page would load or run."""

from __future__ import annotations

import re
from html.parser import HTMLParser

VOID = {"meta", "br", "hr", "img", "input", "link"}


class Page(HTMLParser):
    """``tags`` in order, ``attributes`` as (tag, name, value), ``text`` by enclosing tag; asserts that tags nest."""

    def __init__(self, source: str) -> None:
        super().__init__(convert_charrefs=True)
        self.source = source
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.text: list[tuple[str, str]] = []
        self._open: list[str] = []
        self.feed(source)
        self.close()
        assert not self._open, f"never closed: {self._open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self._open and self._open[-1] == tag, f"</{tag}> closes {self._open[-1:]}"
        self._open.pop()

    def handle_data(self, data: str) -> None:
        self.text.append((self._open[-1] if self._open else "", data))

    def words(self) -> str:
        """All text outside the style sheet."""
        return "".join(data for tag, data in self.text if tag != "style")

    def of(self, tag: str) -> list[str]:
        """The pieces of text directly inside elements ``tag``."""
        return [data for inside, data in self.text if inside == tag]


def reaches_out(page: Page) -> list[str]:
    """What the page would fetch or run: empty for a page that opens offline."""
    found = [f"<{tag}>" for tag in page.tags if tag in {"script", "img", "link", "iframe", "object", "base", "image"}]
    for tag, name, value in page.attributes:
        if name.startswith("on") or name in {"src", "srcset", "data", "action", "xlink:href"}:
            found.append(f"{tag} {name}={value}")
        if name == "href" and not value.startswith("#"):
            found.append(f"{tag} {name}={value}")
    styles = [value for _, name, value in page.attributes if name in ("style", "clip-path")] + page.of("style")
    for style in styles:
        found += re.findall(r"@import[^;]*|url\((?!#)[^)]*\)|expression\(", style)
    return found + re.findall(r"https?://[^\s\"'<]*", page.source)
