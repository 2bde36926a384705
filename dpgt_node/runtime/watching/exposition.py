"""``/metrics`` in Prometheus' text format, computed when it is asked for: a round costs nothing more for it.

prometheus_client is imported with the first server, never by a daemon that has none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, Literal

from dpgt_node.runtime.watching.httpd import Answer, Page, Query
from dpgt_node.values import dataclass

PATH: Final = "/metrics"
PROCESS: Final = (
    "process_cpu_seconds_total",
    "process_max_fds",
    "process_open_fds",
    "process_resident_memory_bytes",
    "process_start_time_seconds",
    "process_virtual_memory_bytes",
)
"""Of the process itself, as the library collects them on Linux."""


@dataclass(frozen=True, slots=True)
class Family:
    """One metric: every name is on the page that says why it is safe (docs/reference/metrics.md)."""

    name: str
    kind: Literal["gauge", "counter"]
    text: str
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Sample:
    """``value`` of the family ``name``; ``labels`` in the family's order."""

    name: str
    value: float
    labels: tuple[str, ...] = ()


class _Collector:
    def __init__(self, families: Sequence[Family], samples: Callable[[], Iterable[Sample]]) -> None:
        self._families = families
        self._samples = samples

    def collect(self) -> Iterator[Any]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        kinds: dict[str, Any] = {"gauge": GaugeMetricFamily, "counter": CounterMetricFamily}
        found = {
            one.name: kinds[one.kind](one.name.removesuffix("_total"), one.text, labels=one.labels)
            for one in self._families
        }
        for sample in self._samples():  # KeyError: a metric that was never declared
            found[sample.name].add_metric(sample.labels, sample.value)
        yield from found.values()


def metrics_page(families: Sequence[Family], samples: Callable[[], Iterable[Sample]]) -> Page:
    """The page at ``PATH``; ``samples`` is called for every scrape."""
    from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, ProcessCollector, generate_latest

    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(families, samples))
    ProcessCollector(registry=registry)

    async def page(_: Query) -> Answer:
        return Answer(generate_latest(registry), CONTENT_TYPE_LATEST)

    return page
