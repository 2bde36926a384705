"""What watching costs: the rounds of one ``dpgt launch`` while everything is looked at, and while nobody looks.

The launch logs as JSON and serves ``/metrics`` of every daemon and the live page throughout.  Spans of a few seconds
alternate: in one kind somebody asks for what a browser and a Prometheus ask for, once in ``every_s``; in the other for
nothing.  Two spans side by side are a pair, the order turned round from pair to pair, so that what else the machine
does meets both.
"""

from __future__ import annotations

import contextlib
import json
import re
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.request import urlopen

from dpgt_node.bench.children import DPGT, ChildFailed
from dpgt_node.bench.figures import Around, Row, Spread, Value, option
from dpgt_node.bench.speed.ring import ring
from dpgt_node.values import dataclass

ENDLESS = 1_000_000
TIMEOUT_S, START_S = 30.0, 120.0
TABLES = ("metrics.csv", "phases.csv")


@dataclass(frozen=True, slots=True)
class Settings:
    agents: int = option(5, "Agents.", least=2)
    dimension: int = option(100, "d.", least=1)
    span_s: float = option(3.0, "Seconds of one span.")
    every_s: float = option(1.0, "Seconds between two looks.")
    repeat: int = option(20, "Pairs of spans.", least=1)


def figures(settings: Settings, around: Around) -> Iterator[Row]:
    rates: dict[bool, list[float]] = {False: [], True: []}
    looks = 0
    with around.temporary() as folder, _launch(settings, around.environment, folder) as (page, scraped):
        at = dict.fromkeys(TABLES, 0)
        for pair in range(settings.repeat):
            for watched in (False, True) if pair % 2 == 0 else (True, False):
                rate, count = _span(settings, page, scraped, at if watched else {})
                rates[watched].append(rate)
                looks += count
    ratio = Spread.ratio(rates[True], rates[False])
    for watched, name in ((False, "nobody looks"), (True, "watched")):
        cells: dict[str, Value] = {"": name, "rounds/s": Spread.over(rates[watched])}
        cells |= {"of the other": ratio if watched else None, "looks": looks if watched else None}
        yield Row(f"n = {settings.agents}, d = {settings.dimension}; {settings.repeat} pairs of spans", cells)


@contextlib.contextmanager
def _launch(settings: Settings, environment: Mapping[str, str], folder: Path) -> Iterator[tuple[str, list[str]]]:
    """A launch that makes rounds: its live page, and every page of metrics."""
    text = ring(settings.agents, settings.dimension, ENDLESS)
    text = text.replace(f"every = {ENDLESS - 1}", "every = 10")  # tables that grow, for the page to read
    (folder / "run.toml").write_text(text, encoding="utf-8")
    out = folder / "out"
    command = [*DPGT, "launch", str(folder / "run.toml"), "--out", str(out), "--log-format", "json"]
    process = subprocess.Popen(
        [*command, "--http", "0", "--metrics", "0"],
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        page, scraped = _started(out, settings.agents, process)
        yield page, scraped
        if process.poll() is not None:
            raise ChildFailed("dpgt launch ended before the measurement")
    finally:
        process.send_signal(signal.SIGINT)
        process.wait()


def _started(out: Path, agents: int, process: subprocess.Popen[bytes]) -> tuple[str, list[str]]:
    end_s = time.monotonic() + START_S
    while time.monotonic() < end_s and process.poll() is None:
        with contextlib.suppress(OSError, ValueError):
            found = json.loads((out / "coordinator.json").read_text(encoding="utf-8"))
            logs = [path.read_text(encoding="utf-8") for path in out.glob("agents/*/node.log")]
            nodes = [url for log in logs for url in re.findall(r"metrics: (http://[^\s\"]+)", log)]
            if len(nodes) == agents and json.loads(_get(f"{found['http']}state.json"))["k"] > 20:
                return found["http"], [f"{found['metrics']}metrics", *nodes]
        time.sleep(0.1)
    raise ChildFailed("dpgt launch makes no rounds")


def _span(settings: Settings, page: str, scraped: list[str], at: dict[str, int]) -> tuple[float, int]:
    """Rounds a second of a span in which everything is looked at, and how often; with no ``at`` nothing is.

    ``at``: where the next look at a table begins.
    """
    begin, looks = _stands(scraped[0]), 0
    while (now_s := time.monotonic()) < begin[1] + settings.span_s:
        if at:
            for url in (*scraped, f"{page}state.json"):
                _get(url)
            for table in TABLES:
                with urlopen(f"{page}{table}?from={at[table]}", timeout=TIMEOUT_S) as answer:
                    answer.read()
                    at[table] = int(answer.headers["X-Next"])
            looks += 1
        time.sleep(max(0.0, min(now_s + settings.every_s, begin[1] + settings.span_s) - time.monotonic()))
    end = _stands(scraped[0])
    return (end[0] - begin[0]) / (end[1] - begin[1]), looks


def _stands(metrics: str) -> tuple[int, float]:
    """The round, and when that was."""
    (k,) = re.findall(r"^dpgt_run_round (\S+)$", _get(metrics).decode(), re.MULTILINE)
    return int(float(k)), time.monotonic()


def _get(url: str) -> bytes:
    with urlopen(url, timeout=TIMEOUT_S) as answer:
        return bytes(answer.read())
