"""An agent's streams to its out-neighbours and from its in-neighbours, as ``runtime.links`` and ``runtime.inbound``."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dpgt_node.errors import PeerError, StoreError
from dpgt_node.protocol import messages as m
from dpgt_node.protocol.liveness import Down, Lack
from dpgt_node.protocol.types import Payload, PeerGone, PeerNeeds, ReportStall, VectorReceived
from dpgt_node.types import Stream
from dpgt_node.wire import codec
from tests.swarm.checkers import Violation
from tests.swarm.network import End
from tests.swarm.process import Backoff

if TYPE_CHECKING:
    from tests.swarm.agent import AgentProcess


@dataclass(frozen=True, slots=True)
class Stored:
    """Payloads of round ``k`` that are read from the disk when their turn comes."""

    k: int
    streams: tuple[Stream, ...]


@dataclass(slots=True)
class _Link:
    peer: int
    end: End | None = None
    queue: deque[tuple[Payload, ...] | Stored] = field(default_factory=deque)
    backoff: Backoff = field(default_factory=Backoff)
    down_since_ns: int | None = None


class Outgoing:
    """The sender's side of an agent's edges."""

    def __init__(self, agent: AgentProcess, peers: tuple[int, ...]) -> None:
        self._agent = agent
        self._world = agent.world
        self._links = {peer: _Link(peer) for peer in peers}
        self._begun = False

    def begin(self) -> None:
        """Start came: dial everybody, once."""
        if not self._begun:
            self._begun = True
            for link in self._links.values():
                link.down_since_ns = self._world.clock.now_ns
                self._dial(link)

    def down(self, beat_ns: int) -> tuple[Down, ...]:
        """Streams that have been down for a heartbeat."""
        now, names = self._world.clock.now_ns, self._world.names
        return tuple(
            Down(names[link.peer], now - link.down_since_ns, "down")
            for link in self._links.values()
            if link.down_since_ns is not None and now - link.down_since_ns >= beat_ns
        )

    def queue(self, peer: int, item: tuple[Payload, ...] | Stored) -> None:
        """Send this after what was queued before."""
        link = self._links[peer]
        link.queue.append(item)
        self._world.checkers.queued(self._agent.index, peer, len(link.queue))
        self._agent.later(0, lambda: self._pump(link))

    def _dial(self, link: _Link) -> None:
        agent = self._agent

        def lost() -> None:
            link.end = None
            link.queue.clear()
            if link.down_since_ns is None:
                link.down_since_ns = self._world.clock.now_ns
            agent.feed(PeerGone(link.peer))
            agent.later(link.backoff.next_ns(), lambda: self._dial(link))

        def opened(end: End) -> None:
            link.end = end
            end.on_end, end.on_space = lost, lambda: agent.run(lambda: self._pump(link))
            end.on_message = resumed

        def resumed(first: m.Resume) -> None:
            assert link.end is not None
            link.end.consumed()
            link.backoff.reset()
            link.down_since_ns = None
            self._world.saw(agent.index, "hears", (self._world.names[link.peer], first))
            agent.feed(PeerNeeds(link.peer, first.x_from, first.y_from, first.mixed_before))

        self._world.network.dial(agent, link.peer, "exchange", opened, lost)

    def _pump(self, link: _Link) -> None:
        world, agent = self._world, self._agent
        while link.queue and link.end is not None and link.end.unread < world.plan.window:
            item = link.queue.popleft()
            if isinstance(item, Stored):
                try:
                    stored = agent.disk.payloads(item.k)
                except StoreError as error:
                    self._lacks(link.peer, error)
                    return
                item = tuple(p for p in stored if p.stream in item.streams)
            for payload in item:
                world.checkers.leaves(agent.index, link.peer, payload)
            for frame in codec.encode_vectors(world.run_id, agent.name, item):
                link.end.write(frame)

    def _lacks(self, peer: int, error: StoreError) -> None:
        if peer not in self._world.checkers.rolled_back:
            asked = f"{self._world.names[peer]} asked {self._agent.name}"
            raise Violation("retention", f"{asked}: {error}") from error
        self._agent.fail(error)


@dataclass(slots=True)
class _Call:
    end: End
    reassembler: codec.Reassembler
    held: deque[Payload] = field(default_factory=deque)
    frames: deque[bytes] = field(default_factory=deque)
    feeding: bool = False


class Incoming:
    """The receiver's side of an agent's edges."""

    def __init__(self, agent: AgentProcess) -> None:
        self._agent = agent
        self._world = agent.world
        self._waiting: list[End] = []
        self._calls: dict[int, _Call] = {}
        self._heard_ns: dict[int, int] = {}

    def lacks(self, stall: ReportStall | None) -> tuple[tuple[Lack, ...], int]:
        """Whom the agent's round waits for, and since when."""
        machine, now = self._agent.machine, self._world.clock.now_ns
        assert machine is not None
        k = machine.k
        if stall is None or stall.k != k or machine.done_through >= k:
            return (), 0
        senders = sorted({j for j, stream in stall.missing if machine.needs(j)[stream == "Y"] <= k})
        heard = [self._heard_ns.get(j) for j in senders]
        return tuple(
            Lack(self._world.names[j], None if ns is None else now - ns) for j, ns in zip(senders, heard, strict=True)
        ), now - stall.since_ns

    def accept(self, end: End) -> None:
        """An in-neighbour opened its stream; before Welcome it waits."""
        if self._agent.machine is None:
            self._waiting.append(end)
        else:
            self._admit(end)

    def begin(self) -> None:
        """Welcome came: let in-neighbours in."""
        waiting, self._waiting = self._waiting, []
        for end in waiting:
            self._admit(end)

    def moved(self) -> None:
        """The inbox's window moved: what waits for it may go on."""
        for call in tuple(self._calls.values()):
            self._deliver(call)

    def _admit(self, end: End) -> None:
        machine, world, sender = self._agent.machine, self._world, end.peer
        assert machine is not None
        earlier = self._calls.get(sender)
        if earlier is not None:
            earlier.end.on_message = lambda _: None
            earlier.held.clear()
            earlier.frames.clear()
            earlier.end.close()
        x_from, y_from = machine.needs(sender)
        first = {"X": x_from, "Y": y_from}
        gate = codec.Gate(
            run_id=world.run_id,
            sender=world.names[sender],
            streams=world.streams[sender, self._agent.index],
            dtype=self._agent.work.wire_dtype,
            dimension=self._agent.work.dimension,
            window=lambda which: (first[which], world.K),
        )
        call = self._calls[sender] = _Call(end, codec.Reassembler(gate))
        end.on_message = lambda frame: self._frame(call, frame)
        end.on_end = lambda: self._ended(sender, call)
        end.write(m.Resume(self._agent.name, world.run_id, x_from, y_from, machine.mixed_before))

    def _ended(self, sender: int, call: _Call) -> None:
        if self._calls.get(sender) is call:
            del self._calls[sender]

    def _frame(self, call: _Call, frame: bytes) -> None:
        self._heard_ns[call.end.peer] = self._world.clock.now_ns
        call.frames.append(frame)
        self._deliver(call)

    def _deliver(self, call: _Call) -> None:
        """Take frames as long as the window lets their vectors in; flow control holds the rest."""
        agent, machine = self._agent, self._agent.machine
        if call.feeding or machine is None:
            return
        call.feeding = True
        sender = call.end.peer
        try:
            while call.held or call.frames:
                if not call.held:
                    call.held.extend(call.reassembler.feed(call.frames.popleft()))
                    call.end.consumed()
                if call.held[0].k > machine.window()[1]:
                    break
                self._take(sender, call.held.popleft())
        except PeerError as error:
            raise Violation("gate", f"{agent.name} refuses a vector of {self._world.names[sender]}: {error}") from error
        finally:
            call.feeding = False

    def _take(self, sender: int, payload: Payload) -> None:
        agent, world = self._agent, self._world
        world.saw(agent.index, "receives", (world.names[sender], payload))
        agent.feed(VectorReceived(sender, payload))
        copied_ns = world.network.copied_ns(sender, agent.index)
        if copied_ns is not None:
            agent.later(copied_ns, lambda: self._copy(sender, payload))

    def _copy(self, sender: int, payload: Payload) -> None:
        self._world.saw(self._agent.index, "receives again", (self._world.names[sender], payload))
        self._agent.feed(VectorReceived(sender, payload))
