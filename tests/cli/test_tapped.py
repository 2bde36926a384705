"""Which links of a run lead through a tap."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from dpgt_node import cli
from dpgt_node.adversary.taps.errors import CaptureError
from dpgt_node.cli.eavesdrop.tapped_launch import links_of, parse_links, tapped
from dpgt_node.config import format_address, parse_address, parse_run
from dpgt_node.errors import ConfigError, ExitCode
from dpgt_node.runtime.launch.launcher import Launcher
from dpgt_node.runtime.launch.supervisor import Ended
from dpgt_node.wire.transcript import Link
from tests.e2e.processes import quadratic

RUN = parse_run(quadratic(3, 5), "run", Path())
RING = tuple(Link(f"agent-{j}", f"agent-{i}") for j, i in ((1, 2), (2, 3), (3, 1)))


def test_all_links_or_those_that_are_named() -> None:
    assert links_of(RUN) == RING
    assert parse_links(None, RUN, "--links") == RING
    assert parse_links("agent-2>agent-3, agent-1 > agent-2,agent-2>agent-3", RUN, "--links") == (RING[1], RING[0])


@pytest.mark.parametrize("text", ["agent-1>agent-3", "agent-1", "", "agent-1>agent-2,", "agent-1>nobody"])
def test_a_link_that_the_run_does_not_have_is_named_with_those_it_has(text: str) -> None:
    with pytest.raises(
        ConfigError, match=r"--links: .* is no link of this run; it has agent-1>agent-2,agent-2>agent-3"
    ):
        parse_links(text, RUN, "--links")


async def test_a_tap_that_cannot_write_ends_what_it_taps() -> None:
    """Agents would dial it again and again."""
    with pytest.raises(CaptureError, match="/dev/full is only the beginning"):
        async with tapped(RUN, Path("/dev/full"), RING[:1]) as places:
            host, port = parse_address(places["agent-2"].listen or "")
            async with await asyncio.start_server(lambda r, w: None, host, port):
                _, writer = await asyncio.open_connection(*parse_address(places["agent-1"].dial["agent-2"]))
                writer.write(bytes(1_000_000))
                await asyncio.Event().wait()


async def test_whoever_cancels_a_tapped_launch_is_obeyed(tmp_path: Path) -> None:
    entered = asyncio.Event()

    async def launch() -> None:
        async with tapped(RUN, tmp_path / "a.pcap"):
            entered.set()
            await asyncio.Event().wait()

    task = asyncio.ensure_future(launch())
    await entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_only_the_senders_of_tapped_links_dial_elsewhere(tmp_path: Path) -> None:
    async with tapped(RUN, tmp_path / "a.pcap", RING[:1]) as places:
        assert {name: tuple(place.dial) for name, place in places.items()} == {
            "agent-1": ("agent-2",),
            "agent-2": (),
            "agent-3": (),
        }
        listen, dialled = places["agent-2"].listen, places["agent-1"].dial["agent-2"]
        assert listen is not None and places["agent-1"].listen is None
        assert {parse_address(at)[0] for at in (listen, dialled)} == {"127.0.0.1"}
        assert listen != dialled == format_address(*parse_address(dialled))


def test_a_stopped_launch_says_that_it_goes_on_with_another_capture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def stopped(_: Launcher) -> Ended:
        return Ended(ExitCode.STOPPED, "stopped")

    monkeypatch.setattr(Launcher, "run", stopped)
    (tmp_path / "run.toml").write_text(quadratic(3, 5), encoding="utf-8")
    out, capture = tmp_path / "out", tmp_path / "a.pcap"
    command = ["launch", str(tmp_path / "run.toml"), "--insecure", "--out", str(out), "--tap"]
    assert cli.run([*command, str(capture)]) == ExitCode.STOPPED
    hint = f"go on with the same command and --out {out}, and --tap with another file name than {capture}"
    assert capsys.readouterr().err.splitlines()[-1] == f"dpgt launch: {hint}"
    assert cli.run([*command, str(capture)]) == 2
    assert cli.run([*command, str(tmp_path / "b.pcap")]) == ExitCode.STOPPED
