"""``python -m dpgt_node.cli.child FD VERB ARGUMENTS``: a command for :mod:`dpgt_node.api`, which started it.

What ends the command is written to the descriptor FD as JSON, so that it is raised there as what it is.  The command
ends in order when its standard input does: whoever started it is gone, or wants it no more.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading

from dpgt_node.cli import run
from dpgt_node.errors import ConfigError, DpgtError


def report(error: DpgtError, descriptor: int) -> None:
    """Write what ``error`` says, every problem by itself."""
    problems = error.problems if isinstance(error, ConfigError) else ()
    document = {
        "exit_code": int(error.exit_code),
        "message": str(error),
        "problems": [[problem.source, problem.key, problem.message] for problem in problems],
    }
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(document, file)


def _end_with_input() -> None:
    while os.read(0, 1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def main() -> None:
    descriptor, arguments = int(sys.argv[1]), sys.argv[2:]
    threading.Thread(target=_end_with_input, daemon=True, name="dpgt-input").start()
    sys.exit(run(arguments, failed=lambda error: report(error, descriptor)))


if __name__ == "__main__":
    main()
