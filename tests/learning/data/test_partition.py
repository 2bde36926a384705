from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpgt_node.errors import ConfigError
from dpgt_node.learning.data.partition import partition

DIRICHLET = {"alpha": 0.3, "min_partition_size": 5, "self_balancing": True}
KINDS = {
    "iid": {},
    "contiguous": {},
    "shards": {"num_shards_per_partition": 2},
    "dirichlet": DIRICHLET,
    "inner-dirichlet": {"alpha": 0.3},
}


def labels(samples: int, classes: int = 10, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).integers(classes, size=samples)


def classes_held(y: np.ndarray, blocks: list[np.ndarray]) -> list[set[int]]:
    return [set(y[own].tolist()) for own in blocks]


def test_contiguous_blocks():
    assert [own.tolist() for own in partition("contiguous", labels(7), 3, seed=5)] == [[0, 1, 2], [3, 4], [5, 6]]


def test_iid_blocks_are_those_of_the_seeded_permutation():
    order, blocks = np.random.default_rng(5).permutation(1438), partition("iid", labels(1438), 5, seed=5)
    for own, expected in zip(blocks, np.array_split(order, 5), strict=True):
        np.testing.assert_array_equal(own, expected)
    assert [len(own) for own in blocks] == [288, 288, 288, 287, 287]


@pytest.mark.parametrize("kind", KINDS)
@settings(deadline=None, max_examples=40)
@given(samples=st.integers(70, 300), agents=st.integers(1, 7), classes=st.integers(1, 12), seed=st.integers(0, 99))
def test_every_sample_has_one_owner(kind, samples, agents, classes, seed):
    params = KINDS[kind] | ({"min_partition_size": 1} if kind == "dirichlet" else {})
    try:
        blocks = partition(kind, labels(samples, classes, seed), agents, seed, params)
    except ConfigError:
        assert kind == "dirichlet"  # it may give up, and says so
        return
    assert len(blocks) == agents and all(len(own) and own.dtype == np.int64 for own in blocks)
    assert sorted(np.concatenate(blocks).tolist()) == list(range(samples))


@pytest.mark.parametrize("kind", KINDS)
def test_the_seed_decides(kind):
    y = labels(500)
    one, again, other = (partition(kind, y, 5, seed, KINDS[kind]) for seed in (3, 3, 4))
    assert all(np.array_equal(a, b) for a, b in zip(one, again, strict=True))
    assert kind == "contiguous" or any(not np.array_equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize(("kind", "samples"), [("iid", 2), ("contiguous", 0)])
def test_nobody_gets_nothing(kind, samples):
    with pytest.raises(ConfigError, match="3 agents cannot share"):
        partition(kind, labels(samples), 3, seed=0)


def test_shards_of_sorted_labels():
    y = np.repeat(np.arange(10), 20)
    blocks = partition("shards", np.random.default_rng(0).permutation(y), 5, 0, {"num_shards_per_partition": 2})
    assert [len(own) for own in blocks] == [40] * 5
    shuffled = np.random.default_rng(0).permutation(y)
    assert all(len(held) <= 2 for held in classes_held(shuffled, blocks))
    with pytest.raises(ConfigError, match="need as many samples"):
        partition("shards", labels(9), 5, 0, {"num_shards_per_partition": 2})


def test_dirichlet_is_skewed_by_a_small_alpha_and_even_under_a_large_one():
    y = labels(20_000)

    def spread(alpha: float) -> float:
        blocks = partition("dirichlet", y, 5, 0, DIRICHLET | {"alpha": alpha})
        shares = [np.bincount(y[own], minlength=10) / np.bincount(y) for own in blocks]
        return float(np.std(shares))

    assert spread(0.05) > 0.25 > 0.1 > spread(1.0) * 0.4 > 0.02 > spread(1000.0)


def test_dirichlet_self_balancing_keeps_the_sizes_nearer():
    y = labels(20_000)

    def sizes(balance: bool) -> float:
        params = DIRICHLET | {"alpha": 0.1, "self_balancing": balance, "min_partition_size": 1}
        return float(np.mean([max(map(len, partition("dirichlet", y, 5, seed, params))) for seed in range(20)]))

    assert sizes(True) < sizes(False)


def test_dirichlet_gives_up_with_advice():
    with pytest.raises(ConfigError, match="min_partition_size: 5 agents with 300 samples each"):
        partition("dirichlet", labels(1000), 5, 0, DIRICHLET | {"min_partition_size": 300})
    with pytest.raises(ConfigError, match="raise alpha"):
        partition("dirichlet", labels(1000), 5, 0, DIRICHLET | {"alpha": 1e-3, "min_partition_size": 190})


@pytest.mark.parametrize("alpha", [1e-300, 1e-3, 1e12])
def test_dirichlet_at_the_edges_of_alpha(alpha):
    try:
        blocks = partition("dirichlet", labels(400), 4, 0, DIRICHLET | {"alpha": alpha, "min_partition_size": 1})
    except ConfigError:
        return
    assert sorted(np.concatenate(blocks).tolist()) == list(range(400))


def mixtures(y: np.ndarray, blocks: list[np.ndarray]) -> np.ndarray:
    return np.array([np.bincount(y[own], minlength=10) / len(own) for own in blocks])


def test_inner_dirichlet_has_equal_sizes_and_mixtures_of_the_stated_spread():
    y = labels(60_000)
    blocks = partition("inner-dirichlet", y, 100, 0, {"alpha": 0.1, "partition_size": 200})
    assert {len(own) for own in blocks} == {200} and len(set(np.concatenate(blocks).tolist())) == 20_000
    # A share of Dirichlet(a, ..., a) over c classes has variance (c - 1)/(c^2 (c a + 1)).
    for alpha in (0.1, 1.0):
        params = {"alpha": alpha, "partition_size": 200}
        shares = mixtures(y, partition("inner-dirichlet", y, 100, 0, params))
        assert abs(shares.var() / (0.09 / (10 * alpha + 1)) - 1) < 0.15
    even = mixtures(y, partition("inner-dirichlet", y, 100, 0, {"alpha": 1e6, "partition_size": 200}))
    assert even.std() < 0.03


def test_inner_dirichlet_uses_what_is_left():
    y = np.repeat(np.arange(10), 60)
    blocks = partition("inner-dirichlet", y, 10, 0, {"alpha": 1e-3})
    assert [len(own) for own in blocks] == [60] * 10
    assert sorted(np.concatenate(blocks).tolist()) == list(range(600))
    assert mixtures(y, blocks)[0].max() == 1.0, "the first one has what it drew"


def test_inner_dirichlet_refuses_what_there_is_not():
    with pytest.raises(ConfigError, match="partition_size: 5 agents with 201 samples each need more than the 1000"):
        partition("inner-dirichlet", labels(1000), 5, 0, {"alpha": 1.0, "partition_size": 201})


@pytest.mark.parametrize("alpha", [1e-300, 1e-3, 1e12])
def test_inner_dirichlet_at_the_edges_of_alpha(alpha):
    blocks = partition("inner-dirichlet", labels(400), 4, 0, {"alpha": alpha})
    assert sorted(np.concatenate(blocks).tolist()) == list(range(400))


def test_by_label_deterministic_and_random():
    y = np.repeat(np.arange(10), 12)
    params = {"num_classes_per_partition": 2, "class_assignment_mode": "deterministic"}
    blocks = partition("by-label", y, 5, 0, params)
    assert classes_held(y, blocks) == [{0, 1}, {2, 3}, {4, 5}, {6, 7}, {8, 9}]
    assert sorted(np.concatenate(blocks).tolist()) == list(range(120))
    shared = partition("by-label", y, 10, 0, params)
    assert [len(own) for own in shared] == [12] * 10 and classes_held(y, shared)[5] == {0, 1}
    assert len(set(np.concatenate(shared).tolist())) == 120
    few = partition("by-label", y, 2, 0, params)
    assert sum(map(len, few)) == 48, "classes that nobody holds are not used"
    random = partition("by-label", y, 5, 3, params | {"class_assignment_mode": "random"})
    assert all(len(held) == 2 for held in classes_held(y, random)) and classes_held(y, random) != classes_held(
        y, blocks
    )
    with pytest.raises(ConfigError, match="has 10 classes"):
        partition("by-label", y, 5, 0, params | {"num_classes_per_partition": 11})


def test_one_class_with_fewer_samples_than_holders_is_refused():
    y = np.array([0] + [1] * 20)
    params = {"num_classes_per_partition": 1, "class_assignment_mode": "deterministic"}
    with pytest.raises(ConfigError, match="agent number 3 without samples"):
        partition("by-label", y, 4, 0, params)
