"""What [traffic] of a run file costs, before anything starts."""

from __future__ import annotations

from typing import Any

from dpgt_node.cli.common import data_root
from dpgt_node.config import RunConfig
from dpgt_node.values import dataclass

_MUCH = 10
"""So many times the bytes are worth a word."""


@dataclass(frozen=True, slots=True)
class Price:
    """Of the agent that sends most: ``bytes_a_round`` to ``links`` others, and what it were without [traffic].

    Bytes of the frames with vectors and padding; None: d is not known here.  ``round_s``: a round takes so long at
    least, None without ticks.
    """

    bytes_a_round: int | None
    bytes_open: int | None
    links: int
    links_open: int
    round_s: float | None

    @property
    def words(self) -> str:
        """In a sentence or two."""
        if not self.links and not self.links_open:
            return "Agents of this run send no vectors to each other, so there is nothing to pad, to cover or to time"
        sends, instead = f"sends to {self.links}", f"to {self.links_open}"
        if self.bytes_a_round is not None:
            sends = f"sends {self.bytes_a_round:,} bytes a round to {self.links}"
            instead = f"{self.bytes_open:,} to {self.links_open}"
            if self.bytes_open and self.bytes_a_round >= _MUCH * self.bytes_open:
                instead += f". That is {self.bytes_a_round / self.bytes_open:,.0f} times the bytes"
        what = f"The agent that sends most {sends} others; without [traffic], {instead}"
        if self.round_s is not None:
            what += f". A round takes at least {self.round_s:g} s, more where its work does not fit between two ticks"
        return f"{what}. No bit of a result changes"

    def to_json(self) -> dict[str, Any]:
        """{ bytes_a_round, bytes_open, links, links_open, round_s }."""
        return {name: getattr(self, name) for name in self.__slots__}


def price(run: RunConfig) -> Price | None:
    """None where the run hides nothing."""
    from dpgt_node.algo.graph import Topology
    from dpgt_node.algo.methods import network_of

    if not run.traffic.on:
        return None
    network = network_of(run, Topology.from_config(run.graph))
    peers = [network.peers(i) for i in range(run.n)]
    covered = run.traffic.covered and bool(network.streams)
    links_open = max(map(len, peers))
    links = run.n - 1 if covered else links_open
    ticks = 2 if run.runtime.barrier_every == 1 else 1  # vectors leave, and then that they arrived
    interval_ms = run.traffic.interval_ms
    round_s = None if interval_ms is None else ticks * interval_ms / 1000
    most = most_open = None
    if network.streams and (d := dimension(run)) is not None:
        from dpgt_node.agent.encoding import wire_dtype_of
        from dpgt_node.algo.methods import codes_of
        from dpgt_node.config.privacy.traffic import OPEN
        from dpgt_node.wire.traffic.shape import Shape

        dtype, codes, names = wire_dtype_of(run, d), codes_of(run), run.graph.agents
        sizes = {
            streams: Shape(OPEN, names, streams, dtype, d, run.K, codes).open_bytes
            for streams in {streams for there in peers for streams in there.values()}
        }
        most_open = max(sum(sizes[streams] for streams in there.values()) for there in peers)
        most = most_open
        if run.traffic.alike:
            most = links * Shape(run.traffic, names, network.streams, dtype, d, run.K, codes).round_bytes
    return Price(most, most_open, links, links_open, round_s)


def dimension(run: RunConfig) -> int | None:
    from dpgt_node.errors import ConfigError
    from dpgt_node.learning.data.shards import data_is_here
    from dpgt_node.learning.oracle import build_oracle

    if not data_is_here(run, data_root()):
        return None
    try:
        return build_oracle(run, 0, data_root=data_root()).dimension
    except ConfigError:  # which check says elsewhere
        return None
