"""The tap without root: what goes in comes out, and is in the file, byte by byte, in packets that are right."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dpgt_node.adversary.decode.conversation import Conversation, Endpoint, internet_checksum
from dpgt_node.adversary.taps import relay
from dpgt_node.adversary.taps.errors import CaptureError
from dpgt_node.adversary.taps.proxy import ProxyTap, link_relay
from dpgt_node.adversary.taps.relay import Relay
from dpgt_node.errors import ConfigError
from tests.adversary.taps import wiretap

LIMIT_S = 60.0
Talk = tuple[bytes, bytes]
"""What the client says and what the server says."""


async def talk(address: str, target: socket.socket, said: Talk) -> Talk:
    """Both ends say all they have, then end; what the server heard and what the client heard."""
    host, _, port = address.rpartition(":")
    heard: list[bytes] = []
    done = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append((await asyncio.gather(reader.read(), say(writer, said[1])))[0])
        writer.close()
        done.set()

    async with await asyncio.start_server(serve, sock=target):
        reader, writer = await asyncio.open_connection(host.strip("[]"), int(port))
        answer, _ = await asyncio.gather(reader.read(), say(writer, said[0]))
        async with asyncio.timeout(LIMIT_S):
            await done.wait()
        writer.close()
        await writer.wait_closed()
    return heard[0], answer


async def say(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(data)
    await writer.drain()
    writer.write_eof()


def bound(host: str = "127.0.0.1") -> tuple[socket.socket, str]:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family)
    listening.bind((host, 0))
    return listening, f"{f'[{host}]' if ':' in host else host}:{listening.getsockname()[1]}"


def random_bytes(seed: int, size: int) -> bytes:
    return random.Random(seed).randbytes(size)


async def faults(path: Path, said: Talk) -> list[str]:
    """Everything that is wrong with one relayed connection."""
    target, address = bound()
    async with ProxyTap(path, [link_relay("127.0.0.1:0", address, 2, 0)]) as proxy:
        heard = await talk(proxy.addresses[0], target, said)
    ends = zip(("server", "client"), said, heard, strict=True)
    found = [f"the {who} heard other bytes" for who, a, b in ends if a != b]
    try:
        recorded = wiretap.segments(path)
        ways = wiretap.streams(recorded)
    except (AssertionError, KeyError) as error:
        return [*found, f"the file cannot be read: {error}"]
    if not all(segment.sound for segment in recorded):
        found.append("a wrong checksum")
    if {s.source[0] for s in recorded} != {"10.77.0.3", "10.77.0.1"}:
        found.append("other addresses")
    if [s.time_ns for s in recorded] != sorted(s.time_ns for s in recorded):
        found.append("out of order")
    for direction, data in zip((("10.77.0.1", 7100), ("10.77.0.3", None)), said, strict=True):
        if b"".join(d for (_, to), d in ways.items() if to[0] == direction[0]) != data:
            found.append(f"other bytes to {direction[0]} in the file")
    return found


SIZES = [(0, 0), (1, 0), (65_160, 65_161), (900_001, 400_003)]


@pytest.mark.parametrize("sizes", SIZES)
async def test_every_byte_arrives_and_is_in_the_file(tmp_path: Path, sizes: tuple[int, int]) -> None:
    assert await faults(tmp_path / "a.pcap", (random_bytes(1, sizes[0]), random_bytes(2, sizes[1]))) == []


class _Writer:
    """Sends what ``change`` makes of it."""

    def __init__(self, writer: asyncio.StreamWriter, change: Callable[[bytes], bytes]) -> None:
        self._writer, self._change = writer, change

    def write(self, data: bytes) -> None:
        self._writer.write(self._change(data))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._writer, name)


def drops_a_byte(patch: pytest.MonkeyPatch) -> None:
    pump = relay._pump
    patch.setattr(relay, "_pump", lambda s, w, r, writer: pump(s, w, r, _Writer(writer, lambda data: data[:-1])))


def leaves_the_rest(patch: pytest.MonkeyPatch) -> None:
    """Ends both ends at once when one has ended."""
    pump = relay._pump

    async def hasty(side: Any, watcher: Any, reader: Any, writer: Any) -> None:
        await pump(side, watcher, reader, writer)
        writer.transport.abort()

    patch.setattr(relay, "_pump", hasty)


def records_less(patch: pytest.MonkeyPatch) -> None:
    write = ProxyTap.write
    patch.setattr(ProxyTap, "write", lambda tap, ps: write(tap, (p if len(p) < 100 else p[:-1] for p in ps)))


def forgets_a_packet(patch: pytest.MonkeyPatch) -> None:
    write = ProxyTap.write
    patch.setattr(ProxyTap, "write", lambda tap, packets: write(tap, list(packets)[:1]))


@pytest.mark.parametrize("mutant", [drops_a_byte, leaves_the_rest, records_less, forgets_a_packet])
async def test_a_broken_tap_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mutant: Callable[[pytest.MonkeyPatch], None]
) -> None:
    mutant(monkeypatch)
    try:
        found = await faults(tmp_path / "a.pcap", (random_bytes(1, 600_001), random_bytes(2, 200_000)))
    except ConnectionError as error:
        found = [str(error)]
    assert found


async def test_ipv6_and_the_real_addresses(tmp_path: Path) -> None:
    target, address = bound("::1")
    async with ProxyTap(tmp_path / "a.pcap", [Relay("[::1]:0", address)]) as tap:
        assert await talk(tap.addresses[0], target, (b"ping", b"pong")) == (b"ping", b"pong")
    recorded = wiretap.segments(tmp_path / "a.pcap")
    assert all(segment.sound for segment in recorded)
    assert {s.source for s in recorded if s.flags & wiretap.SYN and s.flags & wiretap.ACK} == {
        ("::1", int(address.rpartition(":")[2]))
    }


async def test_nobody_at_the_target_is_a_refusal(tmp_path: Path) -> None:
    target, address = bound()  # bound and not listening: nobody is there, and nobody else can be
    with target:
        async with ProxyTap(tmp_path / "a.pcap", [Relay("127.0.0.1:0", address)]) as tap:
            reader, writer = await asyncio.open_connection("127.0.0.1", int(tap.addresses[0].rpartition(":")[2]))
            with pytest.raises(ConnectionError):
                assert await reader.read() == b""
                raise ConnectionError
            writer.close()
            assert tap.tally.refused == 1 and tap.tally.connections == 0
    assert [s.flags for s in wiretap.segments(tmp_path / "a.pcap")] == [wiretap.SYN, wiretap.RST | wiretap.ACK]


async def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    taken, address = bound()
    taken.listen()
    with taken, pytest.raises(ConfigError, match=f"--proxy: cannot listen on {address}"):
        async with ProxyTap(tmp_path / "a.pcap", [Relay(address, "127.0.0.1:9")]):
            pass


async def test_a_full_disk_ends_the_tap_loudly() -> None:
    target, address = bound()
    with pytest.raises(CaptureError, match="only the beginning of what passed"):
        async with ProxyTap(Path("/dev/full"), [Relay("127.0.0.1:0", address)]) as tap:
            with pytest.raises((ConnectionError, AssertionError)):
                heard = await talk(tap.addresses[0], target, (random_bytes(3, 3_000_000), b""))
                assert len(heard[0]) == 3_000_000
            async with asyncio.timeout(LIMIT_S):
                await tap.failed.wait()


def test_sequence_numbers_run_over() -> None:
    conversation = Conversation(Endpoint("10.0.0.1", 1), Endpoint("10.0.0.2", 2))
    for _ in conversation.opened():
        pass
    conversation._next["client"] = 2**32 - 2
    packets = list(conversation.said("client", b"four"))
    assert int.from_bytes(packets[0][24:28], "big") == 2**32 - 2
    assert int.from_bytes(next(conversation.said("client", b"more"))[24:28], "big") == 2


@pytest.mark.parametrize("payload", [b"", b"a", b"ab", random_bytes(4, 65_159), b"\xff" * 65_000])
def test_checksums_are_those_of_the_dumb_sum(payload: bytes) -> None:
    head = random_bytes(5, 20)
    assert internet_checksum(head, payload) == wiretap.checksum(head + payload)
