"""``python -m tests.swarm``: run small runs under seeded faults, replay a seed, hunt the mutants.

python -m tests.swarm --seeds 0..10000 --jobs 2    a table of what happened; exit 1 and a story for what is wrong
python -m tests.swarm --seed 4711                  that seed's plan, transcript and verdict
python -m tests.swarm --seed 4711 --shrink         the same without the faults that it does not need
python -m tests.swarm --mutants                    how many seeds each mutant of mutants.py takes
python -m tests.swarm --seed 3 --mutant "no resend"
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor

from tests.swarm.mutants import MUTANTS
from tests.swarm.plan import any_method, plan_for
from tests.swarm.trial import Verdict, attempt, seeds_until_caught, smaller, story
from tests.swarm.world import PRODUCT

SERIES = 11
"""Independent hunts a mutant; their median is reported."""
LIMIT = 1000
"""Seeds after which a hunt gives up."""
RARE = (
    "draws before anybody was asked",
    "a replaying neighbour proves nothing",
    "the ledger's head is not compared",
    "who is not ready is left without a word",
)
"""They take several faults in the right order, one seed in hundreds or thousands: not hunted from everywhere, their
seeds are in mutants.py.
"""


def trial(seed: int) -> Verdict:
    return attempt(any_method(seed))


def hunt(job: tuple[str, int]) -> tuple[str, int, str | None]:
    """Mutant, seeds it took from a start of its own, checker."""
    name, series = job
    start = 1_000_000 * (series + 1)
    mutant = MUTANTS[name]
    count, checker = seeds_until_caught(mutant.parts, range(start, start + LIMIT), LIMIT, mutant.plan)
    return name, count, checker


def spread(work, items: Iterable, jobs: int) -> Iterator:
    if jobs == 1:
        yield from map(work, items)
        return
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(work, items, chunksize=5)


def table(seeds: range, jobs: int) -> int:
    begin = time.monotonic()
    statuses: Counter[str] = Counter()
    struck: Counter[str] = Counter()
    boundaries, virtual_s, caught = 0, 0.0, []
    for verdict in spread(trial, seeds, jobs):
        statuses[verdict.status] += verdict.checker is None
        struck.update(verdict.struck)
        boundaries += verdict.boundaries.total()
        virtual_s += verdict.virtual_s
        if verdict.checker is not None:
            caught.append(verdict)
            print(f"seed {verdict.plan.seed}: {verdict.checker}: {verdict.message}", flush=True)
    seconds = time.monotonic() - begin
    print(f"{len(seeds)} seeds in {seconds:.0f} s ({len(seeds) / seconds:.0f}/s), {len(caught)} violations")
    print(f"{boundaries} effect boundaries, {virtual_s / 3600:.1f} h of virtual time")
    for title, counter in (("ends", statuses), ("faults", struck)):
        print(f"{title}: " + ", ".join(f"{name} {count}" for name, count in counter.most_common() if count))
    for verdict in caught[:1]:
        print("\n" + story(smaller(verdict.plan), last=200))
    return 1 if caught else 0


def mutants(jobs: int) -> int:
    found: dict[str, list[tuple[int, str | None]]] = {name: [] for name in MUTANTS}
    missed = 0
    print(f"{'mutant':<36} {'median':>6} {'most':>5}  checkers ({SERIES} hunts each)")
    for name, count, checker in spread(
        hunt, [(name, s) for name in MUTANTS if name not in RARE for s in range(SERIES)], jobs
    ):
        found[name].append((count, checker))
        if len(found[name]) < SERIES:
            continue
        counts = [count for count, _ in found[name]]
        checkers = Counter(str(checker) for _, checker in found[name])
        wrong = set(checkers) - MUTANTS[name].checkers
        missed += bool(wrong)
        words = ", ".join(f"{checker} {count}" for checker, count in checkers.most_common())
        words += "  NOT EXPECTED" if wrong else ""
        print(f"{name:<36} {statistics.median(counts):>6g} {max(counts):>5}  {words}", flush=True)
    return 1 if missed else 0


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.swarm")
    parser.add_argument("--seed", type=int, help="replay one seed and show it")
    parser.add_argument("--seeds", default="0..300", help="FIRST..LAST, the last excluded")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--shrink", action="store_true", help="leave out the faults that --seed does not need")
    parser.add_argument("--last", type=int, help="lines of the transcript")
    parser.add_argument("--mutant", choices=sorted(MUTANTS), help="replay --seed with this mutant")
    parser.add_argument("--mutants", action="store_true", help="hunt every mutant")
    arguments = parser.parse_args(argv)
    if arguments.mutants:
        return mutants(arguments.jobs)
    if arguments.seed is None:
        first, last = (int(part) for part in arguments.seeds.split(".."))
        return table(range(first, last), arguments.jobs)
    parts = MUTANTS[arguments.mutant].parts if arguments.mutant else PRODUCT
    plan = plan_for(arguments.seed) if arguments.mutant else any_method(arguments.seed)
    print(story(smaller(plan, parts) if arguments.shrink else plan, parts, last=arguments.last))
    return 0 if attempt(plan, parts).checker is None else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
