"""The standard gRPC health service answers beside ours, and the probes over HTTP say the same."""

from __future__ import annotations

import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from dpgt_node.runtime.watching.probes import READY, probe_pages
from dpgt_node.wire import services
from dpgt_node.wire.health import serve_health


@pytest.mark.parametrize("service", ["", services.AGENT_SERVICE])
async def test_a_standard_probe_finds_the_server_serving(service: str) -> None:
    server = grpc.aio.server(options=services.SERVER_OPTIONS)
    port = server.add_insecure_port("127.0.0.1:0")
    health = await serve_health(server, services.AGENT_SERVICE)
    ready = probe_pages(health)[READY]
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=services.CHANNEL_OPTIONS) as channel:
            stub = health_pb2_grpc.HealthStub(channel)
            reply = await stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=30)
            assert reply.status == health_pb2.HealthCheckResponse.SERVING
            with pytest.raises(grpc.aio.AioRpcError) as unknown:
                await stub.Check(health_pb2.HealthCheckRequest(service="other"), timeout=30)
            assert unknown.value.code() is grpc.StatusCode.NOT_FOUND
            watch = stub.Watch(health_pb2.HealthCheckRequest(service=service), timeout=30)
            assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
            assert (await ready({})).status == 200
            health.leave()
            assert (await watch.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
            reply = await stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=30)
            assert reply.status == health_pb2.HealthCheckResponse.NOT_SERVING
            assert (await ready({})).status == 503
    finally:
        await server.stop(0)
