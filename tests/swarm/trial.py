"""One seed, many seeds, and what a failing one shows."""

from __future__ import annotations

import random
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import numpy as np

from dpgt_node.protocol.types import Payload
from tests.swarm.checkers import Violation
from tests.swarm.clock import SECOND
from tests.swarm.plan import Fault, Plan, plan_for, who
from tests.swarm.process import COORDINATOR
from tests.swarm.world import PRODUCT, Parts, Seen, World


@dataclass(frozen=True, slots=True)
class Verdict:
    """``status``: how the run ended.  ``checker``: the name of the checker that objected, None: nothing was wrong."""

    plan: Plan
    status: str
    checker: str | None
    message: str
    struck: Counter[str]
    boundaries: Counter[int]
    virtual_s: float
    finals: tuple[np.ndarray[Any, Any] | None, ...]


def attempt(plan: Plan, parts: Parts = PRODUCT) -> Verdict:
    """Run ``plan`` once."""
    world = World(plan, parts)
    checker, message = None, ""
    try:
        world.go()
    except Violation as violation:
        checker, message = violation.checker, violation.message
    except Exception as error:
        checker, message = "exception", f"{type(error).__name__}: {error}"
    finals = tuple(disk.final for disk in world.disks)
    seconds = world.clock.now_ns / SECOND
    return Verdict(plan, world.status, checker, message, world.struck, world.boundaries, seconds, finals)


def seeds_until_caught(
    parts: Parts, seeds: Iterable[int], limit: int, plan: Callable[[int], Plan] = plan_for
) -> tuple[int, str | None]:
    """How many of ``seeds`` (at most ``limit``) it takes to catch a mutant, and which checker did; None: none did."""
    count = 0
    for seed in seeds:
        count += 1
        verdict = attempt(plan(seed), parts)
        if verdict.checker is not None or count == limit:
            return count, verdict.checker
    return count, None


def smaller(plan: Plan, parts: Parts = PRODUCT) -> Plan:
    """The plan with every fault left out that the violation does not need."""
    number, caught = 0, attempt(plan, parts).checker
    while caught is not None and number < len(plan.faults):
        candidate = plan.without(number)
        if attempt(candidate, parts).checker is None:
            number += 1
        else:
            plan = candidate
    return plan


def every_kill(plan: Plan, down_ns: int = SECOND // 5) -> Iterator[Plan]:
    """The plan without faults, then once for each effect boundary of each process, with that process killed there."""
    calm = replace(plan, faults=())
    yield calm
    boundaries = attempt(calm).boundaries
    for process in range(COORDINATOR, plan.run.n):
        for number in range(boundaries[process]):
            kill = Fault("crash", process, trigger=process, boundary=number, length_ns=down_ns)
            yield replace(calm, faults=(kill,))


def random_kills(plan: Plan, seed: int) -> Plan:
    """One to three processes killed at random moments, others while the first is still away perhaps."""
    chance = random.Random(f"kills {seed}")
    kills = []
    for _ in range(chance.randint(1, 3)):
        process = chance.randrange(COORDINATOR, plan.run.n)
        kill = Fault("crash", process, trigger=process, length_ns=chance.randint(1, 3 * SECOND))
        if chance.random() < 0.5:
            kills.append(replace(kill, boundary=chance.randrange(12 * plan.run.K)))
        else:
            kills.append(replace(kill, at_ns=chance.randint(1, 8 * SECOND)))
    return replace(plan, faults=tuple(kills))


def story(plan: Plan, parts: Parts = PRODUCT, last: int | None = None) -> str:
    """Plan, transcript (its ``last`` lines) and verdict, for a person."""
    world = World(plan, parts, trace=True)
    verdict = "no violation"
    try:
        world.go()
    except Violation as violation:
        verdict = f"VIOLATION at {world.clock.now_ns / SECOND:.4f} s: {violation}"
    except Exception:
        verdict = f"EXCEPTION at {world.clock.now_ns / SECOND:.4f} s:\n{traceback.format_exc()}"
    assert world.transcript is not None
    lines = [_line(seen) for seen in world.transcript]
    if last is not None and len(lines) > last:
        lines = [f"... {len(lines) - last} lines before", *lines[-last:]]
    return "\n".join([str(plan), "", *lines, "", f"{world.status}; {verdict}"])


def _line(seen: Seen) -> str:
    return f"{seen.at_ns / SECOND:10.4f}  {who(seen.process):<12} {seen.verb:<16} {_words(seen.what)}".rstrip()


def _words(what: Any) -> str:
    """Rounds and names of whatever it is; never a vector."""
    if isinstance(what, Payload):
        return f"{what.stream}{what.k} {what.sha256.hex()[:8]}"
    if isinstance(what, np.ndarray):
        return "..."
    if isinstance(what, tuple):
        return " ".join(_words(part) for part in what)
    if is_dataclass(what) and type(what).__name__ == "Fault":
        return str(what)
    if is_dataclass(what):
        shown = [f.name for f in fields(what) if f.repr and f.name not in ("run_json", "epsilon", "metrics")]
        values = ((name, getattr(what, name)) for name in shown)
        inner = ", ".join(f"{name} {_words(value)}" for name, value in values if value not in ("", b"", None))
        return f"{type(what).__name__}({inner})"
    if isinstance(what, bytes):
        return what.hex()[:8]
    return str(what)
