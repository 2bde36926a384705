"""A sample's gradient of a layer's parameters, in float64, from the layer's input and the gradient of its output.

With ``a`` what came into a layer for one sample and ``b`` the gradient of that sample's loss by what came out, the
gradient of the weight of a Linear or a convolution is g = sum_t b_t a_t^T over the positions t at which the weight was
used, that of a normalisation's weight sum_t b_t x_t with x its normalised input, that of a bias sum_t b_t.  ``a`` and
``b`` are what torch computed in ``model.precision``; g is *defined* as this sum of real numbers, and everything here is
that to the rounding of float64: g's norm, without holding g where that is cheaper, and sums of scaled g over samples.

What is computed of a sample is a function of its own ``a`` and ``b`` and of shapes.
"""

from __future__ import annotations

from math import prod
from typing import Any, Protocol

from dpgt_node.learning.nets.torch_models import Module, torch

Tensor = Any
Places = tuple[slice | None, slice | None]
"""Where a layer's weight and bias are in the vector of trained parameters; None: it has none, or a frozen one."""

_UNIT = 2.0**-53
"""float64's unit roundoff."""
_TERMS = 1024
"""Most terms that one matrix product adds up, but for a sample with more positions: rounding grows with them."""


class Layer(Protocol):
    """One supported layer.  ``a`` and ``b`` are (n, ...), one row a sample."""

    def step(self, a: Tensor, b: Tensor, order: int, memory: int) -> int:
        """Samples at a time, at least one, with which ``measure`` (``order`` 1, 2) or ``add`` (0) keeps to ``memory``
        bytes.
        """
        ...

    def measure(self, a: Tensor, b: Tensor, order: int, m: int) -> tuple[Tensor, Tensor]:
        """(n,) float64 each: the L1 norm (``order`` 1) or the *squared* L2 norm (2) of each g, and what rounding may
        do (see :func:`inflated`) to it and to the sum over all ``m`` samples of the batch.
        """
        ...

    def add(self, a: Tensor, b: Tensor, weights: Tensor, m: int, total: Tensor) -> None:
        """Add sum_j weights_j g_j to the layer's places in ``total``, float64 (d,)."""
        ...


def inflated(value: Tensor, rounding: Tensor) -> Tensor:
    """``value``, or more where rounding matters, so that what is clipped by it is within the clip for certain.

    ``value`` and ``rounding`` are sums of what :meth:`Layer.measure` gives.  Where 2^24 ``rounding`` <= ``value``, the
    computed norm is within 2^-24 of g's, which the slack of :class:`Clip` covers, and rounding moves the sum of m
    scaled gradients by at most 2^-21 clips, which C (1 + 2^-20) of the accountants covers.  Else g's terms cancel, to a
    small part of their size; 2^24 ``rounding`` on top of the value then make both true.
    """
    risk = rounding * 2.0**24
    return torch().where(risk <= value, value, value + risk)  # NaN stays NaN


def _rounding(size: Tensor, order: int, terms: int, t: int, m: int) -> Tensor:
    """``size``: sum_t |a_t| |b_t| in the norm of the order; ``terms``: in the longest path of sums to a norm.

    A norm, or of order 2 its square, is off by ``terms`` units of ``size`` or its square (twice that covers the terms
    of higher order).  A sample's part of the sum is off by max(_TERMS, t) + m units of ``size``, and m times that must
    be below 2^-21 of a norm, of order 2 after squaring both sides.
    """
    norm, part = 2.0 * _UNIT * terms, _UNIT * (max(_TERMS, t) + m + 8) * m / 8.0
    return size * max(norm, part) if order == 1 else size.square() * max(norm, 2.0**24 * part * part)


def _lengths(rows: Tensor, order: int) -> Tensor:
    """Norms along axis 1: sums of whole rows are several times as fast as torch's norm along a far axis."""
    return rows.abs().sum(1) if order == 1 else rows.square().sum(1).sqrt()


class Products:
    """Linear, Conv1d, Conv2d or Conv3d: at each position of each group an outer product."""

    def __init__(self, layer: Module, places: Places) -> None:
        self._lib = torch()
        self._weight, self._bias = places
        self._shape = tuple(layer.weight.shape)
        self._conv = len(self._shape) > 2
        self._groups: int = layer.groups if self._conv else 1
        self._q, self._p = int(self._shape[0]) // self._groups, int(prod(self._shape[1:]))
        if self._conv:
            self._stride, self._dilation, self._pads = layer.stride, layer.dilation, _pads(layer)

    def step(self, a: Tensor, b: Tensor, order: int, memory: int) -> int:
        t, held = self._positions(b), 2 * int(prod(b.shape[1:]))
        if self._weight is not None:
            held += 2 * self._groups * self._p * t
            if self._conv:
                sides = a.shape[-len(self._pads) :]
                padded = prod(side + sum(pad) for side, pad in zip(sides, self._pads, strict=True))
                held += int(prod(a.shape[1:]) // prod(sides) * padded)
            if order and t > 1:
                held += self._groups * (2 * t * t if self._by_gram(t, order) else self._q * self._p)
        return max(1, memory // (8 * held))

    def measure(self, a: Tensor, b: Tensor, order: int, m: int) -> tuple[Tensor, Tensor]:
        t, outputs = self._positions(b), self._outputs(b)
        lengths = _lengths(outputs, order)  # (groups, n, t), as of what came in
        values, roundings = [], []
        if self._bias is not None:
            values.append(_lengths(outputs.sum(-1), order))
            roundings.append(_rounding(lengths.sum(-1), order, 2 * t, t, m))
        if self._weight is not None:
            windows = self._windows(a, b)
            sizes = (_lengths(windows, order) * lengths).sum(-1)
            values.append(sizes if t == 1 else self._norms(windows, outputs, order))
            roundings.append(_rounding(sizes, order, self._p + self._q + 2 * t, t, m))
        powers = self._lib.stack(values) if order == 1 else self._lib.stack(values).square()
        return powers.sum((0, 1)), self._lib.stack(roundings).sum((0, 1))

    def add(self, a: Tensor, b: Tensor, weights: Tensor, m: int, total: Tensor) -> None:
        outputs = self._outputs(b) * weights[:, None]
        if self._bias is not None:
            total[self._bias] += outputs.sum(3).sum(2).reshape(-1)
        if self._weight is not None:
            place = total[self._weight].view(self._groups, self._q, self._p)
            left, right, t = outputs.flatten(2), self._windows(a, b).flatten(2).transpose(1, 2), self._positions(b)
            if m * t <= _TERMS:  # the whole batch is few terms: no need for sums apart
                place.baddbmm_(left, right)
            else:
                step = max(1, _TERMS // t) * t
                for start in range(0, right.shape[1], step):
                    place += left[:, :, start : start + step] @ right[:, start : start + step]

    def _positions(self, b: Tensor) -> int:
        return int(prod(b.shape[1:])) // (self._groups * self._q)

    def _by_gram(self, t: int, order: int) -> bool:
        """Whether inner products of positions are cheaper than the gradient, for the norm."""
        return order == 2 and t * (self._p + self._q) <= self._p * self._q

    def _norms(self, windows: Tensor, outputs: Tensor, order: int) -> Tensor:
        """Norms (groups, n) of sum_t b_t a_t^T; of order 2 the square is sum over t, t' of (a_t.a_t')(b_t.b_t')."""
        t = windows.shape[-1]
        if not self._by_gram(t, order):
            gradients = outputs.transpose(1, 2) @ windows.permute(0, 2, 3, 1)
            if order == 1:
                return gradients.abs_().sum((2, 3))
            return self._lib.linalg.vector_norm(gradients, dim=(2, 3))
        grams = [part.permute(0, 2, 3, 1) @ part.transpose(1, 2) for part in (windows, outputs)]
        # A square below 0 is the rounding of one near 0, which its bound makes up for.
        return grams[0].mul_(grams[1]).sum(-1).sum(-1).clamp_(min=0.0).sqrt()

    def _outputs(self, b: Tensor) -> Tensor:
        """b in float64 (groups, q, n, t)."""
        n, (groups, q) = len(b), (self._groups, self._q)
        if not self._conv:
            return b.reshape(n, -1, q).double().permute(2, 0, 1)[None]
        return self._float64(b.reshape(n, -1, groups * q, prod(b.shape[-len(self._pads) :])).permute(2, 0, 1, 3)).view(
            groups, q, n, -1
        )

    def _windows(self, a: Tensor, b: Tensor) -> Tensor:
        """What the weight was multiplied with, float64 (groups, p, n, t)."""
        n, groups, p = len(a), self._groups, self._p
        if not self._conv:
            return a.reshape(n, -1, p).double().permute(2, 0, 1)[None]
        dims = len(self._pads)
        sides, outs, kernel = a.shape[-dims:], b.shape[-dims:], self._shape[2:]
        rows = a.reshape(-1, *a.shape[-dims - 1 :]).transpose(0, 1)
        padded = [side + sum(pad) for side, pad in zip(sides, self._pads, strict=True)]
        base = self._lib.zeros((*rows.shape[:2], *padded), dtype=self._lib.float64, device=a.device)
        base[(..., *(slice(pad[0], pad[0] + side) for pad, side in zip(self._pads, sides, strict=True)))] = rows
        channel, row, *steps = base.stride()
        apart = [s * d for s, d in zip(steps, self._dilation, strict=True)]
        moves = [s * d for s, d in zip(steps, self._stride, strict=True)]
        views = base.as_strided((len(base), *kernel, base.shape[1], *outs), (channel, *apart, row, *moves))
        return views.reshape(groups, p, n, -1)

    def _float64(self, view: Tensor) -> Tensor:
        """A contiguous copy."""
        return self._lib.empty(view.shape, dtype=self._lib.float64, device=view.device).copy_(view)


class Scales:
    """GroupNorm, LayerNorm or InstanceNorm with a weight: at each position a product by entry."""

    def __init__(self, layer: Module, places: Places) -> None:
        self._lib = lib = torch()
        self._weight, self._bias = places
        self._eps: float = layer.eps
        self._width: int = layer.weight.numel()
        self._trailing = len(layer.normalized_shape) if isinstance(layer, lib.nn.LayerNorm) else 0
        self._groups: int = layer.num_groups if isinstance(layer, lib.nn.GroupNorm) else self._width

    def step(self, a: Tensor, b: Tensor, order: int, memory: int) -> int:
        return max(1, memory // (8 * 4 * int(prod(b.shape[1:]))))

    def measure(self, a: Tensor, b: Tensor, order: int, m: int) -> tuple[Tensor, Tensor]:
        found = []
        for _, products in self._products(a, b):
            t = products.shape[1] * products.shape[3]
            entries, sizes = products.sum((1, 3)), products.abs().sum((1, 3))
            value = entries.abs() if order == 1 else entries.square()
            found.append((value.sum(1), _rounding(sizes, order, t, t, m).sum(1)))
        values, roundings = zip(*found, strict=True)
        return self._lib.stack(values).sum(0), self._lib.stack(roundings).sum(0)

    def add(self, a: Tensor, b: Tensor, weights: Tensor, m: int, total: Tensor) -> None:
        for place, products in self._products(a, b):
            total[place] += weights @ products.sum((1, 3))

    def _products(self, a: Tensor, b: Tensor) -> list[tuple[slice, Tensor]]:
        """For weight and bias, if trained, its place and the products, float64 (n, positions, width, positions)."""
        n, functional = len(a), self._lib.nn.functional
        shape = (n, -1, self._width, 1) if self._trailing else (n, b.shape[1], self._width, prod(b.shape[3:]))
        outputs, found = b.reshape(shape).double(), []
        if self._weight is not None:
            rows = a.double()
            if self._trailing:
                rows = functional.layer_norm(rows, rows.shape[-self._trailing :], eps=self._eps)
            else:
                rows = functional.group_norm(rows.reshape(-1, *shape[2:]), self._groups, eps=self._eps)
            found.append((self._weight, rows.reshape(outputs.shape) * outputs))
        if self._bias is not None:
            found.append((self._bias, outputs))
        return found


def supported(layer: Module, places: Places) -> Layer | None:
    """The algebra of ``layer``; None where it is of another kind, or not just what its class says."""
    nn = torch().nn
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    if "forward" in vars(layer) or any(getattr(layer, name) for name in hooks):
        return None
    if type(layer) is nn.Linear or (type(layer) in (nn.Conv1d, nn.Conv2d, nn.Conv3d) and layer.padding_mode == "zeros"):
        return Products(layer, places)
    plain = type(layer) in (nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d) and not layer.track_running_stats
    if plain or type(layer) in (nn.GroupNorm, nn.LayerNorm):
        return Scales(layer, places)
    return None


def batched_input(layer: Module, a: Tensor) -> bool:
    """Whether ``a`` has the leading axes that the algebra of ``layer`` counts on."""
    nn = torch().nn
    if isinstance(layer, nn.Linear | nn.LayerNorm | nn.GroupNorm):
        return True
    spatial = int(type(layer).__name__[-2])
    return bool(a.ndim == spatial + 2)


def _pads(layer: Module) -> list[tuple[int, int]]:
    """Zeros before and after, for each axis."""
    if layer.padding == "valid":
        return [(0, 0) for _ in layer.kernel_size]
    if layer.padding == "same":
        whole = [d * (k - 1) for d, k in zip(layer.dilation, layer.kernel_size, strict=True)]
        return [(extra // 2, extra - extra // 2) for extra in whole]
    return [(pad, pad) for pad in layer.padding]
