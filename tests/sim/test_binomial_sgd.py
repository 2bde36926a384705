"""Gradients as integers with coins in them: the definition on what was sent, restarts, what it costs, refusals."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpgt_node import cli
from dpgt_node.accounts.account import AgentAccount
from dpgt_node.agent.noise import sampler_for
from dpgt_node.agent.work import AgentWork
from dpgt_node.algo.graph import Topology
from dpgt_node.algo.hard import hard_failures
from dpgt_node.algo.methods import METHODS, codes_of
from dpgt_node.algo.methods.dsgd import binomial_sgd
from dpgt_node.algo.schedule import Schedule
from dpgt_node.config import model, to_toml
from dpgt_node.learning.oracle import build_oracle
from dpgt_node.privacy.counts import accountant as counted
from dpgt_node.protocol import types as t
from dpgt_node.sim import simulate
from dpgt_node.sim.fast import FastRun
from dpgt_node.sim.world import Observer, World
from dpgt_node.types import F64
from tests.oracles import binomial as dumb
from tests.oracles import composition
from tests.privacy.counts.test_counts import stream
from tests.sim import cases
from tests.sim.test_fast import both

KEY, RING, NAME = "00112233445566778899", "the demo's ring with chords", "quantised-binomial-sgd"
B, LEVELS, TRIALS = 8.0, 129, 64
OPTIONS = {"bound": B, "levels": LEVELS, "trials": TRIALS}


def coded(K: int = 40, options: dict[str, Any] = OPTIONS, **changes: Any) -> model.RunConfig:
    run = cases.run(RING, K=K)
    run = replace(run, scheme=model.SchemeS2(0.1, 0.05, 0.1, 1.0, samples=1), noise=model.Noise(None, None))
    algorithm = replace(run.algorithm, method=NAME, mechanism="coded-coins")
    return replace(run, algorithm=algorithm, method_options=options, **changes)


def played(run: model.RunConfig) -> tuple[F64, dict[tuple[int, int], t.RoundRecord]]:
    topology, schedule = Topology.from_config(run.graph), Schedule.from_config(run)
    records: dict[tuple[int, int], t.RoundRecord] = {}
    agents = simulate.build_agents(run, topology, schedule, simulate.build_oracles(run, None), KEY)
    seen = Observer(persisted=lambda i, record: records.update({(i, record.k): record}))
    World(run.graph.agents, agents, run.K, observer=seen).run()
    return np.stack([agent.x_final for agent in agents]), records  # type: ignore[misc]


def integers(payload: t.Payload) -> np.ndarray:
    return np.frombuffer(payload.data, dtype=f"<i{payload.nbytes // payload.dimension}").astype(np.int64)


def follow(run: model.RunConfig, records: dict[tuple[int, int], t.RoundRecord], free: frozenset[int]) -> list[F64]:
    """x_0..x_{K+1} of the definition on the integers that were sent; every one of them is within reach of its gradient.

    f_i(x) = ||x - i||^2/2.
    """
    x, b = np.zeros((5, 7)), np.arange(1.0, 6.0)[:, None]
    q, xs = 2 * B / (LEVELS - 1), [x]
    for k in range(run.K + 1):
        codes = np.stack([integers(records[i, k].on("X")) for i in range(5)])
        if k not in free:
            levels = (np.clip(x - b, -B, B) + B) / q
            heads = codes - np.floor(levels)
            assert heads.min() >= 0 and heads.max() <= TRIALS + 1
            values = np.vectorize(lambda code: dumb.decoded(int(code), B, LEVELS, TRIALS))(codes)
            x = x - 0.1 * values.mean(axis=0)[None, :]
        xs.append(x)
    return xs


def test_what_was_sent_is_what_the_definition_goes_on_from() -> None:
    run = coded()
    final, records = played(run)
    assert codes_of(run).dtype == "int16"  # type: ignore[union-attr]
    assert {(record.on("X").dtype, record.on("X").nbytes) for record in records.values()} == {("int16", 14)}
    xs = follow(run, records, frozenset())
    assert np.abs(final - xs[-1]).max() < 1e-12 * np.abs(final).max()
    assert (final == final[0]).all(), "everybody has the same x"
    for i in range(5):
        for k in (0, 7, 40):
            record = records[i, k]
            assert np.abs(record.checkpoint.vectors["x"] - xs[k][i]).max() < 1e-12 * np.abs(final).max()  # type: ignore
            (row,) = record.rows
            assert (row.stream, row.law, row.mechanism) == ("Y", "coins", "coded-coins")
            assert row.scale == 0.5 * (2 * B / (LEVELS - 1)) * 8 and row.sha256 == record.on("X").sha256


def test_the_numbers_of_the_toy_without_coins_but_for_the_rounding() -> None:
    """Without noise it is weighted SGD up to a grid: 2.9999999981 to the mean of the roundings."""
    run = coded(200, {**OPTIONS, "levels": 1 << 24}, data=model.Data("quadratic", params={"dimension": 4}))
    run = replace(run, noise=model.Noise(None, None, multiplier=0.0))
    assert codes_of(run).high == (1 << 24) - 1  # type: ignore[union-attr]
    final, _ = played(run)
    np.testing.assert_allclose(final, 2.9999999981, atol=2e-6)


def test_rounds_that_release_nothing_leave_x_and_draw_nothing() -> None:
    run = coded(9)
    run = replace(run, scheme=replace(run.scheme, releases=(0, 4, 6)))
    final, records = played(run)
    free = frozenset(range(10)) - {0, 4, 6}
    assert np.abs(final - follow(run, records, free)[-1]).max() < 1e-12 * np.abs(final).max()
    for (_, k), record in records.items():
        assert bool(record.rows) == (k not in free)
        assert k not in free or not integers(record.on("X")).any()


@pytest.mark.parametrize("releases", [None, (0, 3, 4)])
def test_the_fast_simulation_is_that_of_the_machines(releases: tuple[int, ...] | None, tmp_path: Path) -> None:
    run = coded(12, data=model.Data("digits"))
    difference, slow, quick = both(replace(run, scheme=replace(run.scheme, samples=20, releases=releases)), tmp_path)
    assert difference < 1e-9
    sent = [json.loads((out / "summary.json").read_text())["agents"][0]["bytes_sent"] for out in (slow, quick)]
    assert sent[0] == sent[1] == 13 * 4 * 2 * 650, "two bytes a coordinate, to four others"


def test_a_restart_draws_no_coin_again() -> None:
    run = coded(12, data=model.Data("digits"))
    run = replace(run, scheme=replace(run.scheme, samples=3))
    _, records = played(run)

    class NoEntropy:
        def stream(self, k: int, purpose: str) -> None:
            raise AssertionError(f"{purpose} of round {k} was drawn again")

    topology, schedule = Topology.from_config(run.graph), Schedule.from_config(run)
    work = AgentWork(run, topology, schedule, 2, build_oracle(run, 2), NoEntropy(), sampler_for(run))  # type: ignore[arg-type]
    state = records[2, 4].checkpoint
    for k in range(4, 12):
        received = {"X": {j: records[j, k].on("X").array() for j in range(5)}}
        state = work.advance(t.Advance(state, received, records[2, k].payloads, records[2, k + 1])).state  # type: ignore
        expected = records[2, k + 1].checkpoint
        assert expected is not None and state.vectors["x"].tobytes() == expected.vectors["x"].tobytes()


# --- mutants --------------------------------------------------------------------------------------------------------


class Twice(binomial_sgd.BinomialSgd):
    """A step of twice the size."""

    def final(self, site, k, v):  # type: ignore[no-untyped-def]
        return 2.0 * super().final(site, k, v) - v["x"]


class Uncentred(binomial_sgd.BinomialSgd):
    """Codes stand for what they are without the mean of the coins."""

    def final(self, site, k, v):  # type: ignore[no-untyped-def]
        return super().final(site, k, v) - self.gamma * 0.5 * self._code.step * self._code.trials


@pytest.mark.parametrize("rule", [Twice, Uncentred])
def test_another_rule_is_noticed(rule: type, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(METHODS.loaded, NAME, replace(METHODS[NAME], rules={"coded-coins": rule}))
    run = coded(5)
    state = FastRun(run, simulate.build_oracles(run, None), KEY)
    for _ in range(6):
        state.step()
    monkeypatch.undo()
    final, _ = played(run)
    assert np.abs(state.x - final).max() > 1e-3


# --- what it costs --------------------------------------------------------------------------------------------------


def account(run: model.RunConfig, d: int = 650, D: int = 12_000) -> AgentAccount:
    return AgentAccount(run, Topology.from_config(run.graph), Schedule.from_config(run), 0, D, dimension=d)


def charged(K: int, trials: int, **changes: Any) -> model.RunConfig:
    run = coded(K, {"bound": 0.01, "levels": 801, "trials": trials}, privacy=model.Privacy(clip_l2=0.1))
    return replace(run, scheme=replace(run.scheme, samples=12_000, **changes))


def test_a_run_costs_about_what_as_much_gaussian_noise_does() -> None:
    """Between the exact cost of Gaussian noise with the variance of the coins, and a third more."""
    K, N, d = 40, 4000, 650
    found = account(charged(K, N), d)
    q = 0.02 / 800
    shift = 0.2 / 12_000 / q * np.sqrt(K + 1) / (0.5 * np.sqrt(N))
    total, gaussian = found.total("binomial"), composition.epsilon_of_mu(float(shift), 1e-5)
    assert total is not None and gaussian < total < 1.33 * gaussian
    costs = [found.cost("binomial", k) or 0.0 for k in range(K + 1)]
    assert all(a < b for a, b in itertools.pairwise(costs)), "every release costs something"
    for other in ("tight", "amplified", "gdp", "zcdp", "corrected", "lemma5"):
        assert found.total(other) is None and "count of coins" in str(found.why_not(other))


def test_a_sample_moves_a_gradient_by_what_its_clip_and_its_arithmetic_let_it() -> None:
    """2 clip_l2/m, and 2^-20 of it for sums in floating point; levels 2^-50 a coordinate for its code in two worlds."""
    d, D = 650, 12_000
    for options, samples in (({"bound": 0.01, "levels": 801}, 12_000), ({"bound": 0.3, "levels": 1 << 24}, 30)):
        run = replace(charged(9, 4000), method_options={**options, "trials": 4000})
        releases = account(replace(run, scheme=replace(run.scheme, samples=samples)), d, D).releases
        q = Fraction(options["bound"]) * 2 / (options["levels"] - 1)  # type: ignore[operator]
        code = Fraction(np.sqrt(d)) * options["levels"] / 2**50
        for part in (1.0, 0.25):
            least = Fraction(part) * Fraction(0.1) * 2 / samples * (1 + Fraction(1, 2**20)) / q + code
            assert 1 <= Fraction(counted._shift(releases, part)) / least < 1 + Fraction(1, 10**12)


def test_every_coordinate_of_every_release_is_accounted_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Any, ...]] = []
    curve = counted.renyi.curve
    monkeypatch.setattr(counted.renyi, "curve", lambda *of: (asked.append(of), curve(*of))[1])
    found = account(replace(charged(9, 4000, releases=(0, 5, 7)), privacy=model.Privacy(clip_l2=0.1, delta=1e-6)), 650)
    assert found.total("binomial") is not None
    ((trials, shifts, d, delta),) = asked
    assert (trials, len(shifts), d, delta) == (4000, 3, 650, 1e-6) and set(shifts) == {
        counted._shift(found.releases, 1.0)
    }


def test_rounds_that_release_nothing_cost_nothing() -> None:
    found = account(charged(9, 4000, releases=(0, 5)))
    costs = [found.cost("binomial", k) for k in range(10)]
    assert costs[0] == costs[4] and costs[5] == costs[9] and costs[4] < costs[5]  # type: ignore[operator]
    assert costs[9] < account(charged(9, 4000)).total("binomial")  # type: ignore[operator]


def test_what_has_no_finite_or_no_known_cost() -> None:
    few = account(charged(9, 50))
    assert few.total("binomial") is None and "method.trials must be" in str(few.why_not("binomial"))
    least = int(str(few.why_not("binomial")).split()[-3])
    assert 0 < account(charged(9, least)).total("binomial") < float("inf")  # type: ignore[operator]
    assert account(charged(9, least - 1)).total("binomial") is None
    fine = replace(charged(9, 4000), method_options={"bound": 0.01, "levels": 800_001, "trials": 4000})
    assert account(fine).total("binomial") is None and "take fewer method.levels" in str(
        account(fine).why_not("binomial")
    )
    silent = charged(9, least)
    assert account(replace(silent, noise=replace(silent.noise, multiplier=0.0))).total("binomial") == float("inf")
    assert account(replace(silent, privacy=model.Privacy())).total("binomial") is None


def test_coins_as_many_as_match_a_scale_of_laplace_noise() -> None:
    code = binomial_sgd.BinomialCode(1.0, 129, round(8 * 0.4672**2 / (2 / 128) ** 2))
    assert code.trials == 7152 and code.scale == pytest.approx(np.sqrt(2) * 0.4672, rel=1e-4)
    assert code.codes.values(code.drawn(np.full(50_000, 0.3), stream(1))).std() == pytest.approx(code.scale, rel=0.02)


# --- what is refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("noise", "key"),
    [
        (model.Noise(None, None, multiplier=2.0), "noise"),
        (model.Noise(None, None, by_release=(1.0, 2.0)), "noise"),
        (model.Noise(None, None, decay=2.0), "noise"),
        (model.Noise(None, None, law="gaussian"), "noise.law"),
        (model.Noise(None, None), None),
    ],
)
def test_the_coins_alone_are_the_noise(noise: model.Noise, key: str | None) -> None:
    run = coded(5, noise=noise)
    topology, schedule = Topology.from_config(run.graph), Schedule.from_config(run)
    assert [found for found, _ in hard_failures(run, topology, schedule, [None] * 5)] == ([key] if key else [])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bound": 1.0}, "method.trials: is missing"),
        ({"trials": 9}, "method.bound: is missing"),
        ({**OPTIONS, "levels": 1}, "method.levels: must be >= 2"),
        ({**OPTIONS, "trials": 2**31 - 9}, "levels - 1 + trials fits into 32 bits"),
        ({**OPTIONS, "scale": 1.0}, "method.scale: unknown key"),
    ],
)
def test_one_message_for_each_wrong_key(
    options: dict[str, Any], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run.toml"
    path.write_text(to_toml(coded(5, options)))
    assert cli.run(["simulate", str(path), "--out", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err
    assert message in said and said.count("\n") == 1, said
