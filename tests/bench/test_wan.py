"""The recursion of examples/wan.py against a queue in a loop, and against closed forms where nothing varies."""

from __future__ import annotations

import importlib.util
import random
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

AGENTS, ROUNDS = 250, 32


@pytest.fixture
def wan(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The example, with the same delay for every message."""
    spec = importlib.util.spec_from_file_location("wan", Path(__file__).parents[2] / "examples" / "wan.py")
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    monkeypatch.setattr(made, "SPREAD", 0.0)
    monkeypatch.setattr(made, "LOST", 0.0)
    return made


def test_a_thread_serves_whoever_came_first(wan: ModuleType) -> None:
    rng = random.Random(1)
    for each_s in (0.0, 0.01, 0.5):
        arrivals = [rng.random() for _ in range(40)]
        free_s = 0.0
        for arrival in sorted(arrivals):
            free_s = max(free_s, arrival) + each_s
        assert wan.served(np.array(arrivals), each_s) == pytest.approx(free_s)


def closed_form(wan: ModuleType, design: str, block: int) -> float:
    """Seconds of one round where every message takes ONE_WAY_S: a report is served after another."""
    way, report_s = wan.ONE_WAY_S, wan.REPORT_S[block] * block
    block_s = block * (wan.AGENT_S[block] + way)
    inner = -(-AGENTS // wan.FAN)
    if design == "barrier":
        block_s += 2 * way + AGENTS * report_s
    elif design == "tree":  # the last inner coordinator has fewer agents, and is heard while others still count
        late = AGENTS - (inner - 1) * wan.FAN
        ends = sorted([wan.FAN * report_s] * (inner - 1) + [late * report_s])
        heard = 0.0
        for end in ends:
            heard = max(heard, end) + report_s
        block_s += 4 * way + heard
    return float(block_s / block)


@pytest.mark.parametrize(
    ("design", "block"), [("barrier", 1), ("barrier", 16), ("tree", 1), ("tree", 16), ("neighbours", 1)]
)
def test_without_spread_a_round_takes_what_its_messages_take(wan: ModuleType, design: str, block: int) -> None:
    found = wan.rounds_per_second(AGENTS, design, block, ROUNDS)
    assert found == pytest.approx(1.0 / closed_form(wan, design, block), rel=1e-9)


def test_delays_that_vary_cost_every_design(wan: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        wan, "REPORT_S", {1: 0.0}
    )  # else reports that come one after the other wait less for their turn
    even = {design: wan.rounds_per_second(AGENTS, design, 1, ROUNDS) for design in ("barrier", "neighbours")}
    monkeypatch.setattr(wan, "SPREAD", 0.25)
    varied = {design: wan.rounds_per_second(AGENTS, design, 1, ROUNDS) for design in even}
    assert all(varied[design] < even[design] for design in even)
    assert varied["barrier"] == wan.rounds_per_second(AGENTS, "barrier", 1, ROUNDS), "the same numbers every time"


def test_it_prints_a_line_for_each_number_of_agents(
    wan: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["wan.py", "--agents", "30", "40", "--rounds", "16"])
    wan.main()
    first, *lines = capsys.readouterr().out.splitlines()
    assert first.split()[0] == "agents" and [line.split()[0] for line in lines] == ["30", "40"]
    assert all(len(line.split()) == 6 for line in lines)
