"""The audit of ledgers: costs counted again agree with every accountant, and a ledger that lies is named."""

from __future__ import annotations

import contextlib
import json
import math
import sqlite3
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
from dpgt_node.record.costs import Epsilon
from dpgt_node.record.summary import AgentSummary, PrivacySummary, Summary, write_summary
from dpgt_node.runtime.coordinator.heads import Heads
from dpgt_node.runtime.coordinator.outdir import IDENTITY_FILE, RUN_FILE
from dpgt_node.runtime.store.ledger import DATABASE, Terms, as_charged, read_ledger
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


def audited(p: Play, path: Path, rows: Rows, **books: object) -> dict[str, Finding]:
    held = Books(rows, D, **books)  # type: ignore[arg-type]
    found = audit_ledger(Facts.of(p.run), 1, held, captured([Transcript(path)], "agent-2"))
    return {one.question: one for one in found}


def refuted(p: Play, path: Path, rows: Rows, **books: object) -> dict[str, Finding]:
    return {question: one for question, one in audited(p, path, rows, **books).items() if one.refuted}


def half(rows: Rows) -> Rows:
    return tuple(replace(row, cost={n: c and 0.5 * c for n, c in row.cost.items()}) for row in rows)


MUTANTS: dict[str, tuple[Callable[[Rows], Rows], str, str]] = {
    "half the cost": (half, "cost by tight", "Y of round 0 costs"),
    "half of one row's cost": (
        lambda rows: (*rows[:-1], *half(rows[-1:])), "cost by zcdp", f"Y of round {K} costs",
    ),
    "a cost that is a little low": (
        lambda rows: tuple(replace(r, cost={n: c and 0.99999 * c for n, c in r.cost.items()}) for r in rows),
        "cost by tight", "Y of round 0 costs",
    ),
    "a cost that is no number": (
        lambda rows: tuple(replace(r, cost={n: math.nan for n in r.cost}) for r in rows), "cost by tight", "says nan",
    ),
    "no cost": (lambda rows: tuple(replace(r, cost={}) for r in rows), "cost by tight", "has no cost"),
    "a row left out": (lambda rows: rows[:5] + rows[6:], "captured", "Y of round 2 was sent"),
    "the last round's rows left out": (lambda rows: rows[:-2], "captured", f"X of round {K} was sent"),
    "rows that nobody knows to be missing": (lambda rows: rows[:6], "rows", "X of round 3 has no row"),
    "rows left out from a round on": (lambda rows: rows[:6], "captured", "X of round 3 was sent"),
    "a row twice": (lambda rows: (rows[0], *rows), "rows", "X of round 0 has 2 rows"),
    "another vector": (
        lambda rows: (replace(rows[0], sha256=bytes(32)), *rows[1:]), "captured", "charged 0000000000000000",
    ),
    "another scale": (lambda rows: tuple(replace(r, scale=2 * r.scale) for r in rows), "terms", "the run file says"),
    "another shift": (
        lambda rows: tuple(replace(r, sensitivity=0.5 * (r.sensitivity or 0.0)) for r in rows), "terms", "moves it by",
    ),
    "another mechanism": (lambda rows: tuple(replace(r, mechanism="paper") for r in rows), "terms", "paper with lapl"),
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
    assert "heads" in refuted(*honest, (), remembered=(2, heads[5])), "all rows are gone, and the coordinator had some"
    for name, value in (("tight", None), ("renyi", 1.0), ("tight", (1.0 + 1e-9) * (told["tight"] or 0.0))):
        assert refuted(*honest, rows, heads=heads, told={**told, name: value}).keys() == {"totals"}


def test_a_second_vector_of_a_round_that_was_charged_once_is_named(honest: tuple[Play, Path]) -> None:
    """The same round drawn twice, and one of them in the ledger."""
    p, path = honest
    seen = dict(captured([Transcript(path)], "agent-2"))
    for other in (bytes(32), b"\xff" * 32):  # in front of the one that was charged and behind it
        twice = {**seen, ("Y", 3): seen["Y", 3] | {other}}
        found = audit_ledger(Facts.of(p.run), 1, Books(rows_of(p), D), twice)
        (one,) = (one for one in found if one.refuted)
        assert one.question == "captured" and f"Y of round 3: sent {other.hex()[:16]}" in one.text


def test_noise_that_hides_nothing_costs_everything(honest: tuple[Play, Path]) -> None:
    rows = rows_of(honest[0])
    found = refuted(*honest, rows, hides=False)
    assert {question for question in found if question.startswith("cost by")} == found.keys() != set()
    assert "costs inf, the row says" in found["cost by tight"].text
    charged = as_charged(rows, {}, hides=False)
    told = {name: cost and float("inf") for name, cost in rows[-1].cost.items()}
    assert None in told.values(), "some accountants say nothing of the run, and the ledger charges them too"
    found = audited(*honest, charged, hides=False, told=told)
    assert not any(one.refuted for one in found.values()) and found["cost by tight"].text.endswith("total inf")
    assert refuted(*honest, charged, hides=False, told={**told, "tight": 1.0}).keys() == {"totals"}


def test_a_cost_that_is_not_counted_here_is_said_to_be_so(honest: tuple[Play, Path]) -> None:
    rows = tuple(replace(r, cost={**r.cost, "renyi": 1.0}) for r in rows_of(honest[0]))
    found = audited(*honest, rows)
    assert found["cost by renyi"].verdict == "not tested" and not any(one.refuted for one in found.values())


def test_nothing_is_drawn_in_a_row_of_another_stream(tmp_path: Path) -> None:
    p = play(clipped(K=3, mechanism="noise-once"), samples=False)
    path, rows = p.transcript(tmp_path / "t"), rows_of(p)
    assert refuted(p, path, rows) == {}
    other = "X" if rows[0].stream == "Y" else "Y"
    assert (
        "is charged, and nothing is drawn then"
        in refuted(p, path, (*rows, replace(rows[0], stream=other)))["rows"].text
    )


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


def test_the_command_holds_an_output_folder_against_its_ledgers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its coordinator's memory and summary are of each agent and of this run; a state directory may hold others."""
    p, other = play(clipped(), samples=False), bytes(15) + b"\1"
    out, transcript = tmp_path / "out", p.transcript(tmp_path / "t")
    state = out / "agents" / "agent-2" / "state"
    store = Store(state, "process")
    for run_id, keystream in ((other, "test"), (RUN_ID, "system")):
        store.begin_run(run_id, run_sha256(p.run), "agent-2", Terms("digits", 1e-5, "replace-one", D, keystream))
        for i, record in p.records:
            if i == 1:
                store.commit_round(run_id, record)
    store.close()
    entries = [entry for entry in read_ledger(state).entries if entry.run_id == RUN_ID]
    (out / RUN_FILE).write_text(to_toml(p.run), encoding="utf-8")
    (out / IDENTITY_FILE).write_text(json.dumps({"run_id": RUN_ID.hex()}), encoding="utf-8")
    heads = Heads(out, p.run.graph.agents)
    heads.note("agent-1", K, bytes([7]) * 32)
    heads.note("agent-2", K, entries[-1].head)
    heads.close()
    told = [
        AgentSummary(name, None, None, Epsilon(**(rows_of(p)[-1].cost if i == 1 else {"tight": 1.0})), None, None)
        for i, name in enumerate(p.run.graph.agents)
    ]
    privacy = PrivacySummary.of(p.run, [D])
    write_summary(
        out, Summary("seen", RUN_ID.hex(), "finished", "dpgt", "m", K + 1, 1.0, 1.0, None, privacy, tuple(told))
    )

    def verdicts(*options: str, run: Path = out) -> tuple[int, dict[str, str]]:
        argv = ["eavesdrop", "audit", str(transcript), "--run", str(run), *options, "--format", "json"]
        code = cli.run(argv)
        document = json.loads(capsys.readouterr().out or "{}")
        return code, {one["question"]: one["verdict"] for one in document.get("findings", [])}

    code, found = verdicts("--ledger", str(out))
    assert code == 0 and {found[name] for name in ("chain", "captured", "heads", "totals", "cost by tight")} == {
        "not refuted"
    }
    run_file = tmp_path / "run.toml"
    run_file.write_text(to_toml(p.run), encoding="utf-8")
    assert verdicts("--ledger", str(out), run=run_file) == (0, found), "transcripts say of which run they are"
    (out / IDENTITY_FILE).write_text(json.dumps({"run_id": other.hex()}), encoding="utf-8")
    code, found = verdicts("--ledger", str(out), run=run_file)
    assert code == 0 and (found["heads"], found["totals"]) == ("not tested", "not refuted")
    assert verdicts("--ledger", str(out)) == (2, {}), "transcripts of another run than the folder's"
    evidence = ["eavesdrop", "audit", "--run", str(out), "--ledger", str(out)]
    cli.run(evidence)
    assert "14 rows, total inf" in capsys.readouterr().out, "the run of the test keystream hid nothing"
    with contextlib.closing(sqlite3.connect(state / DATABASE)) as db:
        db.execute("UPDATE ledger SET cost = '{\"tight\":0.0}' WHERE id = 5")
        db.commit()
    assert cli.run(evidence) == 1
    assert "chain" in (said := capsys.readouterr().out) and "REFUTED" in said and "captured" not in said
