"""Where the processes of a launch serve what is watched: the coordinator at the given port, agent i i ports behind."""

from __future__ import annotations

from dataclasses import dataclass

from dpgt_node.config import format_address, parse_address
from dpgt_node.runtime.watching.sites import METRICS


@dataclass(frozen=True, slots=True)
class Watched:
    """HOST:PORT, None: nobody serves it.  Port 0: every process takes any free one."""

    metrics: str | None = None

    def of_coordinator(self) -> list[str]:
        """Its options."""
        return [] if self.metrics is None else [METRICS, self.metrics]

    def of_node(self, i: int) -> list[str]:
        """Those of the agent in row ``i``, 0-based."""
        if self.metrics is None:
            return []
        host, port = parse_address(self.metrics)
        return [METRICS, format_address(host, port + i + 1 if port else 0)]
