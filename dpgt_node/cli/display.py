"""Standard output and standard error that never end a command.

What a terminal cannot show gets an ASCII stand-in.  What cannot be written at all is lost, and the loss is remembered:
a run goes on without its display.
"""

from __future__ import annotations

import codecs
import contextlib
import errno
import io
import os
import select
import sys
import unicodedata
from typing import TextIO

STAND_INS = "dpgt-stand-ins"
_ASKED_FOR = frozenset({"replace", "ignore", "backslashreplace", "xmlcharrefreplace", "namereplace"})
"""Ways out of a character that cannot be encoded which a user may have chosen (PYTHONIOENCODING)."""
_LIKE = {
    **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2212", "-"),
    **dict.fromkeys("\u00a0\u2007\u2009\u202f", " "),
    **dict.fromkeys("\u00b7\u2022\u22c5", "."),
    **dict.fromkeys("\u2018\u2019", "'"),
    **dict.fromkeys("\u201c\u201d", '"'),
    **dict.fromkeys("\u2500\u2501\u2504\u254c\u2574\u2578\u257a", "-"),
    **dict.fromkeys("\u2502\u2503\u2506\u254e", "|"),
    "\u00d7": "x",
    "\u00df": "ss",
    "\u00b1": "+-",
    "\u2026": "...",
    "\u2192": "->",
    "\u2264": "<=",
    "\u2265": ">=",
    "\u03b4": "delta",
    "\u03b5": "epsilon",
    "\u03bc": "mu",
    "\u03c1": "rho",
    "\u221e": "inf",
}


def stand_in(character: str) -> str:
    """ASCII that reads like ``character``: the letter below an accent, a dash for a dash, ``?`` where nothing does."""
    if character in _LIKE:
        return _LIKE[character]
    bare = unicodedata.normalize("NFKD", character).encode("ascii", "ignore").decode("ascii")
    if bare:
        return bare
    return "+" if "\u2500" <= character <= "\u257f" else "?"


def _replace(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(map(stand_in, error.object[error.start : error.end])), error.end


codecs.register_error(STAND_INS, _replace)


class _Sink(io.RawIOBase):
    """Writes to a descriptor; what cannot be written is dropped, and ``lost`` is the first reason."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.lost: OSError | None = None

    def writable(self) -> bool:
        """Always."""
        return True

    def fileno(self) -> int:
        """The descriptor."""
        return self._descriptor

    def isatty(self) -> bool:
        """Whether a terminal is there, still."""
        return os.isatty(self._descriptor)

    def write(self, data: object) -> int:
        """How much was taken: all that the descriptor did not refuse for a while only."""
        block = memoryview(data)  # type: ignore[arg-type]
        while True:
            try:
                return os.write(self._descriptor, block)
            except BlockingIOError:  # whoever shares this terminal made it non-blocking
                select.select([], [self._descriptor], [])
            except OSError as error:
                self.lost = self.lost or error
                return block.nbytes


class _Ascii(io.TextIOWrapper):
    """Text for an ASCII terminal.  It is called Latin-1, or click would write UTF-8 past it."""

    def write(self, text: str) -> int:
        """Write ``text``, with stand-ins."""
        return super().write(text.encode("ascii", STAND_INS).decode("ascii"))


class Display:
    """The two streams of this process, replaced by :meth:`install`."""

    def __init__(self) -> None:
        self._sinks: dict[str, _Sink] = {}

    def install(self) -> None:
        """Replace ``sys.stdout`` and ``sys.stderr``; a closed one writes to nowhere.

        A descriptor below 3 that is closed would be given to the next file that is opened, a database for one.  A width
        or height of 0, as a container's terminal may report it, would show nothing at all.
        """
        for size in ("COLUMNS", "LINES"):
            if os.environ.get(size, "").strip("0 ") == "":
                os.environ.pop(size, None)
        for descriptor in (0, 1, 2):
            try:
                os.fstat(descriptor)
            except OSError:
                os.open(os.devnull, os.O_RDWR)
        sys.stdout = self._made("stdout", sys.stdout, 1)
        sys.stderr = self._made("stderr", sys.stderr, 2)

    def _made(self, name: str, old: TextIO | None, descriptor: int) -> TextIO:
        sink = self._sinks[name] = _Sink(descriptor)
        encoding, errors = ("utf-8", "strict") if old is None else (old.encoding, old.errors or "strict")
        lines = name == "stderr" or sink.isatty()
        if codecs.lookup(encoding).name == "ascii":
            return _Ascii(io.BufferedWriter(sink), "latin-1", STAND_INS, line_buffering=lines)
        errors = errors if errors in _ASKED_FOR and name == "stdout" else STAND_INS
        return io.TextIOWrapper(io.BufferedWriter(sink), encoding, errors, line_buffering=lines)

    def lost(self) -> str | None:
        """Why standard output is incomplete, None where it is whole.  A reader that left wanted no more: no loss."""
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
        error = self._sinks["stdout"].lost
        return None if error is None or error.errno == errno.EPIPE else error.strerror or str(error)
