"""An agent's gRPC streams: whom it dials how, and how vectors travel on an edge."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import grpc.aio

from dpgt_node.agent.roles import Tampering, links_of
from dpgt_node.agent.work import AgentWork
from dpgt_node.algo.methods.base import Network
from dpgt_node.config import RunConfig
from dpgt_node.protocol.calls import COORDINATOR, Call
from dpgt_node.protocol.dummies import Dummy
from dpgt_node.protocol.messages import ExchangeReply, Prefix, Resume
from dpgt_node.protocol.types import Payload
from dpgt_node.runtime.calls import Calls, Framing, Stream
from dpgt_node.runtime.trust.channels import Security, agent_identity
from dpgt_node.types import Codes, WireDtype
from dpgt_node.types import Stream as VectorStream
from dpgt_node.wire import codec, services
from dpgt_node.wire.kept import Kept
from dpgt_node.wire.traffic.shape import Shape


class SendingEdge(Framing):
    """Payloads of a round out, Resume and Received in.  A vector of which Resume names a prefix goes on behind it.

    ``links``: what an active adversary makes of those to agent ``to``, None: nothing.  ``shape``: of rounds where
    [traffic] makes them alike, None: an edge carries what it has to.
    """

    def __init__(
        self, run_id: bytes, sender: str, links: Tampering | None = None, to: int = 0, shape: Shape | None = None
    ) -> None:
        self._links, self._to, self._shape = links, to, shape
        self._run_id = run_id
        self._sender = sender
        self._prefix: Prefix | None = None

    def encode(self, message: Any) -> Iterable[bytes]:
        """The frames of one round's payloads."""
        links = self._links
        if links is None or isinstance(message[0], Dummy):
            return self._frames(message, message[0].k, self._prefix)
        return self._tampered(links, message)

    def _frames(self, payloads: Iterable[Payload], k: int, prefix: Prefix | None = None) -> Iterator[bytes]:
        if self._shape is not None:
            return self._shape.frames(self._run_id, self._sender, payloads, k, prefix)
        return codec.encode_vectors(self._run_id, self._sender, payloads, prefix=prefix)

    def _tampered(self, links: Tampering, message: Any) -> Iterator[bytes]:
        yield from self._frames(links.sent(self._to, message), message[0].k, self._prefix)
        for copy in links.again(self._to, message):
            yield from self._frames((copy,), copy.k)

    def held_s(self, message: Any) -> float:
        """How long an active adversary waits with them."""
        links = None if isinstance(message[0], Dummy) else self._links
        return 0.0 if links is None else links.held_s(self._to, message)

    def decode(self, frame: Any) -> object:
        """A reply."""
        if isinstance(frame, Resume):
            self._prefix = frame.prefix
        return frame


class ReceivingEdge(Framing):
    """Vectors in, through the gate.  What Resume says is what the gate lets in from then on.

    Vectors from beyond the inbox's window are not refused: the machine holds the call, and flow control the sender.
    ``kept``: what this edge's calls hand on, the vector that one of them left incomplete.  ``shape`` as of
    ``SendingEdge``: without one, padding and dummies are refused.
    """

    def __init__(
        self,
        sender: str,
        streams: frozenset[VectorStream],
        dtype: WireDtype,
        dimension: int,
        last_round: int,
        codes: Codes | None = None,
        kept: Kept | None = None,
        shape: Shape | None = None,
    ) -> None:
        self._shape = shape
        self._sender = sender
        self._streams = streams
        self._dtype = dtype
        self._dimension = dimension
        self._last_round, self._codes, self._kept = last_round, codes, kept or Kept()
        self._reassembler: codec.Reassembler | None = None

    def encode(self, message: Any) -> Iterable[ExchangeReply]:
        """A reply; Resume makes the gate, and says what is kept."""
        if isinstance(message, Resume):
            first: dict[VectorStream, int] = {"X": message.x_from, "Y": message.y_from}
            gate = codec.Gate(
                run_id=message.run_id,
                sender=self._sender,
                streams=self._streams,
                dtype=self._dtype,
                dimension=self._dimension,
                window=lambda which: (first[which], self._last_round),
                codes=self._codes,
                limits=None if self._shape is None else self._shape.limits(),
            )
            self._reassembler = codec.Reassembler(gate, self._kept)
            message = replace(message, prefix=self._kept.prefix({stream: first[stream] for stream in self._streams}))
        return (message,)

    def decode(self, frame: Any) -> object:
        """The payloads that the frame completed."""
        if self._reassembler is None:
            raise AssertionError("a call is read before Resume was written")
        return tuple(self._reassembler.feed(frame))

    def finish(self) -> str | None:
        """Which vector was left incomplete."""
        return None if self._reassembler is None else self._reassembler.finish()


class Edges:
    """How the calls of agent ``index`` are framed, in run ``run_id`` once that is known.

    ``streams_in``: of each agent that may send to it, what it sends; ``carried``: of those that send anything.
    """

    def __init__(self, run: RunConfig, network: Network, index: int, work: AgentWork) -> None:
        self._names, self._name, self._work, self._last_round = network.names, network.names[index], work, run.K
        self._links = links_of(run, index, tuple(network.peers(index)))
        self._kept: dict[str, Kept] = {}
        self._shape = None
        self.run_id = b""
        self.carried = {self._names[j]: frozenset(streams) for j, streams in network.senders(index).items()}
        self.covered = run.traffic.covered and bool(network.streams)
        if run.traffic.alike and network.streams:
            self._shape = Shape(
                run.traffic, self._names, network.streams, work.wire_dtype, work.dimension, run.K, work.codes
            )
        others = [name for name in self._names if name != self._name] if self.covered else []
        self.streams_in = dict.fromkeys(others, frozenset[VectorStream]()) | self.carried

    def framing(self, call: Call) -> Framing:
        """Of one call."""
        if call.peer == COORDINATOR:
            return Framing()
        if call.dialled:
            return SendingEdge(self.run_id, self._name, self._links, self._names.index(call.peer), self._shape)
        streams = self.streams_in.get(call.peer, frozenset[VectorStream]())
        work, kept = self._work, self._kept.setdefault(call.peer, Kept())
        return ReceivingEdge(
            call.peer, streams, work.wire_dtype, work.dimension, self._last_round, work.codes, kept, self._shape
        )


class Dialler:
    """Opens calls of agent ``name`` to the coordinator and to out-neighbours.

    ``elsewhere``: where peers are dialled that are not dialled where they say they listen.  ``vector_bytes``: of a
    vector.  ``unit``: messages to the coordinator are multiples of so many bytes, 0: of any length.
    """

    def __init__(
        self,
        name: str,
        security: Security,
        coordinator_id: str,
        elsewhere: Mapping[str, str],
        vector_bytes: int,
        unit: int = 0,
    ) -> None:
        self._name, self._vector_bytes, self._unit = name, vector_bytes, unit
        self._security = security
        self._coordinator = security.dialler(coordinator_id)
        self._elsewhere = elsewhere

    @asynccontextmanager
    async def __call__(self, call: Call, address: str) -> AsyncIterator[Stream]:
        """One stream while it is used."""
        if call.peer == COORDINATOR:
            opened = self._coordinator(address)
            open_stream: Callable[..., services.ClientStream[Any, Any]] = partial(_JOIN, unit=self._unit)
        else:
            dial = self._security.dialler(agent_identity(call.peer), vector_bytes=self._vector_bytes)
            opened = dial(self._elsewhere.get(call.peer, address))
            open_stream = _EXCHANGE
        async with opened as channel:
            stream = open_stream(channel, self._name)
            try:
                yield stream
            finally:
                stream.cancel()


_JOIN: Callable[..., services.ClientStream[Any, Any]] = services.join
_EXCHANGE: Callable[[grpc.aio.Channel, str], services.ClientStream[Any, Any]] = services.exchange


class Neighbours:
    """Serves Exchange: every stream of a neighbour is a call of its machine."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    async def exchange(self, stream: services.ServerStream[bytes, ExchangeReply]) -> None:
        """One in-neighbour's stream."""
        await self._calls.accept(stream.agent_name(), stream, stream.address)
