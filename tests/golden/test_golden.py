"""Today's behaviour against the scripts that were recorded: the same events, effects, messages and bits.

A change that means to alter one says so by ``python -m tests.golden --record`` and shows the diff of the scripts.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import io
from pathlib import Path

import numpy as np
import pytest

from tests.golden import adapter, finals, machines, record, wires
from tests.golden.adapter import AgentMachine, t

LAUNCHED = ("pictures-hog", "zeros-chunks")
"""Runs that real processes repeat: with features and Gaussian noise, in chunks; tests/e2e/ has small ones."""


def test_every_script_is_made_and_kept() -> None:
    assert {path.stem for path in record.SCRIPTS.iterdir()} == set(record.MADE)
    assert len(finals.names()) == 20 and {name for name, _ in finals.read()[1]} == set(finals.names())


@pytest.mark.parametrize("name", record.STEPPED)
def test_machines_do_what_was_recorded(name: str) -> None:
    assert not (difference := record.difference(name, record.MADE[name]())), f"\n{difference}"


@pytest.mark.parametrize("name", record.SPOKEN)
def test_conversations_go_as_recorded(name: str) -> None:
    assert not (difference := record.difference(name, record.MADE[name]())), f"\n{difference}"


@pytest.mark.parametrize("name", finals.names())
def test_results_of_simulations_are_those_recorded(name: str, tmp_path: Path) -> None:
    assert finals.differences(name, finals.simulated(name, tmp_path)) == []


@pytest.mark.e2e
@pytest.mark.parametrize("name", LAUNCHED)
def test_results_of_launches_are_those_recorded(name: str, tmp_path: Path) -> None:
    file, out = finals.place(name, tmp_path), tmp_path / "out"
    with contextlib.redirect_stdout(io.StringIO()):
        assert adapter.command("launch", file, "--out", out, "--insecure", "--test-keystream", adapter.KEY) == 0
    launched = finals.found(name, out)
    assert finals.differences(name, launched) == []
    assert launched == finals.simulated(name, tmp_path), "the same bits on the same machine"


# --- the scripts can fail -------------------------------------------------------------------------------------------


class Hasty(AgentMachine):
    """Sends a round before it is durable."""

    def step(self, event: t.AgentEvent, now_ns: int) -> tuple[t.AgentEffect, ...]:
        effects = super().step(event, now_ns)
        if isinstance(event, t.ReleaseReady):
            after = copy.deepcopy(self)
            effects = (
                *(e for e in AgentMachine.step(after, t.Persisted(event.k), 0) if isinstance(e, t.Send)),
                *effects,
            )
        elif isinstance(event, t.Persisted):
            effects = tuple(e for e in effects if not isinstance(e, t.Send))
        return effects


class Careless(AgentMachine):
    """Replays recorded rounds with batches drawn anew."""

    def step(self, event: t.AgentEvent, now_ns: int) -> tuple[t.AgentEffect, ...]:
        effects = super().step(event, now_ns)
        return tuple(dataclasses.replace(e, record=None) if isinstance(e, t.Advance) else e for e in effects)


class Trusting(AgentMachine):
    """Believes that no neighbour knows more than its own state directory."""

    def step(self, event: t.AgentEvent, now_ns: int) -> tuple[t.AgentEffect, ...]:
        if isinstance(event, t.PeerNeeds):
            event = t.PeerNeeds(event.peer, min(event.x_from, 1), min(event.y_from, 1), 0)
        return super().step(event, now_ns)


@pytest.mark.parametrize(
    ("mutant", "name"),
    [(Hasty, "machine-paper"), (Careless, "machine-crash-replay"), (Trusting, "machine-old-state")],
)
def test_a_mutated_machine_is_told_apart(
    mutant: type[AgentMachine], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machines, "AgentMachine", mutant)
    difference = record.difference(name, record.MADE[name]())
    assert any(line.startswith(("+agent", "-agent")) for line in difference.splitlines()), difference


@pytest.mark.parametrize(
    ("mutant", "name", "said"),
    [
        ("no head is checked", "agent-rollback", "+coordinator#3 > Ready"),
        ("no twin is seen", "desk-twins", "+twin#1 > Welcome"),
    ],
)
def test_a_mutated_session_is_told_apart(mutant: str, name: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wires, "LIMIT_S", 4.0)
    monkeypatch.setattr(*adapter.MUTANTS[mutant])
    difference = record.difference(name, record.MADE[name]())
    assert any(line.startswith(said) for line in difference.splitlines()), difference


@pytest.mark.parametrize("name", ["quadratic-paper", "digits-softmax"])
def test_one_bit_of_one_coordinate_is_told_apart(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the machine that recorded; on one that rounds in its own way, what is larger than rounding."""
    made = finals.simulated(name, tmp_path)
    assert finals.differences(name, made) == []
    ((_, agent), (_, size)) = min(made.items())
    path = tmp_path / name / "agents" / agent / "state" / "x_final.npy"
    x = np.load(path)
    exact = finals.exact(name) or finals.read()[0] == finals.probe()
    last = np.nextafter(x[-1], np.inf)
    np.save(path, np.append(x[:-1], last if exact else x[-1] + 1e-9))
    assert len(finals.differences(name, finals.found(name, tmp_path / name))) == 1
    monkeypatch.setattr(finals, "probe", lambda: "another machine's")
    np.save(path, np.append(x[:-1], last))
    here = finals.differences(name, finals.found(name, tmp_path / name))
    assert len(here) == (1 if finals.exact(name) else 0), "rounding is borne where it is the machine's, and only there"
    np.save(path, np.append(x[:-1], x[-1] + 1e-9))
    assert len(finals.differences(name, finals.found(name, tmp_path / name))) == 1
    assert size == len(x)
