from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dpgt_node.config.model import Model, Privacy
from dpgt_node.errors import ConfigError, ExitCode
from dpgt_node.learning.data import features, shards
from dpgt_node.learning.data.arrays import frozen
from dpgt_node.learning.data.datasets import Dataset
from dpgt_node.learning.data.digest import shard_sha256
from dpgt_node.learning.labelled import own_dataset
from dpgt_node.learning.nets import models
from dpgt_node.learning.nets.models import SoftmaxOracle
from dpgt_node.learning.oracle import build_oracle, constants, oracle_and_digest, sample_counts
from tests.learning.cases import blobs, run, save


@pytest.fixture
def npz(tmp_path):
    return save(tmp_path / "d.npz", blobs(31))


def test_shards_cover_the_training_set(npz):
    config = run(f"npz:{npz}", partition="contiguous")
    oracles = [build_oracle(config, shard) for shard in range(3)]
    assert tuple(o.samples for o in oracles) == sample_counts(config) == (11, 10, 10)
    np.testing.assert_array_equal(np.vstack([o._x for o in oracles]), blobs(31).x_train)
    shuffled = np.vstack(
        [build_oracle(replace(config, data=replace(config.data, partition="iid")), i)._x for i in range(3)]
    )
    np.testing.assert_array_equal(shuffled, blobs(31).x_train[np.random.default_rng(0).permutation(31)])


def test_the_digest_is_of_the_agents_own_samples(npz, tmp_path):
    config = run(f"npz:{npz}", partition="contiguous", classes=3)
    own = save(tmp_path / "own.npz", blobs(8, seed=5))
    given = [oracle_and_digest(config, shard)[1] for shard in range(3)]
    given.append(oracle_and_digest(config, 2, data_path=own)[1])
    rows = (np.arange(11), np.arange(11, 21), np.arange(21, 31))
    assert given == [*(shard_sha256(blobs(31), some) for some in rows), shard_sha256(blobs(8, seed=5))]


@pytest.mark.parametrize("normalise", ["none", "l2"])
def test_a_network_takes_what_was_normalised(npz, normalise):
    config = with_features(run(f"npz:{npz}", softmax=Model(name="mlp"), partition="contiguous"), "raw", normalise)
    expected = features.transform(blobs(31).x_train, "raw", normalise)[11:21]
    np.testing.assert_array_equal(own_dataset(config, 1).x_train, expected)


def test_model_and_privacy_keys_arrive(npz):
    config = run(f"npz:{npz}", softmax=Model(init_seed=3, bias=0.0), privacy=Privacy(clip_l2=1e-6))
    o = build_oracle(config, 0)
    assert o.dimension == 12 and o.initial().any()
    assert 0 < np.linalg.norm(o.gradient(o.initial(), np.arange(5))) <= 1e-6


def test_more_samples_than_the_agent_holds(npz):
    config = run(f"npz:{npz}", samples=11)
    assert build_oracle(config, 0).samples == 11
    with pytest.raises(ConfigError, match=r"m_K = 11 samples per gradient, but agent-2 holds D = 10") as caught:
        build_oracle(config, 1)
    assert caught.value.exit_code is ExitCode.CONFIG
    assert build_oracle(run(f"npz:{npz}", samples="full"), 1).samples == 10


def test_an_agents_own_file_is_not_partitioned(npz, tmp_path):
    own = save(tmp_path / "own.npz", blobs(8, seed=5))
    o = build_oracle(run(f"npz:{npz}", classes=3), 2, data_path=own)
    assert o.samples == 8
    np.testing.assert_array_equal(o._x, blobs(8, seed=5).x_train)
    assert o.shape_sha256 == build_oracle(run(f"npz:{npz}"), 0).shape_sha256


def test_a_toy_has_no_file(npz):
    with pytest.raises(ConfigError, match="has no data file"):
        build_oracle(run("zeros", dimension=2), 0, data_path=npz)


def test_relative_paths_belong_to_the_run_file(npz):
    config = replace(run("npz:d.npz"), base=npz.parent)
    assert build_oracle(config, 0).samples == 11 and sample_counts(config) == (11, 10, 10)
    with pytest.raises(ConfigError, match="dataset: cannot read"):
        build_oracle(run("npz:d.npz"), 0)


def test_counts_of_digits_and_toys():
    assert sample_counts(run("digits")) == (480, 479, 479)
    assert sample_counts(run("zeros", dimension=1)) == (None, None, None)


def test_the_lipschitz_constant_of_softmax_is_attained(tmp_path):
    """Two classes at p = (1/2, 1/2): the Hessian's norm is ||(phi, s)||^2 / 2 exactly."""
    data = blobs(3, features=2, classes=2)
    config = run(f"npz:{save(tmp_path / 'one.npz', data)}", samples=1, softmax=Model(bias=0.7), partition="contiguous")
    L1, mu = constants(config)
    rng, rates = np.random.default_rng(0), []
    for shard in range(3):
        o = build_oracle(config, shard)
        batch = np.array([0])
        direction = np.append(np.kron([1.0, -1.0], o._x[0]), [0.7, -0.7])
        pairs = [(np.zeros(6), 1e-6 * direction), *rng.standard_normal((200, 2, 6))]
        for a, b in pairs:
            rates.append(np.linalg.norm(o.gradient(a, batch) - o.gradient(b, batch)) / np.linalg.norm(a - b))
    assert max(rates) <= L1 * (1 + 1e-9)
    assert max(rates) == pytest.approx(L1, rel=1e-6)
    assert mu is None


# --- features ------------------------------------------------------------------------------------------------------


def with_features(config, kind: str, normalise: str = "none"):
    return replace(config, data=replace(config.data, features=kind, normalise=normalise))


def pictures(samples: int = 20, seed: int = 0) -> Dataset:
    rng = np.random.default_rng(seed)
    x, y = rng.random((samples + 6, 784)).astype(np.float32), np.arange(samples + 6) % 3
    return Dataset(x[:samples], y[:samples], x[samples:], y[samples:], 3)


@pytest.fixture
def picture_file(tmp_path):
    return save(tmp_path / "pictures.npz", pictures())


@pytest.mark.parametrize("bias", [0.0, 1.0, 0.5])
@pytest.mark.parametrize("samples", [None, 3])
@pytest.mark.parametrize("tested", [True, False])
def test_agents_look_at_one_test_set_together(tmp_path, monkeypatch, bias, samples, tested):
    data = blobs(31)
    if not tested:
        data = replace(data, x_test=data.x_test[:0], y_test=data.y_test[:0])
    oracles = [SoftmaxOracle(data, np.arange(i, 31, 7), bias=bias) for i in range(7)]
    x = np.random.default_rng(1).standard_normal((7, oracles[0].dimension))
    x[4, 0] = np.nan
    expected = [oracle.evaluate(row, samples) for oracle, row in zip(oracles, x, strict=True)]
    monkeypatch.setattr(models, "_LOOK_TOGETHER", 3)
    monkeypatch.setattr(models, "_LOOK_ROWS", 2)
    other = SoftmaxOracle(replace(data, x_test=-data.x_test), None, bias=bias)
    whole = [*expected, other.evaluate(x[0], samples)]
    assert not tested or whole[7].accuracy_test != whole[0].accuracy_test
    assert repr(models.evaluated_together([*oracles, other], np.vstack([x, x[:1]]), samples)) == repr(whole)
    with monkeypatch.context() as at:
        at.setattr(SoftmaxOracle, "evaluate", None)
        assert repr(models.evaluated_together(oracles, x, samples)) == repr(expected)
    if tested:
        assert len({found.accuracy_test for found in expected}) > 2


@pytest.mark.parametrize(
    ("kind", "normalise", "d"),
    [
        ("raw", "l2", 2355),
        ("pool14", "l1", 591),
        ("hog", "none", 1179),
        ("hog-shapes", "none", 1179),
        ("edges", "none", 387),
    ],
)
def test_features_arrive_in_training_and_test_samples(picture_file, kind, normalise, d):
    config = with_features(run(f"npz:{picture_file}", partition="contiguous"), kind, normalise)
    oracles = [build_oracle(config, shard) for shard in range(3)]
    found = np.vstack([o._x for o in oracles])
    np.testing.assert_array_equal(found, features.transform(pictures().x_train, kind, normalise))
    assert {o.dimension for o in oracles} == {d} and found.dtype == np.float64
    x = np.random.default_rng(0).standard_normal(d)
    plain = pictures()
    by_hand = Dataset(found, plain.y_train, features.transform(plain.x_test, kind, normalise), plain.y_test, 3)
    whole = save(picture_file.parent / "features.npz", by_hand)
    for shard, o in enumerate(oracles):
        expected = build_oracle(run(f"npz:{whole}", partition="contiguous"), shard)
        assert o.evaluate(x) == expected.evaluate(x)
        np.testing.assert_array_equal(o.gradient(x, np.array([4, 0])), expected.gradient(x, np.array([4, 0])))
    stated = replace(config, data=replace(config.data, params={"classes": 3}))
    own = build_oracle(stated, 1, data_path=picture_file)
    np.testing.assert_array_equal(own._x, found)
    np.testing.assert_array_equal(build_oracle(config, 1)._x, oracles[1]._x)  # and the run's own shard again


def test_an_agent_computes_the_features_of_its_own_samples_only(picture_file, monkeypatch):
    rows = []
    plain = features.transform
    monkeypatch.setattr(shards.features, "transform", lambda x, *kind: rows.append(len(x)) or plain(x, *kind))
    config = with_features(run(f"npz:{picture_file}"), "hog")
    for shard in (2, 2, 1):
        build_oracle(config, shard)
    assert rows == [6, 6, 7]  # the tests, then one share each


def test_shards_follow_every_key_of_the_division(picture_file):
    base = run(f"npz:{picture_file}")
    seen = []
    for change in ({}, {"seed": 1}, {"partition": "contiguous"}, {"features": "pool14"}, {"normalise": "l1"}, {}):
        seen.append(build_oracle(replace(base, data=replace(base.data, **change)), 0)._x)
    np.testing.assert_array_equal(seen[0], seen[5])
    assert all(a.shape != b.shape or (a != b).any() for i, a in enumerate(seen[:5]) for b in seen[:i])


def test_features_that_do_not_fit(npz, picture_file):
    for config in (with_features(run("digits"), "hog"), with_features(run(f"npz:{npz}"), "pool14")):
        for ask in (sample_counts, constants, lambda config: build_oracle(config, 0)):
            with pytest.raises(ConfigError, match="needs samples of 28 x 28") as caught:
                ask(config)
            assert config.data.dataset in str(caught.value)
    with pytest.raises(ConfigError, match=str(npz)):
        build_oracle(with_features(run(f"npz:{picture_file}", classes=3), "hog"), 0, data_path=npz)


@pytest.mark.parametrize("kind", ["raw", "pool14", "hog", "hog-shapes", "edges"])
@pytest.mark.parametrize("normalise", ["none", "l1", "l2"])
def test_the_lipschitz_constant_follows_the_features(picture_file, kind, normalise):
    config = with_features(run(f"npz:{picture_file}", softmax=Model(bias=0.3)), kind, normalise)
    phi = features.transform(pictures().x_train, kind, normalise)
    largest = max(float(row @ row) for row in phi)
    assert constants(config)[0] == pytest.approx((largest + 0.09) / 2.0, rel=1e-12)


@pytest.mark.parametrize("row", [0, 4095, 4096, 8999])
def test_the_largest_norm_is_looked_for_in_all_samples(row, npz):
    x = np.ones((9000, 2))
    x[row] = 3.0, 4.0
    data = frozen(x, np.zeros(9000, np.int64), x[:0], np.zeros(0, np.int64), classes=2)
    assert shards.largest_square_norm(run(f"npz:{npz}"), data) == 25.0
