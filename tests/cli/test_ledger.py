"""``dpgt ledger``: what it prints, what it exits with, and that it only reads."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import math
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from dpgt_node import cli
from dpgt_node.errors import ConfigError
from dpgt_node.privacy.accountants.gaussian import gdp_epsilon
from dpgt_node.protocol.types import RoundRecord
from dpgt_node.runtime.coordinator.heads import HEADS_FILE, Heads
from dpgt_node.runtime.coordinator.outdir import prepare
from dpgt_node.runtime.store.ledger import DATABASE, Terms, read_ledger
from dpgt_node.runtime.store.store import Store
from tests.oracles.composition import epsilon_of_mu
from tests.runtime.cluster import make_run
from tests.runtime.store.records import SHA, record
from tests.runtime.store.test_keyed import cheaper, key_at

ACCOUNTANTS = ("lemma5", "corrected", "tight", "amplified", "zcdp", "gdp", "binomial", "same-point", "variation")
WARD = Terms("ward 7", 1e-5, "replace-one, C = 2 in L1")
OTHER = Terms("default", 1e-6, "replace-one, C = 4 in L1; declared, not enforced")
RUNS = (bytes([1]) * 16, bytes([2]) * 16, bytes([3]) * 16)
ALONE = "the chain alone, which finds accidents; --key and --head find forgers, too"
Dpgt = Callable[..., tuple[int, str, list[str]]]


@pytest.fixture
def dpgt(capsys: pytest.CaptureFixture[str]) -> Dpgt:
    def run(*arguments: object) -> tuple[int, str, list[str]]:
        code = cli.run(["ledger", *map(str, arguments)])
        captured = capsys.readouterr()
        return code, captured.out, captured.err.splitlines()

    return run


def priced(k: int, **cost: float | None) -> RoundRecord:
    made = record(k)
    whole = dict.fromkeys(ACCOUNTANTS) | {name: None if v is None else v * (k + 1) for name, v in cost.items()}
    return replace(made, rows=tuple(replace(row, cost=whole) for row in made.rows))


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """Two runs on one data set, one on another; 3, 2 and 1 rounds."""
    folder = tmp_path / "state"
    with contextlib.closing(Store(folder, "process")) as store:
        for run, terms in zip(RUNS, (WARD, WARD, OTHER), strict=True):
            store.begin_run(run, SHA, "agent-1", terms)
        for k in range(3):
            store.commit_round(RUNS[0], priced(k, tight=0.1, zcdp=0.05, lemma5=7.0))
        for k in range(2):
            store.commit_round(RUNS[1], priced(k, tight=0.2, gdp=0.3))
        store.commit_round(RUNS[2], priced(0, tight=math.inf, corrected=0.5))
    return folder


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_json(state: Path, dpgt: Dpgt) -> None:
    code, out, err = dpgt(state, "--format", "json")
    made = json.loads(out, parse_constant=lambda word: pytest.fail(f"JSON has no {word}"))
    assert (code, err) == (0, [])
    assert len(made["rows"]) == 12 and len(made["head"]) == 64
    first = made["rows"][0]
    assert {"run", "k", "stream", "mechanism", "scale", "sensitivity", "sha256", "cost"} <= first.keys()
    assert first["run"] == RUNS[0].hex() and first["sha256"] == record(0).on("X").sha256.hex()
    assert made["rows"][-1]["cost"] == dict.fromkeys(ACCOUNTANTS) | {"tight": "inf", "corrected": 0.5}
    assert made["totals"] == dict.fromkeys(ACCOUNTANTS) | {"tight": "inf"}
    ward, default = made["data_sets"]
    assert (ward["id"], default["id"]) == ("ward 7", "default")
    tight = ward["totals"].pop("tight")
    assert Fraction(tight) >= Fraction(0.1 * 3) + Fraction(0.2 * 2) and tight == pytest.approx(0.7)
    assert set(ward["totals"].values()) == {None}, "no accountant but tight covers both runs"
    assert ward["delta"] == dict.fromkeys(ACCOUNTANTS, 0.0) | {"zcdp": 2e-5, "gdp": 2e-5, "binomial": 2e-5}
    assert ward["smallest_sound"]["pure"] == {
        "epsilon": tight,
        "delta": 0.0,
        "recipe": "sum of tight x2",
        "strength": "strong",
    }
    summed = {"epsilon": pytest.approx(0.15 + 0.4), "delta": 1e-5, "recipe": "sum of tight, zcdp", "strength": "strong"}
    assert ward["smallest_sound"]["any"] == summed, "composed it would be more: one of them is cheapest as pure"
    assert [(run["run"], run["k"], run["delta"], run["adjacency"]) for run in ward["runs"]] == [
        (RUNS[0].hex(), 2, 1e-5, WARD.adjacency),
        (RUNS[1].hex(), 1, 1e-5, WARD.adjacency),
    ]
    assert default["smallest_declared"]["pure"] == {
        "epsilon": 0.5,
        "delta": 0.0,
        "recipe": "corrected",
        "strength": "none",
    }
    assert default["smallest_sound"] is None and ward["smallest_declared"] is None, "a declared C is not sound"


def test_csv_has_the_same_rows(state: Path, dpgt: Dpgt) -> None:
    code, out, _ = dpgt(state, "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    made = json.loads(dpgt(state, "--format", "json")[1])
    assert code == 0 and rows[-1]["head"] == made["head"]
    for row, same in zip(rows, made["rows"], strict=True):
        for key in ("run", "data", "k", "stream", "mechanism", "law", "scale", "sha256"):
            assert row[key] == str(same[key])
        for name in ACCOUNTANTS:
            assert row[f"cost_{name}"] == ("" if same["cost"][name] is None else str(same["cost"][name]))


def test_text_shows_no_epsilon_without_accountant_delta_and_adjacency(state: Path, dpgt: Dpgt) -> None:
    code, out, _ = dpgt(state)
    lines = out.splitlines()
    assert code == 0
    assert 'data set "ward 7": 2 runs' in lines and 'data set "default": 1 run' in lines
    assert f"  run {RUNS[0].hex()}: paper, laplace noise, 6 releases in rounds 0..2" in lines
    assert f"    {OTHER.adjacency}" in lines
    assert any("zero-concentrated" in line and line.endswith("epsilon 0.15 (strong), delta 1e-05") for line in lines)
    assert any("tight (pure)" in line and line.endswith("epsilon 0.7 (strong)") for line in lines)
    together = "  all its runs together by the smallest sound value: epsilon"
    assert lines[1:3] == [
        f"{together} 0.55 (strong), delta 1e-05 (sum of tight, zcdp)",
        f"{together} 0.7 (strong), pure (sum of tight x2)",
    ]
    assert "  the run by the smallest declared value: epsilon 0.5 (none), pure (corrected)" in lines
    assert lines[-3].startswith("12 rows, one a release, chain verified") and lines[-2].startswith("head ")
    assert lines[-1] == f"by {ALONE}"


def test_gaussian_runs_are_composed_and_the_recipe_is_said(tmp_path: Path, dpgt: Dpgt) -> None:
    folder, cost = tmp_path / "state", gdp_epsilon(0.2, 1e-5)
    with contextlib.closing(Store(folder, "process")) as store:
        for run in RUNS:
            store.begin_run(run, SHA, "agent-1", WARD)
            store.commit_round(run, priced(0, gdp=cost))
    exact = epsilon_of_mu(0.2 * math.sqrt(3), 3e-5)
    (ward,) = json.loads(dpgt(folder, "--format", "json")[1])["data_sets"]
    assert exact <= ward["totals"]["gdp"] <= exact * (1 + 1e-6) < 0.7 * 3 * cost
    assert ward["smallest_sound"]["any"] == {
        "epsilon": ward["totals"]["gdp"], "delta": 3e-5, "recipe": "gdp x3 composed: mu 0.3464",
        "strength": "moderate",
    }  # fmt: skip
    said = f"epsilon {exact:.4g} (moderate), delta 3e-05"
    out = dpgt(folder)[1]
    assert f"by the smallest sound value: {said} (gdp x3 composed: mu 0.3464)" in out
    assert any("Gaussian" in line and line.endswith(said) for line in out.splitlines())


def test_one_declared_run_makes_the_total_of_its_data_declared(tmp_path: Path, dpgt: Dpgt) -> None:
    """The run beside it is enforced, which does not help the sum."""
    folder = tmp_path / "state"
    with contextlib.closing(Store(folder, "process")) as store:
        for run, terms in zip(RUNS, (WARD, replace(OTHER, data_id="ward 7")), strict=False):
            store.begin_run(run, SHA, "agent-1", terms)
            store.commit_round(run, priced(0, tight=0.25))
    (ward,) = json.loads(dpgt(folder, "--format", "json")[1])["data_sets"]
    assert ward["smallest_sound"] is None and ward["smallest_declared"]["any"]["epsilon"] == 0.5
    out = dpgt(folder)[1]
    assert "by the smallest declared value: epsilon 0.5 (none)" in out and "sound" not in out


def test_what_a_delta_of_1_over_D_makes_small_leads_no_list(tmp_path: Path, dpgt: Dpgt) -> None:
    folder = tmp_path / "state"
    with contextlib.closing(Store(folder, "process")) as store:
        store.begin_run(RUNS[0], SHA, "agent-1", replace(WARD, delta=1e-2, samples=100))
        store.commit_round(RUNS[0], priced(0, tight=0.5, zcdp=0.25))
    lines = dpgt(folder)[1].splitlines()
    assert lines[1] == "  the run by the smallest sound value: epsilon 0.5 (strong), pure (tight)"
    assert not [line for line in lines[2:] if "by the smallest" in line]
    assert lines[2].startswith("  WARNING: delta = 0.01 is 1/D = 1/100 or more")


def test_a_total_delta_is_judged_by_the_largest_data_set(tmp_path: Path, dpgt: Dpgt) -> None:
    """A delta that gives nothing away of 100 samples may give one of 10,000 away."""
    folder = tmp_path / "state"
    with contextlib.closing(Store(folder, "process")) as store:
        for run, terms in zip(RUNS[:2], (WARD, replace(WARD, samples=10_000, delta=5e-3)), strict=True):
            store.begin_run(run, SHA, "agent-1", replace(terms, samples=terms.samples or 100))
            store.commit_round(run, priced(0, zcdp=0.25, tight=0.5))
    said = dpgt(folder)[1]
    assert "  WARNING: delta = 0.00501 is 1/D = 1/10000 or more" in said
    assert not [line for line in said.splitlines() if "delta 0.00501" in line and "(none)" not in line]


def test_verify_says_one_line(state: Path, dpgt: Dpgt) -> None:
    head = json.loads(dpgt(state, "--format", "json")[1])["head"]
    assert dpgt(state, "--verify") == (0, f"verified: 12 rows, head {head} (by {ALONE})\n", [])


def test_a_head_that_was_written_down(state: Path, dpgt: Dpgt) -> None:
    """It stays part of the chain as that grows; an older copy of the directory never had it."""
    old = json.loads(dpgt(state, "--format", "json")[1])["head"]
    with contextlib.closing(Store(state, "process")) as store:
        store.commit_round(RUNS[2], priced(1))
    new = json.loads(dpgt(state, "--format", "json")[1])["head"]
    for head in (old, new, old.upper(), "0" * 64):
        assert dpgt(state, "--verify", "--head", head)[0] == 0
    tamper(state, "DELETE FROM ledger WHERE id > 12")
    tamper(state, "DELETE FROM rounds WHERE id = 3 * 4294967296 + 1")
    assert dpgt(state, "--verify")[0] == 0, "rows and rounds cut off together leave a whole chain"
    code, out, err = dpgt(state, "--head", new)
    assert (code, out, len(err)) == (1, "", 1) and "never had the head" in err[0]


@pytest.mark.parametrize("options", [[], ["--verify"], ["--format", "json"], ["--format", "csv"]], ids=" ".join)
def test_a_broken_chain_exits_1_and_names_the_row(state: Path, dpgt: Dpgt, options: list[str]) -> None:
    tamper(state, "UPDATE ledger SET cost = '{\"tight\":0.0}' WHERE id = 5")
    code, out, err = dpgt(state, *options)
    assert (code, out) == (1, "")
    assert err == [f"dpgt ledger: {state / DATABASE}: ledger row 5 (round 2, X) or one before it was changed"]


# --- forgers ----------------------------------------------------------------------------------------------------------


def test_a_chain_computed_anew_looks_whole_and_that_is_said(state: Path, dpgt: Dpgt) -> None:
    """And a head that was written down tells it from the right one."""
    head = read_ledger(state).head.hex()
    assert "(passed through every head that was asked for)" in dpgt(state, "--verify", "--head", head)[1]
    cheaper(state)
    code, out, _ = dpgt(state, "--verify")
    assert code == 0 and out.endswith(f"(by {ALONE})\n")
    code, out, err = dpgt(state, "--head", head)
    assert (code, out) == (1, "") and err == [
        f"dpgt ledger: {state}: the chain never had the head {head}: rows are missing or were changed, "
        "or it is another's"
    ]


def test_the_owners_key(state: Path, tmp_path: Path, dpgt: Dpgt) -> None:
    key = key_at(tmp_path / "ledger.key")
    assert dpgt(state, "--sign")[0] == 2, "with which key?"
    assert "nobody signed" in dpgt(state, "--key", key)[2][0]
    assert dpgt(state, "--key", key, "--sign", "--verify")[1].endswith("(signed with the owner's key)\n")
    assert json.loads(dpgt(state, "--format", "json")[1])["verified_by"] == ["chain"]
    assert json.loads(dpgt(state, "--format", "json", "--key", key)[1])["verified_by"] == ["chain", "key"]
    with pytest.raises(ConfigError, match="ledger_key"):
        Store(state, "process")
    cheaper(state)
    code, out, err = dpgt(state, "--key", key)
    assert (code, out) == (1, "") and "rows were forged" in err[0]
    assert dpgt(state, "--key", tmp_path / "none.key")[0] == 2
    assert dpgt(tmp_path / "nowhere", "--key", key, "--sign")[0] == 2 and not (tmp_path / "nowhere").exists()


@pytest.fixture
def out(tmp_path: Path, state: Path) -> Path:
    """The output folder of a run of which ``state`` holds two rounds, both reported."""
    run = make_run()
    made = prepare(tmp_path / "out", run, source="test", keystream=None)
    heads = Heads(made.path, run.graph.agents)
    with contextlib.closing(Store(state, "process")) as store:
        store.begin_run(made.run_id, SHA, "agent-2", OTHER)
        for k in range(2):
            store.commit_round(made.run_id, priced(k))
            heads.note("agent-2", k, store.head)
        store.commit_round(made.run_id, priced(2))
    heads.close()
    return made.path


def test_the_head_that_a_coordinator_remembers(state: Path, out: Path, dpgt: Dpgt) -> None:
    assert dpgt(state, "--verify", "--head", f"@{out}")[0] == 0
    cheaper(state)
    code, _, err = dpgt(state, "--verify", "--head", f"@{out}")
    assert code == 1 and f"which the coordinator of {out} remembers of agent-2 after round 1: rows" in err[0]


def test_a_folder_that_remembers_nothing_verifies_nothing(state: Path, out: Path, tmp_path: Path, dpgt: Dpgt) -> None:
    (tmp_path / "empty").mkdir()
    assert dpgt(state, "--head", f"@{tmp_path / 'empty'}")[::2] == (
        2,
        [f"dpgt ledger: {tmp_path / 'empty'}: is no output folder of a run"],
    )
    other = tmp_path / "other"
    with contextlib.closing(Store(other, "process")) as store:
        store.begin_run(RUNS[0], SHA, "agent-2", WARD)
    code, _, err = dpgt(other, "--head", f"@{out}")
    assert code == 1 and "knows nothing of run" in err[0]
    (out / HEADS_FILE).write_bytes(b"")
    code, _, err = dpgt(state, "--head", f"@{out}")
    assert code == 2 and "its coordinator remembers no head of agent-2" in err[0]
    (out / HEADS_FILE).unlink()
    assert dpgt(state, "--head", f"@{out}")[0] == 2


def tamper(state: Path, statement: str) -> None:
    with contextlib.closing(sqlite3.connect(state / DATABASE)) as db:
        db.execute(statement)
        db.commit()


def test_no_ledger_is_the_operators_mistake(tmp_path: Path, dpgt: Dpgt) -> None:
    code, _, err = dpgt(tmp_path)
    assert code == 2 and err == [f"dpgt ledger: {tmp_path}: no ledger here ({DATABASE} is missing)"]
    assert dpgt(tmp_path / "nowhere")[0] == 2 and dpgt()[0] == 2 and names(tmp_path) == []


def test_it_only_reads(state: Path, dpgt: Dpgt) -> None:
    """Nothing is created or changed at rest; while an agent works, its last commit is seen."""
    before = {path.name: (path.stat().st_mtime_ns, path.stat().st_size) for path in state.iterdir()}
    assert dpgt(state)[0] == 0
    assert {path.name: (path.stat().st_mtime_ns, path.stat().st_size) for path in state.iterdir()} == before
    with contextlib.closing(Store(state, "process")) as store:
        for k in range(2, 6):
            store.commit_round(RUNS[1], priced(k))
            assert f"verified: {14 + 2 * (k - 2)} rows" in dpgt(state, "--verify")[1]
