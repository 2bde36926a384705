"""Threads that share the work of ``simulate --fast``: the same numbers, nothing in common, and who grants them."""

from __future__ import annotations

import sys
import threading
import types
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpgt_node import cli
from dpgt_node.agent.encoding import Diverged, OutOfReach
from dpgt_node.algo.edges import Edges
from dpgt_node.cli import common
from dpgt_node.config import model
from dpgt_node.errors import Broken
from dpgt_node.privacy.laws.compiled import WORTH_COMPILING
from dpgt_node.privacy.laws.gaussian_sampler import CHUNK, GaussianSampler
from dpgt_node.privacy.laws.keystream import TestKeystream
from dpgt_node.sim import fast, matrix, simulate, team
from dpgt_node.sim.fast import FastRun, simulate_fast
from dpgt_node.sim.matrix import Weights
from dpgt_node.sim.perturbing import perturb
from dpgt_node.sim.team import Team
from tests.sim import cases
from tests.sim.test_fast import KEY, RUN_ID, WORDS, changed, digits, finals, metrics


@pytest.mark.parametrize("mechanism", WORDS)
def test_threads_change_no_bit(mechanism: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor do matrices that are used again."""
    monkeypatch.setattr(fast, "_SHARED", 0)
    run, found = changed(digits(), mechanism, "gaussian"), []
    for threads in (1, 3):
        simulate_fast(run, tmp_path / str(threads), RUN_ID, test_keystream=KEY, threads=threads)
        monkeypatch.setattr(team, "_KEPT_BYTES", 0)
        rows = [{**row, "wall_seconds": ""} for row in metrics(tmp_path / str(threads))]
        found.append((finals(tmp_path / str(threads), run).tobytes(), rows))
    assert found[0] == found[1]


def test_a_matrix_is_handed_out_again_once_nobody_holds_it_or_a_row_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(team, "_KEPT_BYTES", 0)
    lender = Team()
    first = lender.empty((3, 4))
    place, row = first.ctypes.data, first[1]
    del first
    assert lender.empty((3, 4)).ctypes.data != place
    del row
    assert lender.empty((3, 4)).ctypes.data == place
    assert lender.empty((4, 3)).shape == (4, 3)


def test_threads_share_no_keystream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast, "_SHARED", 0)
    run = cases.run("self-loops everywhere", data=model.Data("zeros", params={"dimension": 40}))
    state = FastRun(run, simulate.build_oracles(run, None), None, threads=2)
    assert len({id(stream) for stream in state._streams(0, "X")}) == 3
    noise = [state.perturb("X", 0, np.zeros((3, 40))) for _ in range(2)]
    assert len({row.tobytes() for row in np.concatenate(noise)}) == 6


@pytest.mark.parametrize("d", [20, CHUNK])
def test_no_two_threads_use_one_sampler(d: int) -> None:
    """Each has memory of its own to work in."""

    class Noted(GaussianSampler):
        def __init__(self) -> None:
            super().__init__()
            self.threads = set[int]()

        def perturb(self, *args: Any) -> Any:
            self.threads.add(threading.get_ident())
            return super().perturb(*args)

        def perturb_rows(self, *args: Any) -> Any:
            self.threads.add(threading.get_ident())
            return super().perturb_rows(*args)

    samplers, streams = [Noted(), Noted()], [TestKeystream(KEY, i).stream(0, "X") for i in range(3)]
    perturb(samplers, np.zeros((3, d)), np.ones(3), streams, Team(2))
    assert samplers[0].threads == {threading.get_ident()}
    assert len(samplers[1].threads) == 1 and samplers[1].threads != samplers[0].threads


@pytest.mark.parametrize("agent", range(3))
def test_what_any_thread_finds_ends_the_run(agent: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast, "_SHARED", 0)
    run = cases.run("self-loops everywhere", data=model.Data("zeros", params={"dimension": 40}))
    state, private = FastRun(run, simulate.build_oracles(run, None), KEY, threads=2), np.zeros((3, 40))
    private[agent, 7] = 1e12
    with pytest.raises(OutOfReach, match=rf"^{run.graph.agents[agent]}\b"):
        state.perturb("X", 0, private)
    private[agent, 7] = np.nan
    with pytest.raises(Diverged, match=rf"^{run.graph.agents[agent]}\b"):
        state.wire("X", 0, private)
    with pytest.raises(Diverged, match=rf"^{run.graph.agents[agent]}: x is"):
        state.gradient(0, private)


def test_agents_that_may_share_a_module_are_evaluated_by_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """And what overflowed is no number of a metric."""
    monkeypatch.setattr(fast, "_SHARED", 0)
    for data, shared in ((model.Data("digits"), False), (model.Data("quadratic", params={"dimension": 4}), True)):
        run, by = replace(cases.run("two agents"), data=data), list[int]()
        state = FastRun(run, simulate.build_oracles(run, None), KEY, threads=2)
        kind = type(state._oracles[0])
        name = "evaluate" if shared else "_evaluated"  # what agents of one test set have to themselves
        evaluate = getattr(kind, name)

        def noted(*args: Any, by: list[int] = by, evaluate: Any = evaluate) -> Any:
            by.append(threading.get_ident())
            return evaluate(*args)

        monkeypatch.setattr(kind, name, noted)
        state._rows._x = np.full(state.x.shape, np.nan)
        assert [found.loss_train for found in state.evaluated(None)] == [None, None]
        assert (len(set(by)) == 1) is shared


@pytest.mark.parametrize("n", [1, 2, 7])
def test_a_team_does_every_part_once(n: int) -> None:
    for threads in (1, 2, 3):
        done = np.zeros(n, dtype=np.int64)

        def work(rows: slice, index: int, done: np.ndarray = done) -> None:
            done[rows] += 1 + 10 * index

        Team(threads).over(n, work)
        assert (done % 10 == 1).all() and (np.diff(done) >= 0).all()
        assert done.max() // 10 == min(threads, n) - 1


def test_no_thread_warns_of_numbers() -> None:
    """What overflows is found later, and named."""

    def work(rows: slice, index: int) -> None:
        np.full(2, 1e308) * 10.0

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Team(2).over(2, work)


def test_products_are_of_the_same_blocks_whoever_else_is_at_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """A product of another shape may have other bits."""
    monkeypatch.setattr(matrix, "_LEAST", 1)
    n, d, seen = 5, 11, []
    monkeypatch.setattr(matrix, "_BLOCK_NUMBERS", 4 * n)

    class Noted:
        def __matmul__(self, sent: np.ndarray) -> np.ndarray:
            seen[-1].append(sent.shape)
            return sent.copy()

    monkeypatch.setattr(Weights, "times", lambda *_: Noted())
    for threads in (1, 2, 3):
        seen.append([])
        weights = Weights(Edges.of(np.ones((n, n))), False, Team(threads))
        weights.combine(np.zeros((n, d)), 0.5, np.zeros((n, d)), 1.0, 0.0, None, np.empty((n, d)))
    assert [sorted(each) for each in seen] == [[(n, 3), (n, 4), (n, 4)]] * 3


def test_a_loop_is_compiled_for_a_run_that_is_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numba", types.ModuleType("numba"))
    assert [fast.worth_compiling(WORTH_COMPILING + off) for off in (-1, 0)] == [None, True]
    monkeypatch.setitem(sys.modules, "numba", None)
    assert fast.worth_compiling(WORTH_COMPILING) is None


@pytest.mark.parametrize(("granted", "found"), [("", 7), ("3", 3), ("0", 7), ("-1", 7), ("many", 7)])
def test_threads_are_those_that_the_user_grants(granted: str, found: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "THREADS_GRANTED", granted)
    monkeypatch.setattr(cli, "cores", lambda: 7)
    assert common.threads() == found


def test_what_a_thread_raises_is_raised() -> None:
    def work(rows: slice, index: int) -> None:
        if index:
            raise Broken("the second")

    with pytest.raises(Broken, match="the second"):
        Team(2).over(2, work)
