"""The check of conduct: honest runs pass, whatever noise does; what no gradients explain is named in its round."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from dpgt_node.adversary.attack import NotApplicable, Options, Result
from dpgt_node.adversary.attacks.active import conduct
from dpgt_node.adversary.attacks.active.conduct import FALSE_ALARM, SAFE, attack, tail
from dpgt_node.adversary.inference.observation import Observation
from dpgt_node.agent.noise import sampler_for
from dpgt_node.config import RunConfig
from dpgt_node.config.mixing.robust import Robust
from dpgt_node.config.model import Privacy
from dpgt_node.config.roles import Roles
from dpgt_node.privacy.laws.keystream import TestKeystream
from dpgt_node.privacy.laws.registry import LAWS
from dpgt_node.sim.simulate import simulate
from tests.adversary.record import play, run_of

everybody = Options(agents=("agent-1", "agent-2", "agent-3"))
DELTA = FALSE_ALARM / 100


def clipped(clip: dict[str, float], roles: dict[str, str] | None = None, **settings: object) -> RunConfig:
    run = run_of(K=8, **settings)
    adversary = replace(run.adversary, active=Roles((roles or {}).items()))
    return replace(run, privacy=replace(run.privacy, **clip), adversary=adversary)


def tried(run: RunConfig, tmp_path: Path, name: str = "t") -> Result:
    return attack.run(play(run).observe(tmp_path / name), None, Options())


@pytest.mark.parametrize("mechanism", ["paper", "published-point", "public-state", "noise-once"])
@pytest.mark.parametrize("how", [("laplace", "float64", "clip_l1"), ("gaussian", "float32", "clip_l2")])
def test_honest_agents_pass_and_each_attack_is_named(mechanism: str, how: tuple[str, str, str], tmp_path: Path) -> None:
    law, dtype, clip = how
    settings = {"mechanism": mechanism, "law": law, "dtype": dtype, "zeta": 0.01, "eta": 0.005}
    found = tried(clipped({clip: 0.4}, **settings), tmp_path)
    assert [one.verdict for one in found.findings][:3] == ["clean"] * 3
    ratios = [v for one in found.findings for key, v in one.measured.items() if key.endswith("ratio") and v is not None]
    assert max(ratios) < 1.0 and len(ratios) >= 3
    roles = {"agent-1": "poison value=3 from=4", "agent-2": "trap value=7 from=2"}
    named = {one.agent: one for one in tried(clipped({clip: 0.4}, roles, **settings), tmp_path, "b").findings}
    assert named["agent-1"].verdict == "succeeds" and named["agent-1"].measured["y_first_round"] == 4.0
    assert named["agent-3"].verdict == "clean"
    if mechanism != "noise-once":  # what the others mix there is public, and so is what follows from it
        assert named["agent-2"].verdict == "succeeds" and named["agent-2"].measured["x_first_round"] == 2.0


def test_gradients_that_are_not_clipped_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutant: agents that leave the clip out, and noise that nearly hides it."""
    monkeypatch.setattr("dpgt_node.learning.nets.clipping.Clip.scale", lambda *_: None)
    found = tried(clipped({"clip_l1": 0.05}, zeta=1e-4, eta=1e-4), tmp_path)
    assert [one.verdict for one in found.findings][:3] == ["succeeds"] * 3


def test_a_push_within_every_radius_of_robust_mixing_is_named(tmp_path: Path) -> None:
    rows = "[[0,1,1,1],[1,0,1,1],[1,1,0,1],[1,1,1,0]]"
    run = clipped({"clip_l1": 0.4}, {"agent-3": "poison value=0.2"}, R=rows, C=rows, n=4, alpha=0.1, beta=0.05)
    run = replace(
        run,
        noise=replace(run.noise, multiplier=0.01),
        robust=Robust("trimmed-mean", outliers=1, tracker="clipped-gossip", tracker_radius=8.0),
    )
    assert [one.verdict for one in tried(run, tmp_path).findings] == ["clean", "clean", "succeeds", "clean"]


def test_who_got_other_values_than_the_observer_is_not_convicted(tmp_path: Path) -> None:
    """agent-1 equivocates: agent-2 mixes another y̆ than agent-3 heard, and follows the protocol."""
    rows = "[[0,1,1],[1,0,1],[1,1,0]]"
    run = clipped({"clip_l1": 0.4}, {"agent-1": "equivocate value=9 to=agent-2"}, R=rows, C=rows, n=3, beta=0.3)
    run = replace(
        run,
        adversary=replace(run.adversary, semi_honest=run.graph.agents),
        runtime=replace(run.runtime, on_forgery="continue"),
    )
    simulate(run, tmp_path, bytes(range(16)))
    paths = [tmp_path / "agents" / name / "state" / "transcript" for name in run.graph.agents]
    for seen in (paths[2:], paths):
        found = {one.agent: one for one in attack.run(Observation.load(seen, run), None, everybody).findings}
        assert found["agent-2"].verdict == "partly" and "got other values" in found["agent-2"].note
        assert found["agent-1"].verdict == found["agent-3"].verdict == "clean"


def test_all_that_is_tested_of_a_run_shares_the_false_alarms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spent: list[float] = []

    def noted(d: int, order: int, law: int, scales: np.ndarray, delta: float) -> float:
        spent.append(delta)
        return tail(d, order, law, scales, delta)

    monkeypatch.setattr(conduct, "tail", noted)
    tried(clipped({"clip_l1": 0.4}, zeta=0.01, eta=0.005), tmp_path)
    assert len(spent) == 4 * 2 * 9 and sum(spent) <= FALSE_ALARM * (1 + 1e-9)


def test_where_it_cannot_judge_it_says_so(tmp_path: Path) -> None:
    p = play(run_of(K=2))
    seen, hidden = p.observe(tmp_path / "a"), p.observe(tmp_path / "b", links=[("agent-2", "agent-3")])
    with pytest.raises(NotApplicable, match="clip_l1"):
        attack.run(seen, None, Options())
    facts = replace(seen.facts, run=replace(seen.facts.run, privacy=Privacy(clip_l1=40.0)))
    found = attack.run(replace(hidden, facts=facts), None, Options()).findings
    assert [one.verdict for one in found] == ["no power", "clean", "no power", "no power"], "round 0 is enough"
    few = replace(facts, schedule=replace(facts.schedule, releases=range(0, 3, 2)))
    with pytest.raises(NotApplicable, match="every round"):
        attack.run(replace(seen, facts=few), None, Options())
    shared = replace(facts, run=replace(facts.run, noise=replace(facts.run.noise, cancel=2.0)))
    with pytest.raises(NotApplicable, match="share"):
        attack.run(replace(seen, facts=shared), None, Options())


@pytest.mark.parametrize("law", LAWS)
def test_what_is_drawn_has_no_more_than_the_moments_that_the_bound_takes(law: str) -> None:
    one = LAWS[law]  # type: ignore[index]
    cells = np.arange(-int(60 / one.cell(1.0)), int(60 / one.cell(1.0)) + 1)
    for private in (0.0, 0.3 * one.cell(1.0), 0.5 * one.cell(1.0)):
        p = np.exp(one.log_cells(cells, np.full(len(cells), private), 1.0))
        n = one.cell(1.0) * (cells + 0.5) - private
        assert p.sum() == pytest.approx(1.0, abs=1e-9) and abs(p @ n) < 1e-9
        for u in np.linspace(0.02, 0.9, 12):
            bound = 1.0 / (1.0 - (SAFE * u) ** 2) if one.norm == 1 else math.exp((SAFE * u) ** 2 / 2)
            assert p @ np.exp(u * n) <= bound
        for m in range(1, 11):
            ideal = math.factorial(2 * m) / (1 if one.norm == 1 else 2**m * math.factorial(m))
            assert p @ n ** (2 * m) <= ideal * SAFE ** (2 * m)
        assert p @ np.abs(n) <= (1.0 if one.norm == 1 else math.sqrt(2 / math.pi)) * SAFE


@pytest.mark.parametrize("delta", [0.3, 1e-3, 1e-12])
@pytest.mark.parametrize("d", [1, 2, 40, 10_000, 10**7])
def test_the_reach_is_no_shorter_than_the_laws_that_are_known(d: int, delta: float) -> None:
    """Of |n| summed, which is a Gamma law where n is Laplace, and of n^2 summed, chi squared where n is Gaussian; of
    the largest of Laplace coordinates.
    """
    one = np.ones(1)
    assert tail(d, 1, 1, one, delta) >= stats.gamma.isf(delta, d)
    assert tail(d, 2, 2, one, delta) >= math.sqrt(stats.chi2.isf(delta, d))
    assert tail(d, 2, 1, one, delta) >= -math.log(-math.expm1(math.log1p(-delta) / d))
    if d == 1:
        assert tail(1, 1, 2, one, delta) >= stats.norm.isf(delta / 2)


@pytest.mark.parametrize("law", [1, 2])
@pytest.mark.parametrize("d", [1, 40, 5000])
def test_no_coordinate_is_cut_off_but_with_the_probability_that_the_bound_gives_it(d: int, law: int) -> None:
    """Bernstein's bound from its own words: d P(|n| > M) <= delta / 2, P from the density (one scale), L for the rest.

    M is Chernoff's under Laplace noise, so no smaller than the M that has this probability, nor 1.35 times as large.
    """
    s, L, of = 0.7 * SAFE, math.log(2.0 / DELTA), DELTA / (2.0 * d)
    exact = -s * math.log(of) if law == 1 else s * stats.norm.isf(of / 2.0)
    variance, fourth = (2.0 * s**2, 24.0 * s**4) if law == 1 else (s**2, 3.0 * s**4)

    def bound(M: float) -> float:
        third = L * M**2 / 3.0
        t = third + math.sqrt(third**2 + 2.0 * L * d * fourth)
        return math.sqrt(min(d * variance + t, d * M**2))

    found = tail(d, 2, law, np.array([0.7]), DELTA)
    assert bound(exact) <= found <= bound(1.35 * exact)


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("d", [3, 600])
def test_the_noise_stays_within_its_reach_which_is_no_wider_than_it_need_be(law: str, d: int, order: int) -> None:
    run = run_of(law=law)
    sampler, scales = sampler_for(run), np.array([0.2, 0.2, 0.2, 1.0])
    streams = [TestKeystream("ab", i).stream(0, "Y") for i in range(4)]
    sizes = []
    for _ in range(200):
        parts = [sampler.perturb(np.zeros(d), s, stream) for s, stream in zip(scales, streams, strict=True)]
        sizes.append(float(np.linalg.norm(np.sum(parts, axis=0), order)))
    reach = tail(d, order, LAWS[law].norm, scales, DELTA)  # type: ignore[index]
    assert max(sizes) < reach < (9.0 if d == 3 else 4.5 if order == 2 else 1.7) * max(sizes)
    assert tail(d, order, 1, np.zeros(2), DELTA) == 0.0 and tail(0, order, 1, scales, DELTA) == 0.0
