"""A stream of inputs from one seed: what the fuzzer does without atheris, in the default suite."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

from dpgt_node.wire import codec as real_codec
from tests.fuzz.cases import small_limits
from tests.fuzz.harness import Outcome, bounded, check
from tests.fuzz.mutate import generate, mutate

POOL = 2000
SAMPLE = 500  # one input in so many is checked for its bounds as well


def inputs(seed: int) -> Iterator[tuple[bytes, Callable[[], None]]]:
    """(input, keep): call ``keep`` when it is worth changing further."""
    rng = Random(seed)
    pool: list[bytes] = []

    def keep() -> None:
        if len(pool) < POOL:
            pool.append(data)
        else:
            pool[rng.randrange(POOL)] = data

    while True:
        data = mutate(rng.choice(pool) if pool and rng.random() < 0.5 else generate(rng), rng)
        yield data, keep


def run(seed: int, count: int, codec: Any = real_codec) -> Counter[str]:
    """Check ``count`` inputs; AssertionError (or whatever escaped a decoder) with the input when one fails."""
    counts: Counter[str] = Counter()
    with small_limits(codec):
        for number, (data, keep) in enumerate(inputs(seed)):
            if number == count:
                return counts
            try:
                outcome = check(data, codec)
                if codec is real_codec and number % SAMPLE == 0:
                    bounded(data)
            except BaseException as error:
                error.add_note(f"seed {seed}, input {number}: {data.hex()}")
                raise
            tally(counts, outcome)
            if outcome.header:
                keep()
    raise AssertionError("the stream of inputs ended")


def tally(counts: Counter[str], outcome: Outcome) -> None:
    """Count one outcome."""
    counts["inputs"] += 1
    counts["calls" if outcome.vectors else "messages"] += 1
    counts["header passed"] += outcome.header
    counts["calls with a header passed"] += outcome.header and outcome.vectors
    counts["delivered"] += outcome.taken
    counts["refused"] += outcome.refused


def shares(counts: Counter[str]) -> str:
    """One line for people."""
    n, calls = counts["inputs"], max(1, counts["calls"])
    return (
        f"{n:,} inputs: header passed by {counts['header passed'] / max(1, n):.1%} "
        f"(calls {counts['calls with a header passed'] / calls:.1%}), {counts['refused'] / max(1, n):.1%} refused, "
        f"{counts['delivered']:,} vectors and messages delivered"
    )
