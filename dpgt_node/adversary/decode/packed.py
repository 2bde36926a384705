"""Captures that were packed: what gzip, bzip2 and xz made is read as it comes, in bounded memory."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zlib
from collections.abc import Callable
from typing import BinaryIO, cast

Unpacker = Callable[[bytes, BinaryIO], BinaryIO]
"""Makes a stream of what is packed in the bytes given and in the rest of the stream."""
DAMAGED = (EOFError, zlib.error, gzip.BadGzipFile, lzma.LZMAError)
"""What reading such a stream raises where it is torn or damaged; bz2 raises OSError."""


class _Joined(io.RawIOBase):
    """Bytes that were read already, then the stream that they came from."""

    def __init__(self, ahead: bytes, stream: BinaryIO) -> None:
        self._ahead = ahead
        self._stream = stream

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1, /) -> bytes:
        if self._ahead:
            size = len(self._ahead) if size < 0 else size
            part, self._ahead = self._ahead[:size], self._ahead[size:]
            return part
        read1 = getattr(self._stream, "read1", self._stream.read)
        return bytes(read1(size))


def unpacker(magic: bytes) -> Unpacker | None:
    """For a file that begins with ``magic``; None: it is not packed in a way that is read here."""
    if magic.startswith(b"\x1f\x8b"):
        return lambda ahead, stream: cast(BinaryIO, gzip.GzipFile(fileobj=_Joined(ahead, stream)))
    if magic.startswith(b"BZh"):
        return lambda ahead, stream: cast(BinaryIO, bz2.BZ2File(cast(BinaryIO, _Joined(ahead, stream))))
    if magic.startswith(b"\xfd7zX"):
        return lambda ahead, stream: cast(BinaryIO, lzma.LZMAFile(cast(BinaryIO, _Joined(ahead, stream))))
    return None
