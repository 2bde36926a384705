"""Many independent repetitions of one run of a PL toy, for expectations: nobody's noise, drawn from a seeded generator.

The mean of a batch of m gradients depends on its xi only through their mean, whose law is known, so a repetition costs
the same whatever m_K is.  All repetitions go through (eq7) and (eq8) side by side, as columns.
"""

from __future__ import annotations

import numpy as np

from dpgt_node.algo.graph import Topology
from dpgt_node.algo.methods.base import Mix, column
from dpgt_node.algo.methods.dpgt import Steps, mixed_y, next_x
from dpgt_node.algo.schedule import Schedule
from dpgt_node.config import RunConfig
from dpgt_node.learning.oracle import build_oracle
from dpgt_node.learning.toys import PlLinear, PlSine
from dpgt_node.privacy.laws.laplace import LAPLACE
from dpgt_node.privacy.laws.registry import LAWS
from dpgt_node.privacy.mechanisms import MECHANISMS
from dpgt_node.sim.matrix import Weights
from dpgt_node.types import F64, Stream


def squared_gradients(run: RunConfig, repetitions: int, seed: int) -> F64:
    """||grad F(x_{i,K+1})||^2 of ``repetitions`` independent runs: float64 (n, repetitions)."""
    x = final_states(run, repetitions, seed)
    # All agents of these toys have the same f_i, so grad F is any agent's exact gradient.
    points = x.reshape(-1, x.shape[2])
    exact = _oracle(run).rows(points, np.zeros((len(points), 1)))
    return np.asarray(np.square(exact).sum(axis=1).reshape(x.shape[:2]))


def final_states(run: RunConfig, repetitions: int, seed: int) -> F64:
    """x_{i,K+1} of ``repetitions`` independent runs: float64 (n, repetitions, d).

    ``run``: pl-sine or pl-linear, unclipped, Laplace noise.  Equal arguments give equal values.
    """
    oracle = _oracle(run)
    schedule = Schedule.from_config(run)
    topology = Topology.from_config(run.graph)
    steps, R, C = Steps.of(topology, schedule, column), Weights(topology.in_R), Weights(topology.in_C.reverse)
    rng = np.random.default_rng(seed)
    n, d, m = run.n, oracle.dimension, schedule.m_for(None)

    def gradient(x: F64) -> F64:
        points = x.reshape(n * repetitions, d)
        return oracle.rows(points, oracle.mean_xi(m, len(points), rng)).reshape(x.shape)

    def released(values: F64, stream: Stream, k: int) -> F64:
        scales = np.array([[schedule.sigma(stream, i, k)] for i in range(n)])
        return values + scales * rng.laplace(size=values.shape) if scales.any() else values

    def mixing(weights: Weights, values: F64) -> Mix:
        def mix(step: float, into: F64, block: slice) -> None:
            into += weights.times(step) @ values

        return mix

    x = np.tile(oracle.initial(), (n, repetitions))
    y = g = gradient(x)
    for k in range(run.K + 1):
        x_next = next_x(steps, x, y, mixing(R, released(x, "X", k)), x.size)
        if k < run.K:
            g_next = gradient(x_next)
            y, g = next_y(steps, y, mixing(C, released(y, "Y", k)), g, g_next), g_next
        x = x_next
    return x.reshape(n, repetitions, d)


def next_y(steps: Steps[F64], y: F64, mix: Mix, g: F64, g_next: F64) -> F64:
    """(alg,2) of a y that is not in two parts."""
    new = mixed_y(steps, y, mix, y.size)
    new += g_next - g
    return new


def _oracle(run: RunConfig) -> PlSine | PlLinear:
    """The objective of every agent."""
    oracle = build_oracle(run, 0)
    assert isinstance(oracle, PlSine | PlLinear), "other objectives have no known law of the mean gradient"
    assert not oracle.clipped, "a clipped mean gradient is not a function of the mean of xi"
    assert not run.robust.on, "sums over neighbours are products of matrices here"
    assert MECHANISMS[run.algorithm.mechanism].printed and LAWS[run.noise.law] is LAPLACE
    return oracle
