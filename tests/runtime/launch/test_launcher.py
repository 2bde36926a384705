"""The launcher's parts: what is started again and how often, the port it holds, what it quotes of a child's log."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from pathlib import Path

import grpc.aio
import pytest

from dpgt_node.config import to_toml
from dpgt_node.errors import ExitCode
from dpgt_node.record.lines import json_line
from dpgt_node.record.summary import RESTARTS_FILE, read_restarts
from dpgt_node.runtime.launch.launcher import held_port
from dpgt_node.runtime.launch.supervisor import RESTARTS, WINDOW_S, Child, Supervisor, crashed, last_line
from dpgt_node.wire import services
from tests.runtime.cluster import eventually, make_run

INFO = "2026-01-01 00:00:00,000 INFO dpgt_node.cli.running.node: peak resident memory 74 MiB"
WARNING = "2026-01-01 00:00:00,000 WARNING dpgt_node.runtime.agent.node: stopped: enough"
JSON_CAUSE = json_line(0.0, "error", "dpgt", "dpgt node: no space")
JSON_INFO = json_line(0.0, "info", "dpgt_node.cli.running.node", "peak resident memory 74 MiB")
AGAIN = "2026-01-01 00:00:00,000 INFO dpgt launch: agent-1 killed by SIGKILL; started again"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        (INFO, INFO),
        (f"{WARNING}\n{INFO}\n\n", WARNING),
        (f"dpgt node: the disk is full\n{WARNING}\n{INFO}\n", "the disk is full"),
        (f"dpgt node: old\n{INFO}\ndpgt node: a: b: c\n", "a: b: c"),
        ("\n" + "x" * 20_000 + "\ndpgt node: after a long line", "after a long line"),
        ("dpgt coordinator: \ufffd not UTF-8", "\ufffd not UTF-8"),
        (f"{JSON_CAUSE}\n{JSON_INFO}\n", "no space"),
        (f"dpgt node: in its first life\n{AGAIN}\n{WARNING}\n{INFO}\n", WARNING),
    ],
)
def test_the_cause_is_what_the_child_said_last(tmp_path: Path, text: str, expected: str) -> None:
    (tmp_path / "log").write_text(text, encoding="utf-8")
    assert last_line(tmp_path / "log") == expected


def test_no_log_is_no_cause(tmp_path: Path) -> None:
    assert last_line(tmp_path / "log") == ""


def test_who_comes_back() -> None:
    assert all(crashed(code) for code in (-signal.SIGKILL, -signal.SIGSEGV, -signal.SIGABRT, -signal.SIGBUS, 70))
    assert not any(crashed(code) for code in (0, 1, 2, 3, 4, 5, 6, -signal.SIGTERM, -signal.SIGINT))


class Watch:
    """A supervisor whose clock is set by hand, over a coordinator that waits for agents that never come."""

    def __init__(self, folder: Path, *, restart: bool = True) -> None:
        self.folder = folder
        self.now_s = 0.0
        self.said: list[str] = []
        self.ended = asyncio.Event()
        self.supervisor = Supervisor(
            folder,
            [],
            log_level="info",
            restart=restart,
            ended=self.ended.set,
            say=self.said.append,
            clock=lambda: self.now_s,
        )

    async def start(self) -> Child:
        (self.folder / "run.toml").write_text(to_toml(make_run()), encoding="utf-8")
        arguments = ["coordinator", "--config", str(self.folder / "run.toml"), "--listen", "127.0.0.1:0"]
        arguments += ["--insecure", "--out", str(self.folder / "out")]
        log = self.folder / "coordinator.log"
        return await self.supervisor.start("coordinator", arguments, log, self.folder / "coordinator.pid")

    async def kill(self, child: Child, number: signal.Signals = signal.SIGKILL) -> None:
        child.signal(number)
        await child.exited
        assert self.ended.is_set()
        await self.supervisor.revive()


async def test_a_sixth_crash_within_a_minute_is_for_good(tmp_path: Path) -> None:
    watch = Watch(tmp_path)
    child = await watch.start()
    first = child.process.pid
    try:
        for _ in range(RESTARTS):
            await watch.kill(child)
            assert not child.exited.done() and not watch.supervisor.failed(child)
        assert child.process.pid != first
        assert (tmp_path / "coordinator.pid").read_text() == f"{child.process.pid}\n"
        watch.now_s = WINDOW_S - 1
        await watch.kill(child)
        assert watch.supervisor.failed(child) and len(watch.said) == RESTARTS
        ended = watch.supervisor.verdict(child, name_it=False)
        assert ended.exit_code is ExitCode.PEER_LOST
        assert ended.reason.startswith("coordinator was lost: killed by SIGKILL, after 5 restarts in 60 s")
    finally:
        await watch.supervisor.end(at_once=lambda: True)
    assert watch.said[0] == "coordinator killed by SIGKILL; started again (1 of at most 5 in 60 s)"
    assert read_restarts(tmp_path) == {"coordinator": RESTARTS}
    assert (tmp_path / "coordinator.log").read_text().count(
        "INFO dpgt launch: coordinator killed by SIGKILL"
    ) == RESTARTS


async def test_crashes_of_long_ago_do_not_count_and_a_bug_is_a_crash(tmp_path: Path) -> None:
    watch = Watch(tmp_path)
    child = await watch.start()
    try:
        for step in range(RESTARTS + 2):
            watch.now_s = step * WINDOW_S / RESTARTS
            await watch.kill(child)
            assert not child.exited.done()
        watch.now_s += WINDOW_S
        child.command = [sys.executable, "-c", "print('dpgt node: this is a bug: X'); raise SystemExit(70)"]
        await watch.kill(child)
        for _ in range(RESTARTS - 1):
            await child.exited
            await watch.supervisor.revive()
        await child.exited
        assert watch.said[-1] == ("coordinator exited 70: this is a bug: X; started again (5 of at most 5 in 60 s)")
        await watch.supervisor.revive()
        ended = watch.supervisor.verdict(child, name_it=True)
        assert ended.exit_code is ExitCode.PEER_LOST and "lost: exited 70: this is a bug: X, after 5" in ended.reason
    finally:
        await watch.supervisor.end(at_once=lambda: True)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda n: n.name)
async def test_who_was_told_to_end_stays_ended(tmp_path: Path, number: signal.Signals) -> None:
    watch = Watch(tmp_path)
    child = await watch.start()
    if number is signal.SIGINT:  # while Python starts, this one is a KeyboardInterrupt wherever it happens to be
        await eventually("it listens", lambda: (tmp_path / "out" / "coordinator.json").exists())
    await watch.kill(child, number)
    assert child.exited.done() and watch.supervisor.failed(child) and not watch.said
    assert watch.supervisor.verdict(child, name_it=False).exit_code is ExitCode.STOPPED


async def test_without_restarts_the_first_crash_is_for_good(tmp_path: Path) -> None:
    watch = Watch(tmp_path, restart=False)
    child = await watch.start()
    await watch.kill(child)
    assert watch.supervisor.failed(child)
    ended = watch.supervisor.verdict(child, name_it=False)
    assert ended.exit_code is ExitCode.PEER_LOST and "was lost: killed by SIGKILL (log: " in ended.reason
    assert not (tmp_path / RESTARTS_FILE).exists()


def test_a_count_that_cannot_be_read_is_none(tmp_path: Path) -> None:
    assert read_restarts(tmp_path) == {}
    for text in ("", "[]", '{"a": null}', "{"):
        (tmp_path / RESTARTS_FILE).write_text(text)
        assert read_restarts(tmp_path) == {}


async def test_theheld_port_is_the_coordinators_again_and_again() -> None:
    with held_port() as port:
        for _ in range(2):
            with socket.socket() as stranger, pytest.raises(OSError, match="in use"):
                stranger.bind(("127.0.0.1", port))
            server = grpc.aio.server(options=services.SERVER_OPTIONS)
            assert services.bind(server, f"127.0.0.1:{port}", None, "test") == port
            await server.start()
            await server.stop(grace=0)
