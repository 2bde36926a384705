"""TLS around a plain link: what goes in comes out, the keys open what is between, and only who is meant answers."""

from __future__ import annotations

import asyncio
import socket
import ssl
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from dpgt_node.adversary.decode.packets import Capture, open_capture
from dpgt_node.adversary.decode.stages import Connection, Gap, Item, Piped
from dpgt_node.adversary.decode.tcp import Reassembly
from dpgt_node.adversary.decode.tls.keys import Decryptor
from dpgt_node.adversary.decode.tls.secrets import KeyLog
from dpgt_node.adversary.taps.proxy import ProxyTap
from dpgt_node.adversary.taps.relay import Relay, Relays
from dpgt_node.adversary.taps.sidecar import contexts, inbound, outbound
from dpgt_node.errors import ConfigError
from dpgt_node.runtime.trust.tls import CertificateAuthority
from tests.adversary.taps.test_proxy import bound, random_bytes

Contexts = tuple[ssl.SSLContext, ssl.SSLContext]


class Heard:
    """A sink that keeps everything."""

    def __init__(self) -> None:
        self.data = bytearray()

    def feed(self, item: Item) -> None:
        assert not isinstance(item, Gap)
        self.data += item.data

    def close(self) -> None:
        pass


@pytest.fixture
def sides(tmp_path: Path) -> tuple[Contexts, Contexts]:
    """Contexts of agents a and b, which write their keys to ``keys-a`` and ``keys-b``."""
    authority = CertificateAuthority.create()
    made = []
    for name in ("a", "b"):
        folder = tmp_path / name
        authority.write_folder(folder, f"dpgt:agent:{name}")
        files = (folder / "ca.pem", folder / "cert.pem", folder / "key.pem")
        made.append(contexts(*files, tmp_path / f"keys-{name}"))
    return made[0], made[1]


def opened(pcap: Path, keys: Path) -> tuple[bytes, bytes]:
    """What the two directions of the one connection in ``pcap`` said."""
    there, back, decryptor = Heard(), Heard(), Decryptor(KeyLog.read(keys))

    def open_(connection: Connection) -> tuple[Piped, Piped]:
        stages = decryptor.open(connection)
        return Piped(stages[0], there), Piped(stages[1], back)

    reassembly = Reassembly(open_)
    with open_capture(pcap) as stream:
        for packet in Capture(stream, "a"):
            reassembly.feed(packet)
    reassembly.close()
    assert decryptor.counts.records_lost == 0
    return bytes(there.data), bytes(back.data)


async def test_a_link_in_tls_and_its_keys(tmp_path: Path, sides: tuple[Contexts, Contexts]) -> None:
    """Agent a, its sidecar, a tap on the wire, b's sidecar, agent b; a ends first, as gRPC's clients do."""
    (_, dial), (accept, _) = sides
    target, address = bound()
    said = random_bytes(1, 700_000), random_bytes(2, 300_000)
    async with AsyncExitStack() as stack:
        far = await stack.enter_async_context(Relays([inbound("127.0.0.1:0", address, accept)], option="--serve"))
        tap = await stack.enter_async_context(ProxyTap(tmp_path / "a.pcap", [Relay("127.0.0.1:0", far.addresses[0])]))
        near = outbound("127.0.0.1:0", tap.addresses[0], dial, "b.agent.dpgt")
        beside = await stack.enter_async_context(Relays([near], option="--dial"))
        assert await polite_talk(beside.addresses[0], target, said) == said
    for keys in ("keys-a", "keys-b"):
        assert opened(tmp_path / "a.pcap", tmp_path / keys) == said


async def polite_talk(address: str, target: socket.socket, said: tuple[bytes, bytes]) -> tuple[bytes, bytes]:
    """Both hear all there is before the client ends: TLS has no half-closed connections."""
    heard: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(said[1])
        heard.append(await reader.readexactly(len(said[0])))
        await writer.drain()
        await reader.read()
        writer.close()

    host, _, port = address.rpartition(":")
    async with asyncio.timeout(60), await asyncio.start_server(serve, sock=target):
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(said[0])
        answer = await reader.readexactly(len(said[1]))
        while not heard:
            await asyncio.sleep(0.01)
        writer.close()
        await writer.wait_closed()
    return heard[0], answer


async def test_whoever_else_answers_is_not_believed(sides: tuple[Contexts, Contexts]) -> None:
    (_, dial), (accept, _) = sides
    target, address = bound()
    async with AsyncExitStack() as stack:
        far = await stack.enter_async_context(Relays([inbound("127.0.0.1:0", address, accept)], option="--serve"))
        near = outbound("127.0.0.1:0", far.addresses[0], dial, "c.agent.dpgt")
        beside = await stack.enter_async_context(Relays([near], option="--dial"))
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            reader, _ = await asyncio.open_connection("127.0.0.1", int(beside.addresses[0].rpartition(":")[2]))
            await reader.readexactly(1)
    target.close()


def test_files_that_are_wrong_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--tls: "):
        contexts(tmp_path / "ca.pem", tmp_path / "cert.pem", tmp_path / "key.pem", tmp_path / "keys")
