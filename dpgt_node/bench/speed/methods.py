"""Rounds a second of every method in both simulators: Section IV-D's run, softmax regression, full evaluation left out.

Times are of this process's processor, from the end of round 0 to that of round K-1, in turn.  A first run of each, for
caches, does not count.
"""

from __future__ import annotations

from collections.abc import Iterator
from time import process_time

from dpgt_node.algo.methods import METHODS
from dpgt_node.bench.figures import Around, Row, Spread, option
from dpgt_node.config import RunConfig
from dpgt_node.errors import ExitCode
from dpgt_node.experiments.families import section_iv
from dpgt_node.experiments.families.rivals import RIVALS
from dpgt_node.sim.fast import simulate_fast
from dpgt_node.sim.simulate import simulate
from dpgt_node.values import dataclass


@dataclass(frozen=True, slots=True)
class Settings:
    method: tuple[str, ...] = option(tuple(METHODS), "Which.", choices=tuple(METHODS))
    iterations: int = option(100, "K.", least=2)
    dataset: str = option("digits", "[data] dataset.")
    repeat: int = option(3, "Runs of each.", least=1)


def figures(settings: Settings, around: Around) -> Iterator[Row]:
    for name in settings.method:
        for mechanism in METHODS[name].rules:
            run = run_of(name, mechanism, settings)
            pairs = [
                [_rate(run, turn, around, fast=fast) for fast in (True, False)] for turn in range(1 + settings.repeat)
            ]
            fast, exact = zip(*pairs[1:], strict=True)
            yield Row(
                "rounds/s",
                {
                    "method": name,
                    "mechanism": mechanism,
                    "fast": Spread.over(fast),
                    "exact": Spread.over(exact),
                    "times as fast": Spread.ratio(fast, exact),
                },
            )


def run_of(name: str, mechanism: str, settings: Settings) -> RunConfig:
    """Section IV-D's run by the method, with the keys that the experiments give it."""
    rival = next((rival for rival in RIVALS if rival.method == name), None)
    changes = {} if rival is None else dict(rival.changes)
    changes["evaluate"] = {"every": settings.iterations + 1}
    return section_iv.run_of(
        section_iv.Settings(dataset=settings.dataset, iterations=settings.iterations),
        "S2",
        0.9996,
        method=name,
        mechanism=mechanism,
        options=None if rival is None else rival.options,
        noise=METHODS[name].noisy,
        changes=changes,
    )


def _rate(run: RunConfig, turn: int, around: Around, *, fast: bool) -> float:
    """Rounds a second, of the K-1 after round 0: what follows the last one is judging."""
    ends: list[float] = []
    simulator = simulate_fast if fast else simulate
    with around.temporary() as out:
        conclude, _ = simulator(
            run,
            out,
            bytes(16),
            data_root=around.data_root,
            test_keystream=f"{turn:02x}",
            on_round=lambda k, recorder, seconds: ends.append(process_time()),
        )
    if conclude.exit_code is not ExitCode.DONE:
        raise RuntimeError(conclude.reason)
    return (run.K - 1) / (ends[run.K - 1] - ends[0])
