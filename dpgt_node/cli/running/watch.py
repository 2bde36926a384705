"""``dpgt status --watch``: the live table of a run, from any terminal, until it is over."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from rich.console import Console

from dpgt_node.cli.running.ended import say
from dpgt_node.cli.running.launch import live_status
from dpgt_node.cli.running.live import LiveView
from dpgt_node.errors import ExitCode, PeerError

if TYPE_CHECKING:
    from dpgt_node.protocol.messages import StatusReply

EVERY_S = 0.5
PATIENCE_S = 60.0
"""A coordinator that was killed is started again by its supervisor, and goes on; so long is it waited for."""


def watch(
    ask: Callable[[], StatusReply],
    over: Callable[[], StatusReply | None],
    *,
    console: Console | None = None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> ExitCode:
    """Show what ``ask`` answers until the run is over, DONE then if it finished and STOPPED if not.

    ``over``: the end of the run where its folder is known.  PeerError when the coordinator has not answered for
    ``PATIENCE_S``, or never did.
    """
    console = console or Console()
    last: StatusReply | None = None
    answered_s = clock()
    silent = False
    with LiveView(None, console) as view:
        while True:
            try:
                last, answered_s = ask(), clock()
                silent = False
            except PeerError:
                ended = over()
                if ended is None and (last is None or clock() - answered_s > PATIENCE_S):
                    raise
                if ended is None and not silent:
                    silent = True
                    say(console, f"no answer from the coordinator; asking again for {PATIENCE_S:.0f} s", "red")
                last = ended or last
            assert last is not None
            view.update(live_status(last))
            if last.over:
                break
            sleep(EVERY_S)
    if last.reason and last.state != "finished":
        say(console, f"{last.state}: {last.reason}")
    return ExitCode.DONE if last.state == "finished" else ExitCode.STOPPED
