"""The gradients of all agents at once, as the rows of one matrix: what the matrix simulators call.

Agents' oracles stay what they are; this only saves the price of calling them one by one.  Sums may run in another order
than an agent's own, so the values agree to rounding, not to the bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import numpy as np

from dpgt_node.learning.nets import torch_stacked
from dpgt_node.learning.nets.models import Empty, Over, SoftmaxOracle, stacked_gradients
from dpgt_node.learning.releases import Source
from dpgt_node.learning.torch_oracle import TorchOracle
from dpgt_node.learning.toys import PlLinear, PlSine, Quadratic, Zeros
from dpgt_node.types import F64, I64

Gradients = Callable[[F64, Sequence[I64]], F64]
"""(x of shape (n, d), one batch an agent) -> (n, d): row i is agent i's mean gradient; may be read-only and shared."""


def alone(rows: int, work: Callable[[slice, int], None]) -> None:
    """All by the caller."""
    work(slice(0, rows), 0)


def batched(oracles: Sequence[Source], over: Over = alone, empty: Empty = np.empty) -> Gradients:
    """The gradients of ``oracles``, by one formula for all where their class has one, else one by one.

    ``over``: shares the agents of a softmax model, whose gradients ``empty(shape)`` has a place for.
    """
    first = oracles[0]
    one_class = all(type(oracle) is type(first) for oracle in oracles)
    if one_class and isinstance(first, Quadratic | Zeros | PlSine | PlLinear) and not first.clipped:
        return _toys(cast("Sequence[Quadratic | Zeros | PlSine | PlLinear]", oracles))
    if one_class and isinstance(first, SoftmaxOracle):
        softmax = cast("Sequence[SoftmaxOracle]", oracles)
        return _stacked(oracles, lambda x, batches: stacked_gradients(softmax, x, batches, over, empty))
    if one_class and isinstance(first, TorchOracle) and torch_stacked.pays(first, len(oracles)):
        torches = cast("Sequence[TorchOracle]", oracles)
        return _stacked(oracles, lambda x, batches: torch_stacked.stacked_gradients(torches, x, batches))
    return _one_by_one(oracles)


def _one_by_one(oracles: Sequence[Source]) -> Gradients:
    def gradients(x: F64, batches: Sequence[I64]) -> F64:
        out = np.empty(x.shape)
        for into, oracle, row, batch in zip(out, oracles, x, batches, strict=True):
            into[:] = oracle.gradient(row, batch)
        return out

    return gradients


def _toys(oracles: Sequence[Quadratic | Zeros | PlSine | PlLinear]) -> Gradients:
    first = oracles[0]
    if isinstance(first, Quadratic):
        b = np.array([[cast("Quadratic", oracle).b] for oracle in oracles])
        return lambda x, batches: x - b
    if isinstance(first, Zeros):
        nothing = np.zeros((len(oracles), first.dimension))
        nothing.setflags(write=False)
        return lambda x, batches: nothing
    rows = first.rows
    return lambda x, batches: rows(x, np.stack(batches).view(np.float64).mean(axis=1, keepdims=True))


def _stacked(oracles: Sequence[Source], stacked: Callable[[F64, Sequence[I64]], F64 | None]) -> Gradients:
    """``stacked``: all at once, or None where that does not pay."""
    each = _one_by_one(oracles)

    def gradients(x: F64, batches: Sequence[I64]) -> F64:
        found = stacked(x, batches)
        return each(x, batches) if found is None else found

    return gradients
