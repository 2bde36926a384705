"""The matched filter's parts: how long noise stays in estimates, and which rounds release a clipped gradient at all."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dpgt_node.adversary.membership.matched import Clipping, _lasting
from tests.adversary.record import play, run_of


@pytest.mark.parametrize("b", [0.0, 0.05, 0.4])
def test_noise_that_stays_counts_once_and_for_what_it_is(b: float) -> None:
    """Estimates are B's, eta_k + b sum_{t<k} eta_t, parallel to a direction u: the variance of sum_k |a_k| u'(...) by
    the covariance matrix of all estimates, written down entry by entry.
    """
    rng = np.random.default_rng(1)
    rounds, v = 30, 0.7
    sizes = [rng.uniform(0.0, 2.0, 5) for _ in range(rounds)]
    mixing = np.eye(rounds) + b * np.tril(np.ones((rounds, rounds)), -1)
    covariance = v * mixing @ mixing.T
    weights = np.stack(sizes)
    dense = np.einsum("kc,kl,lc->c", weights, covariance, weights)
    np.testing.assert_allclose(_lasting(np.diag(covariance).tolist(), sizes, b), dense, rtol=1e-12)


def test_a_round_that_releases_class_sums_releases_no_gradient(tmp_path: Path) -> None:
    run = run_of(K=6, mechanism="noise-once")
    shares = replace(run.privacy, clip_l1=2.0, by_release=(1.0, 0.5))
    scheme = replace(run.scheme, samples="full", releases=(0, 3), first="class-sums", first_scale=0.5)
    observation = play(replace(run, privacy=shares, scheme=scheme)).observe(tmp_path / "t")
    clipping = Clipping.of(observation)
    assert [clipping.share(k) for k in (0, 3)] == [0.0, 0.5]
    plain = play(replace(run, privacy=shares, scheme=replace(scheme, first="gradient", first_scale=1.0)))
    assert [Clipping.of(plain.observe(tmp_path / "u")).share(k) for k in (0, 3)] == [1.0, 0.5]
