"""The standard gRPC health service: what a probe of an orchestrator asks."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import grpc.aio

from dpgt_node.errors import PeerError
from dpgt_node.wire.fields import parse
from dpgt_node.wire.server import Server, Service
from dpgt_node.wire.services import Caller, guarded, no_guard


class Health:
    """Whether a server takes calls; it does until :meth:`leave`."""

    def __init__(self) -> None:
        self._left = asyncio.Event()

    @property
    def serving(self) -> bool:
        return not self._left.is_set()

    def leave(self) -> None:
        """The server is about to stop; may be called twice."""
        self._left.set()

    async def left(self) -> None:
        """Wait until then."""
        await self._left.wait()


async def serve_health(server: grpc.aio.Server | Server, service: str) -> Health:
    """Add the standard gRPC health service: ``service`` and the whole server are SERVING until what it returns leaves.

    Behind mTLS a probe needs a certificate of the run, like everybody else.
    """
    from grpc_health.v1 import health_pb2

    health, reply = Health(), health_pb2.HealthCheckResponse

    def status() -> bytes:
        found = reply.SERVING if health.serving else reply.NOT_SERVING
        return reply(status=found).SerializeToString()

    def known(data: bytes) -> bool:
        return parse(health_pb2.HealthCheckRequest, data, "health check").service in ("", service)

    async def check(data: bytes, context: Any) -> bytes:
        async def answer() -> bytes:
            if not known(data):
                raise PeerError("no such service", grpc_status="NOT_FOUND")
            return status()

        return await guarded(context, no_guard, Caller(context), answer)

    async def watch(data: bytes, context: Any) -> None:
        async def answer() -> None:
            if known(data):
                await context.write(status())
                await health.left()
                await context.write(status())
            else:
                await context.write(reply(status=reply.SERVICE_UNKNOWN).SerializeToString())
            await asyncio.Event().wait()  # nothing changes any more; the call ends with the caller or the server

        await guarded(context, no_guard, Caller(context), answer)

    methods: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
        "Check": grpc.unary_unary_rpc_method_handler(check),
        "Watch": grpc.unary_stream_rpc_method_handler(watch),
    }
    server.add_generic_rpc_handlers([Service(health_pb2.DESCRIPTOR.services_by_name["Health"].full_name, methods)])
    return health
