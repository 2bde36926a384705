"""Gradients, labels, classes and members of real runs: exact without noise, as predicted with it, gone under much."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from dpgt_node.adversary.attack import Attack, Finding, NotApplicable, Options, Result
from dpgt_node.adversary.attacks import ATTACKS
from dpgt_node.adversary.attacks.common import result
from dpgt_node.adversary.attacks.floats import attack as floats
from dpgt_node.adversary.attacks.generator import attack as generator
from dpgt_node.adversary.attacks.gradients import attack as gradients
from dpgt_node.adversary.attacks.inversion import inversion
from dpgt_node.adversary.attacks.labels import _verdict as labels_verdict
from dpgt_node.adversary.attacks.labels import attack as labels
from dpgt_node.adversary.attacks.membership import attack as membership
from dpgt_node.adversary.attacks.properties import _verdict, guessing
from dpgt_node.adversary.attacks.properties import attack as properties
from dpgt_node.adversary.attacks.retries import attack as retries
from dpgt_node.adversary.attacks.reuse import attack as reuse
from dpgt_node.adversary.inference.estimators import view
from dpgt_node.adversary.inference.fusion import least_squares
from dpgt_node.adversary.inference.knowledge import Samples, Softmax, class_count, public_samples
from dpgt_node.adversary.inference.observation import Conflict, Observation
from dpgt_node.adversary.membership.matched import AS_IT_IS, Clipping, Filter
from dpgt_node.adversary.membership.rates import WITHIN, auc, hits
from dpgt_node.config import RunConfig
from dpgt_node.config.model import Privacy
from dpgt_node.errors import ConfigError
from dpgt_node.learning.oracle import build_oracle
from tests.adversary.record import Play, play, run_of

RING = [[0, 0, 1], [1, 0, 0], [0, 1, 0]]
BY_LABEL = 'dataset = "digits"\npartition = "by-label"\nclass_assignment_mode = "random"\nseed = 4'


def on(attack: Attack, p: Play, tmp_path: Path, *, truth: bool = True, **extra: str) -> Result:
    study = p.study(tmp_path / "out") if truth else None
    return attack.run(p.observe(tmp_path / "t"), study, Options(extra=extra))


def ring(**settings: object) -> RunConfig:
    return run_of(R=RING, C=RING, **settings)


# ---------------------------------------------------------------- gradients
@pytest.mark.parametrize("mechanism", ["paper", "published-point", "public-state", "noise-once"])
def test_without_noise_every_gradient_is_exact(tmp_path: Path, mechanism: str) -> None:
    result = on(gradients, play(ring(K=5, multiplier=0.0, mechanism=mechanism)), tmp_path)
    for finding in result.findings:
        assert finding.verdict == "succeeds"
        for name in ("B", "B_from_x", "fused", "smoothed"):
            assert finding.measured[f"{name}_cosine"] == pytest.approx(1.0, abs=1e-12)
            assert finding.measured[f"{name}_relative_error"] < 1e-10
            assert finding.predicted[f"{name}_cosine"] == pytest.approx(1.0, abs=1e-9)


@pytest.mark.parametrize(
    ("mechanism", "law"),
    [
        ("paper", "laplace"),
        ("paper", "gaussian"),
        ("published-point", "laplace"),
        ("public-state", "laplace"),
        ("noise-once", "gaussian"),
    ],
)
def test_measured_errors_are_the_predicted_ones(tmp_path: Path, mechanism: str, law: str) -> None:
    result = on(gradients, play(ring(K=12, mechanism=mechanism, law=law, zeta=0.02, eta=0.03)), tmp_path)
    for finding in result.findings:
        for name in ("A", "X", "B", "D", "E", "fused", "x"):
            measured, predicted = finding.measured[f"{name}_rms"], finding.predicted[f"{name}_rms"]
            assert measured == pytest.approx(predicted, rel=0.05, abs=1e-14), name
        for name in ("B", "fused"):
            assert finding.measured[f"{name}_cosine"] == pytest.approx(finding.predicted[f"{name}_cosine"], abs=0.03)
        assert finding.measured["fused_rms"] <= 1.001 * finding.measured["B_rms"]
        assert finding.measured["smoothed_rms"] <= finding.measured["fused_rms"]
    assert set(result.curves) >= {"agent-1: cosine of B, measured", "agent-1: cosine of smoothed, predicted"}


def test_under_heavy_noise_it_fails_and_says_so(tmp_path: Path) -> None:
    result = on(gradients, play(ring(K=5, zeta=5.0, eta=5.0)), tmp_path, fuse="no")
    assert {f.verdict for f in result.findings} == {"fails"}
    # The mutant: half the noise that was promised; measured and predicted part.
    p = play(ring(K=8, zeta=0.02, eta=0.015))
    lied = replace(p, run=ring(K=8, zeta=0.02, eta=0.03))
    finding = on(gradients, lied, tmp_path, fuse="no").findings[0]
    assert finding.measured["D_rms"] < 0.55 * finding.predicted["D_rms"]


def test_without_truth_nothing_is_measured_and_part_of_it_is_named(tmp_path: Path) -> None:
    p = play(ring(K=5, zeta=0.01, eta=0.01))
    bare = on(gradients, p, tmp_path, truth=False, fuse="no")
    for finding in bare.findings:
        assert finding.verdict == "not measured" and "no ground truth" in finding.note
        assert {finding.measured[f"{n}_rms"] for n in "AXBDE"} == {None}
    measured = on(gradients, p, tmp_path, fuse="no")
    guessed, true = (r.findings[0].predicted["B_cosine"] for r in (bare, measured))
    assert guessed == pytest.approx(true, abs=0.05)  # |g| estimated from the transcript
    study = p.study(tmp_path / "out")
    del study["agent-2"]
    partly = gradients.run(p.observe(tmp_path / "t"), study, Options(extra={"fuse": "no"}))
    assert [f.verdict == "not measured" for f in partly.findings] == [False, True, False]


def test_agents_and_rounds_are_chosen(tmp_path: Path) -> None:
    p = play(ring(K=5))
    seen, study = p.observe(tmp_path / "t"), p.study(tmp_path / "out")
    one = gradients.run(seen, study, Options(agents=("agent-2",), rounds=(0,), extra={"fuse": "no"}))
    assert [f.agent for f in one.findings] == ["agent-2"] and "fused_rms" not in one.findings[0].measured
    g = p.true(1, "g")[0]
    noise = view(seen, 1).y[0] - g
    assert one.findings[0].measured["B_relative_error"] == pytest.approx(
        float(np.linalg.norm(noise) / np.linalg.norm(g))
    )
    with pytest.raises(ConfigError, match="agent-9"):
        gradients.run(seen, study, Options(agents=("agent-9",)))


def test_chosen_coordinates_are_enough_for_gradients_and_named_by_the_others(tmp_path: Path) -> None:
    p = play(ring(K=5, model="init_seed = 1"))
    path, study = p.transcript(tmp_path / "t"), p.study(tmp_path / "out")
    few = Observation.load([path], p.run, coordinates=range(100, 400))
    finding = gradients.run(few, study, Options(extra={"fuse": "no"})).findings[0]
    assert finding.measured["E_rms"] == pytest.approx(finding.predicted["E_rms"], rel=0.1)
    with pytest.raises(NotApplicable, match="every coordinate"):
        labels.run(few, study, Options())


# ---------------------------------------------------------------- labels
@pytest.mark.parametrize(
    ("right", "guess", "m", "verdict"),
    [(0.93, 0.94, 287, "fails"), (0.945, 0.94, 287, "fails"), (0.99, 0.94, 287, "succeeds"), (0.92, 0.1, 1, "succeeds"),
     (0.6, 0.1, 1, "partly"), (0.3, 0.1, 1, "fails")],
)  # fmt: skip
def test_labels_that_a_guess_has_too_are_no_success(right: float, guess: float, m: int, verdict: str) -> None:
    """Most labels of a large batch are right by equal shares alone."""
    assert labels_verdict({"labels_right": right, "guessing": guess, "rounds": 5.0}, m) == verdict


def test_one_sample_shows_its_label_far_above_the_noise_that_hides_it(tmp_path: Path) -> None:
    for b in (1e-3, 1e-2, 0.1):
        assert on(labels, play(ring(K=6, m=1, zeta=b, eta=b)), tmp_path).findings[0].measured["labels_right"] > 0.95
    hidden = on(labels, play(ring(K=6, m=1, zeta=20.0, eta=20.0)), tmp_path)
    assert hidden.findings[0].measured["labels_right"] < 0.6


def test_batches_are_counted_exactly_without_noise(tmp_path: Path) -> None:
    p = play(ring(K=6, multiplier=0.0))
    for extra, rounds in (({}, 1.0), ({"aux": "yes"}, 7.0)):
        for finding in on(labels, p, tmp_path, **extra).findings:
            assert finding.measured["batches_exact"] == 1.0 and finding.measured["rounds"] == rounds
    assert "public samples" in on(labels, p, tmp_path).findings[0].note
    noisy = on(labels, play(ring(K=6, zeta=2e-3, eta=2e-3)), tmp_path, aux="yes")
    for finding in noisy.findings:
        assert finding.measured["count_rms"] == pytest.approx(finding.predicted["count_rms"], rel=0.3)
    assert {f.verdict for f in on(labels, play(ring(K=2, zeta=3.0, eta=3.0)), tmp_path, aux="yes").findings} == {
        "fails"
    }


@pytest.mark.parametrize("allowed", [0.0, 0.001, 0.01, 0.3, 0.99])
@pytest.mark.parametrize(("inside", "outside"), [(40, 200), (7, 3), (1, 1), (300, 1000)])
def test_hits_at_false_alarms_are_the_best_threshold_of_all(allowed: float, inside: int, outside: int) -> None:
    """Every threshold tried, also where members and others tie."""
    rng = np.random.default_rng(inside)
    for places in (8, 1, 0):
        members, others = np.round(rng.normal(0.5, 1, inside), places), np.round(rng.normal(0, 1, outside), places)
        thresholds = np.concatenate([members, others, [-np.inf]])
        best = max((members > t).mean() for t in thresholds if (others > t).mean() <= allowed)
        assert hits(members, others, allowed) == best


def test_what_has_no_labels_is_named(tmp_path: Path) -> None:
    toy = play(ring(K=1, m=1, data='dataset = "quadratic"\ndimension = 20'))
    for attack in (labels, membership, properties):
        with pytest.raises(NotApplicable):
            on(attack, toy, tmp_path)
    with pytest.raises(NotApplicable, match="bias"):
        on(labels, play(ring(K=1, model="bias = 0")), tmp_path)


# ---------------------------------------------------------------- properties
def test_classes_of_each_agent_come_out(tmp_path: Path) -> None:
    for b, extra in ((0.0, {}), (0.05, {}), (0.2, {"aux": "yes"})):
        noise = {"zeta": b, "eta": b} if b else {"multiplier": 0.0}
        result = on(properties, play(ring(K=20, data=BY_LABEL, **noise)), tmp_path, **extra)
        assert {f.verdict for f in result.findings} == {"succeeds"}
        assert result.summary.startswith("the classes of 3 of 3 agents are named exactly; named and")
    hidden = on(properties, play(ring(K=3, data=BY_LABEL, zeta=50.0, eta=50.0)), tmp_path)
    assert all(f.measured["classes_right"] < 1.0 for f in hidden.findings)
    bare = on(properties, play(ring(K=20, data=BY_LABEL, zeta=0.05, eta=0.05)), tmp_path, truth=False)
    assert all(f.verdict == "not measured" and f.note.startswith("classes ") for f in bare.findings)


def test_the_predicted_separation_is_met(tmp_path: Path) -> None:
    result = on(properties, play(ring(K=2, data=BY_LABEL, zeta=0.02, eta=0.02, m='"full"')), tmp_path, aux="yes")
    for finding in result.findings:
        assert finding.measured["separation"] == pytest.approx(finding.predicted["separation"], rel=0.25)


# ---------------------------------------------------------------- membership
@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty samples an agent, and public ones of the same origin."""
    from dpgt_node.learning.data.datasets import load_dataset

    data = load_dataset("digits")
    path = tmp_path_factory.mktemp("data") / "few.npz"
    np.savez(
        path,
        x_train=data.x_train[:120],
        y_train=data.y_train[:120],
        x_test=data.x_train[200:800],
        y_test=data.y_train[200:800],
    )
    return path


def members(few: Path, b: float, **settings: object) -> Play:
    noise = {"zeta": b, "eta": b} if b else {"multiplier": 0.0}
    return play(ring(K=20, m=10, data=f'dataset = "npz:{few}"', **noise, **settings))


def test_members_are_told_from_others_until_noise_hides_them(few: Path, tmp_path: Path) -> None:
    open_ = on(membership, members(few, 0.0), tmp_path, D="40")
    assert np.mean([f.measured["auc"] for f in open_.findings]) > 0.75
    hidden = on(membership, members(few, 3.0), tmp_path, D="40")
    for finding in hidden.findings:
        assert finding.measured["auc_low"] < 0.6 and finding.predicted["auc"] < 0.6
        assert finding.measured["auc_low"] < finding.measured["auc"] < finding.measured["auc_high"]
        assert finding.note == WITHIN, "no other run is known"


def test_who_was_never_there_is_not_found(few: Path, tmp_path: Path) -> None:
    """The control: the same statistic for another agent's samples is at chance."""
    p = members(few, 0.0)
    study = p.study(tmp_path / "out")
    swapped = {"agent-1": study["agent-2"], "agent-2": study["agent-3"], "agent-3": study["agent-1"]}
    result = membership.run(p.observe(tmp_path / "t"), swapped, Options(extra={"D": "40"}))
    assert np.mean([f.measured["auc"] for f in result.findings]) == pytest.approx(0.5, abs=0.12)


def test_candidates_of_ones_own_are_scored(few: Path, tmp_path: Path) -> None:
    p = members(few, 0.0)
    with np.load(few) as data:
        np.savez(tmp_path / "c.npz", phi=data["x_train"][:30], labels=data["y_train"][:30])
    result = on(membership, p, tmp_path, truth=False, D="40", candidates=str(tmp_path / "c.npz"))
    assert result.findings[0].verdict == "not measured"
    assert len(result.curves["agent-1: score of each candidate"][1]) == 30
    np.savez(tmp_path / "bad.npz", phi=np.zeros((3, 5)), labels=np.zeros(3, dtype=np.int64))
    with pytest.raises(ConfigError, match="64 features"):
        on(membership, p, tmp_path, truth=False, D="40", candidates=str(tmp_path / "bad.npz"))
    assert "candidates" in on(membership, p, tmp_path, truth=False).findings[0].note


def test_the_filter_is_the_dense_one(few: Path, tmp_path: Path) -> None:
    """Against explicit per-sample gradients and covariance matrices, one without each public sample."""
    p, m, D = members(few, 0.05, mechanism="published-point"), 10, 40
    v = view(p.observe(tmp_path / "t"), 0, 2)
    public = public_samples(p.run, None, 8)
    model = Softmax.of(p.run, v.y.shape[1], 10)
    some = Samples(public.phi[:7] * 0.9, public.labels[:7], 10)
    filter_ = Filter(model, some, public, m=m, whitened=True, clipping=AS_IT_IS)
    got = filter_.scores(v, D)
    g, a, along = least_squares(v), [], np.zeros((3, 7, 8))
    T, N = np.zeros(7), np.zeros(7)
    for k in range(3):
        H, A = (model.gradients(v.x[k], s.phi, s.labels) for s in (some, public))
        centre = A.mean(axis=0)
        floor = float(g.variance[k].mean()) * np.eye(len(centre))
        V = (A - centre).T @ (A - centre) / 8 / m + floor
        a.append(np.linalg.solve(V, (H - centre).T).T)
        T += a[k] @ (g.g[k] - centre)
        N += ((H - centre) * a[k]).sum(axis=1)
        for j in range(8):
            left = np.delete(A - centre, j, axis=0)
            along[k, :, j] = np.linalg.solve(left.T @ left / 8 / m + floor, (H - centre).T).T @ (A[j] - centre)
    variance = np.square(along).mean(axis=2).sum(axis=0) * (1 / m - 1 / D) + along.sum(axis=0).var(axis=1, ddof=1) / D
    b, sizes = v.params.b, np.linalg.norm(a, axis=2)
    for t in range(3):
        variance += v.var_y[t] * np.square(sizes[t] + b * sizes[t + 1 :].sum(axis=0))
    np.testing.assert_allclose(got.T, T, rtol=1e-6)
    np.testing.assert_allclose(filter_.statistics(v), T, rtol=1e-6)
    np.testing.assert_allclose(got.N, N, rtol=1e-6)
    np.testing.assert_allclose(got.d, N / D / np.sqrt(variance), rtol=0.02)  # x gives a little more than y alone
    np.testing.assert_allclose(got.score, got.d * (T - N / D / 2) / np.sqrt(variance), rtol=0.02)


@pytest.mark.parametrize("privacy", [Privacy(clip_l1=2.0), Privacy(clip_l2=0.5)])
def test_the_attack_clips_as_the_agents_do(few: Path, tmp_path: Path, privacy: Privacy) -> None:
    p = play(
        replace(ring(K=3, m=10, data=f'dataset = "npz:{few}"', model="bias = 0.3\ninit_seed = 2"), privacy=privacy)
    )
    oracle = build_oracle(p.run, 0)
    model = Softmax.of(p.run, oracle.dimension, 10)
    phi, y = oracle._x[:9], oracle._y[:9]  # type: ignore[attr-defined]
    x = np.random.default_rng(0).standard_normal(oracle.dimension)
    clipping = Clipping.of(p.observe(tmp_path / "t"))
    errors = clipping.clipped(1, model, model.errors(x, phi, y), phi)
    gradients = np.concatenate([(errors[:, :, None] * phi[:, None, :]).reshape(9, -1), model.bias * errors], axis=1)
    np.testing.assert_allclose(gradients.mean(axis=0), oracle.gradient(x, np.arange(9)), atol=1e-12)
    assert np.abs(model.errors(x, phi, y)).sum() > 1.5 * np.abs(errors).sum()  # the clip does something


@pytest.mark.parametrize(("b", "clip"), [(0.02, 0.5), (0.1, None)])
def test_the_predicted_area_is_met(few: Path, tmp_path: Path, b: float, clip: float | None) -> None:
    """Clipped or not: three agents' mean of measured areas has a standard deviation of 0.04."""
    run = ring(K=40, m=10, data=f'dataset = "npz:{few}"', zeta=b, eta=b)
    found = on(membership, play(replace(run, privacy=Privacy(clip_l2=clip))), tmp_path, D="40").findings
    measured, expected = (np.mean([getattr(f, how)["auc"] for f in found]) for how in ("measured", "predicted"))
    assert measured == pytest.approx(expected, abs=0.12) and 0.6 < expected < 0.75


def test_no_noise_and_no_success_is_no_safety(few: Path, tmp_path: Path) -> None:
    """An attack that fails though nothing hides the secret is a weak one."""
    for scale, verdict in ((0.0, "no power"), (3.0, "fails")):
        failed = Finding("agent-1", "fails", {"auc": 0.5})
        noise = {"zeta": scale, "eta": scale} if scale else {"multiplier": 0.0}
        (found,) = result("any", "", [failed], play(ring(K=1, **noise)).observe(tmp_path / "t")).findings
        assert found.verdict == verdict and ("the run is not safe" in found.note) == (not scale)


def test_the_model_of_the_attack_is_that_of_the_agents() -> None:
    run = ring(model="bias = 0.3\ninit_seed = 2")
    oracle = build_oracle(run, 0)
    model = Softmax.of(run, oracle.dimension, 10)
    phi, y = oracle._x[:9], oracle._y[:9]  # type: ignore[attr-defined]
    x = np.random.default_rng(0).standard_normal(oracle.dimension)
    np.testing.assert_allclose(model.gradients(x, phi, y).mean(axis=0), oracle.gradient(x, np.arange(9)), atol=1e-12)
    with pytest.raises(NotApplicable):
        Softmax.of(run, 651, 10)
    assert class_count(run) == 10 and class_count(run, "7") == 7
    with pytest.raises(NotApplicable, match="classes"):
        class_count(replace(run, data=replace(run.data, dataset="npz:x")))


def test_the_interval_of_an_auc_covers() -> None:
    rng = np.random.default_rng(0)
    true = 0.7602  # Phi(1/sqrt 2)
    inside = [auc(rng.normal(1, 1, 60), rng.normal(0, 1, 60)) for _ in range(400)]
    assert 0.92 < np.mean([low <= true <= high for _, low, high in inside]) < 0.98
    assert np.mean([value for value, _, _ in inside]) == pytest.approx(true, abs=0.01)
    assert auc(np.ones(20), np.zeros(20)) == (1.0, pytest.approx(0.025 ** (1 / 20)), 1.0)
    assert auc(np.zeros(5), np.zeros(5))[0] == 0.5


def test_the_registry_names_what_is_there() -> None:
    assert {"gradients", "labels", "membership", "properties", "generator", "reuse", "retries", "floats"} < set(ATTACKS)
    for attack in (gradients, labels, membership, properties):
        assert ATTACKS[attack.name].endswith(f"{attack.name}:attack") and attack.needs == frozenset()


# ---------------------------------------------------------------- observers, settings, guesses
def test_an_observer_is_no_victim_unless_it_is_named(tmp_path: Path) -> None:
    p = play(ring(K=3, zeta=0.01, eta=0.01))
    seen, study = p.observe(tmp_path / "t", observer="agent-1"), p.study(tmp_path / "out")
    for attack in (gradients, labels, properties, membership, generator, reuse, retries, floats):
        found = attack.run(seen, study, Options(extra={"bits": "1"}))
        assert [f.agent for f in found.findings] == ["agent-2", "agent-3"], attack.name
    assert [f.agent for f in inversion.run(seen, study, Options()).findings] == ["agent-2", "agent-3"]
    named = gradients.run(seen, study, Options(agents=("agent-1",), extra={"fuse": "no"}))
    assert [f.agent for f in named.findings] == ["agent-1"]
    paths = [p.transcript(tmp_path / f"of-{name}", observer=name) for name in p.run.graph.agents]
    with pytest.raises(NotApplicable, match="every agent of the run is an observer"):
        retries.run(Observation.load(paths, p.run), None, Options())


def test_a_conflict_of_an_observer_is_not_counted(tmp_path: Path) -> None:
    p = play(ring(K=3))
    clash = Conflict(0, "Y", 1, np.ones(3))
    own = replace(p.observe(tmp_path / "t", observer="agent-1"), conflicts=(clash,))
    assert "differ" not in retries.run(own, None, Options()).summary
    other = replace(own, conflicts=(replace(clash, sender=1),))
    assert retries.run(other, None, Options()).summary.startswith("1 copies differ")


def test_members_need_others_beside_them(few: Path, tmp_path: Path) -> None:
    p = members(few, 0.0)  # with 600 public samples
    for public in ("599", "600", "100000"):
        with pytest.raises(ConfigError, match=r"--set public: .*no two non-members are left"):
            on(membership, p, tmp_path, D="40", public=public)
    assert on(membership, p, tmp_path, D="40", public="598").findings[0].measured["others"] == 2.0


def test_all_classes_everywhere_are_no_success(tmp_path: Path) -> None:
    """An iid run: naming every class is right without any transcript."""
    for finding in on(properties, play(ring(K=20, zeta=0.5, eta=0.5)), tmp_path).findings:
        assert finding.measured["guessing"] == 1.0 and finding.verdict in ("fails", "no power")
        assert "guess" in finding.note
    two = on(properties, play(ring(K=20, data=BY_LABEL, zeta=0.01, eta=0.01)), tmp_path)
    assert all(0.0 < f.measured["guessing"] < 0.5 for f in two.findings) and "guessing: " in two.summary


def test_guesses_against_every_set_there_is() -> None:
    for classes, true, held in ((5, 2, 2), (5, 3, 1), (4, 3, 3), (4, 4, 4)):
        right = set(range(true))
        every = [len(right & set(c)) / len(right | set(c)) for c in combinations(range(classes), held)]
        assert guessing(true, classes, held) == pytest.approx(np.mean(every))
    assert guessing(10, 10, None) == 1.0 and guessing(2, 10, None) == 0.2
    assert [_verdict(*pair) for pair in ((1.0, 0.2), (1.0, 1.0), (0.5, 0.2), (0.2, 0.2), (0.1, 1.0))] == [
        *("succeeds", "no power", "partly", "fails", "fails")
    ]


def test_no_infinite_prediction_without_truth(tmp_path: Path) -> None:
    bare = on(gradients, play(ring(K=5, zeta=50.0, eta=50.0)), tmp_path, truth=False, fuse="no")
    predicted = [f.predicted for f in bare.findings]
    assert all(p["B_relative_error"] is None or np.isfinite(p["B_relative_error"]) for p in predicted)
    assert None in [p["B_relative_error"] for p in predicted] and all(0.0 <= p["B_cosine"] < 0.5 for p in predicted)
