"""Pictures out of gradients in closed form, and what the attack says of them (numpy alone; searches: tests/torch)."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dpgt_node.adversary.attack import Finding, NotApplicable, Options
from dpgt_node.adversary.attacks.inversion import inversion
from dpgt_node.adversary.inference.knowledge import Softmax
from dpgt_node.adversary.pictures import analytic, measure
from dpgt_node.adversary.pictures import judge as judging
from dpgt_node.adversary.pictures.analytic import Seen
from dpgt_node.adversary.pictures.recover import noise_ratio
from dpgt_node.adversary.pictures.search import WORKS_UP_TO
from dpgt_node.errors import ConfigError
from dpgt_node.learning.data.datasets import load_dataset
from dpgt_node.learning.nets.clipping import Clip
from dpgt_node.learning.nets.models import SoftmaxOracle
from tests.adversary import record

DIGITS = load_dataset("digits")
SOFTMAX = Softmax(10, 64, 1.0)


def oracle(bias: float = 1.0, clip: Clip | None = None) -> SoftmaxOracle:
    return SoftmaxOracle(DIGITS, None, bias=bias, clip=clip)


def point(bias: float = 1.0, scale: float = 0.3) -> np.ndarray:
    return scale * np.random.default_rng(1).standard_normal(650 if bias else 640)


# --- one sample


@pytest.mark.parametrize("bias", [1.0, 0.2, 0.0])
@pytest.mark.parametrize("clip", [None, Clip(1, 0.3), Clip(2, 0.05)])
def test_one_sample_comes_out_exactly_wherever_the_model_is(bias, clip) -> None:
    made, x = oracle(bias, clip), point(bias)
    for row in range(10):
        W, b = Softmax(10, 64, bias).split(made.gradient(x, np.array([row])))
        found = analytic.one_sample(W, b if bias else None, bias)
        assert measure.psnr(DIGITS.x_train[row], found.phi[0]) > 200
        assert analytic.label_of(found.errors[0]) == DIGITS.y_train[row]


def test_noise_costs_what_was_predicted() -> None:
    g, x, rng, b = None, point(), np.random.default_rng(2), 2e-3
    g = oracle().gradient(x, np.array([0]))
    errors, said = [], []
    for _ in range(300):
        W, bias = SOFTMAX.split(g + rng.laplace(0.0, b, g.size))
        found = analytic.one_sample(W, bias, variance=2 * b * b)
        errors.append(np.mean((found.phi[0] - DIGITS.x_train[0]) ** 2))
        said.append(found.mse)
    assert np.mean(errors) == pytest.approx(np.mean(said), rel=0.05)


def test_a_gradient_of_zero_is_no_error() -> None:
    found = analytic.one_sample(np.zeros((10, 64)), np.zeros(10))
    assert np.isfinite(found.phi).all() and not found.errors.any() and found.mse == 0.0


# --- several samples of a softmax model


def rows_with(*labels: int) -> np.ndarray:
    return np.array([np.flatnonzero(DIGITS.y_train == y)[i] for i, y in enumerate(labels)])


@pytest.mark.parametrize("scale", [0.0, 0.1])
@pytest.mark.parametrize("clip", [None, Clip(2, 0.5)])
def test_a_batch_of_different_labels_comes_out_whole(scale, clip) -> None:
    batch = rows_with(3, 1, 4, 9, 5)
    x = point(scale=scale)
    g = oracle(clip=clip).gradient(x, batch)
    labels = np.sort(DIGITS.y_train[batch])
    found = analytic.softmax_batch([Seen(g, x, 0.0, clip)], SOFTMAX, labels)
    true = DIGITS.x_train[batch]
    order = measure.matched(true, found.phi)
    assert sorted(order) == list(range(5)) and (labels[order] == DIGITS.y_train[batch]).all()
    assert min(measure.psnr(a, b) for a, b in zip(true, found.phi[order], strict=True)) > 100


def test_two_of_one_label_are_their_mean_in_round_0() -> None:
    batch, x = rows_with(2, 2, 7), np.zeros(650)
    found = analytic.softmax_batch([Seen(oracle().gradient(x, batch), x)], SOFTMAX, DIGITS.y_train[batch])
    np.testing.assert_allclose(found.phi[:2], [DIGITS.x_train[batch[:2]].mean(axis=0)] * 2, atol=1e-12)
    np.testing.assert_allclose(found.phi[2], DIGITS.x_train[batch[2]], atol=1e-12)


def test_noise_on_a_batch_costs_what_was_predicted() -> None:
    batch, x, rng, b = rows_with(0, 5, 8), np.zeros(650), np.random.default_rng(3), 1e-3
    g, labels = oracle().gradient(x, batch), DIGITS.y_train[batch]
    found = [
        analytic.softmax_batch([Seen(g + rng.laplace(0.0, b, g.size), x, 2 * b * b)], SOFTMAX, labels)
        for _ in range(100)
    ]
    errors = [np.mean((one.phi - DIGITS.x_train[batch]) ** 2) for one in found]
    assert np.mean(errors) == pytest.approx(found[0].mse, rel=0.05)


# --- labels


def test_labels_by_the_sign_rule() -> None:
    for m in (1, 2, 5, 9):
        batch = np.arange(m)
        bias = SOFTMAX.split(oracle().gradient(np.zeros(650), batch))[1]
        found = analytic.labels_of(bias, m, np.full(10, 0.1))
        assert found.tolist() == sorted(DIGITS.y_train[batch])
        # The rule with the wrong sign, on the same gradients, is told apart.
        assert analytic.labels_of(-bias, m, np.full(10, 0.1)).tolist() != sorted(DIGITS.y_train[batch])


@pytest.mark.parametrize("m", [2, 7])
def test_labels_of_noise_are_still_m_labels(m) -> None:
    rng = np.random.default_rng(4)
    for _ in range(50):
        found = analytic.labels_of(rng.standard_normal(10), m, np.full(10, 0.1))
        assert len(found) == m and 0 <= found.min() <= found.max() < 10
    assert len(analytic.labels_of(np.full(10, 9.0), m, np.full(10, 0.1))) == m


# --- measures


def plain_ssim(a: np.ndarray, b: np.ndarray) -> float:
    """Pixel by pixel, window by window."""
    at = np.arange(-5, 6)
    one = np.exp(-(at**2) / (2 * 1.5**2))
    w = np.outer(one, one)
    w /= w.sum()
    pa, pb = (np.pad(v, 5, mode="symmetric") for v in (a, b))
    total = 0.0
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            x, y = pa[i : i + 11, j : j + 11], pb[i : i + 11, j : j + 11]
            mx, my = (w * x).sum(), (w * y).sum()
            vx, vy, c = (w * (x - mx) ** 2).sum(), (w * (y - my) ** 2).sum(), (w * (x - mx) * (y - my)).sum()
            total += (2 * mx * my + 1e-4) * (2 * c + 9e-4) / ((mx * mx + my * my + 1e-4) * (vx + vy + 9e-4))
    return total / a.size


def test_psnr_and_ssim_against_their_definitions() -> None:
    rng = np.random.default_rng(5)
    a = rng.random((12, 14))
    b = np.clip(a + 0.1 * rng.standard_normal(a.shape), 0, 1)
    # A range of 255, or of the picture's own span, would be 48 dB or some other number off.
    assert measure.psnr(a, b) == pytest.approx(20 * math.log10(1.0 / math.sqrt(np.mean((a - b) ** 2))))
    assert measure.psnr(a, a) == measure.PSNR_MAX and measure.psnr(np.zeros(4), np.full(4, 0.1)) == pytest.approx(20.0)
    assert measure.ssim(a, b) == pytest.approx(plain_ssim(a, b), abs=1e-12)
    assert measure.ssim(a, a) == pytest.approx(1.0) and measure.ssim(np.stack([a, a]), np.stack([a, b])) < 1.0


def test_recovered_pictures_find_their_true_ones() -> None:
    true = np.random.default_rng(6).random((6, 3, 3))
    order = np.array([3, 0, 5, 1, 2, 4])
    found = measure.matched(true, true[order] + 0.01)
    assert (true[order][found] == true).all()


def test_the_noise_ratio_needs_no_ground_truth() -> None:
    rng, d, b = np.random.default_rng(7), 4000, 0.01
    g = rng.standard_normal(d)
    true = math.sqrt(2 * d) * b / np.linalg.norm(g)
    assert noise_ratio(g + rng.laplace(0, b, d), 2 * b * b) == pytest.approx(true, rel=0.05)
    assert noise_ratio(g, 0.0) == 0.0 and 1.0 < noise_ratio(rng.laplace(0, b, d), 2 * b * b) < math.inf


# --- whole runs


def attacked(run, tmp_path: Path, options: Options | None = None, truth: bool = True):
    tmp_path.mkdir(exist_ok=True)
    made = record.play(run)
    study = made.study(tmp_path / "study") if truth else None
    return inversion.run(made.observe(tmp_path / "t"), study, options or Options())


def findings(result) -> list[Finding]:
    return [f for f in result.findings if f.verdict != "no power"]


@pytest.mark.parametrize("mechanism", ["paper", "noise-once"])
def test_a_run_without_noise_shows_its_pictures(tmp_path, mechanism) -> None:
    run = record.run_of(K=2, m=1, multiplier=0.0, mechanism=mechanism)
    found = attacked(run, tmp_path, Options(rounds=(0, 2)))
    shown = findings(found)
    # Agent 4 sends no y̆: its gradients show in x alone, one round late, and the last one nowhere.
    assert len(shown) == 7 and {f.verdict for f in shown} == {"succeeds"}
    for one in shown:
        assert one.measured["psnr_db"] > 100 and one.measured["ssim"] > 0.9999 and one.measured["label_accuracy"] == 1.0
        assert one.measured["noise_ratio"] < 1e-9 and one.predicted["noise_ratio"] < 1e-9
    rows = found.pictures
    assert rows["agent-1, round 0: true"].shape == (1, 8, 8)
    np.testing.assert_allclose(rows["agent-1, round 0: recovered"], rows["agent-1, round 0: true"], atol=1e-9)


def test_a_batch_of_a_run_without_noise(tmp_path) -> None:
    found = findings(attacked(record.run_of(K=1, m=3, multiplier=0.0), tmp_path))
    assert found and all(f.measured["label_accuracy"] == 1.0 for f in found)
    exact = [f for f in found if f.predicted["psnr_unclipped_db"] is not None]  # three labels that differ
    assert exact and all(f.measured["psnr_db"] > 100 for f in exact)


def test_the_paper_s_noise_hides_them(tmp_path) -> None:
    """S2 of the paper: 0.97^K and 0.98^K with K = 400, as sigma is constant within a run."""
    run = record.run_of(K=1, m=1, zeta=0.97**40, eta=0.98**40)
    found = attacked(run, tmp_path)
    assert {f.verdict for f in findings(found)} <= {"fails", "partly"}
    for one in findings(found):
        assert one.measured["recovered"] == 0.0 and one.predicted["noise_ratio"] > WORKS_UP_TO
        assert "a picture is not expected" in one.note and one.predicted["recovered"] < 0.2
    bare = attacked(run, tmp_path / "bare", Options(extra={"prior": "no"}))
    for one in findings(bare):
        assert one.measured["psnr_db"] < one.measured["baseline_db"] and one.verdict == "fails"


def test_little_noise_is_predicted_and_seen(tmp_path) -> None:
    run = record.run_of(K=1, m=1, zeta=1e-3, eta=1e-3)
    for one in findings(attacked(run, tmp_path)):
        assert one.measured["psnr_db"] == pytest.approx(one.predicted["psnr_db"], abs=5.0)
        assert one.measured["recovered"] == one.predicted["recovered"] == 1.0 and "is expected" in one.note
        assert one.measured["psnr_db"] > one.measured["psnr_mean_db"] + 20.0
    for one in findings(attacked(run, tmp_path / "bare", Options(extra={"prior": "no"}))):
        # 64 pixels: the mean of their squared errors has a spread of 25 % or so.
        assert one.measured["psnr_unclipped_db"] == pytest.approx(one.predicted["psnr_unclipped_db"], abs=3.0)
        assert one.measured["noise_ratio"] == pytest.approx(one.predicted["noise_ratio"], rel=0.2)


def test_without_truth_pictures_are_shown_and_nothing_is_measured(tmp_path) -> None:
    found = attacked(record.run_of(K=1, m=1, multiplier=0.0), tmp_path, truth=False)
    shown = findings(found)
    assert {f.verdict for f in shown} == {"not measured"} and all(set(f.measured.values()) == {None} for f in shown)
    assert "agent-1, round 0: recovered" in found.pictures and not any("true" in name for name in found.pictures)


@pytest.mark.parametrize(("scale", "expected"), [(1e-4, "4"), (2.0, "none")])
def test_the_summary_says_what_the_rows_say(tmp_path, scale, expected) -> None:
    found = attacked(record.run_of(K=1, m=1, zeta=scale, eta=scale), tmp_path, truth=False)
    rows = findings(found)
    hopeful = sum("a picture is expected" in f.note or "a picture is possible" in f.note for f in rows)
    assert f"a picture possible of {hopeful or 'none'} of them" in found.summary
    assert (hopeful == 0) == (expected == "none")


@pytest.mark.filterwarnings("error")
def test_clipped_noise_that_diverges_is_quiet() -> None:
    g = np.random.default_rng(0).laplace(0.0, 30.0, 650)
    found = analytic.softmax_batch([Seen(g, np.zeros(650), 1.0, Clip(2, 0.5))], SOFTMAX, np.arange(3))
    assert np.isfinite(found.phi).all()


def test_what_cannot_be_attacked_is_named(tmp_path) -> None:
    with pytest.raises(NotApplicable, match="no samples to recover"):
        attacked(record.run_of(K=1, m=1, data='dataset = "zeros"\ndimension = 4'), tmp_path)
    full = attacked(record.run_of(K=1, m='"full"', multiplier=0.0), tmp_path / "full")
    assert {f.verdict for f in full.findings} == {"no power"} and "more than are tried" in full.findings[0].note
    unknown = attacked(record.run_of(K=1, m='"full"', multiplier=0.0), tmp_path / "unknown", truth=False)
    assert "--set m=" in unknown.findings[0].note
    many = attacked(record.run_of(K=1, m=20, multiplier=0.0), tmp_path / "many")
    assert {f.verdict for f in many.findings} == {"no power"}
    with pytest.raises(ConfigError, match="--set shape"):
        attacked(record.run_of(K=1, m=1), tmp_path / "s", Options(extra={"shape": "8x8"}))


def test_an_agent_whose_release_was_not_seen_is_no_power(tmp_path) -> None:
    made = record.play(record.run_of(K=1, m=1, multiplier=0.0))
    seen = made.observe(tmp_path / "t", links=[("agent-1", "agent-2")])
    found = inversion.run(seen, made.study(tmp_path / "study"), Options())
    by_agent = {f.agent: f for f in found.findings}
    assert by_agent["agent-1"].verdict == "succeeds" and by_agent["agent-2"].verdict == "no power"
    assert "not seen" in by_agent["agent-2"].note and by_agent["agent-2"].measured["psnr_db"] is None


def test_a_wrong_sign_trips_the_run(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(analytic, "label_of", lambda bias: int(np.argmax(bias)))
    found = findings(attacked(record.run_of(K=1, m=1, multiplier=0.0), tmp_path))
    assert all(f.measured["label_accuracy"] == 0.0 for f in found)


def test_a_baseline_that_is_too_poor_trips_the_run(tmp_path, monkeypatch) -> None:
    """Compared with a black picture, the mean of a class would seem to be a success."""
    monkeypatch.setattr(judging, "without_a_message", lambda model, true, labels: {"mean": np.zeros_like(true)})
    found = findings(attacked(record.run_of(K=1, m=1, zeta=1.0, eta=1.0), tmp_path))
    assert "succeeds" in {f.verdict for f in found}  # which the same run without this mutant is not


def test_the_own_truth_of_another_batch_size_is_not_compared(tmp_path) -> None:
    made = record.play(record.run_of(K=1, m=1, multiplier=0.0))
    made.truth = [(i, replace(t, labels=t.labels[:0])) for i, t in made.truth]
    found = inversion.run(made.observe(tmp_path / "t"), made.study(tmp_path / "study"), Options())
    assert {f.verdict for f in findings(found)} == {"not measured"}
