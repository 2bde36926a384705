"""Budgets with real agents: refused before the run, counted over runs, kept in mid-run; broken agents are noticed."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from dpgt_node.config import Policy, RunConfig, parse_run
from dpgt_node.errors import BudgetReached, ExitCode, RefusedError, StoreError
from dpgt_node.privacy.accountants.composition import tally
from dpgt_node.privacy.accountants.registry import PURE
from dpgt_node.privacy.accountants.rounding import within
from dpgt_node.protocol.agent.machine import AgentMachine
from dpgt_node.protocol.coordinator import coordination
from dpgt_node.protocol.told import told
from dpgt_node.runtime.agent import budget
from dpgt_node.runtime.agent import node as node_module
from dpgt_node.runtime.agent.budget import known_as, spent_on
from dpgt_node.runtime.agent.opening import Opening
from dpgt_node.runtime.coordinator.daemon import Outcome
from dpgt_node.runtime.store import statement
from dpgt_node.runtime.store.ledger import DATABASE, SYSTEM, Charge, LedgerBroken, Terms, last_charges, read_ledger
from dpgt_node.runtime.store.store import Store
from dpgt_node.runtime.store.terms import of_these_data
from tests.runtime.cluster import RUN, Cluster, cluster, eventually
from tests.runtime.store.records import record

OWNER = "agent-2"
ROUNDS = 31
PER_ROUND = 1.0  # what a release of noise-once costs under tight: C / (m scale_eta), m = 2
PRIVATE = RUN.replace(
    'name = "cluster"\n[algorithm]', 'name = "cluster"\n[algorithm]\nmechanism = "noise-once"'
).replace("scale_eta = 0.01", "scale_eta = 0.5")


def private_run(K: int = ROUNDS - 1, extra: str = "[privacy]\nC = 1.0\n") -> RunConfig:
    return parse_run(PRIVATE.format(K=K) + extra, "run.toml", Path("/"))


@pytest.fixture(autouse=True)
def _short_farewells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_module, "FAREWELL_S", 0.5)
    monkeypatch.setattr(coordination, "LATE_NS", 0)  # nobody comes late: see `started`


@contextlib.asynccontextmanager
async def started(
    folder: Path, run: RunConfig, policy: Policy, *, data_id: str = "default", state: Path | None = None
) -> AsyncIterator[Cluster]:
    """A cluster of ``run`` in which ``OWNER`` has a policy; ``state``: its state directory, kept over clusters.

    The runs are studies of toys that declare their C, and the owner lets them.
    """
    policy = replace(policy, allow_study=True, allow_declared=True)
    async with cluster(folder, run) as c:
        for name in run.graph.agents:
            if name != OWNER:
                c.start(name)
        for name in c.agents:  # whoever comes after a refusal hears only that nobody is there
            await eventually(f"{name} is welcome", lambda name=name: c.round(name) >= 0)
        c.start(OWNER, policy=policy, data_id=data_id, state=str(state or ""))
        yield c


async def ended(c: Cluster) -> tuple[Outcome, dict[str, object]]:
    """The coordinator's outcome, and each agent's exit code or error."""
    assert c.serving is not None
    async with asyncio.timeout(30):
        results = await asyncio.gather(*c.agents.values(), return_exceptions=True)
        return await c.serving, dict(zip(c.agents, results, strict=True))


def assert_cap_kept(state: Path, data_id: str, cap: float) -> float:
    """What left this directory for ``data_id`` costs at most ``cap``; the amount."""
    ledger = read_ledger(state)
    charges = last_charges((entry, ledger.terms[entry.run_id]) for entry in ledger.entries)
    amount = tally(spent_on(data_id, charges), PURE).epsilon
    assert within(amount, cap), f"{amount} of {cap} were spent"
    return amount


# --- before the run ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "extra", "words"),
    [
        (Policy(mechanisms=("published-point",)), "[privacy]\nC = 1.0\n", "mechanism noise-once is not allowed"),
        (Policy(noise_min=0.6), "[privacy]\nC = 1.0\n", "the noise scale of y is 0.5, below noise_min = 0.6"),
        (Policy(accountant="amplified", epsilon_max=1e9), "[privacy]\nC = 1.0\n", "C is declared, not enforced"),
        (Policy(epsilon_max=1e9), "", "no value under any sound accountant"),
        (Policy(epsilon_max=30.9), "[privacy]\nC = 1.0\n", "this run costs 31 (none) under tight: epsilon_max = 30.9"),
    ],
)
async def test_a_run_against_the_policy_is_refused_and_nothing_is_released(
    tmp_path: Path, policy: Policy, extra: str, words: str
) -> None:
    async with started(tmp_path, private_run(extra=extra), policy) as c:
        outcome, results = await ended(c)
    culprit = results.pop(OWNER)
    assert isinstance(culprit, RefusedError) and culprit.exit_code is ExitCode.REFUSED and words in str(culprit)
    assert outcome.conclude.exit_code is ExitCode.REFUSED and outcome.conclude.status == "refused"
    assert outcome.conclude.reason == f"{OWNER} refused: {told(culprit)}" and words not in outcome.conclude.reason
    assert set(results.values()) == {ExitCode.REFUSED}
    for name in c.run.graph.agents:
        assert read_ledger(tmp_path / "state" / name).entries == ()


# --- over runs --------------------------------------------------------------------------------------------------------


async def test_budgets_add_up_over_the_runs_of_a_data_set(tmp_path: Path) -> None:
    """Exactly two runs fit; the third is refused, unless it is about other data."""
    state, policy = tmp_path / "kept", Policy(2 * ROUNDS * PER_ROUND, accountant="tight")
    for number in (1, 2):
        async with started(tmp_path / str(number), private_run(), policy, state=state) as c:
            await c.end()
        assert assert_cap_kept(state, "default", policy.epsilon_max or 0) == pytest.approx(
            number * ROUNDS * PER_ROUND, rel=1e-5
        )
    async with started(tmp_path / "3", private_run(), policy, state=state) as c:
        _, results = await ended(c)
    said = str(results[OWNER])
    assert ", 2 earlier runs on this data set 62.0001 (none): epsilon_max = 62 " in said
    assert said.endswith("covers no round")
    async with started(tmp_path / "4", private_run(), policy, state=state, data_id="ward 7") as c:
        await c.end()
    assert len(read_ledger(state).entries) == 3 * ROUNDS
    assert_cap_kept(state, "default", 62.0)
    assert_cap_kept(state, "ward 7", 31.0)


async def test_a_run_goes_on_with_the_data_set_it_was_begun_on(tmp_path: Path) -> None:
    async with started(tmp_path, private_run(400), Policy(), data_id="ward 7") as c:
        await c.reached(5)
        await stopped(c)
    async with started(tmp_path, private_run(400), Policy()) as c:
        outcome, results = await ended(c)
    assert isinstance(results[OWNER], StoreError)
    assert outcome.conclude.exit_code is ExitCode.REFUSED
    assert 'was begun on data set "ward 7", not "default"' in str(results[OWNER])
    assert "ward 7" not in outcome.conclude.reason


async def test_nothing_is_released_from_a_directory_whose_ledger_was_changed(tmp_path: Path) -> None:
    async with started(tmp_path / "1", private_run(), Policy(), state=tmp_path / "kept") as c:
        await c.end()
    with contextlib.closing(sqlite3.connect(tmp_path / "kept" / DATABASE)) as db:
        db.execute("UPDATE runs SET data_id = 'another'")
        db.commit()
    async with cluster(tmp_path / "2", private_run()) as c:
        for _ in range(2):  # the directory is free again after the first
            with pytest.raises(LedgerBroken, match="ledger row 1 ") as caught:
                await c.node(OWNER, state=str(tmp_path / "kept")).serve()
            assert caught.value.exit_code is ExitCode.CHECK_FAILED


# --- in mid-run -------------------------------------------------------------------------------------------------------


async def stopped(c: Cluster) -> None:
    c.stop.set()
    outcome, results = await ended(c)
    assert outcome.conclude.exit_code is ExitCode.STOPPED and set(results.values()) == {ExitCode.STOPPED}


async def until_the_cap(folder: Path, cap: float, between: RunConfig) -> tuple[Outcome, dict[str, object]]:
    """A run of ``cap`` is stopped early; ``between`` spends of the same budget; the first run goes on to its end."""
    state, policy = folder / "kept", Policy(cap, accountant="tight")
    long = private_run(round(cap / PER_ROUND) - 1)
    async with started(folder / "first", long, policy, state=state) as c:
        await c.reached(8, OWNER)
        await stopped(c)
    begun = len(read_ledger(state).entries)
    async with started(folder / "between", between, policy, state=state) as c:
        await c.end()
    async with started(folder / "first", long, policy, state=state) as c:
        outcome, results = await ended(c)
    assert len(read_ledger(state).entries) > begun + between.K + 1, "it went on"
    return outcome, results


async def test_at_the_cap_everybody_ends_cleanly(tmp_path: Path) -> None:
    cap = 400 * PER_ROUND
    outcome, results = await until_the_cap(tmp_path, cap, private_run())
    last = 400 - ROUNDS
    assert isinstance(results[OWNER], BudgetReached) and results[OWNER].exit_code is ExitCode.BUDGET
    assert outcome.conclude.status == "budget" and outcome.conclude.exit_code is ExitCode.BUDGET
    assert {result for name, result in results.items() if name != OWNER} == {ExitCode.BUDGET}
    said = str(results[OWNER])
    assert said.startswith(f"the privacy budget does not cover round {last}: ")
    assert f"epsilon_max = 400 covers rounds 0..{last - 1} of 399" in said
    assert outcome.conclude.reason == f"{OWNER}: {told(results[OWNER])}" and "400" not in outcome.conclude.reason
    assert outcome.summary is not None and outcome.summary.status == "budget"
    # One round more would have been too much, and not one was wasted.
    assert assert_cap_kept(tmp_path / "kept", "default", cap) > cap - PER_ROUND / 2


class ChecksAfterTheSend(AgentMachine):
    """A broken machine: the round that the budget does not cover is released, then it stops."""

    def _try_release(self, out, now_ns):  # type: ignore[no-untyped-def]
        if self._budget_through is not None and self.k <= self._budget_through + 1:
            kept, self._budget_through = self._budget_through, None
            super()._try_release(out, now_ns)
            self._budget_through = kept
        else:
            super()._try_release(out, now_ns)


@pytest.mark.parametrize("mutant", ["budget checked after the send", "spent forgotten", "kept apart by run file"])
async def test_an_agent_that_overspends_is_noticed(
    tmp_path: Path, mutant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if mutant == "budget checked after the send":
        monkeypatch.setattr(node_module, "AgentMachine", ChecksAfterTheSend)
    elif mutant == "spent forgotten":
        monkeypatch.setattr(budget, "spent_on", lambda *_: [])
    else:
        monkeypatch.setattr(Opening, "_charges", property(lambda _: (), lambda *_: None), raising=False)
    cap = 60 * PER_ROUND
    await until_the_cap(tmp_path, cap, private_run(9))
    monkeypatch.undo()
    with pytest.raises(AssertionError, match="were spent"):
        assert_cap_kept(tmp_path / "kept", "default", cap)


# --- one data set under two ids ---------------------------------------------------------------------------------------


def charge(run: int, data_id: str, seal: str) -> Charge:
    terms = Terms(data_id, 1e-5, "replace-one", 10, SYSTEM, seal)
    return Charge(bytes([run]) * 16, terms, "noise-once", "gaussian", 3, {"gdp": 1.0})


CHARGES = (charge(1, "a", "p"), charge(2, "b", "p"), charge(3, "b", "q"), charge(4, "c", "q"), charge(5, "d", ""))


def test_ids_whose_runs_had_the_same_data_are_one_data_set() -> None:
    assert known_as("a", CHARGES) == ("a", "b", "c") and known_as("c", CHARGES) == ("c", "b", "a")
    assert known_as("d", (*CHARGES, charge(6, "e", ""))) == ("d",), "what was not recorded is no sameness"
    assert known_as("new", CHARGES) == ("new",)
    assert known_as("new", CHARGES, {bytes([5]) * 16}) == ("new", "d")
    assert len(spent_on("a", CHARGES)) == 4 and len(spent_on("new", CHARGES, None, {bytes([5]) * 16})) == 1


def test_another_id_for_the_same_data_is_no_fresh_budget(tmp_path: Path) -> None:
    """Whoever renames the data set would get its budget again."""
    data, other = b"d" * 32, b"e" * 32
    terms = replace(CHARGES[0].terms, seal="")
    with contextlib.closing(Store(tmp_path, "process")) as store:
        for number, (data_id, shard) in enumerate([("a", data), ("b", data), ("c", other)]):
            made = replace(terms, data_id=data_id)
            store.begin_run(bytes([number]) * 16, f"{number:064x}", "agent-1", made, shard_sha256=shard)
            store.commit_round(bytes([number]) * 16, record(0, 3))
        charges, runs = store.charges(), store.runs()
    same = {known.run_id for known in of_these_data(runs, data)}
    assert same == {bytes([0]) * 16, bytes([1]) * 16} and not of_these_data(runs, b"")
    assert known_as("new", charges, same) == ("new", "a", "b") and known_as("new", charges) == ("new",)
    assert known_as("a", charges) == ("a", "b"), "the ledger says it without the data"
    assert known_as("c", charges) == ("c",)
    salts = {run.run_id: run.salt for run in runs}
    assert salts[bytes([0]) * 16] == salts[bytes([1]) * 16] != salts[bytes([2]) * 16]
    text = statement.render(read_ledger(tmp_path))
    assert 'data set "a" (also known as "b"): 2 runs' in text and 'data set "c": 1 run' in text
    (one, two) = statement.document(read_ledger(tmp_path))["data_sets"]
    assert (one["id"], one["also_known_as"], len(one["runs"])) == ("a", ["b"], 2) and two["also_known_as"] == []


def under_another_id(state: Path, run: RunConfig) -> None:
    """The store has run 1, whose data were called ward; its digest is what the agent of the cluster has now."""
    account = {"tight": 30.0, "amplified": 30.0}
    with contextlib.closing(Store(state, "process")) as store:
        terms = Terms("ward", run.privacy.delta, "replace-one", 2, SYSTEM)
        store.begin_run(b"1" * 16, "1" * 64, OWNER, terms, shard_sha256=b"d" * 32)
        made = record(0, 3)
        rows = tuple(replace(row, cost=account) for row in made.rows)
        store.commit_round(b"1" * 16, replace(made, rows=rows))


@pytest.mark.parametrize(("shard", "fits"), [(b"d" * 32, False), (b"e" * 32, True)])
async def test_an_agent_counts_what_its_data_cost_under_another_id(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, shard: bytes, fits: bool
) -> None:
    """31 fit under 40 unless the same data have cost 30 already."""
    run, state = private_run(), tmp_path / "kept"
    caplog.set_level("INFO", "dpgt_node")
    under_another_id(state, run)
    policy = Policy(40.0, accountant="tight", allow_study=True, allow_declared=True)
    async with cluster(tmp_path / "c", run) as c:
        for name in run.graph.agents:
            if name != OWNER:
                c.start(name)
        for name in c.agents:
            await eventually(f"{name} is welcome", lambda name=name: c.round(name) >= 0)
        c.start(OWNER, policy=policy, data_id="renamed", state=str(state), shard_sha256=shard)
        _, results = await ended(c)
    if fits:
        assert (
            '"renamed": rounds 0..30 of this run cost epsilon 31 (none) (tight), with 0 other runs epsilon'
            in caplog.text
        )
        assert caplog.text.count("; 9 of epsilon_max = 40 remain; ") == 2, "at the start and at the end"
        assert "the run begins: " in caplog.text and "the run ended here: " in caplog.text
    known = 'data set "renamed" (also known as "ward"): the data are the same, bit for bit' in caplog.text
    assert known is not fits
    assert results[OWNER] is ExitCode.DONE if fits else isinstance(results[OWNER], RefusedError)
