"""How an array holds pictures: channels first or last, grey without channels, as bytes or as numbers from 0 to 1.

A model takes pictures as (channels, height, width).
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

FIRST: Final = "channels-first"
LAST: Final = "channels-last"
BYTES: Final = 255.0
_FEW = 4
"""So many channels have pictures for people: grey, two of them, RGB, and one that says how much shines through."""
Array = npt.NDArray[np.generic]
Shape = tuple[int, ...]


class Unlike(ValueError):
    """An array that holds no pictures as they are asked for; its words go on after the name of the array."""


def looks(shape: Shape) -> str | None:
    """:data:`FIRST` or :data:`LAST`, whichever a sample of this shape, of three numbers, can hardly not be; else None:
    it could be either.
    """
    a, b, c = shape
    if a <= _FEW < c or (a <= _FEW and b == c):
        return FIRST
    if c <= _FEW < min(a, b) or (a == b != c and c > _FEW):
        return LAST
    return FIRST if b == c and a > _FEW else None


def stacked(array: Array, layout: str | None, way: str) -> tuple[Array, str | None]:
    """Pictures (N, height, width), (N, channels, height, width) or, where ``layout`` says so, (N, height, width,
    channels) as (N, channels, height, width); and a remark on what was taken for granted.

    ``way``: how else the layout can be stated; "": it cannot.  Raises :class:`Unlike`.
    """
    shape = array.shape
    if array.ndim == 3:
        height, width = shape[1:]
        return array[:, None], f"samples of shape {height} x {width} are taken as grey pictures"
    if layout == LAST:
        return np.moveaxis(array, 3, 1), None
    if layout == FIRST:
        return array, None
    found = looks(shape[1:])
    if found == LAST:
        raise Unlike(
            f"has shape {shape}: its channels come last, and pictures are (samples, channels, height, width); use "
            f"x.transpose(0, 3, 1, 2){way}"
        )
    channels, height, width = shape[1:]
    return array, None if found == FIRST else (
        f"samples of shape {channels} x {height} x {width} are taken as {channels} channels of {height} x {width} "
        f"pixels; where channels come last, use x.transpose(0, 3, 1, 2){way}"
    )


def arranged(array: Array, shape: Shape, layout: str | None) -> Array:
    """The samples of ``array`` as rows (N, p) for a model that takes ``shape``: (p,) or (channels, height, width).

    Pictures may be rows, have channels first or last, or none where the model takes grey ones, and a single one needs
    no axis of its own.  ``layout``: what the run's own arrays have.  Raises :class:`Unlike`.
    """
    size = int(np.prod(shape))
    if array.ndim == 2 and array.shape[1] == size:
        return array
    if len(shape) == 3:
        found = _pictures(array, shape, layout)
        if found is not None:
            return found.reshape(len(found), size)
        channels, height, width = shape
        ways = [f"(N, {channels}, {height}, {width})", f"(N, {height}, {width}, {channels})", f"(N, {size})"]
        ways[1:1] = [f"(N, {height}, {width})"] if channels == 1 else []
        said = f"pictures of {channels} x {height} x {width}: {', '.join(ways[:-1])} or {ways[-1]}"
    elif array.ndim > 2 and int(np.prod(array.shape[1:])) == size:
        raise Unlike(
            f"has shape {array.shape}, and the model takes rows of {size} numbers: use x.reshape(len(x), -1), in the "
            "order that the run's own arrays had"
        )
    else:
        said = f"rows of {size} numbers: (N, {size})"
    raise Unlike(f"has shape {array.shape}, and the model takes {said}")


def _pictures(array: Array, shape: Shape, layout: str | None) -> Array | None:
    """(N, channels, height, width); None: the array holds no pictures of ``shape``."""
    channels, height, width = shape
    ways: list[tuple[Shape, str]] = [(shape, FIRST), ((height, width, channels), LAST)]
    if layout == LAST:  # of cubes it decides
        ways.reverse()
    if channels == 1:
        ways.append(((height, width), ""))
    for one, order in ways:
        held = array[None] if array.shape == one else array
        if held.shape[1:] == one:
            return held[:, None] if not order else np.moveaxis(held, 3, 1) if order == LAST else held
    return None


def divisor(array: npt.NDArray[Any]) -> float:
    """What brings pixels to 0..1: bytes are divided by 255, numbers must be there already.  Raises :class:`Unlike`."""
    if not array.size:
        return 1.0
    low, high = float(array.min()), float(array.max())
    if array.dtype == np.uint8:
        if high == 1:
            raise Unlike("holds the bytes 0 and 1, and white is 255: where 1 is white, use x.astype(float)")
        return BYTES
    if low < 0 or high > 1:
        raise Unlike(
            f"holds numbers from {low:g} to {high:g}, and pixels are 0 to 1 for this model: divide them by what is "
            "white, or save bytes, x.astype('uint8'), which are divided by 255"
        )
    return 1.0
