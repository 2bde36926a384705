"""A run that is continued with other data, or with noise that hides nothing: in real agents."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dpgt_node.config import Policy, RunConfig
from dpgt_node.errors import ConfigError, ExitCode, RefusedError
from dpgt_node.learning.data.arrays import Dataset, frozen
from dpgt_node.learning.data.digest import shard_sha256
from dpgt_node.runtime.agent import node as node_module
from dpgt_node.runtime.agent.budget import check_unrecorded
from dpgt_node.runtime.coordinator.heads import SAMPLES_FILE
from dpgt_node.runtime.store.ledger import Charge, Terms, read_ledger
from dpgt_node.runtime.store.terms import OtherTerms
from tests.runtime.agent.test_budget import ended, private_run, started, stopped
from tests.runtime.cluster import Cluster, cluster, make_run

ME = "agent-2"
LONG = 400


@pytest.fixture(autouse=True)
def _short_farewells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_module, "FAREWELL_S", 0.5)


async def run_for_a_while(c: Cluster, **options: object) -> None:
    for name in c.run.graph.agents:
        c.start(name, **(options if name == ME else {}))
    await c.reached(5, ME)
    await stopped(c)


async def test_other_samples_under_the_same_number_are_refused_on_resume(tmp_path: Path) -> None:
    """The owner reads what differs in the agent's own words and nothing more is released."""
    run = make_run(LONG)
    async with cluster(tmp_path, run) as c:
        await run_for_a_while(c, shard_sha256=b"a" * 32)
    released = len(read_ledger(tmp_path / "state" / ME).entries)
    async with cluster(tmp_path, run) as c:
        for name in run.graph.agents:
            c.start(name, **({"shard_sha256": b"b" * 32} if name == ME else {}))
        outcome, results = await ended(c)
    assert isinstance(results[ME], OtherTerms) and "not the same ones in the same order" in str(results[ME])
    assert "with other data or on other terms than it began" in outcome.conclude.reason, "a kind, and nothing else"
    assert "samples" not in outcome.conclude.reason and "stays spent" in str(results[ME])
    assert outcome.conclude.exit_code is ExitCode.REFUSED
    assert len(read_ledger(tmp_path / "state" / ME).entries) == released
    async with cluster(tmp_path, run) as c:
        for name in run.graph.agents:
            c.start(name, **({"shard_sha256": b"a" * 32} if name == ME else {}))
        await c.end()


async def test_the_coordinator_refuses_another_D_and_waits_for_the_right_one(tmp_path: Path) -> None:
    run = make_run(LONG)
    async with cluster(tmp_path, run) as c:
        for name in run.graph.agents:
            c.start(name, **({"samples": 1000} if name == ME else {}))
        await c.reached(5, ME)
        c.nodes[ME].interrupt()
        assert await c.agents[ME] is ExitCode.STOPPED
        with pytest.raises(RefusedError, match="had D = 1000 samples when the run began and has D = 1200 now"):
            await c.start(ME, samples=1200)
        c.start(ME, samples=1000)
        await c.end()


@pytest.mark.parametrize("remembers", [True, False], ids=["as it is", "a mutant that forgets"])
async def test_a_coordinator_that_was_started_again_still_knows_D(tmp_path: Path, *, remembers: bool) -> None:
    run = make_run(LONG)
    counted = {"samples": 1000}
    async with cluster(tmp_path, run) as c:
        await run_for_a_while(c, **counted)
    if not remembers:
        (tmp_path / "out" / SAMPLES_FILE).unlink()
    async with cluster(tmp_path, run) as c:
        for name in run.graph.agents:
            c.start(name, **({"samples": 1200} if name == ME else {}))
        if remembers:
            with pytest.raises(RefusedError, match="had D = 1000 samples when the run began and has D = 1200 now"):
                await c.agents[ME]
            c.start(ME, **counted)
            await c.end()
        else:
            with pytest.raises(OtherTerms):  # no word of the coordinator's: the agent's own memory alone refuses
                await c.agents[ME]


async def test_a_coordinator_that_cannot_read_D_does_not_start(tmp_path: Path) -> None:
    run = make_run(LONG)
    async with cluster(tmp_path, run) as c:
        await run_for_a_while(c)
    (tmp_path / "out" / SAMPLES_FILE).write_text("{")
    with pytest.raises(ConfigError, match=r"samples\.json: cannot be read"):
        async with cluster(tmp_path, run):
            pass


@pytest.mark.parametrize(("before", "refused"), [(2.0, True), (1.0, False), (0.5, False), (float("inf"), False)])
def test_a_run_whose_data_no_version_recorded_is_known_by_what_it_cost(before: float, refused: bool) -> None:
    """With more samples it would have cost less; at a higher price it may go on."""
    account: Any = SimpleNamespace(epsilon_after=lambda k: {"tight": None, "amplified": (k + 1) / 4})
    unrecorded = Terms("ward 7", 1e-5, "replace-one", keystream="", since=None)
    cost = {"tight": 9.0, "amplified": before}
    charges = [Charge(bytes(16), unrecorded, "m", "laplace", 3, cost)]
    with pytest.raises(OtherTerms, match="would have cost 1:") if refused else contextlib.nullcontext():
        check_unrecorded(charges, bytes(16), account)
    if refused:
        near = [replace(charges[0], cost={"amplified": 1.00001})]
        with pytest.raises(OtherTerms, match=r"cost 1\.00001 under .* would have cost 1:"):
            check_unrecorded(near, bytes(16), account)
    check_unrecorded(charges, bytes(range(16)), account)
    recorded = [replace(charges[0], terms=replace(unrecorded, since=0))]
    check_unrecorded(recorded, bytes(16), account)


# --- a test keystream -----------------------------------------------------------------------------------------------


async def test_a_test_keystream_is_refused_under_a_policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run: RunConfig = private_run(extra="[privacy]\nclip_l1 = 0.5\n")
    async with started(tmp_path / "real", run, Policy(epsilon_max=1e9)) as c:
        await c.end()
    assert np.isfinite(read_ledger(tmp_path / "real" / "state" / ME).entries[-1].row.cost["tight"] or np.inf)
    monkeypatch.setattr(Policy, "limits", property(lambda policy: policy.epsilon_max is not None))
    async with cluster(tmp_path / "test", run) as c:
        for name in run.graph.agents:
            c.start(name)
        node = c.nodes[ME]
        object.__setattr__(node._setup.config, "policy", Policy(epsilon_max=1e9, allow_study=True))
        outcome, results = await ended(c)
    assert isinstance(results[ME], RefusedError) and "its noise comes from a test keystream" in str(results[ME])
    assert outcome.conclude.exit_code is ExitCode.REFUSED
    assert read_ledger(tmp_path / "test" / "state" / ME).entries == ()


async def test_without_a_policy_its_costs_are_infinite_and_the_log_says_why(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with started(tmp_path, private_run(5, "[privacy]\nclip_l1 = 0.5\n"), Policy()) as c:
        await c.end()
    assert "its noise comes from a test keystream" in caplog.text
    assert {v for e in read_ledger(tmp_path / "state" / ME).entries for v in e.row.cost.values()} == {float("inf")}


# --- what the data are known by --------------------------------------------------------------------------------------


def data(x: np.ndarray, y: list[int], divisor: float = 1.0) -> Dataset:
    return frozen(x, np.array(y), np.zeros((0, x.shape[1])), np.zeros(0, np.int64), classes=3, divisor=divisor)


def test_every_difference_in_the_data_is_another_hash() -> None:
    x = np.arange(12.0).reshape(4, 3)
    rows = np.array([0, 2])
    known = {
        shard_sha256(data(x, [0, 1, 2, 0])),
        shard_sha256(data(x, [0, 1, 2, 1])),
        shard_sha256(data(x[::-1].copy(), [0, 1, 2, 0])),
        shard_sha256(data(np.nextafter(x, 99.0), [0, 1, 2, 0])),
        shard_sha256(data(x, [0, 1, 2, 0], divisor=255.0)),
        shard_sha256(data(x, [0, 1, 2, 0]), rows),
        shard_sha256(data(x, [0, 1, 2, 0]), rows[::-1]),
    }
    assert len(known) == 7
    assert shard_sha256(data(x, [0, 1, 2, 0])) == shard_sha256(data(x.astype(np.uint8), [0, 1, 2, 0])), "values count"
