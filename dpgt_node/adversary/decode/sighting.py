"""One released vector as a tap saw it cross a link, whole or in parts."""

from __future__ import annotations

from dataclasses import field, replace

from dpgt_node.values import dataclass
from dpgt_node.wire.overheard import Overheard

Missing = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Sighting:
    """A vector as it crossed the link.  ``missing``: bytes of ``data`` that were not seen, where it has zeros."""

    head: Overheard
    data: memoryview = field(repr=False)
    missing: Missing
    time_ns: int

    @property
    def blank(self) -> bool:
        """Nothing of its values was seen."""
        return self.missing == ((0, self.head.nbytes),)

    @property
    def cut(self) -> bool:
        """Its last bytes were not seen: they may cross on a later call."""
        return self.head.values is None and bool(self.missing) and self.missing[-1][1] == self.head.nbytes

    def goes_on(self, before: Sighting) -> bool:
        """Whether this is the rest of a vector of which ``before`` was the beginning."""
        first, then = before.head, self.head
        return then.from_byte > 0 and (first.k, first.sha256) == (then.k, then.sha256)

    def joined(self, before: Sighting) -> Sighting:
        """Both parts: what is missing is missing in both."""
        data = bytearray(self.data)
        missing = []
        for start, end in self.missing:
            data[start:end] = before.data[start:end]
            missing += [(max(a, start), min(b, end)) for a, b in before.missing if a < end and b > start]
        return replace(self, data=memoryview(data), missing=tuple(missing))
