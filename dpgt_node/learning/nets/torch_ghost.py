"""Per-sample clipping by ghost norms: one pass for the batch that never holds a gradient of every sample.

The pass asks for the gradients of the *outputs* of the layers that hold trained parameters, and keeps these and the
layers' inputs; norms, and one matrix product a layer for the sum of the clipped gradients, come from them in float64
(:mod:`~dpgt_node.learning.nets.torch_layers`, which says what vector is clipped).

Why the clip bounds what one sample can change.  Neighbouring data sets differ in one sample, replaced at the same place
of a batch of the same size.  The pass is vectorised over samples (``vmap``), so that a sample's inputs and output
gradients are by construction a function of x and of that sample, whatever the module does; torch's kernels do to the
rows of a batch the same operations in the same order whatever the values in other rows, so the other samples' are the
same *bits* in both.  So are their norms and factors, each computed from one sample's own numbers.  Hence every other
sample adds the same real vector to both sums, and the replaced one adds a vector within the clip.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from dpgt_node.learning.nets.clipping import Clip
from dpgt_node.learning.nets.torch_layers import Layer, Products, Tensor, batched_input, inflated, supported
from dpgt_node.learning.nets.torch_models import Module, torch
from dpgt_node.values import dataclass

_SCRATCH = 16 << 20
"""Bytes of float64 held at a time: glibc maps larger blocks anew each time, and their page faults cost more."""

Loss = Callable[[dict[str, Any], Any, Any], Any]
"""(parameters, inputs, labels) -> the loss summed over a batch."""
Watch = Callable[[int, Any, Any], Any]
"""(number of the layer, its input, its output) -> what takes the output's place."""


@dataclass(frozen=True, slots=True)
class Use:
    """A layer that holds trained parameters, and what comes out of it for a single sample."""

    module: Module
    layer: Layer
    shape: tuple[int, ...]
    dtype: Any


class Ghost:
    """How a module's samples are clipped.  ``held``: bytes that a pass holds for each sample."""

    def __init__(self, uses: Sequence[Use], loss: Loss, held: int, memory: int) -> None:
        self._lib = torch()
        self._uses, self._loss = uses, loss
        self._scratch = min(_SCRATCH, memory // 4)
        self.samples: int = max(1, (memory - 2 * self._scratch) // held)
        """Samples a pass, so that it stays within ``memory``."""

    def add(self, held: dict[str, Any], inputs: Any, labels: Any, clip: Clip, m: int, total: Tensor) -> None:
        """Add to ``total``, float64 (d,), the sum over these of ``m`` samples of the gradients at ``held``, clipped."""
        with self._lib.no_grad():
            records = self.records(held, inputs, labels)
            weights = factors(self._norms(records, clip.order, m), clip)
            dropped = weights == 0.0
            if bool(dropped.any()):  # what is not finite would stay so under a weight of 0
                records = [(_without(a, dropped), _without(b, dropped)) for a, b in records]
            for use, (a, b) in zip(self._uses, records, strict=True):
                for rows in self._pieces(use.layer, a, b, 0):
                    use.layer.add(a[rows], b[rows], weights[rows], m, total)

    def _norms(self, records: list[tuple[Tensor, Tensor]], order: int, m: int) -> Tensor:
        n, device = len(records[0][0]), records[0][0].device
        value, rounding = self._lib.zeros((2, n), dtype=self._lib.float64, device=device)
        for use, (a, b) in zip(self._uses, records, strict=True):
            for rows in self._pieces(use.layer, a, b, order):
                found = use.layer.measure(a[rows], b[rows], order, m)
                value[rows] += found[0]
                rounding[rows] += found[1]
        safe = inflated(value, rounding)
        return safe if order == 1 else safe.sqrt()

    def _pieces(self, layer: Layer, a: Tensor, b: Tensor, order: int) -> list[slice]:
        step = layer.step(a, b, order, self._scratch)
        return [slice(start, start + step) for start in range(0, len(a), step)]

    def records(self, held: dict[str, Any], inputs: Any, labels: Any) -> list[tuple[Tensor, Tensor]]:
        """For each layer its input and its output's gradient, (n, ...) each."""
        lib = self._lib

        def loss(shifts: list[Any], one: Any, label: Any) -> tuple[Any, list[Any]]:
            seen: list[Any] = [None] * len(self._uses)

            def watch(i: int, a: Any, out: Any) -> Any:
                # What autocast multiplies with is the input in the output's type.
                seen[i] = a.to(out.dtype) if isinstance(self._uses[i].layer, Products) else a
                return out + shifts[i]

            with watched([use.module for use in self._uses], watch):
                return self._loss(held, one.unsqueeze(0), label.unsqueeze(0)), seen

        zero = {use.dtype: lib.zeros((), dtype=use.dtype, device=inputs.device) for use in self._uses}
        shifts = [zero[use.dtype].expand(use.shape) for use in self._uses]
        each = lib.func.vmap(lib.func.grad(loss, has_aux=True), in_dims=(None, 0, 0))
        gradients, seen = each(shifts, inputs, labels)
        return list(zip(seen, gradients, strict=True))


def factors(norms: Tensor, clip: Clip) -> Tensor:
    """What scales gradients of these norms to the clip, float64 (m,); 0 where a norm is not finite."""
    columns = np.ones((1, len(norms)))
    clip.scale(columns, norms.cpu().numpy())
    return torch().from_numpy(columns[0]).to(norms.device)


def traced(module: Module, places: dict[str, slice], loss: Loss, inputs: Any, memory: int) -> Ghost | None:
    """How to clip the samples of ``module``, whose trained parameters are at ``places`` of their vector, by name.

    ``inputs``: one sample, (1, *shape).  None where this cannot be done: unless every trained parameter is the weight
    or bias of exactly one supported layer, which is called exactly once, with an input that stays as it is, and unless
    the loss depends on the parameters by what these layers give and in no other way.
    """
    found = _layers(module, places)
    if found is None:
        return None
    lib = torch()
    modules, layers = zip(*found, strict=True)
    calls: list[tuple[int, Any, int, Any]] = []

    def watch(i: int, a: Any, out: Any) -> Any:
        calls.append((i, a, a._version, out))
        return out.detach()

    held = dict(module.named_parameters())
    label = lib.zeros(1, dtype=lib.int64, device=inputs.device)
    with watched(modules, watch):
        try:
            cut = loss(held, inputs, label)
        except _Unexpected:
            return None
    once = sorted(i for i, *_ in calls) == list(range(len(modules)))
    kept = all(a._version == version and batched_input(modules[i], a) for i, a, version, _ in calls)
    # With what the layers give cut off, a parameter that still reaches one of these does so by another way.
    elsewhere = cut.requires_grad or any(a.requires_grad for _, a, _, _ in calls)
    if not once or not kept or elsewhere:
        return None
    outs = {i: out for i, _, _, out in calls}
    uses = [Use(modules[i], layers[i], tuple(outs[i].shape), outs[i].dtype) for i in range(len(modules))]
    kept_bytes = sum(_bytes(a) + 2 * _bytes(out) for _, a, _, out in calls)
    return Ghost(uses, loss, kept_bytes + _saved(loss, held, inputs, label), memory)


class _Unexpected(Exception):
    """A layer is called with something else than one tensor."""


@contextmanager
def watched(modules: Sequence[Module], watch: Watch) -> Iterator[None]:
    """Each time one of ``modules`` computes, ``watch`` is asked."""

    def hook_of(i: int) -> Callable[..., Any]:
        def hook(module: Module, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> Any:
            if len(args) != 1 or kwargs:
                raise _Unexpected
            return watch(i, args[0], out)

        return hook

    handles = [module.register_forward_hook(hook_of(i), with_kwargs=True) for i, module in enumerate(modules)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _layers(module: Module, places: dict[str, slice]) -> list[tuple[Module, Layer]] | None:
    """The modules that hold trained parameters, with their algebra; None if one of them has none."""
    names = {id(value): name for name, value in module.named_parameters()}
    found: list[tuple[Module, Layer]] = []
    owned: list[str] = []
    for part in module.modules():
        own = dict(part.named_parameters(recurse=False, remove_duplicate=False))
        trained = {key: names[id(value)] for key, value in own.items() if value.requires_grad}
        if not trained:
            continue
        layer = supported(part, (_place(places, trained, "weight"), _place(places, trained, "bias")))
        if layer is None or not trained.keys() <= {"weight", "bias"}:
            return None
        found.append((part, layer))
        owned += trained.values()
    return found if sorted(owned) == sorted(places) else None  # a tied parameter has two owners


def _place(places: dict[str, slice], trained: dict[str, str], key: str) -> slice | None:
    return places[trained[key]] if key in trained else None


def _saved(loss: Loss, held: dict[str, Any], inputs: Any, label: Any) -> int:
    """Bytes that autograd keeps for the backward pass of one sample."""
    own = {value.untyped_storage().data_ptr() for value in held.values()}
    kept: dict[int, int] = {}

    def pack(value: Any) -> Any:
        storage = value.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return value

    with torch().autograd.graph.saved_tensors_hooks(pack, lambda value: value):
        value = loss(held, inputs, label)
    del value
    return sum(kept.values())


def _bytes(value: Any) -> int:
    return int(value.numel() * value.element_size())


def _without(rows: Any, dropped: Any) -> Any:
    return rows.masked_fill(dropped.reshape(-1, *[1] * (rows.ndim - 1)), 0.0)
