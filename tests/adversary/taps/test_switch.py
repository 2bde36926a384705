"""The recording switch, over socket pairs instead of cables: what is delivered is recorded, and nothing else."""

from __future__ import annotations

import errno
import random
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from dpgt_node.adversary.decode.packets import Capture, PcapWriter, open_capture
from dpgt_node.adversary.taps import lab
from dpgt_node.adversary.taps.proxy import AGENT_PORT, host_ip
from dpgt_node.adversary.taps.switch import Impairment, Pair, Rule, Switch
from dpgt_node.cli.eavesdrop.impairing import parse_rule
from dpgt_node.config import parse_run
from dpgt_node.errors import ConfigError
from tests.e2e.processes import eventually, quadratic

MACS = [b"\x02\0\0\0\0" + bytes((i,)) for i in range(3)]
LIMIT_S = 60.0


@dataclass
class Bench:
    hosts: list[socket.socket]
    switch: Switch
    pcap: Path

    def send(self, sender: int, receiver: int, payload: bytes) -> None:
        self.hosts[sender].send(MACS[receiver] + MACS[sender] + b"\x08\0" + payload)

    def heard(self, host: int) -> list[bytes]:
        """Payloads that arrived at ``host`` so far."""
        found = []
        while True:
            try:
                found.append(self.hosts[host].recv(1 << 16)[14:])
            except BlockingIOError:
                return found


@contextmanager
def running(folder: Path, impairment: Impairment, links: frozenset[Pair] | None = None) -> Iterator[Bench]:
    pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in MACS]
    for pair in pairs:
        for end in pair:
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 22)
        pair[0].setblocking(False)
    pcap = folder / "a.pcap"
    with PcapWriter(pcap) as recording:
        lines = [(far.fileno(), mac) for (_, far), mac in zip(pairs, MACS, strict=True)]
        made = Switch(lines, recording, impairment, links)
        thread = threading.Thread(target=made.run)
        thread.start()
        try:
            yield Bench([near for near, _ in pairs], made, pcap)
        finally:
            made.stop()
            thread.join(LIMIT_S)
            for pair in pairs:
                for end in pair:
                    end.close()


def recorded(pcap: Path) -> list[bytes]:
    with open_capture(pcap) as stream:
        return [bytes(packet.data[14:]) for packet in Capture(stream, "a")]


Exchanged = tuple[list[bytes], list[bytes], list[bytes], Switch]


def exchanged(folder: Path, impairment: Impairment, count: int = 300) -> Exchanged:
    """(sent, heard, recorded) of host 0 to host 1, and the switch."""
    sent = [bytes((i >> 8, i & 255)) * 50 for i in range(count)]
    with running(folder, impairment) as bench:
        for payload in sent:
            bench.send(0, 1, payload)
        counts = bench.switch.counts
        eventually("all were switched", lambda: counts.delivered + counts.lost + counts.overflowed == count)
        heard = bench.heard(1)
        assert bench.heard(2) == []
    return sent, heard, recorded(bench.pcap), bench.switch


def faults(folder: Path, impairment: Impairment) -> list[str]:
    sent, heard, seen, made = exchanged(folder, impairment)
    found = []
    if seen != heard:
        found.append("the recording is not what was heard")
    if not impairment.reorder and heard != [p for p in sent if p in set(heard)]:
        found.append("out of order")
    if len(heard) + made.counts.lost != len(sent):
        found.append("some are unaccounted for")
    if made.counts.recorded != len(seen):
        found.append("other counts")
    return found


@pytest.mark.parametrize(
    "impairment",
    [Impairment(), Impairment(delay_ms=3), Impairment(loss=0.2, seed=5), Impairment(reorder=0.2, delay_ms=1)],
    ids=["nothing", "delay", "loss", "reorder"],
)
def test_what_is_heard_is_recorded_in_that_order(tmp_path: Path, impairment: Impairment) -> None:
    assert faults(tmp_path, impairment) == []


def test_the_dice_are_those_of_the_seed(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    sent, heard, *_ = exchanged(tmp_path, Impairment(loss=0.3, seed=9))
    dice = random.Random(9)
    assert heard == [payload for payload in sent if dice.random() >= 0.3]
    assert exchanged(tmp_path / "b", Impairment(loss=0.3, seed=9))[1] == heard


def test_some_are_overtaken(tmp_path: Path) -> None:
    sent, heard, *_ = exchanged(tmp_path, Impairment(reorder=0.3, delay_ms=1))
    assert heard != sent and sorted(heard) == sorted(sent)


def test_a_slow_line_takes_its_time_and_a_full_one_drops(tmp_path: Path) -> None:
    """300 frames of 114 bytes at 0.1 Mbit/s are 2.7 s; two seconds' worth may wait."""
    _, heard, seen, made = exchanged(tmp_path, Impairment(rate_mbit=0.1))
    assert heard == seen and made.counts.overflowed > 50
    with open_capture(tmp_path / "a.pcap") as stream:
        times = [packet.time_ns for packet in Capture(stream, "a")]
    assert times[-1] - times[0] >= 0.9 * (len(times) - 1) * 114 * 8 / 1e5 * 1e9


def test_a_tap_that_misses_frames_says_how_many(tmp_path: Path) -> None:
    sent, heard, seen, made = exchanged(tmp_path, Impairment(tap_loss=0.2, seed=1))
    assert heard == sent and 20 < made.counts.unseen == len(sent) - len(seen)


def tcp(source: int, target: int, ports: tuple[int, int], word: bytes) -> bytes:
    head = b"\x45\0\0\x28" + bytes(5) + b"\x06\0\0"
    ends = b"".join(socket.inet_aton(host_ip(host + 1)) for host in (source, target))
    return head + ends + b"".join(port.to_bytes(2, "big") for port in ports) + word


def test_only_the_links_that_are_tapped_are_recorded(tmp_path: Path) -> None:
    """0 > 1 both ways; not what 1 dials at 0, not another port, not another host."""
    one, two = (socket.inet_aton(host_ip(host + 1)) for host in (0, 1))
    with running(tmp_path, Impairment(), frozenset({(one, two)})) as bench:
        bench.send(0, 1, tcp(0, 1, (5000, AGENT_PORT), b"there"))
        bench.send(1, 0, tcp(1, 0, (AGENT_PORT, 5000), b"back"))
        bench.send(1, 0, tcp(1, 0, (5000, AGENT_PORT), b"its own"))
        bench.send(0, 1, tcp(0, 1, (AGENT_PORT, 5000), b"answer"))
        bench.send(0, 1, tcp(0, 1, (5000, 7000), b"other port"))
        bench.send(0, 2, tcp(0, 2, (5000, AGENT_PORT), b"other host"))
        bench.send(0, 1, b"no IP at all, and long enough to be looked into")
        eventually("all were switched", lambda: bench.switch.counts.delivered == 7)
    assert [frame[24:] for frame in recorded(bench.pcap)] == [b"there", b"back"]


def test_dice_of_one_link_at_one_time_leave_all_others_alone(tmp_path: Path) -> None:
    one, two, three = (socket.inet_aton(host_ip(host + 1)) for host in range(3))
    rules = (
        Rule((one, two), loss=1.0),
        Rule((one, three), loss=1.0, last_s=0.0),
        Rule((two, one), loss=1.0, first_s=1e6),
    )
    with running(tmp_path, Impairment(rules=rules)) as bench:
        bench.send(0, 1, tcp(0, 1, (5000, AGENT_PORT), b"lost"))
        bench.send(1, 0, tcp(1, 0, (AGENT_PORT, 5000), b"back"))
        bench.send(0, 2, tcp(0, 2, (5000, AGENT_PORT), b"too late"))
        bench.send(1, 0, tcp(1, 0, (5000, AGENT_PORT), b"too early"))
        bench.send(0, 1, tcp(0, 1, (5000, 7000), b"other port"))
        counts = bench.switch.counts
        eventually("all were switched", lambda: counts.delivered + counts.lost == 5)
    assert counts.lost == 1 and b"lost" not in [frame[24:] for frame in recorded(bench.pcap)]


def test_a_schedule_of_a_link_is_read_and_what_is_none_is_named() -> None:
    run = parse_run(quadratic(3, 5), "run", Path())
    rule = parse_rule("agent-1>agent-2 loss=1 delay-ms=20 from=2 until=5.5", run)
    assert rule == Rule(tuple(socket.inet_aton(host_ip(i)) for i in (1, 2)), 20.0, 1.0, 0.0, 2.0, 5.5)
    for text in ("agent-1>agent-3 loss=1", "", "agent-1>agent-2 loss=1.5", "agent-1>agent-2 los=1"):
        with pytest.raises(ConfigError, match="--impair"):
            parse_rule(text, run)
    for text in ("loss=1 loss=1", "loss", "until=inf", "delay-ms=-1"):
        with pytest.raises(ConfigError, match="must be one of"):
            parse_rule(f"agent-1>agent-2 {text}", run)


def test_a_full_disk_stops_the_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no space")

    with running(tmp_path, Impairment()) as bench:
        monkeypatch.setattr(PcapWriter, "write", full)
        bench.send(0, 1, b"x")
        eventually("it failed", lambda: bench.switch.failure)
        bench.send(0, 1, b"y")
    assert bench.switch.counts.delivered == 0


def test_broken_switches_are_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deliver = Switch._deliver

    def forgets(self: Switch, target: int, frame: bytes) -> None:
        if self.counts.delivered == 7:
            self._links = frozenset()
        deliver(self, target, frame)
        self._links = None

    def records_only(self: Switch, target: int, frame: bytes) -> None:
        deliver(self, target if frame[14:16] != b"\0\x05" else 2, frame)

    for broken in (forgets, records_only):
        with monkeypatch.context() as patch:
            patch.setattr(Switch, "_deliver", broken)
            try:
                assert faults(tmp_path, Impairment())
            except AssertionError as error:
                assert "== []" in str(error)  # somebody else heard it


# --- what the lab needs of a machine


@pytest.mark.parametrize(
    ("patch", "message"),
    [
        (lambda p: p.setattr(lab.os, "geteuid", lambda: 1000), "it needs root"),
        (lambda p: p.setattr(lab.sys, "platform", "darwin"), "need Linux"),
        (lambda p: p.setattr(lab.shutil, "which", lambda tool: None), "no ip and no nsenter here"),
    ],
    ids=["root", "linux", "tools"],
)
def test_what_the_machine_lacks_is_said_in_one_line(
    monkeypatch: pytest.MonkeyPatch, patch: object, message: str
) -> None:
    monkeypatch.setattr(lab.os, "geteuid", lambda: 0)
    patch(monkeypatch)  # type: ignore[operator]
    with pytest.raises(ConfigError, match=f"cannot have the lab: .*{message}.*dpgt launch RUN.toml --out DIR --tap"):
        lab.Network(["a"]).__enter__()
