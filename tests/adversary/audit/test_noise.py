"""The noise fit: uniform under the law, to the last bit; every planted bug is found in one run, and no honest run."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dpgt_node import cli
from dpgt_node.adversary.audit import tally as tally_module
from dpgt_node.adversary.audit.clip import ClipCheck
from dpgt_node.adversary.audit.finding import Finding
from dpgt_node.adversary.audit.noise import CHANCE, _judged, _why_not, audit_noise
from dpgt_node.adversary.audit.tally import TRIPLES, Tally, Uniform
from dpgt_node.adversary.inference.observation import Facts
from dpgt_node.agent.noise import sampler_for
from dpgt_node.algo.methods import METHODS
from dpgt_node.config import RunConfig, to_toml
from dpgt_node.privacy.laws.gaussian_sampler import cell_probability
from dpgt_node.privacy.laws.grid import grid_laplace_pmf
from dpgt_node.privacy.laws.noise import ByteStream, Sampler
from dpgt_node.privacy.laws.registry import LAWS
from dpgt_node.record.truth import TruthRound
from tests.adversary.record import Play, play, run_of
from tests.sim.cases import CARRIED

Perturb = Callable[[np.ndarray, float, ByteStream], np.ndarray]


# ---------------------------------------------------------------- the law of a draw
def chance(law: str, v: float, scale: float, cell: int) -> float:
    """Of one cell, exactly."""
    if law == "laplace":
        pmf = grid_laplace_pmf(v, scale)
        return float(pmf.probability(cell))
    return float(cell_probability(v, scale, cell))


@pytest.mark.parametrize("law", ["laplace", "gaussian"])
def test_chances_of_lower_cells_are_sums_of_the_exact_ones(law: str) -> None:
    rng = np.random.default_rng(4)
    for v in (0.0, 0.3217, -7.1, *rng.normal(size=4)):
        scale = 0.37
        g = LAWS[law].cell(scale)  # type: ignore[index]
        middle = math.floor(v / g)
        span = 40
        cells = np.arange(middle - span, middle + span)
        below = LAWS[law].below(cells, np.full(len(cells), v), scale)  # type: ignore[index]
        above = LAWS[law].below(-1 - cells, np.full(len(cells), -v), scale)  # type: ignore[index]
        each = np.array([chance(law, v, scale, int(j)) for j in cells])
        np.testing.assert_allclose(np.diff(below), each[:-1], rtol=0, atol=1e-15)
        np.testing.assert_allclose(below + each + above, 1.0, rtol=0, atol=1e-15)


# ---------------------------------------------------------------- honest runs
def found(p: Play, tmp_path: Path, **seen: object) -> list[Finding]:
    return audit_noise(p.observe(tmp_path / "t", **seen), p.memory())


def refuted(findings: list[Finding]) -> set[str]:
    return {one.question for one in findings if one.refuted}


def clipped(**settings: object) -> RunConfig:
    run = run_of(**{"K": 4, **settings})
    return replace(run, privacy=replace(run.privacy, clip_l1=1.0))


OPTIONS = {"quantised-dsgd": {"step": 0.0}, "q-dpsgd": {"step": 0.0}}
DRAWING = [
    f"{name} {word}"
    for name in CARRIED
    if METHODS[name].noisy
    and METHODS[name].sends
    and name not in ("no-communication", "ternary-dsgd", "quantised-binomial-sgd")
    for word in METHODS[name].rules
]


@pytest.mark.parametrize("law", ["laplace", "gaussian"])
@pytest.mark.parametrize("rule", DRAWING)
def test_every_method_draws_the_noise_that_it_states(rule: str, law: str, tmp_path: Path) -> None:
    method, mechanism = rule.split()
    run = clipped(law=law)
    algorithm = replace(run.algorithm, method=method, mechanism=mechanism)
    p = play(replace(run, algorithm=algorithm, method_options=OPTIONS.get(method, {})), hex_digits="a0d1")
    findings = found(p, tmp_path)
    assert refuted(findings) == set()
    by = {one.question: one for one in findings if one.verdict == "not refuted"}
    assert {"grid", "scale", "coordinates", "tails", "shape", "sign", "low bit", "reuse", "lattice"} <= by.keys()
    assert {"norm", "gradients"} <= by.keys()
    assert by["grid"].numbers["draws"] >= 3 * 4 * 650


def test_what_was_not_seen_or_is_not_drawn_accuses_nobody(tmp_path: Path) -> None:
    p = play(clipped(dtype="float32"), hex_digits="a0d1")
    findings = found(p, tmp_path, missing=lambda s, r, payload: ((40, 80),) if payload.k == 2 else ())
    assert refuted(findings) == set()
    unseen = found(p, tmp_path, missing=lambda s, r, payload: None if payload.k == 2 and s == "agent-1" else ())
    assert refuted(unseen) == set() and {one.verdict for one in unseen if one.question == "law"} == {"not tested"}
    assert all(one.p is None or one.p >= 0.0 for one in (*findings, *unseen)), "an answer is a number"
    silent = play(clipped(multiplier=0.0))
    assert [one.verdict for one in found(silent, tmp_path)] == ["not tested"]
    rounded = replace(clipped(), method_options={"step": 0.125})
    rounded = replace(rounded, algorithm=replace(rounded.algorithm, method="quantised-dsgd", mechanism="state-noise"))
    said = [one for one in found(play(rounded), tmp_path) if one.question == "law"]
    assert len(said) == 4 and all("method.step = 0.0" in one.text for one in said)


def test_agents_can_be_chosen_and_shared_noise_is_left_alone(tmp_path: Path) -> None:
    p = play(clipped(K=2), hex_digits="a0d1", samples=False)
    observation, truth = p.observe(tmp_path / "t"), p.memory()
    everybody, one = audit_noise(observation, truth), audit_noise(observation, truth, ("agent-2",))
    assert 0 < _draws(one) < _draws(everybody) and {f.agent for f in one if f.check == "clip"} == {"agent-2"}
    shared = replace(p.run, noise=replace(p.run.noise, cancel=1))
    assert _why_not(Facts.of(p.run)) == "" and "shared between agents" in _why_not(Facts.of(shared))


def _draws(findings: list[Finding]) -> float:
    return next(f.numbers["draws"] for f in findings if f.question == "scale")


# ---------------------------------------------------------------- planted bugs
class Planted:
    """A sampler with a bug."""

    def __init__(self, sampler: Sampler, perturb: Perturb) -> None:
        self._sampler, self.perturb, self.clipped = sampler, perturb, 0

    def lam(self, dimension: int, scale: float, norm: float | None = None) -> float:
        return self._sampler.lam(dimension, scale, norm)

    def range(self, scale: float) -> float:
        return self._sampler.range(scale)


def on_grid(values: np.ndarray, scale: float, law: str) -> np.ndarray:
    g = LAWS[law].cell(scale)  # type: ignore[index]
    return np.asarray(g * (np.rint(values / g - 0.5) + 0.5))


def one_coordinate(part: float, snap: bool) -> Callable[[Sampler, str], Perturb]:
    """Coordinate 17 has only ``part`` of its noise, as it comes or moved to the grid."""

    def plant(sampler: Sampler, law: str) -> Perturb:
        def perturb(private: np.ndarray, scale: float, stream: ByteStream) -> np.ndarray:
            out = sampler.perturb(private, scale, stream)
            value = private[17] + part * (out[17] - private[17])
            out[17] = on_grid(np.array([value]), scale, law)[0] if snap else value
            return out

        return perturb

    return plant


def scaled(factor: float, snap: bool) -> Callable[[Sampler, str], Perturb]:
    def plant(sampler: Sampler, law: str) -> Perturb:
        def perturb(private: np.ndarray, scale: float, stream: ByteStream) -> np.ndarray:
            out = sampler.perturb(private, factor * scale, stream)
            return on_grid(out, scale, law) if snap else out

        return perturb

    return plant


def cut(sampler: Sampler, law: str) -> Perturb:
    """Tails end at four scales."""

    def perturb(private: np.ndarray, scale: float, stream: ByteStream) -> np.ndarray:
        out = sampler.perturb(private, scale, stream)
        return on_grid(private + np.clip(out - private, -4 * scale, 4 * scale), scale, law)

    return perturb


def reused(every: int) -> Callable[[Sampler, str], Perturb]:
    """The noise of one draw serves the next ``every`` as well, at each one's scale."""

    def plant(sampler: Sampler, law: str) -> Perturb:
        kept: list[np.ndarray] = []
        calls = [0]

        def perturb(private: np.ndarray, scale: float, stream: ByteStream) -> np.ndarray:
            if calls[0] % every == 0:
                kept[:] = [(sampler.perturb(np.zeros_like(private), scale, stream)) / scale]
            calls[0] += 1
            return on_grid(private + kept[0] * scale, scale, law)

        return perturb

    return plant


def randu(sampler: Sampler, law: str) -> Perturb:
    """Uniform values of a generator whose triples lie on 15 planes, by the inverse of the law."""
    state = [1]

    def perturb(private: np.ndarray, scale: float, stream: ByteStream) -> np.ndarray:
        u = np.empty(len(private))
        for i in range(len(u)):
            state[0] = 65539 * state[0] % 2**31
            u[i] = (state[0] + 0.5) / 2**31
        noise = np.where(u > 0.5, -np.log(2 * (1 - u)), np.log(2 * u))
        return on_grid(private + scale * noise, scale, law)

    return perturb


def even(sampler: Sampler, law: str) -> Perturb:
    """The lowest bit of every cell is always the same: half the grid."""

    def perturb(private: np.ndarray, scale: float, stream: ByteStream) -> np.ndarray:
        g = LAWS[law].cell(scale)  # type: ignore[index]
        cells = np.rint(sampler.perturb(private, scale, stream) / g - 0.5).astype(np.int64) & ~1
        return np.asarray(g * (cells + 0.5))

    return perturb


def one_sided(sampler: Sampler, law: str) -> Perturb:
    def perturb(private: np.ndarray, scale: float, stream: ByteStream) -> np.ndarray:
        return on_grid(private + np.abs(sampler.perturb(private, scale, stream) - private), scale, law)

    return perturb


BUGS: dict[str, tuple[Callable[[Sampler, str], Perturb], str]] = {
    "no noise in one coordinate": (one_coordinate(0.0, False), "grid"),
    "no noise in one coordinate, on the grid": (one_coordinate(0.0, True), "coordinates"),
    "half the noise in one coordinate, on the grid": (one_coordinate(0.5, True), "coordinates"),
    "half the scale": (scaled(0.5, False), "grid"),
    "half the scale, on the grid": (scaled(0.5, True), "scale"),
    "0.8 of the scale, on the grid": (scaled(0.8, True), "scale"),
    "0.95 of the scale, on the grid": (scaled(0.95, True), "scale"),
    "tails cut": (cut, "tails"),
    "noise used twice": (reused(2), "reuse"),
    "planes of a generator": (randu, "lattice"),
    "half the grid": (even, "low bit"),
    "one side": (one_sided, "sign"),
}


@pytest.mark.parametrize("bug", BUGS)
def test_one_run_finds_each_planted_bug(bug: str, tmp_path: Path) -> None:
    plant, question = BUGS[bug]
    run = clipped(K=60 if "half the noise in one" in bug else 8)
    p = play(run, sampler=lambda of: Planted(sampler_for(of), plant(sampler_for(of), of.noise.law)), samples=False)
    findings = found(p, tmp_path)
    by = {one.question: one for one in findings}
    assert by[question].verdict == "refuted", [(one.question, one.text, one.p) for one in findings]
    assert question == "grid" or (by[question].p or 0.0) <= CHANCE
    if "one coordinate" in bug:
        assert "coordinate 17 of" in by["coordinates" if question == "coordinates" else "grid"].text


@pytest.mark.parametrize("factor", [2.0, 1e3])
def test_a_clip_that_is_wider_or_missing_is_found_by_other_code(factor: float, tmp_path: Path) -> None:
    """Agents clip at ``factor`` times what the run file says that the auditor has."""
    run = clipped(mechanism="published-point")
    p = play(replace(run, privacy=replace(run.privacy, clip_l1=factor)), hex_digits="a0d1")
    said = replace(run, privacy=run.privacy)
    findings = audit_noise(Play(said, p.payloads, p.truth).observe(tmp_path / "t"), p.memory())
    assert {"gradients"} <= refuted(findings) <= {"gradients", "norm"}


TRUTH = TruthRound(0, *(np.zeros(3) for _ in "xyg"), *(np.zeros(0, dtype=np.int64) for _ in "bl"), np.zeros(0))


@pytest.mark.parametrize(
    ("clip", "shares", "g", "refuted"),
    [
        ("clip_l1", None, [0.5, -0.5, 0.0], False),
        ("clip_l1", None, [0.6, -0.5, 0.0], True),
        ("clip_l2", None, [0.7, -0.7, 0.0], False),  # 1.4 in L1
        ("clip_l2", None, [0.8, -0.7, 0.0], True),
        ("clip_l1", (1.0, 0.5, 0.5), [0.3, -0.3, 0.0], True),
    ],
)
def test_no_gradient_is_longer_than_the_clip_of_its_round(
    clip: str, shares: tuple[float, ...] | None, g: list[float], refuted: bool
) -> None:
    run = run_of(K=2, mechanism="noise-once", data='dataset = "quadratic"\ndimension = 3')
    run = replace(run, privacy=replace(run.privacy, **{clip: 1.0}, by_release=shares))
    check, x = ClipCheck(Facts.of(run), "agent-1", 3), np.zeros(3)
    check.look(0, x, replace(TRUTH, g=np.zeros(3)))
    check.look(1, x, replace(TRUTH, g=np.array(g)))
    (norm, gradients) = check.findings()
    assert (norm.refuted, gradients.verdict) == (refuted, "not tested") and "in round 1" in norm.text


# ---------------------------------------------------------------- the tests of uniform values
def test_p_values_are_uniform_enough_on_uniform_values() -> None:
    """1,000 tallies: the corrected p-value is below a tenth no more often than a tenth (binomial, 1e-9)."""
    rng = np.random.default_rng(7)
    low = 0
    for _ in range(1000):
        tally = Tally(("a", "b"), 24)
        for k in range(4):
            for agent in (0, 1):
                U = rng.random(24)
                one = Uniform(np.minimum(U, 1 - U), U > 0.5, rng.random(24) < 0.5, np.ones(24, dtype=bool))
                tally.add(agent, "X", k, one)
        scores = tally.scores()
        low += min(1.0, min(one.p for one in scores) * sum(one.tests for one in scores)) < 0.1
    assert low <= 165


Pulled = Callable[[dict[tuple[int, str, int], np.ndarray], np.random.Generator], None]


def tallied(agents: int, d: int, rounds: int, change: Pulled, known: float = 1.0) -> Tally:
    """Uniform values of X and Y of all rounds, by (agent, stream, round), after ``change``; the first part is seen."""
    rng, tally = np.random.default_rng(11), Tally([f"agent-{i + 1}" for i in range(agents)], d)
    drawn = {(i, s, k): rng.random(d) for k in range(rounds) for i in range(agents) for s in ("X", "Y")}
    change(drawn, rng)
    seen = np.arange(d) < known * d
    for (i, s, k), U in drawn.items():
        upper = np.where(seen, U > 0.5, False)
        tally.add(i, s, k, Uniform(np.where(seen, np.minimum(U, 1 - U), 0.0), upper, None, seen))  # type: ignore[arg-type]
    return tally


def alike(near: Callable[[tuple[int, str, int]], tuple[int, str, int]]) -> Pulled:
    """One sign in four is that of another vector, which comes before it."""

    def change(drawn: dict[tuple[int, str, int], np.ndarray], rng: np.random.Generator) -> None:
        for key, U in drawn.items():
            if (other := drawn.get(near(key))) is not None and near(key) != key:
                same = (rng.random(len(U)) < 0.25) & ((U > 0.5) != (other > 0.5))
                U[same] = 1 - U[same]

    return change


def skewed(power: float) -> Pulled:
    """T is as it should be, and so is every coin, but for the halves of each fold."""

    def change(drawn: dict[tuple[int, str, int], np.ndarray], rng: np.random.Generator) -> None:
        for U in drawn.values():
            U **= power

    return change


def leaning(drawn: dict[tuple[int, str, int], np.ndarray], rng: np.random.Generator) -> None:
    """A little more often above than below, everywhere."""
    for U in drawn.values():
        U[(U < 0.5) & (rng.random(len(U)) < 0.1)] += 0.5


def weak(drawn: dict[tuple[int, str, int], np.ndarray], rng: np.random.Generator) -> None:
    """Coordinate 17 of every agent has too little noise, too little to tell of one agent."""
    for U in drawn.values():
        U[17] = 0.5 + 0.62 * (U[17] - 0.5)


def copied(drawn: dict[tuple[int, str, int], np.ndarray], rng: np.random.Generator) -> None:
    """One vector has the signs of the one 40 vectors before it."""
    keys = list(drawn)
    drawn[keys[60]][:] = drawn[keys[20]]


PULLED: dict[str, tuple[Pulled, str, str]] = {
    "the round before": (alike(lambda key: (key[0], key[1], key[2] - 1)), "series", "1 rounds apart"),
    "five rounds before": (alike(lambda key: (key[0], key[1], key[2] - 5)), "series", "5 rounds apart"),
    "Y like X": (alike(lambda key: (key[0], "X", key[2])), "series", "X and Y of a round"),
    "the agent beside": (alike(lambda key: (key[0] - 1, key[1], key[2])), "series", "agents side by side"),
    "too high": (skewed(0.9), "shape", "all draws"),
    "too low": (skewed(1.1), "shape", "all draws"),
    "leaning": (leaning, "sign", "all draws"),
    "one coordinate of all": (weak, "coordinates", "coordinate 17 of all agents"),
    "a copy in another block": (copied, "reuse", "signs alike"),
}


@pytest.mark.parametrize("what", PULLED)
def test_every_question_sees_what_it_is_about(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tally_module, "ROWS", 32)
    change, question, where = PULLED[what]
    scores = {one.question: one for one in tallied(3, 600, 40, change).scores()}
    tests = sum(one.tests for one in scores.values())
    assert scores[question].p * tests <= CHANCE and where in scores[question].where, scores[question]
    if question in ("series", "reuse"):
        rest = [one for name, one in scores.items() if name not in ("series", "reuse")]
        assert all(one.p * tests > CHANCE for one in rest)


def test_signs_that_were_not_seen_are_compared_with_nothing() -> None:
    scores = {one.question: one for one in tallied(2, 600, 6, lambda *_: None, known=0.5).scores()}
    assert not {"reuse", "series"} & scores.keys() and all(one.p > CHANCE for one in scores.values())


def test_a_p_value_is_that_of_all_questions_together() -> None:
    tally = tallied(2, 40, 4, lambda *_: None)
    scores, judged = tally.scores(), _judged(tally)
    tests = sum(one.tests for one in scores)
    assert tests > 100
    assert [one.p for one in judged] == [min(1.0, one.p * tests) for one in scores]
    four = Tally(("a",), 4)
    four.add(0, "X", 0, Uniform(np.full(4, 0.25), np.zeros(4, dtype=bool), None, np.ones(4, dtype=bool)))
    (shape,) = (one for one in four.scores() if one.question == "shape")
    assert shape.p == pytest.approx(2 * math.exp(-2 * 4 * 0.75**2), rel=1e-2)


def test_p_values_are_of_both_sides() -> None:
    """Against sums and integrals: each is at most as small as how often an honest run is further off."""
    for n, total in ((1, 0.1), (1, 3.0), (4, 1.0), (4, 9.0)):
        below = 1.0 - math.exp(-total) * sum(total**j / math.factorial(j) for j in range(n))
        p = tally_module._gamma(np.array([n]), np.array([total]))
        assert p == pytest.approx(2.0 * min(below, 1.0 - below), rel=1e-9)
    for heads in range(11):
        ways = [math.comb(10, j) / 1024 for j in range(11)]
        (p,) = tally_module._binomial(np.array([heads]), np.array([10]), 0.5)
        assert p == pytest.approx(min(1.0, 2.0 * min(sum(ways[: heads + 1]), sum(ways[heads:]))), rel=1e-9)


def test_every_answer_counts_as_a_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """Coins: one a coordinate of each agent and of all together, and one of all draws; pairs of vectors: each."""
    tally = tallied(2, 40, 4, lambda *_: None)
    tests = {one.question: one.tests for one in tally.scores()}
    assert tests["sign"] == 3 * 40 + 1, tests
    assert tests["shape"] == len(tally._counts) == 5 and tests["coordinates"] == 3 * 40, tests
    assert tests["reuse"] == 16 * 15 // 2
    monkeypatch.setattr(tally_module, "ROWS", 4)
    (reuse,) = (one for one in tally.scores() if one.question == "reuse")
    assert reuse.tests == 4 * 6 + 3 * 16, "pairs in four blocks, and between neighbours of them"


def test_no_integers_of_the_lattice_are_each_others_negatives() -> None:
    both = {tuple(h) for h in TRIPLES.tolist()} | {tuple(-h) for h in TRIPLES}
    assert len(both) == 2 * len(TRIPLES)


# ---------------------------------------------------------------- the command
def test_the_command_reads_transcripts_and_study_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    p = play(clipped(mechanism="published-point"), hex_digits="a0d1")
    transcript, run_file, out = p.transcript(tmp_path / "t"), tmp_path / "run.toml", tmp_path / "out"
    run_file.write_text(to_toml(p.run), encoding="utf-8")
    p.study(out)
    argv = ["eavesdrop", "audit", str(transcript), "--run", str(run_file), "--noise"]
    code = cli.run([*argv, "--truth", str(out), "--out", str(out / "adversary"), "--format", "json"])
    document = json.loads(capsys.readouterr().out)
    assert code == 0 and document == json.loads((out / "adversary" / "audit.json").read_text())
    assert {one["check"] for one in document["findings"]} == {"noise", "clip"} and not document["refuted"]
    run_file.write_text(to_toml(replace(p.run, noise=replace(p.run.noise, multiplier=2.0))), encoding="utf-8")
    assert cli.run([*argv, "--truth", str(out)]) == 1
    assert "REFUTED" in capsys.readouterr().out
    assert cli.run(argv) == 2
    assert "--truth" in capsys.readouterr().err
