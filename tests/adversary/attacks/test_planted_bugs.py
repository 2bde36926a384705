"""Bugs planted in the drawing of noise: each is caught by the attack meant for it, and by no sound run."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dpgt_node.adversary.attack import Attack, Options, Result
from dpgt_node.adversary.attacks.floats import attack as floats
from dpgt_node.adversary.attacks.floats import on_grid, unreachable
from dpgt_node.adversary.attacks.generator import attack as generator
from dpgt_node.adversary.attacks.generator import candidate_seeds, inverse_cdf, low_cells
from dpgt_node.adversary.attacks.retries import attack as retries
from dpgt_node.adversary.attacks.reuse import attack as reuse
from dpgt_node.adversary.inference.observation import Observation
from dpgt_node.adversary.membership.rates import auc
from dpgt_node.config import RunConfig
from dpgt_node.privacy.laws import grid
from dpgt_node.privacy.laws.grid_sampler import GridLaplaceSampler
from dpgt_node.privacy.laws.keystream import CtrStream, TestKeystream
from dpgt_node.privacy.laws.laplace import LAPLACE
from dpgt_node.privacy.laws.noise import ByteStream, Purpose, Sampler
from dpgt_node.privacy.laws.sampler import LaplaceSampler
from tests.adversary.record import Play, play, run_of

LIBRARY = np.random.default_rng(1)
QUICK = Options(extra={"bits": "5"})


def try_on(attack: Attack, p: Play, tmp_path: Path, options: Options = QUICK, *, truth: bool = False) -> Result:
    study = p.study(tmp_path / "out") if truth else None
    return attack.run(p.observe(tmp_path / "t"), study, options)


def verdicts(result: Result) -> list[str]:
    return [finding.verdict for finding in result.findings]


@pytest.fixture(scope="module")
def sound() -> Play:
    return play(run_of(K=6))


@pytest.mark.parametrize("attack", [generator, reuse, retries, floats], ids=lambda a: a.name)
def test_a_sound_run_is_clean(sound: Play, tmp_path: Path, attack: Attack) -> None:
    result = try_on(attack, play(run_of(K=6), hex_digits="a1b2c3d4e5f60718"), tmp_path)
    # Agent 4 sends x̆ to one neighbour only and y̆ to nobody.
    assert set(verdicts(result)) <= {"clean", "no power"} and verdicts(result)[:3] == ["clean"] * 3
    assert result.vantage and not result.missing


@pytest.mark.parametrize("mechanism", ["published-point", "public-state", "noise-once"])
@pytest.mark.parametrize("law", ["laplace", "gaussian"])
def test_every_mechanism_and_law_is_clean(tmp_path: Path, mechanism: str, law: str) -> None:
    p = play(run_of(K=3, mechanism=mechanism, law=law), hex_digits="a1b2c3d4e5f60718")
    for attack in (reuse, floats):
        assert verdicts(try_on(attack, p, tmp_path))[:3] == ["clean"] * 3
    found = verdicts(try_on(generator, p, tmp_path))
    assert found == ["clean"] * 4 if mechanism == "published-point" else ["no power"] * 4


@pytest.mark.parametrize("what", [{"observer": "agent-3"}, {"links": [("agent-2", "agent-3")]}])
def test_a_partial_view_of_a_sound_run_is_clean(sound: Play, tmp_path: Path, what: dict[str, object]) -> None:
    seen = sound.observe(tmp_path / "t", **what)
    for attack in (reuse, retries, floats):
        found = verdicts(attack.run(seen, None, QUICK))
        assert set(found) <= {"clean", "no power"}, attack.name
    assert verdicts(floats.run(seen, None, QUICK))[1] == "clean"  # round 0 is enough


def test_a_float32_wire_is_clean(tmp_path: Path) -> None:
    p = play(run_of(K=3, dtype="float32"))
    assert verdicts(try_on(floats, p, tmp_path))[:3] == ["clean"] * 3


def test_without_noise_there_is_no_power(tmp_path: Path) -> None:
    p = play(run_of(K=3, multiplier=0.0))
    for attack in (generator, reuse, floats):
        assert verdicts(try_on(attack, p, tmp_path)) == ["no power"] * 4


# ---------------------------------------------------------------- weak seeds
class Seeded:
    """The mutant: a general-purpose generator where the keystream should be.  ``shared``: one for all draws."""

    def __init__(self, make: Callable[[int], Callable[[int], bytes]], seed: int, *, shared: bool) -> None:
        self._make, self._seed, self._shared = make, seed, shared
        self.take = make(seed)

    def stream(self, k: int, purpose: Purpose) -> ByteStream:
        if self._shared:
            return self
        fresh = Seeded(self._make, self._seed + 1000 * k + ("batch", "X", "Y").index(purpose), shared=True)
        return fresh


@pytest.mark.parametrize(
    ("make", "seed", "shared", "named"),
    [
        (
            lambda s: np.random.default_rng(s).bytes,
            10,
            True,
            "default_rng(seed).bytes after a batch, grid sampler, seed 1",
        ),
        (lambda s: np.random.default_rng(s).bytes, 10, False, "default_rng(seed).bytes, grid sampler, seed 1"),
        (lambda s: np.random.RandomState(s).bytes, 20, False, "RandomState(seed).bytes, grid sampler, seed 2"),
        (lambda s: random.Random(s).randbytes, 25, True, "Random(seed).randbytes after a batch, grid sampler, seed 2"),
    ],
)
def test_a_weak_seed_is_recovered(
    tmp_path: Path, make: Callable[[int], Callable[[int], bytes]], seed: int, shared: bool, named: str
) -> None:
    p = play(run_of(K=1), keystream=lambda i: Seeded(make, seed + i, shared=shared))
    result = try_on(generator, p, tmp_path)
    assert verdicts(result) == ["succeeds"] * 4 and "all of their noise is known" in result.summary
    for finding in result.findings:
        assert named in finding.note and finding.measured["noise_reproduced"] == 1.0


class LibraryNoise:
    """The mutant: noise straight from a library's Laplace."""

    clipped = 0

    def __init__(self, draw: Callable[[int], np.ndarray]) -> None:
        self._draw = draw

    def perturb(self, private: np.ndarray, scale: float, stream: ByteStream) -> np.ndarray:
        return private + scale * self._draw(private.size)

    def lam(self, dimension: int, scale: float, norm: float | None = None) -> float:
        return 0.0

    def range(self, scale: float) -> float:
        return float("inf")


def library(draw: Callable[[int], np.ndarray]) -> Callable[[RunConfig], Sampler]:
    return lambda run: LibraryNoise(draw)


def test_library_noise_with_a_seed_of_the_run_file_is_recovered_by_two_attacks(tmp_path: Path) -> None:
    run = run_of(K=2, model="init_seed = 90210", data='dataset = "digits"\nseed = 555')
    for draw in (
        lambda n: np.random.default_rng(90210).laplace(size=n),
        lambda n: np.random.RandomState(556).laplace(size=n),
    ):
        p = play(run, sampler=library(draw))
        result = try_on(generator, p, tmp_path)
        assert verdicts(result) == ["succeeds"] * 4
        assert all(f.measured["noise_reproduced"] == 1.0 for f in result.findings)
        assert verdicts(try_on(reuse, p, tmp_path))[:3] == ["succeeds"] * 3  # every draw starts from the same seed


def test_a_clock_seed_is_recovered(tmp_path: Path) -> None:
    when = 1_700_000_123
    p = play(run_of(K=1), keystream=lambda i: Seeded(lambda s: np.random.default_rng(s).bytes, when + i, shared=True))
    result = try_on(generator, p, tmp_path, Options(extra={"bits": "2", "around": str(when + 50), "window": "60"}))
    assert verdicts(result) == ["succeeds"] * 4 and f"seed {when}:" in result.findings[0].note


def test_a_test_keystream_with_a_short_secret_is_recovered(tmp_path: Path) -> None:
    result = try_on(generator, play(run_of(K=1), hex_digits="c0ffee"), tmp_path)
    assert [f.note for f in result.findings][2].startswith("test keystream of agent 3, grid sampler, seed c0ffee")
    other = play(run_of(K=1), hex_digits="77aa88")
    told = Options(extra={"bits": "2", "secret": "77aa88"})
    assert verdicts(try_on(generator, other, tmp_path, told)) == ["succeeds"] * 4


def test_what_the_attack_makes_of_bytes_is_what_the_samplers_draw() -> None:
    stream = CtrStream(bytes(16), bytes(16))
    data = CtrStream(bytes(16), bytes(16)).take(8 * 500)
    drawn = GridLaplaceSampler(False).perturb(np.zeros(500), 0.3, stream)
    cells = np.floor(drawn / grid.cell(0.3)).astype(np.int64)
    np.testing.assert_array_equal(low_cells(data), np.where(cells >= 0, cells, -1 - cells) % grid.BLOCK)
    plain = LaplaceSampler().perturb(np.zeros(500), 2.0, CtrStream(bytes(16), bytes(16)))
    np.testing.assert_allclose(2.0 * inverse_cdf(data), plain)
    seeds = candidate_seeds(run_of(model="init_seed = 4000"), bits=3, around=10**9, window=2)
    assert {4000, 4003, 0, 7, 42, 10**9 - 2, 10**9 + 2} <= set(seeds) and len(seeds) == len(set(seeds))


# ---------------------------------------------------------------- reuse
class Remembering(TestKeystream):
    """The mutant: noise derived from less than (agent, round, stream)."""

    def __init__(self, agent: int, label: Callable[[int, int, Purpose], tuple[int, int, Purpose]]) -> None:
        super().__init__("5eed", agent)
        self._me, self._label = agent, label

    def stream(self, k: int, purpose: Purpose) -> CtrStream:
        agent, k, purpose = self._label(self._me, k, purpose) if purpose != "batch" else (self._me, k, purpose)
        return TestKeystream("5eed", agent).stream(k, purpose)


@pytest.mark.parametrize(
    ("label", "note"),
    [
        (lambda agent, k, purpose: (agent, k % 4, purpose), "of round"),
        (lambda agent, k, purpose: (agent, k, "X"), "X of round"),
        (lambda agent, k, purpose: (0, k, purpose), "of agent-"),
    ],
    ids=["rounds", "streams", "agents"],
)
def test_noise_that_was_used_twice_is_found(
    tmp_path: Path, label: Callable[[int, int, Purpose], tuple[int, int, Purpose]], note: str
) -> None:
    result = try_on(reuse, play(run_of(K=6, zeta=0.3, eta=0.3), keystream=lambda i: Remembering(i, label)), tmp_path)
    assert verdicts(result)[:3] == ["succeeds"] * 3
    for finding in result.findings[:3]:
        assert "the same noise" in finding.note and note in finding.note and finding.measured["smallest"] < 0.3


def test_a_round_that_was_replayed_is_found(sound: Play, tmp_path: Path) -> None:
    seen = sound.observe(tmp_path / "t")
    assert "succeeds" not in verdicts(reuse.run(seen, None, Options()))
    seen.vectors[1, "Y", 2] = seen.vectors[1, "Y", 0].copy()
    result = reuse.run(seen, None, Options())
    assert [v == "succeeds" for v in verdicts(result)].index(True) == 1 and verdicts(result).count("succeeds") == 1
    assert result.findings[1].note == "Y of round 2 is that of round 0 once more: it was replayed"


def test_the_same_noise_with_the_other_sign_is_found(tmp_path: Path) -> None:
    def draw(n: int) -> np.ndarray:
        draw.calls += 1  # type: ignore[attr-defined]
        return (-1) ** draw.calls * np.random.default_rng(draw.calls // 2).laplace(size=n)  # type: ignore[attr-defined]

    draw.calls = 1  # type: ignore[attr-defined]
    result = try_on(reuse, play(run_of(K=3, zeta=0.3, eta=0.3), sampler=library(draw)), tmp_path)
    assert "succeeds" in verdicts(result) and any("opposite" in f.note for f in result.findings)


def test_reuse_where_data_outweigh_noise_is_no_power(tmp_path: Path) -> None:
    p = play(run_of(K=3, zeta=1e-5, eta=1e-5))
    assert set(verdicts(try_on(reuse, p, tmp_path))) == {"no power"}


# ---------------------------------------------------------------- retries
def drawn_again(p: Play, tmp_path: Path, *, of: str = "agent-2") -> Observation:
    """The mutant: what one neighbour gets in round 2 was drawn afresh."""
    from dpgt_node.wire.transcript import Transcript, seen
    from dpgt_node.wire.transcript_writer import TranscriptWriter

    whole = Transcript(p.transcript(tmp_path / "whole"))
    with TranscriptWriter(tmp_path / "t", whole.header) as writer:
        for entry in whole:
            if (entry.sender, entry.receiver, entry.k, entry.stream) == (of, "agent-3", 2, "Y"):
                again = entry.array() + np.random.default_rng(0).laplace(size=entry.dimension) * 0.05
                entry = seen(entry.sender, entry.receiver, 2, "Y", "float64", again.tobytes())
            writer.write(entry)
    return Observation.load([tmp_path / "t"], p.run)


def test_a_release_that_was_drawn_again_is_found(sound: Play, tmp_path: Path) -> None:
    result = retries.run(drawn_again(sound, tmp_path), None, Options())
    assert verdicts(result)[:2] == ["clean", "succeeds"]
    finding = result.findings[1]
    assert finding.measured["that_differ"] == 1.0 and "Y of round 2" in finding.note and "rms" in finding.note
    one_edge = sound.observe(tmp_path / "one", links=[("agent-2", "agent-3")])
    assert set(verdicts(retries.run(one_edge, None, Options()))) == {"no power"}


DAMAGE = {
    "the hash was not seen": {"sha256": bytes(32)},
    "another hash was declared": {"sha256": bytes(range(32))},
    "a hole, and another hash was declared": {"sha256": bytes(range(32)), "missing": ((0, 8),), "sha256_seen": b""},
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_evidence_accuses_nobody(sound: Play, tmp_path: Path, damage: str) -> None:
    from dpgt_node.wire.transcript import Transcript
    from dpgt_node.wire.transcript_writer import TranscriptWriter

    whole = Transcript(sound.transcript(tmp_path / "whole"))
    with TranscriptWriter(tmp_path / "t", whole.header) as writer:
        for entry in whole:
            last = (entry.sender, entry.receiver, entry.k, entry.stream) == ("agent-2", "agent-3", 2, "Y")
            writer.write(replace(entry, **DAMAGE[damage]) if last else entry)  # type: ignore[arg-type]
    result = retries.run(Observation.load([tmp_path / "t"], sound.run), None, Options())
    assert verdicts(result)[1] == "clean" and result.findings[1].measured["that_differ"] == 0.0


# ---------------------------------------------------------------- floats
def test_float_noise_is_found(tmp_path: Path) -> None:
    for sampler in (lambda run: LaplaceSampler(), library(lambda n: LIBRARY.laplace(size=n))):
        result = try_on(floats, play(run_of(K=2), sampler=sampler), tmp_path, truth=True)
        assert verdicts(result)[:3] == ["succeeds"] * 3
        for finding in result.findings[:3]:
            assert finding.measured["on_grid"] < 0.05 and "low_bits_auc" in finding.measured


def test_float_noise_tells_private_values_by_their_low_bits() -> None:
    """x = 0 against x = 1/3 under Lap(1), float arithmetic: from single coordinates; on the grid: not at all."""
    data = CtrStream(bytes(16), bytes(16))
    for sampler, leaks in ((LaplaceSampler(), True), (GridLaplaceSampler(False), False)):
        with_value = unreachable(sampler.perturb(np.full(60_000, 1 / 3), 1.0, data), 1.0)
        without = unreachable(sampler.perturb(np.zeros(60_000), 1.0, data), 1.0)
        value = auc(with_value[~np.isnan(with_value)], without[~np.isnan(without)])[0]
        assert value > 0.8 if leaks else abs(value - 0.5) < 0.05


def test_a_coarser_or_finer_grid_than_the_scale_asks_for_is_found(tmp_path: Path) -> None:
    class Wrong(GridLaplaceSampler):
        """The mutant: the cell of another scale."""

        __slots__ = ()

        def perturb(self, private: np.ndarray, scale: float, stream: ByteStream) -> np.ndarray:
            return super().perturb(private, 0.9 * scale, stream)

    assert (
        verdicts(try_on(floats, play(run_of(K=1), sampler=lambda run: Wrong(False)), tmp_path))[:3] == ["succeeds"] * 3
    )


def test_the_grid_is_seen_to_the_last_bit() -> None:
    cell = grid.cell(0.1)
    values = cell * (np.arange(-500, 500) + 0.5)
    assert on_grid(values, LAPLACE, 0.1, 2.0**-53).all()
    assert not on_grid(np.nextafter(values, np.inf), LAPLACE, 0.1, 2.0**-53).any()
    assert np.isnan(on_grid(values, LAPLACE, 0.1, 1e-2)[:100]).all()  # a wire too coarse to tell
