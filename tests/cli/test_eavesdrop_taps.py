"""``eavesdrop capture``, ``sidecar``, ``lab``: what cannot be done is one line, and a tap on request ends in order."""

from __future__ import annotations

import signal
import socket
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from dpgt_node import cli
from dpgt_node.adversary.taps import lab, live
from dpgt_node.cli.eavesdrop import lab as lab_command
from dpgt_node.config import parse_run, to_toml
from dpgt_node.config.privacy.traffic import Traffic
from tests.adversary.taps import wiretap
from tests.e2e import processes


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("capture", "--out", "a.pcap"), "command line: give --interface, perhaps with --port, or one"),
        (
            ("capture", "--out", "a.pcap", "--proxy", "127.0.0.1:1=127.0.0.1:2", "--port", "3"),
            "command line: give --int",
        ),
        (("capture", "--out", "a.pcap", "--proxy", "127.0.0.1:1"), "command line: --proxy: 127.0.0.1:1: want LISTEN="),
        (("capture", "--out", "a.pcap", "--proxy", "127.0.0.1:1=x"), "command line: --proxy: "),
        (
            ("capture", "--out", "no/a.pcap", "--proxy", "127.0.0.1:1=127.0.0.1:2"),
            "command line: --out: no/a.pcap cannot",
        ),
        (("sidecar", "--tls", ".", "--keylog", "keys"), "command line: --tls: "),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: Sequence[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.run(["eavesdrop", *arguments]) == 2
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1 and said[0].startswith(f"dpgt eavesdrop: {message}")


@pytest.mark.parametrize("verb", ["proxy", "interface", "launch"])
def test_no_capture_is_written_over(tmp_path: Path, capsys: pytest.CaptureFixture[str], verb: str) -> None:
    (tmp_path / "run.toml").write_text(processes.quadratic(3, 5), encoding="utf-8")
    capture = tmp_path / "a.pcap"
    capture.write_bytes(b"kept")
    arguments = {
        "proxy": ["eavesdrop", "capture", "--proxy", "127.0.0.1:0=127.0.0.1:9", "--seconds", "0", "--out"],
        "interface": ["eavesdrop", "capture", "--interface", "lo", "--seconds", "0", "--out"],
        "launch": ["launch", str(tmp_path / "run.toml"), "--out", str(tmp_path / "out"), "--tap"],
    }
    assert cli.run([*arguments[verb], str(capture)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"{capture} is there already, and no capture is written over: give another file name" in line
    assert capture.read_bytes() == b"kept" and not (tmp_path / "out").exists()


def test_the_lab_leaves_traffic_out_where_values_are_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Agents in plain refuse it; the run that is written must be one that they read."""
    text = processes.quadratic(3, 4) + '[traffic]\npad_to = "power-of-two"\ncover = "all-pairs"\n'
    run = parse_run(text, "run.toml", tmp_path)
    cases: tuple[tuple[lab_command.Channel, bool], ...] = (("plain", False), ("tls+keys", False), ("tls", True))
    for channel, hidden in cases:
        made = lab_command.over(run, channel)
        assert parse_run(to_toml(made), "lab.toml", tmp_path).traffic.on is hidden
        assert ("[traffic] is left out" in capsys.readouterr().err) is not hidden
        assert made.runtime.channel == ("mtls" if hidden else "plain")
        lab_command.over(replace(run, traffic=Traffic()), channel)
        assert capsys.readouterr().err == ""


def test_without_root_the_lab_says_so_before_it_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run.toml").write_text(processes.quadratic(3, 5), encoding="utf-8")
    monkeypatch.setattr(lab.os, "geteuid", lambda: 1000)
    out = tmp_path / "out"
    assert cli.run(["eavesdrop", "lab", str(tmp_path / "run.toml"), "--out", str(out)]) == 2
    assert capsys.readouterr().err == (
        "dpgt eavesdrop: this machine: cannot have the lab: it needs root, for network namespaces. "
        "Without it: dpgt launch RUN.toml --out DIR --tap FILE.pcap\n"
    )
    assert not out.exists()


def test_without_root_a_live_tap_says_what_needs_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(live.socket, "socket", refuse)
    arguments = ["eavesdrop", "capture", "--interface", "lo", "--port", "7100", "--out", str(tmp_path / "a.pcap")]
    assert cli.run(arguments) == 2
    assert "a live tap needs root (CAP_NET_RAW); without it: --proxy" in capsys.readouterr().err


def capture(folder: Path, *options: object) -> subprocess.Popen[bytes]:
    command = processes.command("eavesdrop", "capture", "--out", "a.pcap", *options)
    with (folder / "said").open("wb") as output:
        return subprocess.Popen(command, cwd=folder, env=processes.environment(), stdout=output, stderr=output)


@pytest.mark.e2e
@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "sigterm"])
def test_a_relay_by_hand_records_until_it_is_ended(tmp_path: Path, end: signal.Signals) -> None:
    said = tmp_path / "said"
    with socket.create_server(("127.0.0.1", 0)) as server:
        tap = capture(tmp_path, "--proxy", f"127.0.0.1:0=127.0.0.1:{server.getsockname()[1]}")
        try:
            processes.eventually("it listens", lambda: "recording into" in said.read_text())
            port = int(said.read_text().split(" leads to ")[0].rpartition(":")[2])
            with socket.create_connection(("127.0.0.1", port)) as client, server.accept()[0] as accepted:
                client.sendall(b"hello")
                assert accepted.recv(5) == b"hello"
                tap.send_signal(end)
                assert tap.wait(processes.LIMIT_S) == 0
        finally:
            tap.kill()
            tap.wait()
    assert said.read_text().splitlines()[-1] == "1 connections, 5 bytes relayed, in a.pcap"
    assert b"hello" in b"".join(s.payload for s in wiretap.segments(tmp_path / "a.pcap"))


@pytest.mark.e2e
def test_or_for_so_many_seconds(tmp_path: Path) -> None:
    tap = capture(tmp_path, "--proxy", "127.0.0.1:0=127.0.0.1:9", "--seconds", "0.1")
    assert tap.wait(processes.LIMIT_S) == 0
    assert (tmp_path / "said").read_text().splitlines()[-1] == "0 connections, 0 bytes relayed, in a.pcap"
