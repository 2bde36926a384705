"""What durability costs, and where the time of a round goes.

A coordinator and its agents in one process and one event loop, over gRPC on loopback without TLS, on a ring with
"quadratic".  The store is off (kept in memory: what is lost with the process), "process" or "power", in turn.

The parts are ms of work of one agent in one round; those of the coordinator are among them.  Up to 64 kB a vector
everything but a commit under "power" runs in the event loop.  There the parts and "gRPC, loop" add up to the time of a
round divided by the number of agents.  What runs in threads runs beside the rest.  A round and its processor time are
of all agents and the coordinator.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

from dpgt_node.bench.clocks import PARTS, Clock, watching
from dpgt_node.bench.figures import Around, Row, Spread, Value, option
from dpgt_node.bench.speed.ring import ring
from dpgt_node.config import parse_run
from dpgt_node.durable import Durability
from dpgt_node.errors import ConfigError
from dpgt_node.runtime.launch.together import run_together
from dpgt_node.runtime.process import tune_malloc
from dpgt_node.values import dataclass

MODES = ("off", "process", "power")
INLINE_BYTES = 64 * 1024
LOOP, ROUND, CPU = "gRPC, loop", "a round", "processor time of a round"


@dataclass(frozen=True, slots=True)
class Settings:
    case: tuple[str, ...] = option(("5,100,1000", "2,11175370,16"), "Agents, d and rounds.", metavar="N,D,ROUNDS")
    repeat: int = option(3, "Runs of each.", least=1)


def figures(settings: Settings, around: Around) -> Iterator[Row]:
    tune_malloc()
    for n, d, rounds in map(_case, settings.case):
        found: dict[str, list[dict[str, float]]] = {mode: [] for mode in MODES}
        for _ in range(settings.repeat):
            for mode in MODES:
                with around.temporary() as folder:
                    found[mode].append(one(mode, n, d, rounds, folder))
        yield from _rows(f"n = {n}, d = {d:,}, {rounds} rounds; ms", found)


def _case(text: str) -> tuple[int, int, int]:
    try:
        n, d, rounds = (int(part) for part in text.split(","))
    except ValueError:
        raise ConfigError.one("command line", "--case", f"is N,D,ROUNDS, not {text}") from None
    if n < 2 or d < 1 or rounds < 10:
        raise ConfigError.one("command line", "--case", "needs two agents, a coordinate and ten rounds at least")
    return n, d, rounds


def _rows(table: str, found: dict[str, list[dict[str, float]]]) -> Iterator[Row]:
    rates = {mode: [1e3 / each[ROUND] for each in runs] for mode, runs in found.items()}
    yield Row(table, {"": "rounds/s", **{mode: Spread.over(each) for mode, each in rates.items()}})
    ratios = {mode: Spread.ratio(each, rates["off"]) for mode, each in rates.items()}
    yield Row(table, {"": "of the rate with off", **ratios})
    for part in (*PARTS, LOOP, ROUND, CPU):
        cells: dict[str, Value] = {"": part}
        for mode, runs in found.items():
            cells[mode] = Spread.over([each[part] for each in runs]) if part in runs[0] else None
        yield Row(table, cells)


def one(mode: str, n: int, d: int, rounds: int, folder: Path) -> dict[str, float]:
    """Milliseconds by part of one run, without its first tenth."""
    run, clock = parse_run(ring(n, d, rounds, "plain"), "run.toml", folder), Clock()
    durability: Durability = "power" if mode == "power" else "process"
    with watching(clock, in_memory=mode == "off"):
        asyncio.run(run_together(run, folder / "out", {}, None, durability=durability))
    each = clock.a_round(max(1, rounds // 10), rounds - 1)
    parts = {part: 1e3 * seconds / n for part, seconds in each.parts.items()}
    if d * 8 <= INLINE_BYTES and durability == "process":
        parts[LOOP] = 1e3 * each.now_s / n - sum(parts.values())
    return {**parts, ROUND: 1e3 * each.now_s, CPU: 1e3 * each.cpu_s}
