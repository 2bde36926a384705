"""The live tap on real interfaces: every byte of the ports asked for, nothing else, and loud when one was lost."""

from __future__ import annotations

import contextlib
import random
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from dpgt_node.adversary.taps.errors import CaptureError
from dpgt_node.adversary.taps.live import LiveTap
from dpgt_node.errors import ConfigError
from tests.adversary.taps import wiretap
from tests.e2e import processes
from tests.hosts import lab

pytestmark = pytest.mark.hosts

BURST = random.Random(1).randbytes(45 << 20)
LIMIT_S = 60.0


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(LIMIT_S)
        yield server


def send(server: socket.socket, data: bytes) -> bytes:
    """``data`` over the loopback; what arrived."""
    with socket.create_connection(server.getsockname()) as client:
        sender = threading.Thread(target=lambda: (client.sendall(data), client.shutdown(socket.SHUT_WR)))
        sender.start()
        heard = bytearray()
        with server.accept()[0] as connection:
            connection.settimeout(LIMIT_S)
            while part := connection.recv(1 << 20):
                heard += part
        sender.join(LIMIT_S)
    return bytes(heard)


def to_port(path: Path, port: int) -> bytes:
    """What the file holds of what was said to ``port``."""
    segments = wiretap.segments(path)
    return b"".join(data for (_, target), data in wiretap.streams(segments).items() if target[1] == port)


class Ignorant(LiveTap):
    """Does not ask what the kernel lost."""

    def dropped(self) -> int:
        return 0


def test_a_burst_of_45_MB_is_there_to_the_last_byte(tmp_path: Path, listening: socket.socket) -> None:
    """Sent before anybody reads: the kernel keeps it, and draining takes it after the tap was told to stop."""
    port = listening.getsockname()[1]
    with closing(LiveTap("lo", [port])) as tap, socket.create_server(("127.0.0.1", 0)) as foreign:
        assert send(listening, BURST) == BURST
        send(foreign, b"not for this tap")
        captured = tap.record(tmp_path / "a.pcap", lambda: True)
    assert to_port(tmp_path / "a.pcap", port) == BURST
    assert captured.dropped == 0 and captured.frames == len(wiretap.packets(tmp_path / "a.pcap"))
    ports = {end[1] for s in wiretap.segments(tmp_path / "a.pcap") for end in (s.source, s.target)}
    assert port in ports and len(ports) == 2  # the other one is the client's


@pytest.mark.parametrize("tap_class", [LiveTap, Ignorant])
def test_what_the_kernel_lost_makes_it_a_failure(
    tmp_path: Path, listening: socket.socket, tap_class: type[LiveTap]
) -> None:
    """With room for little; the broken tap that does not look at the counter passes off half of it as the whole."""
    port = listening.getsockname()[1]
    with closing(tap_class("lo", [port], buffer_bytes=1 << 20)) as tap:
        send(listening, BURST)
        if tap_class is Ignorant:
            tap.record(tmp_path / "a.pcap", lambda: True)
            with contextlib.suppress(AssertionError):
                assert to_port(tmp_path / "a.pcap", port) != BURST
        else:
            with pytest.raises(CaptureError, match=r"the tap lost [1-9]\d* of \d+ frames .*a\.partial\.pcap"):
                tap.record(tmp_path / "a.pcap", lambda: True)
            assert not (tmp_path / "a.pcap").exists() and wiretap.packets(tmp_path / "a.partial.pcap")


@pytest.mark.parametrize(
    ("interface", "ports", "message"),
    [("nothing0", [1], "there is no nothing0 here"), ("lo", range(1, 102), "101 ports")],
)
def test_what_cannot_be_tapped_is_named(interface: str, ports: list[int], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        LiveTap(interface, ports)


def test_on_a_bridge_both_ways_of_others_traffic(tmp_path: Path) -> None:
    """Promiscuous in the switch: frames between two hosts that are both not the tap."""
    size, port = 3 << 20, 7123
    with lab.Lab(tmp_path / "lab", ["a", "b"], processes.environment()) as hosts:
        command = ["eavesdrop", "capture", "--interface", "bridge", "--port", port, "--out", tmp_path / "a.pcap"]
        enter = ["nsenter", f"--target={hosts.switch}", "--net", "--"]
        said = tmp_path / "said"
        with said.open("wb") as output:
            tap = subprocess.Popen(
                [*enter, *processes.command(*command)], env=processes.environment(), stdout=output, stderr=output
            )
        try:
            processes.eventually("the tap listens", lambda: "capturing" in said.read_text() or tap.poll() is not None)
            text = (
                "import socket,sys\n"
                f"s = socket.create_server(('', {port}))\nprint('ready', flush=True)\nc = s.accept()[0]\nn = 0\n"
                f"while n < {size}: n += len(c.recv(1 << 16))\nc.sendall(b'all of it')\n"
            )
            server = hosts["b"].start("server", "python3", "-c", text)
            processes.eventually("the server listens", lambda: "ready" in server.said)
            client = (
                "import socket,random\n"
                f"c = socket.create_connection(('b', {port}))\nc.sendall(random.Random(1).randbytes({size}))\n"
                "assert c.recv(99) == b'all of it'\n"
            )
            done = hosts["a"].run("python3", "-c", client)
            assert done.returncode == 0, done.stderr
        finally:
            tap.terminate()
            code = tap.wait(LIMIT_S)
    assert code == 0, said.read_text()
    assert "none lost" in said.read_text()
    segments = wiretap.segments(tmp_path / "a.pcap")
    said_by = {way[0][0]: data for way, data in wiretap.streams(segments).items()}
    assert said_by == {"10.77.0.1": random.Random(1).randbytes(size), "10.77.0.2": b"all of it"}
