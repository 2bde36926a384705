"""Where the processes of a launch serve what is watched: the coordinator at the given port, agent i i ports behind."""

from __future__ import annotations

from dpgt_node.config import format_address, parse_address
from dpgt_node.runtime.watching.sites import HTTP, METRICS
from dpgt_node.values import dataclass


@dataclass(frozen=True, slots=True)
class Watched:
    """HOST:PORT, None: nobody serves it.  Port 0: every process takes any free one.

    ``waits``: the live page waits a while for who opens it when the run is over already.
    """

    http: str | None = None
    metrics: str | None = None
    waits: bool = False

    def of_coordinator(self) -> list[str]:
        """Its options."""
        given = ((HTTP, self.http), (METRICS, self.metrics))
        waits = ["--page-waits"] if self.waits and self.http is not None else []
        return [*(word for key, listen in given if listen is not None for word in (key, listen)), *waits]

    def of_node(self, i: int) -> list[str]:
        """Those of the agent in row ``i``, 0-based."""
        if self.metrics is None:
            return []
        host, port = parse_address(self.metrics)
        return [METRICS, format_address(host, port + i + 1 if port else 0)]
