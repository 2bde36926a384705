"""Theorems 2 and 3 on the PL toys, small (examples/rates.py is the large version), and that the judgement can fail.

Seeds are fixed, so nothing here is flaky.  Nor were they picked: the slopes lie at least 7 standard errors from the
predicted one on average over seeds, :data:`ROOM` are asked for, and a normal error eats 3 less than once in 700 tries.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from dpgt_node.algo.methods.dpgt import mixed_y
from dpgt_node.config import model
from dpgt_node.learning.oracle import build_oracle
from dpgt_node.privacy.laws.keystream import CtrStream
from dpgt_node.sim import ensemble
from examples import rates
from tests.oracles import dense

SMALL = {
    "pl-sine-s1": rates.Case("pl-sine-s1", (125, 500, 2000), 200),
    "pl-linear-s1": rates.Case("pl-linear-s1", (125, 500, 2000), 200),
    "pl-sine-s2": rates.Case("pl-sine-s2", (12000, 20000), 60),
    "pl-linear-s2": rates.Case("pl-linear-s2", (200, 400, 800), 200),
}
ROOM = 4.0


def measured(run: model.RunConfig, case: rates.Case, seed: int = 5) -> rates.Measured:
    predicted = rates.predicted_slope(case.run())  # of the file as shipped, whatever was done to ``run``
    return rates.measure(run, case.Ks, case.repetitions, label="", predicted=predicted, seed=seed)


@pytest.mark.parametrize("name", SMALL)
def test_falls_at_least_as_fast_as_predicted(name: str) -> None:
    result = measured(SMALL[name].run(), SMALL[name])
    slope, error = result.slope
    assert result.holds
    assert slope + ROOM * error < result.predicted


def constant_noise(run: model.RunConfig) -> model.RunConfig:
    stream = model.NoiseStream("constant", (0.1,) * run.n)
    return replace(run, noise=model.Noise(stream, stream))


def growing_noise(run: model.RunConfig) -> model.RunConfig:
    assert run.noise.eta is not None
    return replace(run, noise=model.Noise(model.NoiseStream("exponent", (0.8,) * run.n), run.noise.eta))


def uphill(run: model.RunConfig) -> model.RunConfig:
    if isinstance(run.scheme, model.SchemeS1):
        return replace(run, scheme=replace(run.scheme, a3=-run.scheme.a3))
    return replace(run, scheme=replace(run.scheme, gamma=-run.scheme.gamma))


@pytest.mark.parametrize(
    ("name", "mutant"),
    [
        ("pl-linear-s2", uphill),
        ("pl-linear-s2", constant_noise),
        ("pl-linear-s1", growing_noise),
        ("pl-sine-s1", growing_noise),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_a_run_outside_the_theorem_is_not_passed(name: str, mutant) -> None:  # type: ignore[no-untyped-def]
    result = measured(mutant(SMALL[name].run()), SMALL[name])
    slope, error = result.slope
    assert not result.holds
    assert slope > result.predicted + ROOM * error


def test_a_tracker_that_tracks_nothing_is_not_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgets(steps, y, mix, g, g_next):  # type: ignore[no-untyped-def]
        return mixed_y(steps, y, mix, y.size)

    monkeypatch.setattr(ensemble, "next_y", forgets)
    assert not measured(SMALL["pl-linear-s2"].run(), SMALL["pl-linear-s2"]).holds


def test_slope_of_a_known_law_and_its_error() -> None:
    Ks, errors = (10, 20, 40, 80), (0.1, 0.05, 0.02, 0.01)
    for scheme, law in (("S1", lambda K: 3.0 * (K + 1.0) ** -0.7), ("S2", lambda K: 3.0 * np.exp(-0.7 * K))):
        means = tuple(float(law(K)) for K in Ks)
        exact = rates.Measured("", scheme, Ks, means, tuple(m * e for m, e in zip(means, errors, strict=True)), -0.6)
        t = np.log(np.array(Ks) + 1.0) if scheme == "S1" else np.array(Ks, dtype=float)
        cov = np.linalg.inv(np.array([[4, t.sum()], [t.sum(), t @ t]]))
        jacobian = cov @ np.stack([np.ones(4), t])
        error = np.sqrt((jacobian @ np.diag(np.square(errors)) @ jacobian.T)[1, 1])
        assert exact.slope == (pytest.approx(-0.7), pytest.approx(error))
        assert exact.holds == (2 * error < 0.1)


@pytest.mark.parametrize("name", ["pl-sine-s1", "pl-linear-s2"])
def test_without_randomness_a_repetition_is_the_dense_recursion(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run = rates.Case(name, (60,), 3, start=0.3).run()
    if name == "pl-linear-s2":
        run = replace(run, data=replace(run.data, params={"dimension": 3, "rows": 5, "start": 0.3}, seed=0))
        run = replace(run, scheme=replace(run.scheme, gamma=0.05))
    run = replace(run, algorithm=model.Algorithm(60), noise=replace(run.noise, multiplier=0.0))
    oracle = build_oracle(run, 0)
    monkeypatch.setattr(type(oracle), "mean_xi", lambda self, m, count, rng: np.full((count, 1), 0.25))
    found = ensemble.final_states(run, 4, seed=0)
    d = oracle.dimension
    batch = np.array([0.25]).view(np.int64)
    schedule = ensemble.Schedule.from_config(run)
    noise = np.zeros((61, 3, d))
    expected = dense.algorithm1(
        np.array(run.graph.R),
        np.array(run.graph.C),
        schedule.alpha,
        schedule.beta,
        schedule.gamma,
        np.full((3, d), 0.3),
        lambda i, k, x: oracle.gradient(x, batch),
        noise,
        noise,
    )
    assert found.shape == (3, 4, d)
    for j in range(4):
        np.testing.assert_allclose(found[:, j], expected.x[-1], rtol=1e-12)
    squared = ensemble.squared_gradients(run, 4, seed=0)
    at_zero = np.array([0.0]).view(np.int64)
    gradients = [oracle.gradient(x, at_zero) for x in expected.x[-1]]
    np.testing.assert_allclose(squared[:, 2], [g @ g for g in gradients], rtol=1e-10)


def test_noise_has_the_run_files_scale() -> None:
    # K = 0: x_1 = (1 - a) x_0 + alpha R (x_0 + zeta) - gamma g_0, and g_0 = 0 at x_0 = 0 whatever xi is.
    run = rates.Case("pl-sine-s1", (0,), 1).run()
    scales = (1.0, 2.0, 4.0)
    zeta = model.NoiseStream("constant", scales)
    run = replace(run, algorithm=model.Algorithm(0), noise=model.Noise(zeta, zeta))
    x = ensemble.final_states(run, 20000, seed=3)[:, :, 0]
    R = np.array(run.graph.R)
    expected = 0.38**2 * np.square(R) @ (2.0 * np.square(scales))
    # Kurtosis 6: the variance's own standard error is 1.6 %.
    np.testing.assert_allclose(x.var(axis=1), expected, rtol=0.08)


@pytest.mark.parametrize("name", ["pl-sine-s1", "pl-linear-s1"])
def test_mean_xi_has_the_law_of_a_batchs_mean(name: str) -> None:
    oracle = build_oracle(rates.Case(name, (1,), 1).run(), 0)
    stream = CtrStream(bytes(16), bytes(16))
    drawn = np.array([oracle.draw_batch(3, stream).view(np.float64).mean() for _ in range(8000)])
    rng = np.random.default_rng(11)
    assert stats.ks_2samp(drawn, oracle.mean_xi(3, 8000, rng)[:, 0]).pvalue > 1e-3
    assert stats.ks_2samp(drawn, oracle.mean_xi(5, 8000, rng)[:, 0]).pvalue < 1e-6


def test_the_table_says_what_was_measured() -> None:
    good = rates.Measured("a run", "S2", (10, 20), (1.0, 0.1), (0.001, 0.0001), -0.1)
    slow = replace(good, means=(1.0, 0.9))
    lines = rates.table([good, slow]).splitlines()
    assert "-2.30e-01" in lines[2] and lines[2].endswith("| at least as fast |")
    assert lines[3].endswith("| NOT SHOWN |")


def test_the_picture_is_small_and_repeatable(tmp_path) -> None:  # type: ignore[no-untyped-def]
    results = [
        replace(
            rates.Measured(f"{case.file}, x_0 = 0", "S1", case.Ks, (1.0,) * len(case.Ks), (0.1,) * len(case.Ks), -0.1),
            scheme=case.file[-2:].upper(),
        )
        for case in rates.CASES
    ]
    texts = []
    for name in ("a.svg", "b.svg"):
        rates.draw(results, tmp_path / name)
        texts.append((tmp_path / name).read_text())
    assert texts[0] == texts[1]
    assert len(texts[0]) < 60_000
    assert "<dc:date>" not in texts[0] and str(tmp_path) not in texts[0]
