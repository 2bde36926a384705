"""A gRPC server that strangers may talk to: how much of it they can have, and where gRPC itself gives way to them.

Two things in grpc.aio reach further than the call they happen in and are kept away here:

* A call whose path is not UTF-8 ends the server's accept loop, and with it the server.  Methods are therefore
  registered with the core, which compares bytes, and calls of any other method are answered before that loop.
* Metadata that is not UTF-8 writes a traceback into the log, call after call.

A peer that proved nothing costs a socket for ``HANDSHAKE_S`` at most: the core does the handshake, Python never hears
of it.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
from collections.abc import Mapping, Sequence
from typing import Any

import grpc
import grpc.aio
from grpc._cython import cygrpc  # type: ignore[attr-defined]

HANDSHAKE_S = 10.0
IDLE_S = 60.0
STREAMS_PER_CONNECTION = 32
METADATA_BYTES = 8192
SPARE_CONNECTIONS = 256
SPARE_CALLS = 64
EACH_PEER = 8
UNKNOWN_IN_FLIGHT = 32


def limits(peers: int) -> tuple[tuple[str, int], ...]:
    """Channel arguments that bound what others hold of a server with ``peers`` honest ones.

    An honest peer needs one connection and at most three calls; a restart of it may overlap.
    """
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    connections = SPARE_CONNECTIONS + EACH_PEER * peers
    if descriptors > 0:  # the store must find a descriptor whatever the others do
        connections = min(connections, descriptors // 2)
    return (
        ("grpc.server_handshake_timeout_ms", int(HANDSHAKE_S * 1000)),  # TLS, and the first frames of HTTP/2
        # Until a client has acknowledged our settings the core allows it 16 MiB of headers a call.
        ("grpc.http2.settings_timeout", int(HANDSHAKE_S * 1000)),
        ("grpc.max_allowed_incoming_connections", connections),
        ("grpc.max_connection_idle_ms", int(IDLE_S * 1000)),  # without a call; peers come back when they need one
        ("grpc.max_concurrent_streams", STREAMS_PER_CONNECTION),
        ("grpc.max_metadata_size", METADATA_BYTES),
        ("grpc.absolute_max_metadata_size", METADATA_BYTES),
    )


def why_not_listen(host: str, port: int) -> OSError | None:
    """Why this process cannot listen on HOST:PORT now; None when it can."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        return error
    for family, kind, number, _, address in found[:1]:
        with socket.socket(family, kind, number) as probe:
            # As a server of gRPC does it: connections of an earlier process that linger are no obstacle.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(address)
                probe.listen(1)
            except OSError as error:
                return error
    return None


class Service(grpc.GenericRpcHandler):
    """The methods of one service, by full path ("/package.Service/Method")."""

    def __init__(self, name: str, methods: Mapping[str, grpc.RpcMethodHandler[Any, Any]]) -> None:
        self.methods = {f"/{name}/{method}": handler for method, handler in methods.items()}

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[Any, Any] | None:
        """For servers that do not register methods."""
        return self.methods.get(handler_call_details.method)


class Server:
    """What ``new_server`` returns: a ``grpc.aio.Server`` that registers the methods of every Service added to it."""

    def __init__(self, inner: grpc.aio.Server) -> None:
        self._inner = inner

    def add_generic_rpc_handlers(self, handlers: Sequence[Service]) -> None:
        """Serve these; before ``start``."""
        for handler in handlers:
            self._inner._server.add_registered_method_handlers(handler.methods)  # type: ignore[attr-defined]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class _Core(cygrpc.AioServer):  # type: ignore[misc]
    """The core's server, with calls of methods that nobody registered kept out of its accept loop."""

    def _make_request_call_future(self, method: bytes | None) -> asyncio.Future[Any]:
        if method is None:
            return asyncio.ensure_future(self._turn_away())
        future: asyncio.Future[Any] = super()._make_request_call_future(method)
        return future

    async def _turn_away(self) -> None:
        """Answers UNIMPLEMENTED for ever; ends with what ends the server."""
        answers: set[asyncio.Task[None]] = set()
        while True:
            call = await self._request_call()
            if len(answers) < UNKNOWN_IN_FLIGHT:  # else let it go: the core resets a call nobody holds
                answer = asyncio.ensure_future(_unimplemented(call))
                answers.add(answer)
                answer.add_done_callback(answers.discard)
            del call  # held until the next one came, otherwise


async def _unimplemented(call: Any) -> None:
    context = cygrpc._ServicerContext(call, None, None, asyncio.get_running_loop())
    try:
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, "there is no such method here")
    except (grpc.aio.BaseError, asyncio.InvalidStateError) as error:  # AbortError, its end, or the caller is gone
        # The call keeps the error, its traceback this frame, that the call; a server stops when all calls are freed.
        error.__traceback__ = None


class _NoTracebacks(logging.Filter):
    """Drops what the core's binding says of each malformed piece of metadata, whoever sent it is refused by name, and
    of a call that began just when its server stopped.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        if record.exc_info and record.exc_info[0] is asyncio.CancelledError:
            return False
        return not str(record.msg).startswith("Invalid encoding on")


logging.getLogger(cygrpc.__name__).addFilter(_NoTracebacks())


def new_server(options: Sequence[tuple[str, int]], peers: int) -> Server:
    """A server for ``peers`` honest callers and any number of others; use inside a running event loop."""
    made = cygrpc.AioServer
    cygrpc.AioServer = _Core  # grpc.aio takes no other way of saying it
    try:
        arguments = tuple({**dict(limits(peers)), **dict(options)}.items())
        return Server(grpc.aio.server(options=arguments, maximum_concurrent_rpcs=SPARE_CALLS + EACH_PEER * peers))
    finally:
        cygrpc.AioServer = made
