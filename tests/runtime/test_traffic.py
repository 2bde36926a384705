"""Runs that pad, cover and tick: the simulator's bits, and what a tap of real TLS has of them."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import inspect
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dpgt_node.adversary.decode.packets import Capture, open_capture
from dpgt_node.adversary.decode.stages import Connection
from dpgt_node.adversary.decode.tcp import Reassembly
from dpgt_node.adversary.decode.tls.records import RecordSizes
from dpgt_node.adversary.decode.traffic import observe
from dpgt_node.adversary.taps.proxy import ProxyTap, host_ip, link_relay
from dpgt_node.agent.roles import Links, Tampering
from dpgt_node.algo.graph import Topology
from dpgt_node.algo.methods import network_of
from dpgt_node.cli.checking.hiding import Price, price
from dpgt_node.config import RunConfig
from dpgt_node.config.privacy.traffic import Traffic
from dpgt_node.config.roles import parse_role
from dpgt_node.protocol import calls as c
from dpgt_node.protocol.dummies import Dummy
from dpgt_node.protocol.types import Payload
from dpgt_node.runtime import pacing
from dpgt_node.runtime.agent import node as node_module
from dpgt_node.runtime.agent import streams
from dpgt_node.runtime.calls import Calls
from dpgt_node.runtime.launch.launcher import held_port
from dpgt_node.wire import codec, services
from dpgt_node.wire.gen.dpgt.v1 import agent_pb2
from dpgt_node.wire.traffic import shape
from dpgt_node.wire.traffic.padding import padded, reply_unit, report_unit
from tests.runtime.cluster import cluster, eventually, make_run

K = 12
PAD = 2048
FRAMING = 5 + 9
"""Of one gRPC message in one DATA frame."""
CONTROL_BYTES = 80
LINK = ("agent-1", "agent-2")


@pytest.fixture(autouse=True)
def _short_farewells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_module, "FAREWELL_S", 0.2)


def hidden(dimension: int = 3, **traffic: Any) -> RunConfig:
    run = make_run(K)
    return replace(run, data=replace(run.data, params={"dimension": dimension}), traffic=Traffic(**traffic))


async def tapped(folder: Path, run: RunConfig) -> dict[tuple[str, str], list[int]]:
    """The run, over TLS behind a tap of every pair: what each record of application data carried, by link."""
    names, capture = run.graph.agents, folder / "a.pcap"
    with contextlib.ExitStack() as ports:
        listens = {name: f"127.0.0.1:{ports.enter_context(held_port())}" for name in names}
        pairs = list(itertools.permutations(range(run.n), 2))
        relays = [link_relay("127.0.0.1:0", listens[names[i]], j, i) for j, i in pairs]
        async with ProxyTap(capture, relays) as tap, cluster(folder, run, secure=True) as c:
            through = dict(zip(pairs, tap.addresses, strict=True))
            for j, name in enumerate(names):
                dial = {names[i]: at for (sender, i), at in through.items() if sender == j}
                c.start(name, listen=listens[name], dial=dial)
            await c.end()
    c.assert_simulators_bits()
    return records(capture, run)


def records(capture: Path, run: RunConfig) -> dict[tuple[str, str], list[int]]:
    named = {host_ip(i + 1): name for i, name in enumerate(run.graph.agents)}
    found: dict[tuple[str, str], list[int]] = {}
    seen: list[tuple[Connection, RecordSizes]] = []

    def opened(connection: Connection) -> tuple[RecordSizes, RecordSizes]:
        there = RecordSizes()
        seen.append((connection, there))
        return there, RecordSizes()

    reassembly = Reassembly(opened)
    with open_capture(capture) as stream:
        for packet in Capture(stream, str(capture)):
            reassembly.feed(packet)
    reassembly.close()
    for connection, sizes in seen:
        here, there = connection.ends
        found.setdefault((named[here.host], named[there.host]), []).extend(sizes.carried)
    return found


def assert_alike(found: Mapping[tuple[str, str], list[int]], run: RunConfig) -> None:
    """Between all agents so many records, one a round and each as long; what else there is is HTTP/2's own."""
    assert set(found) == set(itertools.permutations(run.graph.agents, 2))
    for link, sizes in found.items():
        # Beside a round's bytes a record may hold a ping or settings of HTTP/2.
        rounds = [size - PAD - FRAMING for size in sizes if size > 1000]
        assert len(rounds) == K + 1 and min(rounds) == 0 and max(rounds) < CONTROL_BYTES, (link, sizes)


async def test_a_tap_of_tls_sees_as_many_and_as_long_records_between_all_agents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, units = hidden(pad_to=PAD, cover="all-pairs"), set()

    def spied(name: str, whole: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            units.add((name, inspect.signature(whole).bind(*given, **named).arguments.get("unit", 0)))
            return whole(*given, **named)

        return call

    for where, name in ((streams, "_JOIN"), (services, "agent_handler"), (services, "coordinator_handler")):
        monkeypatch.setattr(where, name, spied(name, getattr(where, name)))
    found = await tapped(tmp_path, run)
    reports, replies = report_unit(run), reply_unit(run)
    assert units == {("_JOIN", reports), ("agent_handler", replies), ("coordinator_handler", reports)}
    assert reports > 0 < replies
    assert_alike(found, run)
    cost = price(run)
    assert cost is not None and cost.links == 2
    assert cost.bytes_a_round == 2 * PAD == 2 * (min(size for size in found[LINK] if size > 1000) - FRAMING)
    seen = observe([tmp_path / "a.pcap"])
    assert len(seen.edges) == 6 and {link.streams for link in seen.links} == {None}
    assert seen.vector_bytes is None and seen.rounds == K + 1
    assert "one vector or two cannot be told, nor d" in " ".join(seen.notes)


async def test_a_last_frame_that_is_left_short_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def short(data: bytes, nbytes: int) -> bytes:
        frame = agent_pb2.Frame.FromString(data)
        return padded(data, nbytes - 8 * any(vector.stream == agent_pb2.COVER for vector in frame.vectors))

    monkeypatch.setattr(shape, "padded", short)
    run = hidden(pad_to=PAD, cover="all-pairs")
    with pytest.raises(AssertionError):
        assert_alike(await tapped(tmp_path, run), run)


async def test_vectors_in_chunks_are_as_long_between_all_agents(tmp_path: Path) -> None:
    run = hidden(9000, pad_to="power-of-two", cover="all-pairs")
    found = await tapped(tmp_path, run)
    assert len(found) == 6
    totals = [sum(size for size in sizes if size > CONTROL_BYTES) for sizes in found.values()]
    assert min(totals) > (K + 1) << 18 and max(totals) - min(totals) < (K + 1) * CONTROL_BYTES
    told = {link.streams for link in observe([tmp_path / "a.pcap"]).links}
    assert len(told) == 1, "what is told of one link is told of all"  # by their times: one vector, two, or neither


async def test_an_open_run_shows_what_a_hidden_one_does_not(tmp_path: Path) -> None:
    """The same tap of the same run without [traffic]: five links of six, one of them with two vectors, and d."""
    run = hidden()
    found = await tapped(tmp_path, run)
    lengths = [Counter(size for size in sizes if size > CONTROL_BYTES).most_common(1)[0][0] for sizes in found.values()]
    assert sorted(lengths) == [113, 113, 113, 113, 212]
    cost = price(hidden(interval_ms=50.0))
    assert cost == Price(113 + 212 - 2 * FRAMING, 113 + 212 - 2 * FRAMING, 2, 2, 0.1) and price(run) is None
    assert "A round takes at least 0.1 s, more where its work does not fit" in cost.words
    assert "times the bytes" not in cost.words
    assert "is 2,500 times the bytes" in Price(250_000, 100, 2, 2, None).words
    assert Price(None, None, 0, 0, 0.1).words.startswith("Agents of this run send no vectors")


@pytest.mark.parametrize("cover", ["none", "all-pairs"])
def test_who_has_no_edge_is_let_in_under_cover_alone_and_carries_nothing(cover: str) -> None:
    """agent-3 -> agent-2 is no edge."""
    run = replace(make_run(K), traffic=Traffic(cover=cover))  # type: ignore[arg-type]
    work = SimpleNamespace(wire_dtype="float64", dimension=3, codes=None)
    network = network_of(run, Topology.from_config(run.graph))
    edges = streams.Edges(run, network, 1, work)  # type: ignore[arg-type]
    assert edges.carried == {"agent-1": {"X"}} and edges.covered == (cover != "none")
    assert edges.streams_in == ({"agent-1": {"X"}, "agent-3": set()} if edges.covered else edges.carried)


def test_what_an_active_adversary_replays_is_a_vector_and_never_a_dummy() -> None:
    """Its dummy of round 0 to agent-3 is not what agent-2 gets of round 0 once more; nor is one held back."""
    names, run_id, roles = (
        ("agent-1", "agent-2", "agent-3"),
        bytes(16),
        ("replay lag=1 stream=X to=agent-2", "delay ms=9"),
    )
    links = Tampering(tuple(Links(parse_role(role), names, (1,)) for role in roles))
    form = shape.Shape(Traffic(64), names, ("X",), "float64", 2, K)
    gate = codec.Gate(run_id, "agent-1", frozenset(("X",)), "float64", 2, lambda _: (0, K), limits=form.limits())
    edges = {to: streams.SendingEdge(run_id, "agent-1", links, to, form) for to in (1, 2)}
    there, found = codec.Reassembler(gate), []
    for k in range(2):
        data = np.full(2, 5.0 + k).tobytes()
        vector = Payload("X", k, "float64", 2, data, hashlib.sha256(data).digest())
        found += [one for frame in edges[1].encode((vector,)) for one in there.feed(frame)]
        assert list(edges[2].encode((Dummy.of(k),))) and edges[2].held_s((Dummy.of(k),)) == 0.0 < edges[1].held_s(
            (vector,)
        )
    assert [one.array().tolist() for one in found] == [[5.0, 5.0], [5.0, 5.0]]


# --- ticks


class Clock:
    """Time that passes while somebody sleeps, and ``late`` seconds more each time."""

    def __init__(self, late: list[float]) -> None:
        self.now, self.late, self.slept = 0.013, late, 0

    def time(self) -> float:
        return self.now

    def get_running_loop(self) -> Clock:
        return self

    async def sleep(self, seconds: float) -> None:
        assert 0.0 < seconds <= 0.1
        self.now += seconds + (self.late[self.slept] if self.slept < len(self.late) else 0.0)
        self.slept += 1


@pytest.mark.parametrize(
    ("late", "ticks", "left"),
    [([], 1, 0.1), ([0.024], 1, 0.124), ([0.026], 2, 0.2), ([0.06, 0.27, 0.001], 3, 0.501), ([0.05] * 99, 8, 0.85)],
)
async def test_messages_leave_at_a_tick_and_the_late_ones_at_the_next(
    monkeypatch: pytest.MonkeyPatch, late: list[float], ticks: int, left: float
) -> None:
    clock = Clock(late)
    monkeypatch.setattr(pacing, "asyncio", clock)
    await pacing.Ticks(0.1).next()
    assert clock.slept == ticks and clock.now == pytest.approx(left)


class Tick(pacing.Ticks):
    """A tick that comes when the test says so."""

    def __init__(self) -> None:
        self.due, self.asked = asyncio.Semaphore(0), 0

    async def next(self) -> None:
        self.asked += 1
        await self.due.acquire()


class Wire:
    def __init__(self) -> None:
        self.written: list[object] = []

    async def read(self) -> object:
        await asyncio.sleep(3600)

    async def write(self, message: object) -> None:
        self.written.append(message)


@pytest.mark.parametrize("dialled", [True, False])
async def test_what_waits_leaves_together(dialled: bool) -> None:
    """On calls from here and to here: a reply that left at once would say when a vector was taken in."""
    tick, wire = Tick(), Wire()

    @contextlib.asynccontextmanager
    async def dial(call: c.Call, address: str) -> AsyncIterator[Any]:
        yield wire

    calls = Calls("here", lambda _: None, lambda _: None, dial, ticks=tick)
    call = c.Call("there", 1, dialled=dialled)
    if dialled:
        calls.carry_out(c.Dial(call, "there:1"))
    else:
        served = asyncio.ensure_future(calls.accept("there", wire, "there:1"))
        await asyncio.sleep(0)
    for message in ("a", "b"):
        calls.carry_out(c.Write(call, message))
    await eventually("it waits", lambda: tick.asked == 1)
    assert wire.written == []
    calls.carry_out(c.Write(call, "c"))
    tick.due.release()
    await eventually("all three are written", lambda: wire.written == ["a", "b", "c"])
    calls.carry_out(c.Write(call, "d"))
    await eventually("the next one waits", lambda: tick.asked == 2)
    assert wire.written == ["a", "b", "c"]
    await calls.close(0.1)
    if not dialled:
        await asyncio.wait([served])


async def test_a_run_with_ticks_has_the_simulators_bits(tmp_path: Path) -> None:
    run = hidden(interval_ms=2.0)
    async with cluster(tmp_path, run, secure=True) as c:
        c.start_all()
        await c.end()
    c.assert_simulators_bits()
