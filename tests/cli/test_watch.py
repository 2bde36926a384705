"""``dpgt status --watch``: until the run is over, past a coordinator that is started again."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace

import pytest
from rich.console import Console

from dpgt_node.cli.running.launch import live_status
from dpgt_node.cli.running.live import live_table, plain_line
from dpgt_node.cli.running.watch import PATIENCE_S, watch
from dpgt_node.errors import ExitCode, PeerError
from dpgt_node.protocol.messages import AgentStatus, StatusReply

HERE, ABSENT = AgentStatus("agent-1", True, -1), AgentStatus("agent-2", False, -1, state="absent", missing_s=12.4)
WAITING = StatusReply("waiting", -1, 9, bytes(16), "digits", 0.0, (HERE, ABSENT), gives_up_s=287.6)
RUNNING = replace(WAITING, state="running", k=4, agents=(HERE, replace(HERE, name="agent-2")), gives_up_s=None)
GONE = tuple(replace(agent, connected=False, k=9, state="absent") for agent in RUNNING.agents)
FINISHED = replace(RUNNING, state="finished", k=9, agents=GONE)


def shown(
    answers: list[StatusReply | None], over: Callable[[], StatusReply | None] = lambda: None
) -> tuple[ExitCode, str]:
    """``None``: the coordinator does not answer; the last answer holds for ever."""
    clock, text = [0.0], io.StringIO()

    def ask() -> StatusReply:
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if answer is None:
            raise PeerError("no answer")
        return answer

    def sleep(seconds: float) -> None:
        clock[0] += seconds

    console = Console(file=text, width=200)
    return watch(ask, over, console=console, clock=lambda: clock[0], sleep=sleep), text.getvalue()


def test_it_says_whom_it_waits_for_and_until_when_and_ends_with_the_run() -> None:
    code, text = shown([WAITING, RUNNING, FINISHED])
    assert code is ExitCode.DONE
    assert "1/2 agents connected  waited for: agent-2" in text and "waiting for" not in text
    assert "waited for: agent-2 (12 s); the run ends in 288 s unless they come" in text
    assert "k 4/9" in text and "finished" in text
    last = Console(width=100)
    with last.capture() as frame:
        last.print(live_table(live_status(FINISHED)))
    assert "not connected" not in frame.get() + text and frame.get().count("finished") == 3
    with last.capture() as frame:
        last.print(live_table(live_status(replace(FINISHED, state="running"))))
    assert frame.get().count("not connected") == 2


def test_a_coordinator_that_comes_back_is_followed_and_one_that_stays_away_is_an_error() -> None:
    code, text = shown([RUNNING, None, None, RUNNING, FINISHED])
    assert code is ExitCode.DONE and text.count("no answer from the coordinator") == 1
    with pytest.raises(PeerError, match="no answer"):
        shown([RUNNING, None])
    with pytest.raises(PeerError, match="no answer"):
        shown([None])
    assert PATIENCE_S > 0


def test_the_folder_tells_the_end_of_a_run_whose_coordinator_is_gone() -> None:
    stopped = replace(RUNNING, state="stopped", reason="an operator stopped it")
    code, text = shown([RUNNING, None], lambda: stopped)
    assert code is ExitCode.STOPPED and "stopped: an operator stopped it" in text
    line = plain_line(live_status(replace(WAITING, state="stopped", gives_up_s=None)))
    assert line == "stopped  before round 0", "nobody is waited for any more"


def test_who_is_lost_in_mid_run_has_the_time_that_is_left() -> None:
    why = "agent-2 gave no sign of life for 7.0 s, in round 5"
    lost = replace(RUNNING, agents=(HERE, replace(ABSENT, state="silent")), reason=why, gives_up_s=8.0)
    assert f"{why}; the run ends in 8 s unless they come" in plain_line(live_status(lost))
