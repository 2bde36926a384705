"""An interrupted simulation goes on where it was: same bits under a test keystream, no row of metrics twice or lost."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dpgt_node.config import model
from dpgt_node.errors import ConfigError
from dpgt_node.privacy.mechanisms import TRACKING
from dpgt_node.record.released import LAST_FILE, SUM_FILE, read_sum
from dpgt_node.sim import saved
from dpgt_node.sim.fast import simulate_fast
from dpgt_node.sim.saved import SAVED_FILE
from dpgt_node.sim.simulate import simulate
from tests.sim import cases

WORDS = [one.name for one in TRACKING]

KEY, RUN_ID = "00112233445566778899", bytes(range(16))
BOTH = {"agents": simulate, "matrices": simulate_fast}


def made(mechanism: str = "paper", K: int = 23, **runtime: object) -> model.RunConfig:
    run = cases.run("non-uniform weights", K=K)
    method, _, mechanism = mechanism.rpartition(" ")
    return replace(
        run,
        algorithm=replace(run.algorithm, method=method or "dpgt", mechanism=mechanism),
        evaluate=model.Evaluation(5, "study"),
        runtime=model.Runtime(**runtime),
    )


def go(how: str, run: model.RunConfig, out: Path, stop_at: int | None = None, key: str | None = KEY):
    """Run until ``stop_at``; the rounds that were reported."""
    out.mkdir(exist_ok=True)
    seen: list[int] = []

    def stops() -> bool:
        return stop_at is not None and bool(seen) and seen[-1] >= stop_at

    conclude, summary = BOTH[how](
        run, out, RUN_ID, test_keystream=key, on_round=lambda k, *_: seen.append(k), should_stop=stops
    )
    return conclude, summary, seen


def outputs(out: Path) -> dict[str, object]:
    """Everything but wall times, what they are of, and bytes sent: what was saved of a round is sent once more."""
    with (out / "metrics.csv").open() as file:
        rows = [{k: v for k, v in row.items() if k != "wall_seconds"} for row in csv.DictReader(file)]
    summary = json.loads((out / "summary.json").read_text())
    for key in ("seconds", "rounds_per_second", "rounds_timed"):
        del summary[key]
    for agent in summary["agents"]:
        del agent["bytes_sent"]
    files = {str(p.relative_to(out)): p.read_bytes() for p in (*out.rglob("*.npy"), *out.rglob(SUM_FILE))}
    return {"rows": sorted(rows, key=lambda row: (int(row["k"]), row["agent"])), "summary": summary, **files}


@pytest.mark.parametrize("mechanism", [*WORDS, "atc-dsgd noise-once"])
@pytest.mark.parametrize("how", BOTH)
def test_two_stops_change_nothing(how: str, mechanism: str, tmp_path: Path) -> None:
    run = made(mechanism)
    assert go(how, run, tmp_path / "whole")[0].exit_code == 0
    for stop_at in (7, 16):
        conclude, summary, _ = go(how, run, tmp_path / "parts", stop_at)
        assert (conclude.exit_code, summary.rounds) == (5, stop_at)
        assert (tmp_path / "parts" / SAVED_FILE).exists()
    conclude, summary, seen = go(how, run, tmp_path / "parts")
    assert conclude.exit_code == 0 and summary.rounds == 24 and min(seen) >= 15
    assert outputs(tmp_path / "parts") == outputs(tmp_path / "whole")
    assert not (tmp_path / "parts" / SAVED_FILE).exists()


@pytest.mark.parametrize("how", BOTH)
def test_a_killed_one_goes_on_from_the_last_save_and_drops_later_rows(how, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(saved, "SAVE_EVERY_S", 0.0)
    run, parts = made(), tmp_path / "parts"
    real = saved.Saver.perhaps
    count = [0]

    class Killed(BaseException):
        pass

    def perhaps(self) -> None:
        count[0] += 1
        if count[0] == 8:
            self.now()
        if count[0] == 18:
            raise Killed

    monkeypatch.setattr(saved.Saver, "perhaps", perhaps)
    with pytest.raises(Killed):
        go(how, run, parts, key=None)
    monkeypatch.setattr(saved.Saver, "perhaps", real)
    with (parts / "metrics.csv").open() as file:
        before = {(row["agent"], row["k"]): row["loss_train"] for row in csv.DictReader(file)}
    assert ("agent-1", "15") in before
    conclude, _, seen = go(how, run, parts, key=None)
    assert conclude.exit_code == 0 and min(seen) in (6, 7)
    after = {(row["agent"], row["k"]): row["loss_train"] for row in outputs(parts)["rows"]}
    assert len(after) == len(outputs(parts)["rows"]) == 4 * 6
    assert all(after[key] == before[key] for key in before if int(key[1]) <= 5)
    assert all(after[key] != before[key] for key in before if int(key[1]) >= 10), "drawn anew, and said anew"


def test_agents_that_run_ahead_are_saved_at_a_round_of_all(tmp_path: Path) -> None:
    run = made(barrier_every=4)
    go("agents", run, tmp_path / "whole")
    go("agents", run, tmp_path / "parts", 9)
    go("agents", run, tmp_path / "parts")
    assert outputs(tmp_path / "parts") == outputs(tmp_path / "whole")


def test_the_other_simulator_does_not_take_over(tmp_path: Path) -> None:
    go("agents", made(), tmp_path / "o", 9)
    with pytest.raises(ConfigError, match="began without --fast; go on likewise"):
        go("matrices", made(), tmp_path / "o")
    (tmp_path / "o" / SAVED_FILE).write_bytes(b"PK")
    with pytest.raises(ConfigError, match="remove it to begin again from round 0"):
        go("agents", made(), tmp_path / "o")


def test_matrices_that_an_older_version_saved_are_refused(tmp_path: Path) -> None:
    """They had other names; a simulation begins again, as nothing of it left its process."""
    go("matrices", made(), tmp_path, 9)
    with np.load(tmp_path / SAVED_FILE) as archive:
        arrays = {name.replace("rows/", "rows/_"): archive[name] for name in archive.files}
    np.savez(tmp_path / SAVED_FILE, **arrays)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="written by another version: remove it to begin again from round 0"):
        go("matrices", made(), tmp_path)


@pytest.mark.parametrize("how", BOTH)
def test_what_was_released_is_kept_for_a_published_model(how: str, tmp_path: Path) -> None:
    run, sent = made(), []
    if how == "matrices":
        from dpgt_node.sim.fast import FastRun
        from dpgt_node.sim.simulate import build_oracles

        state = FastRun(run, build_oracles(run, None), KEY)
        for _ in range(24):
            state.step()
            sent.append(state.sent[0])
    go(how, run, tmp_path / "o")
    state_dir = tmp_path / "o/agents/agent-1/state"
    total, last = read_sum(state_dir / SUM_FILE), np.load(state_dir / LAST_FILE)
    assert (total.first, total.through, total.run_id) == (12, 23, RUN_ID)
    if sent:
        assert np.array_equal(last, sent[-1])
        np.testing.assert_allclose(total.mean(), np.mean(sent[12:], axis=0), rtol=1e-13)
    go("agents", run, tmp_path / "slow")
    slow = read_sum(tmp_path / "slow/agents/agent-1/state" / SUM_FILE)
    np.testing.assert_allclose(slow.mean(), total.mean(), rtol=1e-8)


@pytest.mark.parametrize("stop_at", [4, 7, 8, 20])
@pytest.mark.parametrize("rule", ["noise-once", "atc-dsgd noise-once"])
@pytest.mark.parametrize("how", BOTH)
def test_a_simulation_that_stops_between_releases_goes_on_to_the_same_bits(
    how: str, rule: str, stop_at: int, tmp_path: Path
) -> None:
    run = made(rule)
    run = replace(run, scheme=replace(run.scheme, releases=(0, 7, 8, 15), settle=5))
    go(how, run, tmp_path / "whole")
    go(how, run, tmp_path / "cut", stop_at=stop_at)
    assert (tmp_path / "cut" / SAVED_FILE).exists()
    go(how, run, tmp_path / "cut")
    assert outputs(tmp_path / "cut") == outputs(tmp_path / "whole")
