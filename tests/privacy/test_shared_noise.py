"""Noise that cancels, drawn: integers on the sampler's grid, the same at both ends of a pair."""

from __future__ import annotations

import hashlib
import hmac
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from dpgt_node.errors import Broken, ConfigError
from dpgt_node.privacy.cancelling.masks import MaskGraph
from dpgt_node.privacy.laws import gaussian_sampler
from dpgt_node.privacy.laws.gaussian_sampler import CHUNK, GaussianSampler, shared_cells
from dpgt_node.privacy.laws.keystream import CtrStream, TestKeystream
from dpgt_node.privacy.laws.pairs import PAIR_KEY_BYTES, Ratchet, TestPairKeys, pair_stream, ratchet

HEX = "5eed"


def releases(graph: MaskGraph, v: np.ndarray, scale: float, r: int, k: int = 0, hexes: str = HEX) -> np.ndarray:
    """g~ of every agent of round ``k``, (n, d)."""
    out = []
    for i in range(graph.n):
        keys = TestPairKeys(hexes, i)
        shared = [(1 if i < j else -1, pair_stream(keys.key(j, k))) for j in graph.partners(i)]
        out.append(GaussianSampler().perturb_shared(v[i], scale, TestKeystream(hexes, i).stream(k, "Y"), shared, r))
    return np.array(out)


def units(values: np.ndarray, scale: float) -> list[int]:
    """Multiples of scale/512."""
    found = np.rint(values / (scale / 512)).astype(np.int64)
    np.testing.assert_array_equal(found * 0.5 * (scale / 256), values)
    return found


@pytest.mark.parametrize("graph", [MaskGraph.complete(5), MaskGraph.ring(4), MaskGraph.complete(2)])
@pytest.mark.parametrize("r", [1, 2, 3])
def test_the_sum_over_agents_is_that_without_shared_noise_to_the_last_bit(graph: MaskGraph, r: int) -> None:
    v, scale = np.random.default_rng(r).normal(size=(graph.n, 40)), 0.3
    with_, without = releases(graph, v, scale, r), releases(MaskGraph(graph.n, ()), v, scale, r)
    assert units(with_, scale).sum(axis=0).tolist() == units(without, scale).sum(axis=0).tolist()
    assert (with_ != without).any(axis=1).all(), "everybody's own release has moved"


def test_a_sign_wrong_at_one_end_is_noticed() -> None:
    v, scale = np.zeros((2, 30)), 1.0
    own = units(releases(MaskGraph(2, ()), v, scale, 2), scale).sum(axis=0)
    for signs, cancels in (((1, -1), True), ((-1, 1), True), ((1, 1), False), ((-1, -1), False)):
        seen = []
        for i, sign in enumerate(signs):
            stream, shared = TestKeystream(HEX, i).stream(0, "Y"), pair_stream(TestPairKeys(HEX, i).key(1 - i, 0))
            seen.append(GaussianSampler().perturb_shared(v[i], scale, stream, [(sign, shared)], 2))
        total = units(np.array(seen), scale).sum(axis=0)
        assert (total.tolist() == own.tolist()) is cancels


def test_no_partner_no_change() -> None:
    v = np.linspace(-1, 1, 50)
    for scale in (0.3, 1e-200, 7.0):
        plain = GaussianSampler().perturb(v, scale, CtrStream(bytes(16), bytes(16)))
        other = GaussianSampler().perturb_shared(v, scale, CtrStream(bytes(16), bytes(16)), (), 3)
        assert plain.tobytes() == other.tobytes()


def test_the_integers_are_added_before_they_are_multiplied() -> None:
    """In exact arithmetic, (scale/512) (2 j + 1 + r (2 j_M + 1) ...) rounded once."""
    v, scale, r, d = np.random.default_rng(1).normal(size=25), 0.3, 3, 25
    seeds = [CtrStream(bytes([i]) * 16, bytes(16)) for i in range(6)]
    signs = 1, -1, 1  # halves do not cancel
    out = GaussianSampler().perturb_shared(v, scale, seeds[0], list(zip(signs, seeds[1:4], strict=True)), r)
    own = GaussianSampler().perturb(v, scale, CtrStream(bytes(16), bytes(16)))
    cells = [shared_cells(CtrStream(bytes([i]) * 16, bytes(16)), d) for i in (1, 2, 3)]
    step = Fraction(scale) / 512
    off = 0
    for at in range(d):
        j = round(Fraction(float(own[at])) / step)
        total = j + sum(sign * r * (2 * int(each[at]) + 1) for sign, each in zip(signs, cells, strict=True))
        assert float(step * total) == out[at]
        shares = (sign * (r * scale / 256) * (each[at] + 0.5) for sign, each in zip(signs, cells, strict=True))
        added = own[at] + sum(shares)
        off += added != out[at]
    assert off > 3, "added as doubles, many would not lie there"


def test_what_a_pair_shares_is_normal_and_independent_of_its_scale() -> None:
    cells = np.concatenate([shared_cells(CtrStream(bytes([i]) * 16, bytes(16)), CHUNK) for i in range(6)])
    assert (cells == np.floor(cells)).all()
    assert stats.kstest((cells + 0.5) / 256, stats.norm.cdf).pvalue > 1e-3
    assert stats.kstest((cells + 0.5) / 256, stats.norm(scale=1.05).cdf).pvalue < 1e-9


def test_the_covariance_of_what_is_released() -> None:
    graph, d, r = MaskGraph.ring(4), 60_000, 2
    seen = releases(graph, np.zeros((4, d)), 1.0, r)
    L = np.array([[2, -1, 0, -1], [-1, 2, -1, 0], [0, -1, 2, -1], [-1, 0, -1, 2]])
    np.testing.assert_allclose(seen @ seen.T / d, np.eye(4) + r * r * L, atol=0.25)


@pytest.mark.parametrize("d", [0, 1, CHUNK + 5])
def test_long_vectors_and_doubtful_coordinates(d: int, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = MaskGraph.complete(2)
    if d == 1:  # integer arithmetic decides everywhere, and takes no more bytes
        expected = releases(graph, np.full((2, d), 0.3), 1.0, 2)
        monkeypatch.setattr(gaussian_sampler, "MARGIN", 1.0)
        monkeypatch.setattr(gaussian_sampler, "_quantile", lambda low: np.full(low.size, -0.7))
        np.testing.assert_array_equal(releases(graph, np.full((2, d), 0.3), 1.0, 2), expected)
    total = units(releases(graph, np.full((2, d), 0.3), 1.0, 2), 1.0).sum(axis=0)
    own = units(releases(MaskGraph(2, ()), np.full((2, d), 0.3), 1.0, 2), 1.0).sum(axis=0)
    assert total.tolist() == own.tolist()


def test_shared_noise_does_not_depend_on_what_is_released() -> None:
    graph = MaskGraph.complete(3)
    a, b = (releases(graph, np.full((3, 40), value), 0.7, 2) for value in (0.0, 0.7 * 5))
    np.testing.assert_allclose(b - a, 0.7 * 5, atol=1e-9)


# --- keys ------------------------------------------------------------------------------------------------------------


def test_every_round_and_every_pair_has_its_own_stream() -> None:
    drawn = {}
    for k in range(4):
        for i in range(4):
            for j in range(4):
                if i != j:
                    drawn[i, j, k] = pair_stream(TestPairKeys(HEX, i).key(j, k)).take(32)
    for (i, j, k), data in drawn.items():
        assert data == drawn[j, i, k]
    assert len(set(drawn.values())) == 4 * 6
    agents = {TestKeystream(HEX, i).stream(k, "Y").take(32) for i in range(4) for k in range(4)}
    assert not agents & set(drawn.values())


def test_the_chain_of_keys() -> None:
    first = bytes(range(32))
    chain = [first]
    for _ in range(4):
        chain.append(ratchet(chain[-1]))
    assert len(set(chain)) == 5 and all(len(key) == PAIR_KEY_BYTES for key in chain)
    # RFC 5869, section 2.3, one block.
    assert ratchet(first) == hmac.digest(first, b"dpgt pair next\x01", hashlib.sha256)
    block = hmac.digest(first, b"dpgt pair stream\x01", hashlib.sha256)
    assert pair_stream(first).take(64) == CtrStream(block[:16], block[16:]).take(64)

    keys = Ratchet({3: first, 1: chain[1]})
    assert [keys.key(3, k) for k in (0, 2, 1, 0)] == [chain[0], chain[2], chain[1], chain[0]]
    keys.erase_before(2)
    assert keys.key(3, 2) == chain[2] and keys.key(1, 3) == chain[4] and keys.keys_of(2) == {3: chain[2], 1: chain[3]}
    with pytest.raises(Broken, match="erased"):
        keys.key(3, 1)
    again = Ratchet(keys.keys_of(3), 3)
    assert again.key(3, 4) == chain[4]


def test_senseless_keys() -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        Ratchet({0: bytes(16)})
    with pytest.raises(ConfigError, match="hexadecimal"):
        TestPairKeys("no", 0)
