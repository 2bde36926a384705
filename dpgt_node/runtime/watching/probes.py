"""What an orchestrator asks whether a daemon is well, over plain HTTP on a port of its own.

The gRPC health service says the same, behind mTLS: there a probe needs a certificate of the run, and the gRPC probe of
Kubernetes speaks no TLS.  Whoever reaches this port learns two words and nothing of the run.
"""

from __future__ import annotations

from dpgt_node.runtime.watching.httpd import Answer, Page, Query
from dpgt_node.wire.health import Health

LIVE, READY = "/livez", "/readyz"


def probe_pages(health: Health) -> dict[str, Page]:
    """``LIVE``: the event loop turns.  ``READY``: and peers are served; 503 once the daemon takes its leave."""

    async def live(_: Query) -> Answer:
        return Answer(b"alive\n")

    async def ready(_: Query) -> Answer:
        return Answer(b"ready\n") if health.serving else Answer(b"leaving\n", status=503)

    return {LIVE: live, READY: ready}
