"""What travels in place of vectors where [traffic] of the run file wants it, and says nothing."""

from __future__ import annotations

from dpgt_node.protocol.types import Payload


class Dummy(Payload):
    """In place of a vector that an edge does not carry: zeros, and no release.  Its stream says nothing either."""

    __slots__ = ()

    @classmethod
    def of(cls, k: int) -> Dummy:
        """Of round ``k``; whoever writes it knows the sizes."""
        return cls("X", k, "float64", 0, b"", bytes(32))
