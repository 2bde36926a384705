"""``python -m dpgt_node VERB`` is ``dpgt VERB``: the process, from its first instant."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
from types import FrameType

_USAGE = 2
_STOPPED = 5
"""ExitCode.STOPPED, before anything of ours is imported."""


def _interrupted(_number: int, _frame: FrameType | None) -> None:
    """Nothing has begun, and nobody wants to read of an import."""
    with contextlib.suppress(OSError):
        os.write(2, b"dpgt: interrupted\n")
    os._exit(_STOPPED)


def main() -> None:
    """Import the commands, and run the one that was asked for."""
    gc.disable()  # what imports leave is no garbage; `cli.lazy.settle` enables it
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _interrupted)

    try:
        from dpgt_node import cli
    except ImportError as error:  # `python -m` looks into the current folder first
        words = f"dpgt: {error}: is a file of that name in {os.getcwd()}? Else install dpgt-node anew\n"
        os.write(2, words.encode(errors="replace"))
        sys.exit(_USAGE)

    cli.main()


if __name__ == "__main__":
    main()
