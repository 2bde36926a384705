"""HTTP/2 by hand, well-formed or not: a library would refuse to send most of what is needed here."""

from __future__ import annotations

from collections.abc import Sequence

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST, SETTINGS, PUSH, PING, GOAWAY, WINDOW, CONTINUATION = range(10)
END_STREAM, END_HEADERS = 1, 4

Pairs = Sequence[tuple[bytes, bytes]]


def frame(kind: int, flags: int, stream: int, payload: bytes = b"", *, length: int | None = None) -> bytes:
    """A frame; ``length``: what it declares instead of the truth."""
    size = len(payload) if length is None else length
    return size.to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


def _string(text: bytes) -> bytes:
    size = len(text)
    if size < 127:
        return bytes((size,)) + text
    out, size = bytearray((127,)), size - 127
    while size > 127:
        out.append(size & 127 | 128)
        size >>= 7
    return bytes(out) + bytes((size,)) + text


def block(pairs: Pairs) -> bytes:
    """A header block: literals without index, without Huffman coding."""
    return b"".join(b"\x00" + _string(name) + _string(value) for name, value in pairs)


def request(
    path: bytes, more: Pairs = (), *, content_type: bytes = b"application/grpc", method: bytes = b"POST"
) -> bytes:
    """The header block of a gRPC call."""
    usual = [
        (b":method", method), (b":scheme", b"http"), (b":path", path), (b":authority", b"x"), (b"te", b"trailers"),
        (b"content-type", content_type),
    ]  # fmt: skip
    return block([*usual, *more])


def message(body: bytes, *, length: int | None = None, compressed: int = 0) -> bytes:
    """A gRPC message; ``length``: what its prefix declares instead of the truth."""
    return bytes((compressed,)) + (len(body) if length is None else length).to_bytes(4, "big") + body


def opening(settings: bytes = b"") -> bytes:
    """What a client says first."""
    return PREFACE + frame(SETTINGS, 0, 0, settings)
