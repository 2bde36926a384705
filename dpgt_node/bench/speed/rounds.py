"""Rounds per second of ``dpgt launch`` beside a bare ring of the same processes, mTLS, bytes and barrier.

"quadratic" on a ring, float64, durability "process".  The bare ring makes, checks, hashes, stores and mixes no vector.
The two run in turn, and ratios are taken pair by pair.  Processor time: that of the agents, on average, and of the
coordinator, while rounds are made.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator

from dpgt_node.bench.children import fresh, watched_launch
from dpgt_node.bench.figures import Around, Row, Spread, Value, option
from dpgt_node.bench.gloo import LOOPBACK
from dpgt_node.bench.speed.ring import ring
from dpgt_node.errors import ConfigError
from dpgt_node.learning.extras import lacking
from dpgt_node.values import dataclass

CELLS = ("rounds/s", "ms of an agent", "ms of the coordinator")


@dataclass(frozen=True, slots=True)
class Settings:
    agents: int = option(5, "Agents on the ring.", least=2)
    dimension: int = option(100, "Coordinates of a vector.", least=1)
    rounds: int = option(2000, "Rounds of each run.", least=2)
    repeat: int = option(5, "Pairs of runs.", least=1)
    barrier_every: int = option(1, "Rounds that launch's barrier may let through at once.", least=1)
    gloo: bool = option(False, "Also beside an all-gather of torch.distributed, gloo (needs [torch]).")


def figures(settings: Settings, around: Around) -> Iterator[Row]:
    if settings.gloo and (why := lacking("torch")) is not None:
        raise ConfigError.one("command line", "--gloo", why)
    found: dict[str, list[tuple[float, float | None, float | None]]] = {"launch": [], "bare ring": []}
    if settings.gloo:
        found["gloo"] = []
    for number in range(settings.repeat):
        found["launch"].append(launched(settings, around))
        found["bare ring"].append(bare(settings, around))
        if settings.gloo:
            found["gloo"].append((gathered(settings, around), None, None))
        cells: dict[str, Value] = {"pair": number + 1}
        for name, each in found.items():
            headings = CELLS if name != "gloo" else CELLS[:1]
            cells |= {f"{name}: {heading}": value for heading, value in zip(headings, each[-1], strict=False)}
        yield Row("pairs; ms of a processor in a round", cells)
    if settings.gloo:
        rates, gathers = ([rate for rate, *_ in found[name]] for name in ("launch", "gloo"))
        cells = {"": CELLS[0], "launch": Spread.over(rates), "gloo": Spread.over(gathers)}
        yield Row("launch beside gloo, over all pairs", {**cells, "ratio": Spread.ratio(rates, gathers)})
    for place, heading in enumerate(CELLS):
        ours, theirs = ([each[place] for each in found[name]] for name in ("launch", "bare ring"))
        known = [(a, b) for a, b in zip(ours, theirs, strict=True) if a is not None and b]
        if known:
            a, b = zip(*known, strict=True)
            yield Row(
                "launch beside the bare ring, over all pairs",
                {"": heading, "launch": Spread.over(a), "bare ring": Spread.over(b), "ratio": Spread.ratio(a, b)},
            )


def launched(settings: Settings, around: Around) -> tuple[float, float | None, float | None]:
    """Rounds per second, and processor ms a round of an agent and of the coordinator, of one launch."""
    with around.temporary() as folder:
        run, out = folder / "run.toml", folder / "out"
        text = ring(settings.agents, settings.dimension, settings.rounds)
        run.write_text(f"{text}barrier_every = {settings.barrier_every}\n", encoding="utf-8")
        watch = watched_launch(around.environment, run, out)
        rate = float(json.loads((out / "summary.json").read_text(encoding="utf-8"))["rounds_per_second"])
    busy = watch.busy(settings.rounds / rate)
    if busy is None or len(busy) <= settings.agents:
        return rate, None, None
    coordinator = busy.pop("coordinator")
    return rate, 1e3 * statistics.mean(busy.values()) / rate, 1e3 * coordinator / rate


def bare(settings: Settings, around: Around) -> tuple[float, float, float]:
    """The same of one bare ring with frames of the same size."""
    frame = 2 * (8 * settings.dimension + 80)
    with around.temporary() as folder:
        found = fresh(
            around.environment,
            "speed.bare_ring",
            folder=str(folder),
            agents=settings.agents,
            rounds=settings.rounds,
            frame_bytes=frame,
        )
    return found["rounds_per_second"], found["agent_ms"], found["coordinator_ms"]


def gathered(settings: Settings, around: Around) -> float:
    """Rounds per second of as many processes that gather each other's vectors by gloo."""
    with around.temporary() as folder:
        found = fresh(
            {**around.environment, **LOOPBACK},
            "gloo",
            folder=str(folder),
            agents=settings.agents,
            rounds=settings.rounds,
            dimension=settings.dimension,
        )
    return float(found["rounds_per_second"])
