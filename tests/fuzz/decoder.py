"""The decoders under atheris: ``python -m tests.fuzz.decoder --inputs N --corpus DIR [DIR ...] [--seed S]``.

libFuzzer keeps what reaches new code; the mutator of this folder says how inputs change, one time in five libFuzzer's
own does.  New inputs go to the first DIR.  Ends with exit code 0 and one JSON line after N inputs, or with libFuzzer's
code 77 and the input that broke something beside that folder, as crash-*.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import Counter
from pathlib import Path
from random import Random

import atheris
import psutil

with atheris.instrument_imports(include=["dpgt_node.wire"], enable_loader_override=False):
    from dpgt_node.wire import codec, convert

from tests.fuzz.cases import small_limits
from tests.fuzz.harness import bounded, check
from tests.fuzz.mutate import mutate
from tests.fuzz.stream import tally

SAMPLE = 2_000
WARM = 20_000  # inputs after which memory is looked at for the first time
RSS_SLACK_MIB = 64.0
MAX_INPUT = 8_000


def custom_mutator(data: bytes, max_size: int, seed: int) -> bytes:
    """One change of ``data``."""
    rng = Random(seed)

    def scramble(part: bytes, rng: Random) -> bytes:
        return bytes(atheris.Mutate(part, max(16, len(part) + 16))) if part else rng.randbytes(4)

    changed = mutate(data, rng, scramble if rng.random() < 0.2 else None)
    return changed if len(changed) <= max_size else data


def main() -> None:
    """Parse the command line and fuzz; never returns."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--inputs", type=int, required=True)
    parser.add_argument("--corpus", type=Path, nargs="+", required=True)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    assert convert is not None
    counts: Counter[str] = Counter()
    begin = time.monotonic()
    process = psutil.Process()
    rss = [0.0, 0.0]  # MiB when warm, and the most since

    def one(data: bytes) -> None:
        outcome = check(data)
        tally(counts, outcome)
        number = counts["inputs"]
        if number % SAMPLE == 0:
            bounded(data)
            now = process.memory_info().rss / 2**20
            rss[0] = now if number <= WARM else rss[0]
            rss[1] = max(rss[1], now)
            assert rss[1] <= rss[0] + RSS_SLACK_MIB, f"resident memory grew from {rss[0]:.0f} to {rss[1]:.0f} MiB"
        if number >= options.inputs:
            report = {**counts, "seconds": round(time.monotonic() - begin, 1), "rss_mib": [round(v, 1) for v in rss]}
            print(json.dumps(report), flush=True)
            os._exit(0)  # libFuzzer itself ends only by a count of its own, and prints nothing of ours

    arguments = [
        sys.argv[0], *map(str, options.corpus), f"-seed={options.seed}", f"-max_len={MAX_INPUT}", "-timeout=10",
        "-rss_limit_mb=1024", "-len_control=0", f"-artifact_prefix={options.corpus[0].parent}/", "-verbosity=0",
        "-print_final_stats=0",
    ]  # fmt: skip
    with small_limits(codec):
        atheris.Setup(arguments, one, custom_mutator=custom_mutator)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
