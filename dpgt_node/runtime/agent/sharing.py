"""Whether an agent shares its noise with others, and whether it has what that needs.

What agrees on keys is imported where they are needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpgt_node.config import NodeConfig, RunConfig
from dpgt_node.config.privacy.cancelling import masks
from dpgt_node.durable import Durability
from dpgt_node.errors import ConfigError, Problem
from dpgt_node.runtime.store.store import Store
from dpgt_node.runtime.trust.channels import Security

if TYPE_CHECKING:
    from dpgt_node.runtime.agent.agreeing import Agreement

_KEYS = ("tls.insecure", "durability")


def require_means(
    run: RunConfig, source: str, *, secure: bool, durability: Durability, keys: tuple[str, str] = _KEYS
) -> None:
    """ConfigError where agents of ``run`` cannot share noise soundly, in ``source`` under one of ``keys``."""
    problems = []
    if masks(run) is None:
        return
    if not secure:
        message = (
            "leaves agents without certificates, which [noise] cancel needs: whoever relays their keys could put its "
            "own in their place and take the shared noise off again"
        )
        problems.append(Problem(source, keys[0], message))
    if durability != "power":
        message = (
            'must be "power" with [noise] cancel: after a power cut a release could be drawn a second time with the '
            "same shared noise, and the difference shows what that hid"
        )
        problems.append(Problem(source, keys[1], message))
    if problems:
        raise ConfigError(problems)


def agreement_of(config: NodeConfig, run: RunConfig, security: Security, store: Store) -> Agreement | None:
    """None where noise is everybody's own, and without TLS, where only a test keystream is let in."""
    graph = masks(run)
    if graph is None or not security.secure:
        return None
    from dpgt_node.runtime.agent.agreeing import Agreement

    return Agreement(config, run, graph, security, store)
