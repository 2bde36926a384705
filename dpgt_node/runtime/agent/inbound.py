"""The receiver's side of the edges: what an agent serves to its in-neighbours."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass

from dpgt_node.algo.methods.base import Network
from dpgt_node.errors import PeerError
from dpgt_node.protocol.messages import ExchangeReply, Received, Resume
from dpgt_node.protocol.types import VectorReceived
from dpgt_node.runtime.agent.driver import INLINE_BYTES, AgentDriver
from dpgt_node.types import Stream, WireDtype
from dpgt_node.wire import services
from dpgt_node.wire.codec import Gate, Reassembler

log = logging.getLogger(__name__)

ACK_ROUNDS = 64
"""Small vectors are acknowledged once in so many rounds: an acknowledgement a round would cost as much as the
vector.
"""


@dataclass(frozen=True, slots=True)
class Session:
    """The run this agent is in, from Welcome on."""

    run_id: bytes
    driver: AgentDriver
    dtype: WireDtype
    dimension: int
    last_round: int


class Inbound:
    """Serves Exchange for agent ``index``.  In-neighbours that come before Welcome wait for it."""

    def __init__(self, network: Network, index: int) -> None:
        self._names = network.names
        self._index = index
        self._name = network.names[index]
        self._streams = {j: frozenset(streams) for j, streams in network.senders(index).items()}
        self._calls: dict[int, asyncio.Task[object]] = {}
        self._heard_ns: dict[int, int] = {}
        self._open: set[asyncio.Task[object]] = set()
        self._closing = False
        self._session: asyncio.Future[Session] = asyncio.get_running_loop().create_future()

    def begin(self, session: Session) -> None:
        """Welcome came: let in-neighbours in."""
        self._session.set_result(session)

    async def exchange(self, stream: services.ServerStream[bytes, ExchangeReply]) -> None:
        """One in-neighbour's stream; a newer one of the same neighbour replaces it."""
        sender = self._sender(stream)
        if self._closing:
            raise PeerError(f"{self._name} is leaving", grpc_status="UNAVAILABLE")
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        try:
            earlier = self._calls.get(sender)
            self._calls[sender] = task
            if earlier is not None:
                earlier.cancel()
                await asyncio.wait([earlier])
            await self._receive(sender, await asyncio.shield(self._session), stream)
        except asyncio.CancelledError:
            return  # replaced by a newer stream, or the server stops: the call is over either way
        finally:
            self._open.discard(task)
            if self._calls.get(sender) is task:
                del self._calls[sender]

    def heard_ns(self, sender: int) -> int | None:
        """When the last byte of an in-neighbour arrived, monotonic; None: none did."""
        return self._heard_ns.get(sender)

    async def drained(self, timeout_s: float) -> None:
        """Wait until every in-neighbour closed its stream, at most ``timeout_s``."""
        if self._calls and self._session.done():
            await asyncio.wait(self._calls.values(), timeout=timeout_s)

    async def close(self, timeout_s: float) -> None:
        """End every stream and take no new one: gRPC logs a traceback of a call that its server stops under."""
        self._closing = True
        late = set(self._open)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late, timeout=timeout_s)

    def _sender(self, stream: services.ServerStream[bytes, ExchangeReply]) -> int:
        name = stream.agent_name()
        sender = self._names.index(name) if name in self._names else -1
        if sender not in self._streams:
            raise PeerError(f"there is no edge from {name} to {self._name}", grpc_status="PERMISSION_DENIED")
        return sender

    async def _receive(
        self, sender: int, session: Session, stream: services.ServerStream[bytes, ExchangeReply]
    ) -> None:
        driver, name = session.driver, self._names[sender]
        x_from, y_from = driver.machine.needs(sender)
        first: dict[Stream, int] = {"X": x_from, "Y": y_from}
        gate = Gate(
            run_id=session.run_id,
            sender=name,
            streams=self._streams[sender],
            dtype=session.dtype,
            dimension=session.dimension,
            # Vectors from beyond the inbox window are not refused but left waiting below: flow control holds the
            # sender.
            window=lambda which: (first[which], session.last_round),
        )
        reassembler = Reassembler(gate)
        await stream.write(Resume(self._name, session.run_id, x_from, y_from, driver.machine.mixed_before))
        while (frame := await stream.read()) is not None:
            self._heard_ns[sender] = time.monotonic_ns()
            payloads = reassembler.feed(frame)
            for payload in payloads:
                while payload.k > driver.machine.window()[1]:
                    await driver.moved.wait()
                driver.feed(VectorReceived(sender, payload))
            if payloads and (payloads[-1].nbytes > INLINE_BYTES or payloads[-1].k % ACK_ROUNDS == ACK_ROUNDS - 1):
                through = min(driver.machine.needs(sender)[stream_index(which)] for which in gate.streams) - 1
                if through >= 0:
                    await stream.write(Received(through))
        if (broken := reassembler.finish()) is not None:
            log.warning("the stream of %s broke: %s", name, broken)


def stream_index(stream: Stream) -> int:
    """Position of a stream in the pairs of ``AgentMachine.needs``."""
    return 0 if stream == "X" else 1
