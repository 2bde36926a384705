"""What the coordinator hears of an agent that cannot take part: the kind, never more."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

from dpgt_node.config import NodeConfig, RunConfig
from dpgt_node.errors import ConfigError, PeerError
from dpgt_node.learning.common import Oracle
from dpgt_node.learning.oracle import oracle_and_digest
from dpgt_node.protocol import messages as m
from dpgt_node.protocol.told import told
from dpgt_node.runtime.trust.channels import Security
from dpgt_node.wire import services

FAREWELL_S = 2.0


async def oracle_or_refusal(
    config: NodeConfig, run: RunConfig, shard: int, security: Security, data_root: Path | None
) -> tuple[Oracle, bytes]:
    """``oracle_and_digest`` of 0-based ``shard`` here.  ConfigError, of which the coordinator hears the kind."""
    try:
        own = {"data_path": config.data_path, "data_test": config.data_test}
        return await asyncio.to_thread(oracle_and_digest, run, shard, data_root=data_root, **own)
    except ConfigError as error:
        await say_refusal(config, security, error)
        raise


async def say_refusal(config: NodeConfig, security: Security, error: ConfigError) -> None:
    """Tell the coordinator that this agent cannot take part, not why; silence when it cannot be reached."""
    with contextlib.suppress(PeerError, asyncio.TimeoutError):
        async with security.dialler(config.tls.coordinator_id)(config.coordinator) as channel:
            call = services.join(channel, config.name)
            async with asyncio.timeout(FAREWELL_S):
                await call.write(m.Refusal("data", told(error)))
                await call.done_writing()
                await call.read()
