"""The audit of ledgers: costs counted again agree with every accountant, and a ledger that lies is named."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dpgt_node import cli
from dpgt_node.adversary.audit.finding import Finding
from dpgt_node.adversary.audit.ledger import Books, audit_ledger, captured
from dpgt_node.adversary.audit.recount import gaussian_epsilons, recount
from dpgt_node.adversary.inference.observation import Facts
from dpgt_node.agent.noise import account_for
from dpgt_node.algo.methods import METHODS
from dpgt_node.config import RunConfig, run_sha256, to_toml
from dpgt_node.privacy.mechanisms import MECHANISMS
from dpgt_node.protocol.types import LedgerRow
from dpgt_node.runtime.store.ledger import Terms
from dpgt_node.runtime.store.store import Store
from dpgt_node.wire.transcript import Transcript
from tests.adversary.record import RUN_ID, Play, play, run_of
from tests.sim.cases import CARRIED

D, K = 360, 6
"""Samples of agent 2 on digits, and the last round of the runs here."""
Rows = tuple[LedgerRow, ...]


def clipped(**settings: object) -> RunConfig:
    clip = settings.pop("clip", "clip_l1")
    run = run_of(**{"K": K, "mechanism": "published-point", **settings})
    return replace(run, privacy=replace(run.privacy, **{str(clip): 1.0}))


@pytest.mark.parametrize("law", ["laplace", "gaussian"])
@pytest.mark.parametrize("mechanism", ["paper", "published-point", "public-state", "noise-once"])
@pytest.mark.parametrize("clip", ["clip_l1", "clip_l2", "C"])
def test_costs_counted_again_are_the_accountants(mechanism: str, law: str, clip: str) -> None:
    """Two codes, one number: after every row, for every accountant that speaks."""
    run = clipped(K=30, mechanism=mechanism, law=law, clip=clip)
    facts = Facts.of(run)
    again = recount(facts, 1, D)
    account = account_for(run, facts.topology, facts.schedule, 1, D, 650)
    rows = [account.cost_after(k, stream) for k, stream in again.rows]
    speaking = {name for name, cost in rows[-1].items() if cost is not None}
    assert again.costs.keys() == speaking
    for name in speaking:
        np.testing.assert_allclose([row[name] for row in rows], again.costs[name], rtol=1e-5, err_msg=name)
    shifts = [account.sensitivity(stream, k) for k, stream in again.rows]
    np.testing.assert_allclose(np.array(shifts, dtype=float), again.shift, rtol=1e-12)


def test_a_gaussian_epsilon_solves_its_equation() -> None:
    from statistics import NormalDist

    phi, mu = NormalDist().cdf, 1.3
    epsilon = float(gaussian_epsilons(np.array([mu]), 1e-5)[0])
    spent = phi(mu / 2 - epsilon / mu) - np.exp(epsilon) * phi(-mu / 2 - epsilon / mu)
    assert spent == pytest.approx(1e-5, rel=1e-6)


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> tuple[Play, Path]:
    p = play(clipped())
    return p, p.transcript(tmp_path_factory.mktemp("ledger") / "t")


def rows_of(p: Play, i: int = 1) -> Rows:
    return tuple(row for j, record in p.records if j == i for row in record.rows)


def refuted(p: Play, path: Path, rows: Rows, **books: object) -> dict[str, Finding]:
    held = Books(rows, D, hides=True, **books)  # type: ignore[arg-type]
    found = audit_ledger(Facts.of(p.run), 1, held, captured([Transcript(path)], "agent-2"))
    return {one.question: one for one in found if one.refuted}


def half(rows: Rows) -> Rows:
    return tuple(replace(row, cost={n: c and 0.5 * c for n, c in row.cost.items()}) for row in rows)


MUTANTS: dict[str, tuple[Callable[[Rows], Rows], str, str]] = {
    "half the cost": (half, "cost by tight", "Y of round 0 costs"),
    "half of one row's cost": (
        lambda rows: (*rows[:-1], *half(rows[-1:])), "cost by zcdp", f"Y of round {K} costs",
    ),
    "no cost": (lambda rows: tuple(replace(r, cost={}) for r in rows), "cost by tight", "has no cost"),
    "a row left out": (lambda rows: rows[:5] + rows[6:], "captured", "Y of round 2 was sent"),
    "rows left out from a round on": (lambda rows: rows[:6], "captured", "X of round 3 was sent"),
    "a row twice": (lambda rows: (rows[0], *rows), "rows", "X of round 0 has 2 rows"),
    "another vector": (
        lambda rows: (replace(rows[0], sha256=bytes(32)), *rows[1:]), "captured", "charged 0000000000000000",
    ),
    "another scale": (lambda rows: tuple(replace(r, scale=2 * r.scale) for r in rows), "terms", "the run file says"),
    "another shift": (
        lambda rows: tuple(replace(r, sensitivity=0.5 * (r.sensitivity or 0.0)) for r in rows), "terms", "moves it by",
    ),
    "another law": (lambda rows: tuple(replace(r, law="gaussian") for r in rows), "terms", "with gaussian noise"),
}  # fmt: skip


def test_an_honest_ledger_is_not_refuted(honest: tuple[Play, Path]) -> None:
    assert refuted(*honest, rows_of(honest[0])) == {}


OPTIONS = {"ternary-dsgd": {"r": 8.0}, "quantised-binomial-sgd": {"bound": 8.0, "trials": 300, "levels": 33}}


@pytest.mark.parametrize("rule", [f"{name} {word}" for name in CARRIED for word in METHODS[name].rules])
def test_honest_ledgers_of_every_method_pass_and_half_the_cost_does_not(rule: str, tmp_path: Path) -> None:
    """Rounded methods too; nothing is said of one whose noise is of no law of the run file."""
    method, mechanism = rule.split()
    run = clipped(K=4)
    algorithm = replace(run.algorithm, method=method, mechanism=mechanism)
    run = replace(run, algorithm=algorithm, method_options=OPTIONS.get(method, {}))
    if not METHODS[method].noisy:
        run = replace(run, noise=replace(run.noise, multiplier=0.0))
    p = play(run, samples=False)
    found = audit_ledger(
        Facts.of(run), 1, Books(rows_of(p), D), captured([Transcript(p.transcript(tmp_path / "t"))], "agent-2")
    )
    assert [one for one in found if one.refuted] == []
    by = {one.question: one for one in found}
    tied = {one.stream for one in METHODS[method].sends} & set(MECHANISMS[mechanism].charged)
    assert by["captured"].verdict == ("not refuted" if tied else "not tested")
    counted = [name for name, one in by.items() if name.startswith("cost by") and one.verdict != "not tested"]
    lies = refuted(p, tmp_path / "t", half(rows_of(p)))
    assert set(counted) == set(lies)
    drawn = MECHANISMS[mechanism].noises > 0 and METHODS[method].noisy
    assert bool(counted) == drawn
    assert drawn or by["costs"].verdict == "not tested"


def test_more_than_is_counted_here_is_lawful(honest: tuple[Play, Path]) -> None:
    """An accountant may know no better than twice: what it says is true."""
    rows = tuple(replace(r, cost={n: c and 2 * c for n, c in r.cost.items()}) for r in rows_of(honest[0]))
    assert refuted(*honest, rows) == {}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_ledger_that_lies_is_named(honest: tuple[Play, Path], mutant: str) -> None:
    change, question, text = MUTANTS[mutant]
    found = refuted(*honest, change(rows_of(honest[0])))
    assert text in found[question].text, found


def test_heads_totals_and_the_chain_are_compared(honest: tuple[Play, Path]) -> None:
    rows = rows_of(honest[0])
    heads = tuple(bytes([i]) * 32 for i in range(len(rows)))
    told = rows[-1].cost
    assert refuted(*honest, rows, heads=heads, remembered=(2, heads[5]), told=told) == {}
    found = refuted(*honest, rows, heads=heads, remembered=(2, heads[4]), told={**told, "tight": 1.0})
    assert found.keys() == {"heads", "totals"}
    assert list(refuted(*honest, (), broken="row 3 was changed")) == ["chain"]


def test_damaged_evidence_accuses_nobody(honest: tuple[Play, Path], tmp_path: Path) -> None:
    """Vectors with holes, or with bytes that are not those of their hash, are not held against the ledger."""
    p, _ = honest
    path = p.transcript(tmp_path / "holes", missing=lambda *_: ((0, 8),))
    seen = captured([Transcript(path)], "agent-2")
    found = audit_ledger(Facts.of(p.run), 1, Books(rows_of(p)[:-1], D), seen)
    assert seen == {} and {one.question: one.verdict for one in found}["captured"] == "not tested"


def test_the_command_names_a_store_that_lies(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Through a real store: its chain holds in each case, for the agent wrote it."""
    p = play(clipped())
    transcript, run_file = p.transcript(tmp_path / "t"), tmp_path / "run.toml"
    run_file.write_text(to_toml(p.run), encoding="utf-8")
    for name, change, question in (
        ("honest", lambda rows: rows, ""),
        ("half", half, "cost by tight"),
        ("none", lambda rows: rows if rows[0].k < 4 else (), "captured"),
    ):
        store = Store(tmp_path / name, "process")
        store.begin_run(RUN_ID, run_sha256(p.run), "agent-2", Terms("digits", 1e-5, "replace-one", D))
        for i, record in p.records:
            if i == 1:
                store.commit_round(RUN_ID, replace(record, rows=change(record.rows)))
        store.close()
        out = tmp_path / f"{name}-found"
        code = cli.run(
            ["eavesdrop", "audit", str(transcript), "--run", str(run_file), "--ledger", f"agent-2={tmp_path / name}",
             "--out", str(out), "--format", "json"]
        )  # fmt: skip
        document = json.loads((out / "audit.json").read_text())
        assert json.loads(capsys.readouterr().out) == document
        assert code == (1 if question else 0) and document["refuted"] == bool(question)
        found = {one["question"] for one in document["findings"] if one["verdict"] == "refuted"}
        assert question in found if question else found == set()
        assert document["run_id"] == RUN_ID.hex() and document["version"] == 1 and document["settings"]["ledgers"]
        assert document["dpgt_node"]
