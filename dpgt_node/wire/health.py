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


async def serve_health(server: grpc.aio.Server | Server, service: str) -> None:
    """Add the standard gRPC health service: ``service`` and the whole server are SERVING from now on.

    Behind mTLS a probe needs a certificate of the run, like everybody else.
    """
    from grpc_health.v1 import health_pb2

    reply = health_pb2.HealthCheckResponse

    def known(data: bytes) -> bool:
        return parse(health_pb2.HealthCheckRequest, data, "health check").service in ("", service)

    async def check(data: bytes, context: Any) -> bytes:
        async def answer() -> bytes:
            if not known(data):
                raise PeerError("no such service", grpc_status="NOT_FOUND")
            return reply(status=reply.SERVING).SerializeToString()

        return await guarded(context, no_guard, Caller(context), answer)

    async def watch(data: bytes, context: Any) -> None:
        async def answer() -> None:
            status = reply.SERVING if known(data) else reply.SERVICE_UNKNOWN
            await context.write(reply(status=status).SerializeToString())
            await asyncio.Event().wait()  # it never changes; the call ends with the caller or the server

        await guarded(context, no_guard, Caller(context), answer)

    methods: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
        "Check": grpc.unary_unary_rpc_method_handler(check),
        "Watch": grpc.unary_stream_rpc_method_handler(watch),
    }
    server.add_generic_rpc_handlers([Service(health_pb2.DESCRIPTOR.services_by_name["Health"].full_name, methods)])
