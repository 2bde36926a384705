"""Real agents that share noise, with real entropy, under kill -9: the noise cancels, and nothing is drawn twice."""

from __future__ import annotations

import contextlib
import json
import shutil
import sqlite3
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dpgt_node.config.privacy.cancelling import masks
from dpgt_node.runtime.store.ledger import DATABASE
from tests.e2e import kills
from tests.e2e.kills import APART, DIGITS, ENTROPY, FIVE, RING, Case, Findings, Kill, Victim, campaign
from tests.e2e.processes import ENDLESS, LIMIT_S, Launch, eventually, no_traceback, quadratic

S = 0.05
SHARED = 'law = "gaussian"\ncancel = 2\n'


def shared(case: Case, name: str) -> Case:
    text = case.text
    if "noise-once" not in text:
        text = text.replace("[algorithm]\n", '[algorithm]\nmechanism = "noise-once"\n')
    return replace(case, name=name, text=text.replace("[noise]\n", f"[noise]\n{SHARED}"))


# d = 650: the mean square of a coordinate's noise is known to 6 %.
REAL = shared(replace(ENTROPY, text=ENTROPY.text.replace(FIVE, RING)), "quadratic d=650, shared noise")
KNOWN = shared(
    replace(DIGITS, text=DIGITS.text.replace("clip_l1 = 40.0", "clip_l2 = 40.0")), "digits d=650, shared noise"
)
SHARED_APART = shared(
    replace(APART, text=APART.text.replace("clip_l1", "clip_l2").replace(FIVE, RING)),
    "digits d=650, shared noise, releases apart",
)


def noise(victim: Victim) -> np.ndarray:
    """What every agent added to its gradient, in units of the own noise's scale: (K + 1, n, d)."""
    run = victim.case.run
    found = np.empty((run.K + 1, run.n, 650))
    for i, name in enumerate(victim.names):
        with contextlib.closing(sqlite3.connect(victim.state(name) / DATABASE)) as db:
            x = np.array([np.frombuffer(one) for (one,) in db.execute("SELECT x_data FROM payloads ORDER BY id")])
        found[:, i] = (kills.perturbed(victim.state(name)) - (x - (i + 1))) / S
    return found


def wrong_noise(victim: Victim) -> list[str]:
    """The sum over agents holds everybody's own noise alone, and each agent's release what it shares as well."""
    drawn, run = noise(victim), victim.case.run
    graph, problems = masks(run), []
    assert graph is not None
    for k in range(run.K + 1):
        summed = np.mean(drawn[k].sum(axis=0) ** 2) / run.n
        if not 0.7 < summed < 1.35:  # a stream that differs at the two ends of one pair adds 8/3
            problems.append(f"round {k}: noise of {summed:.2f} times its own variance is left in the sum")
        for i in range(run.n):
            each = np.mean(drawn[k, i] ** 2) / (1 + 4 * len(graph.partners(i)))
            if not 0.7 < each < 1.35:
                problems.append(f"round {k}: agent {i + 1} drew noise of {each:.2f} times the variance it should have")
    return problems


def wrong_keys(victim: Victim) -> list[str]:
    """Both ends hold one key, that of the round after the last, and nobody has the key of the agreement any more."""
    keys, problems = {}, []
    for i, name in enumerate(victim.names):
        with contextlib.closing(sqlite3.connect(victim.state(name) / DATABASE)) as db:
            if db.execute("SELECT private FROM agreements").fetchall() != [(None,)]:
                problems.append(f"{name} still has its X25519 key")
            for partner, k, key in db.execute("SELECT partner, k, key FROM pair_keys"):
                keys[i, partner] = key
                if k != victim.case.run.K + 1:
                    problems.append(f"{name} has the key of round {k}")
    problems += [f"{i} and {j} have different keys" for i, j in keys if keys[i, j] != keys[j, i]]
    return problems


def check(victim: Victim, code: int) -> list[str]:
    found = kills.check(victim, code)
    if code == 0 or "holds this run, finished" in victim.launch.said:
        found += wrong_keys(victim)
        if victim.case.keystream is None:
            found += wrong_noise(victim)
    return found


@pytest.mark.e2e
def test_kills_within_the_agreement_and_around_releases_leave_the_noise_as_it_should_be(tmp_path: Path) -> None:
    findings = Findings()
    victim = Victim(REAL, tmp_path, findings)
    plan = [
        Kill("agent-3", -1, 0.4),
        Kill("agent-2", -1, 0.1),
        Kill("coordinator", -1, 0.1),
        Kill("agent-1", 9, 0.002),
        Kill("launcher", 21, 0.001),
        Kill("all", 40, 0.002),
    ]
    assert check(victim, victim.go(plan)) == []
    assert len(findings.hits) == 6 and findings.missed == 0, findings.report()


@pytest.mark.e2e
def test_kills_between_and_at_releases_change_no_bit_of_what_the_simulator_draws(tmp_path: Path) -> None:
    """Over mTLS, under a test keystream: within the agreement on keys, just before a release, right after one, and
    while x settles.  The simulator's bits, and one row a release.
    """
    findings = Findings()
    victim = Victim(SHARED_APART, tmp_path, findings)
    plan = [
        Kill("agent-2", -1, 0.5),
        Kill("agent-3", 6, 0.001),
        Kill("agent-1", 8, 0.002),
        Kill("coordinator", 19, 0.002),
        Kill("launcher", 33, 0.001),
        Kill("all", 45, 0.001),
        Kill("agent-2", 55, 0.001),
    ]
    assert check(victim, victim.go(plan)) == []
    assert len(findings.hits) == 7 and findings.missed == 0, findings.report()


@pytest.mark.e2e
def test_the_checks_see_noise_that_does_not_cancel_and_a_key_that_stayed(tmp_path: Path) -> None:
    """The checker's own mutants."""
    victim = Victim(replace(REAL, text=REAL.text.replace("iterations = 50", "iterations = 4")), tmp_path, Findings())
    assert check(victim, victim.go([])) == []
    with contextlib.closing(sqlite3.connect(victim.state("agent-2") / DATABASE)) as db, db:
        (g,) = db.execute("SELECT g_data FROM payloads ORDER BY id LIMIT 1").fetchone()
        other = (np.frombuffer(g) + 2 * S * np.random.default_rng(1).standard_normal(650)).tobytes()
        db.execute("UPDATE payloads SET g_data = ? WHERE id = (SELECT min(id) FROM payloads)", (other,))
        db.execute("UPDATE agreements SET private = zeroblob(32)")
        db.execute("UPDATE pair_keys SET key = zeroblob(32) WHERE partner = 0")
    wrong = [*wrong_noise(victim), *wrong_keys(victim)]
    assert any("is left in the sum" in line for line in wrong)
    assert "agent-2 still has its X25519 key" in wrong and "1 and 0 have different keys" in wrong


@pytest.mark.e2e
def test_a_restored_copy_of_a_state_directory_draws_nothing(tmp_path: Path) -> None:
    """It holds the key of a round that was drawn: a second release with it would show what the first one hid."""
    text = quadratic(3, ENDLESS).replace("[algorithm]\n", '[algorithm]\nmechanism = "noise-once"\n')
    text = text.replace("[noise]\n", f"[noise]\n{SHARED}")
    (tmp_path / "run.toml").write_text(text)
    out, copy = tmp_path / "out", tmp_path / "copy"
    with Launch(out, "launch", tmp_path / "run.toml", "--no-restart") as launch:
        launch.running()
        state = out / "agents" / "agent-2" / "state"
        eventually("a few rounds", lambda: kills.released(state) > 3 or None)
        backup = sqlite3.connect(tmp_path / "backup.sqlite3")
        with contextlib.closing(sqlite3.connect(state / DATABASE)) as db, contextlib.closing(backup):
            db.backup(backup)
        before = kills.released(state)
        eventually("more rounds", lambda: kills.released(state) > before + 5 or None)
        launch.process.terminate()
        launch.wait()
    shutil.copytree(state, copy)
    for name in (f"{DATABASE}-wal", f"{DATABASE}-shm"):
        (state / name).unlink(missing_ok=True)
    shutil.copy(tmp_path / "backup.sqlite3", state / DATABASE)
    held = kills.released(state)
    with Launch(out, "launch", tmp_path / "run.toml", "--no-restart") as launch:
        assert launch.process.wait(LIMIT_S) != 0
        said = launch.everything_said()
    assert "an old state directory or another one" in said and "nothing was drawn again" in said
    assert kills.released(state) == held, "the copy released nothing"
    no_traceback(said)
    # with its own state directory it goes on
    shutil.rmtree(state)
    shutil.copytree(copy, state)
    last = kills.released(state)
    with Launch(out, "launch", tmp_path / "run.toml", "--no-restart") as launch:
        eventually("it goes on", lambda: kills.released(state) > last + 3 or None)
        launch.process.terminate()
        launch.wait()
    assert json.loads((out / "coordinator.json").read_text())


@pytest.mark.long
@pytest.mark.parametrize(("case", "count"), [(REAL, 60), (KNOWN, 20)], ids=["real entropy", "test keystream"])
def test_a_campaign_of_kills(case: Case, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    findings = Findings()
    monkeypatch.setattr(kills, "check", _checked(kills.check))
    campaign(case, count, 20261128, tmp_path, findings)
    print(findings.report())
    assert not findings.problems
    assert len(findings.hits) >= 0.8 * count, "most kills must hit something"


def _checked(inner):  # type: ignore[no-untyped-def]
    def both(victim: Victim, code: int) -> list[str]:
        found = inner(victim, code)
        if found:
            return list(found)
        return [*wrong_keys(victim), *(wrong_noise(victim) if victim.case.keystream is None else [])]

    return both
