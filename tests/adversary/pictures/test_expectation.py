"""Priors, several gradients of one batch, mean pictures, and whether as many pictures come as were expected."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from dpgt_node.adversary.inference.knowledge import Samples, Softmax
from dpgt_node.adversary.pictures import analytic
from dpgt_node.adversary.pictures.analytic import Seen
from dpgt_node.adversary.pictures.expect import Forecast, forecast
from dpgt_node.adversary.pictures.judge import judge, without_a_message
from dpgt_node.adversary.pictures.model import Model
from dpgt_node.adversary.pictures.public import FLOOR, Prior, Public
from dpgt_node.adversary.pictures.recover import Batch, recover
from dpgt_node.learning.data.datasets import load_dataset
from dpgt_node.learning.nets.clipping import Clip
from dpgt_node.learning.nets.models import SoftmaxOracle
from dpgt_node.privacy.laws.registry import LAWS

DIGITS = load_dataset("digits")
PUBLIC = Public.of(Samples(DIGITS.real_test(slice(None)), DIGITS.y_test, 10))
SOFTMAX = Softmax(10, 64, 1.0)
MODEL = Model(SOFTMAX, None, (64,), 10, (1, 8, 8), PUBLIC)


def point(scale: float, seed: int = 1) -> np.ndarray:
    return scale * np.random.default_rng(seed).standard_normal(650)


def seen(rows, x: np.ndarray, b: float, rng: np.random.Generator, clip: Clip | None = None) -> Seen:
    """By the agents' own code, with noise."""
    g = SoftmaxOracle(DIGITS, None, bias=1.0, clip=clip).gradient(x, np.asarray(rows))
    return Seen(g + rng.laplace(0.0, b, g.size) if b else g, x, 2 * b * b, clip)


# --- the prior


def test_the_posterior_is_that_of_the_dense_normal_law() -> None:
    rng = np.random.default_rng(0)
    components = np.linalg.qr(rng.standard_normal((7, 3)))[0]
    prior = Prior(np.zeros((1, 7)), components, np.array([0.5, 0.2, 0.01]))
    covariance = components @ np.diag(prior.sizes) @ components.T
    covariance += FLOOR * (np.eye(7) - components @ components.T)
    data, weights, means = rng.standard_normal((2, 7)), np.array([3.0, 40.0]), rng.standard_normal((2, 7))
    found, variance = prior.posterior(data, weights, means)
    spreads = []
    for row, told, w, mean in zip(found, data, weights, means, strict=True):
        after = np.linalg.inv(np.linalg.inv(covariance) + w * np.eye(7))
        np.testing.assert_allclose(row, after @ (np.linalg.solve(covariance, mean) + told), atol=1e-8)
        spreads.append(np.trace(after) / 7)
    assert variance == pytest.approx(np.mean(spreads), rel=1e-9)


def test_no_trial_rests_on_a_picture_that_the_prior_has_seen() -> None:
    taught = {row.tobytes() for row in PUBLIC.taught.phi}
    assert not taught & {row.tobytes() for row in PUBLIC.held.phi}
    drawn = PUBLIC.like(np.array([3, 3, 7]), np.random.default_rng(0))
    assert drawn.labels.tolist() == [3, 3, 7] and len({row.tobytes() for row in drawn.phi}) == 3


@pytest.mark.parametrize("clip", [None, Clip(1, 6.0), Clip(2, 0.5)])
@pytest.mark.parametrize("rows", [(0,), (3, 1, 4)])
def test_a_prior_helps_under_noise_and_its_error_is_as_predicted(rows, clip) -> None:
    rng, b = np.random.default_rng(2), 0.02 if clip is None else 0.006
    labels, true = DIGITS.y_train[list(rows)], DIGITS.x_train[list(rows)]
    with_it, without, said = [], [], []
    for _ in range(40):
        rows_now = [int(rng.choice(np.flatnonzero(DIGITS.y_train == y))) for y in labels]
        true = DIGITS.x_train[rows_now]
        one = seen(rows_now, np.zeros(650), b, rng, clip)
        found = analytic.softmax_batch([one], SOFTMAX, labels, PUBLIC.prior)
        with_it.append(np.mean((found.phi - true) ** 2))
        without.append(np.mean((analytic.softmax_batch([one], SOFTMAX, labels).phi - true) ** 2))
        said.append(found.mse)
    assert np.mean(with_it) < 0.9 * np.mean(without)
    assert 0.7 * np.mean(said) < np.mean(with_it) < 1.6 * np.mean(said)  # digits are not normal, and a clip not linear


def test_a_clipped_batch_with_labels_that_repeat_has_a_prior_too() -> None:
    """Without noise to speak of: nothing is singular, and nothing is worse than the mean of its class."""
    rows = np.flatnonzero(DIGITS.y_train < 3)[:9]
    labels, true = np.sort(DIGITS.y_train[rows]), DIGITS.x_train[rows]
    for variance in (1e-34, 1e-12):
        one = seen(rows, np.zeros(650), 0.0, np.random.default_rng(0), Clip(1, 8.0))
        found = analytic.softmax_batch([Seen(one.g, one.x, variance, one.clip)], SOFTMAX, labels, PUBLIC.prior)
        figures = judge(MODEL, Batch(found.phi, labels, "", 0.0, None), true, DIGITS.y_train[rows]).figures
        assert figures["psnr_db"] > figures["psnr_class_mean_db"]


# --- several gradients of one batch


def test_rounds_of_one_batch_average_their_noise() -> None:
    rng, b = np.random.default_rng(3), 1e-3
    rows = tuple(int(np.flatnonzero(DIGITS.y_train == y)[0]) for y in (6, 2, 5))
    labels = DIGITS.y_train[list(rows)]
    many = [seen(rows, point(0.05, k), b, rng) for k in range(9)]
    errors = [
        np.mean((analytic.softmax_batch(some, SOFTMAX, labels).phi - DIGITS.x_train[list(rows)]) ** 2)
        for some in (many[:1], many)
    ]
    assert errors[1] < errors[0] / 5


# --- the baseline


def test_what_needs_no_message_is_the_mean_of_public_pictures() -> None:
    true, labels = DIGITS.x_train[:3], DIGITS.y_train[:3]
    found = without_a_message(MODEL, true, labels)
    n = len(PUBLIC.taught.phi)
    np.testing.assert_allclose(found["mean"][1], DIGITS.x_test[:n].mean(axis=0))
    of_class = DIGITS.x_test[:n][DIGITS.y_test[:n] == labels[2]].mean(axis=0)
    np.testing.assert_allclose(found["class_mean"][2], of_class)
    bare = Model(SOFTMAX, None, (64,), 10, (1, 8, 8))
    flat = without_a_message(bare, true, labels)["flat"]
    np.testing.assert_allclose(flat, np.tile(true.mean(axis=1, keepdims=True), 64))


def test_pictures_are_judged_beside_the_mean_not_by_their_own_psnr() -> None:
    """The mean of the class itself gains nothing, however many dB it has; half its error, and a quarter, do."""
    true, labels = DIGITS.x_train[:8], DIGITS.y_train[:8]
    rows = without_a_message(MODEL, true, labels)
    errors = [np.square(rows[name] - true).sum(axis=1) for name in ("mean", "class_mean")]
    better = np.where((errors[0] < errors[1])[:, None], rows["mean"], rows["class_mean"])
    for part, verdict in ((1.0, "fails"), (0.68, "partly"), (0.45, "succeeds")):
        batch = Batch(true + part * (better - true), labels, "", 0.0, None)
        assert judge(MODEL, batch, true, labels).verdict == verdict


# --- the expectation


def came(
    b: float, m: int, clip: Clip | None, count: int, law: str, x: np.ndarray, trials: int = 32
) -> tuple[float, Forecast]:
    """Share of batches of the TRAINING set that came out, and the forecast of the first of them."""
    rng = np.random.default_rng(5)
    attack = partial(recover, MODEL, m=m)
    wins, said = 0, None
    for _ in range(count):
        rows = rng.choice(len(DIGITS.y_train), m, replace=False)
        one = seen(rows, x, b, rng, clip)
        if law == "gaussian":
            clean = seen(rows, x, 0.0, rng, clip)
            one = Seen(clean.g + b * rng.standard_normal(650), x, b * b, clip)
        batch = attack([one])
        true = DIGITS.y_train[rows]
        wins += judge(MODEL, batch, DIGITS.x_train[rows], true).verdict == "succeeds"
        if said is None:
            said = forecast(MODEL, [one], np.sort(true), LAWS[law], attack, rng, trials)
    assert said is not None
    return wins / count, said


CASES = [
    (b, m, clip, law, scale)
    for m, clip, law, scale, noises in (
        (1, None, "laplace", 0.0, (1e-3, 0.06, 0.12, 0.25, 1.0)),
        (1, None, "gaussian", 0.1, (0.02, 0.15, 0.8)),
        (1, Clip(2, 0.5), "laplace", 0.0, (1e-3, 0.015, 0.1)),
        (4, None, "laplace", 0.0, (1e-3, 0.02, 0.2)),
        (4, Clip(1, 6.0), "gaussian", 0.0, (1e-4, 0.01, 0.1)),
    )
    for b in noises
]


def test_as_many_pictures_come_as_were_expected() -> None:
    """On pictures that neither prior nor trials have seen: the Brier score is that of a calibrated forecast."""
    wins, said = zip(*(came(b, m, clip, 24, law, point(scale)) for b, m, clip, law, scale in CASES), strict=True)
    chances = [one.succeeded / one.trials for one in said]
    assert np.abs(np.subtract(wins, chances)).mean() < 0.12
    for share, one in zip(wins, said, strict=True):
        assert (share > 0.3) if one.word == "expected" else (share < 0.7 or one.word == "possible")
    assert {one.word for one in said} >= {"expected", "not expected"}


def test_words_are_sure_of_themselves() -> None:
    def word(succeeded: int, trials: int) -> str:
        return Forecast(trials, succeeded, 0.0, 0.0).word

    assert [word(n, 32) for n in (0, 9, 16)] == ["not expected", "not expected", "possible"]
    assert [word(n, 32) for n in (23, 32)] == ["expected", "expected"]
    assert [word(n, 6) for n in (0, 3, 6)] == ["not expected", "possible", "expected"]
    assert word(4, 4) == "possible"  # four of four is not enough to expect anything
