"""The extra [fast]: what numba makes of the kernels draws the same bits (make fast)."""

from __future__ import annotations

import numpy as np
import pytest

from dpgt_node.algo.edges import Edges
from dpgt_node.privacy.laws.compiled import COMPILED_FROM
from dpgt_node.privacy.laws.gaussian_sampler import GaussianSampler
from dpgt_node.privacy.laws.grid_sampler import CHUNK, GridLaplaceSampler
from dpgt_node.privacy.laws.keystream import CtrStream
from dpgt_node.privacy.laws.selftest import self_test
from dpgt_node.sim.matrix import Mixing, Weights
from dpgt_node.sim.team import Team

pytestmark = pytest.mark.fast


def stream(seed: int) -> CtrStream:
    return CtrStream(seed.to_bytes(16, "big"), bytes(16))


SAMPLERS = pytest.mark.parametrize("law", [GridLaplaceSampler, GaussianSampler])


@SAMPLERS
@pytest.mark.parametrize("scale", [1.0, 0.37, 1e-280, 1e280])
def test_the_same_bits(law, scale):
    d = 40 * CHUNK + 17
    v = np.random.default_rng(1).normal(size=d) * scale * np.geomspace(1e-15, 7e4, d)
    compiled, plain = law(compiled=True), law(compiled=False)
    for seed in range(3):
        np.testing.assert_array_equal(compiled.perturb(v, scale, stream(seed)), plain.perturb(v, scale, stream(seed)))
    assert compiled.clipped == plain.clipped > 0


@SAMPLERS
@pytest.mark.parametrize("d", [7, 3000])
def test_rows_have_the_same_bits(law, d):
    scales = np.geomspace(0.1, 10.0, 5)
    v = np.random.default_rng(2).normal(size=(5, d)) * np.geomspace(1e-9, 1e5, d)
    rows = [law(one).perturb_rows(v, scales, [stream(i) for i in range(5)]) for one in (True, False)]
    np.testing.assert_array_equal(*rows)


@pytest.mark.parametrize("law", ["laplace", "gaussian"])
def test_known_answers(law):
    self_test(law, compiled=True)


@SAMPLERS
def test_it_is_used_where_it_pays(law):
    sampler = law()
    sampler.perturb(np.zeros(COMPILED_FROM - 1), 1.0, stream(0))
    assert not sampler._kernel.ready
    sampler.perturb(np.zeros(COMPILED_FROM), 1.0, stream(0))
    assert sampler._kernel.ready


@SAMPLERS
def test_a_read_only_vector_needs_no_second_compilation(law):
    sampler = law(compiled=True)
    v = np.zeros(COMPILED_FROM)
    sampler.perturb(v, 1.0, stream(0))
    v.setflags(write=False)
    sampler.perturb(v[3:], 1.0, stream(0))
    assert len(sampler._kernel.of(COMPILED_FROM).signatures) == 1


def test_the_grid_is_drawn_several_coordinates_at_a_time():
    code = GridLaplaceSampler(compiled=True)
    code.perturb(np.zeros(CHUNK), 1.0, stream(0))
    (compiled,) = code._kernel.of(CHUNK).inspect_llvm().values()
    assert "fdiv <" in compiled


@pytest.mark.parametrize("threads", [1, 2])
def test_sums_of_neighbours(threads):
    rng, n, d = np.random.default_rng(3), 60, 3000
    W = rng.uniform(size=(n, n)) * (rng.uniform(size=(n, n)) < 0.1)
    vector, sent, other = rng.normal(size=(3, n, d))
    keep, out = rng.uniform(size=(n, 1)), np.empty((n, d))
    for last in (other, None):
        Mixing(Weights(Edges.of(W), True, Team(threads)), sent).combine(keep, vector, 0.3, 0.7, last, out)
        right = keep * vector + 0.3 * (W @ sent) - (0.0 if last is None else 0.7 * last)
        np.testing.assert_allclose(out, right, rtol=0, atol=1e-13)
