"""``python -m dpgt_node.cli.running.nursery PARENT RUN.toml ROOM``: what a launch forks its nodes from.

Most of a node's start is importing, and what it imports is most of its memory.  Here that is done once, and so is what
every node reads and computes of the data that all share.  Nodes are forked and share those pages.

A request is a JSON line on standard input: the arguments of ``dpgt``, and the log.  The answer is the node's pid.  The
node is a child of PARENT from its first step on, as if that had started it: PARENT adopts orphans
(``process.adopt_orphans``), and the process between the two has ended.  ROOM is blank, and makes the command line long
enough for a node to write its own over it (``process.show_as``).

Before a fork nothing is begun that a fork would break or double: no thread, no event loop, no call, no key, no noise.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import sys
from pathlib import Path

from dpgt_node import cli
from dpgt_node.errors import DpgtError

NODE = (
    "dpgt_node.algo.hard",
    "dpgt_node.cli.running.node",
    "dpgt_node.learning.oracle",
    "dpgt_node.runtime.agent.node",
    "dpgt_node.runtime.launch.hostcheck",
    "dpgt_node.runtime.trust.pinned",
)
_TASKS = Path("/proc/self/task")


def main() -> None:
    """Serve until standard input ends; in a forked node: be ``dpgt node``."""
    from dpgt_node.runtime import process

    process.die_with_parent(int(sys.argv[1]))
    _prepare(Path(sys.argv[2]))
    gc.collect()
    gc.freeze()  # the collector would write to every page that is shared
    arguments = _serve()
    if arguments is not None:
        process.show_as([sys.executable, "-m", "dpgt_node", *arguments])
        sys.argv = ["dpgt", *arguments]
        cli.main()


def _prepare(run_file: Path) -> None:
    from dpgt_node.algo.methods import method_of
    from dpgt_node.cli.common import data_root
    from dpgt_node.config import load_run
    from dpgt_node.learning.oracle import prepare_shared

    for name in NODE:
        importlib.import_module(name)
    with contextlib.suppress(DpgtError):  # each node finds the same, and says so
        run = load_run(run_file)
        method_of(run)
        prepare_shared(run, data_root())


def _serve() -> list[str] | None:
    """A node's arguments in the node, None at the end of standard input."""
    rest = b""
    while True:
        line, newline, rest = rest.partition(b"\n")
        if newline:
            request = json.loads(line)
            if not (pid := fork(request["log"])):
                return list(request["arguments"])
            os.write(1, b"%d\n" % pid)
            continue
        more = os.read(0, 1 << 16)
        if not more:
            return None
        rest = line + more


def fork(log: str) -> int:
    """The pid of a new orphan; 0 in it, where standard output and error go to ``log``.

    RuntimeError when this process has a thread: a lock that it holds would stay locked in the new one for ever.
    """
    if (threads := sum(1 for _ in _TASKS.iterdir())) != 1:
        raise RuntimeError(f"{threads} threads in a process that is to be forked")
    read, write = os.pipe()
    if not (between := os.fork()):
        between = os.getpid()
        try:
            pid = os.fork()
        except OSError:
            os._exit(1)
        if pid:
            os.write(write, b"%d" % pid)
            os._exit(0)
        os.close(read)
        os.close(write)
        while os.getppid() == between:
            os.sched_yield()
        os.setsid()
        for path, flags, to in ((os.devnull, os.O_RDONLY, (0,)), (log, os.O_WRONLY | os.O_APPEND, (1, 2))):
            opened = os.open(path, flags)
            for number in to:
                os.dup2(opened, number)
            os.close(opened)
        return 0
    os.close(write)
    pid = int(os.read(read, 32) or b"0")
    os.close(read)
    os.waitpid(between, 0)
    if not pid:
        raise RuntimeError("the system forks no more processes")
    return pid


if __name__ == "__main__":
    main()
