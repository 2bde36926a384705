"""Where floats begin, told by their bytes: signs and exponents repeat themselves, low bits of mantissas do not.

Used where bytes were missed and it is known that one of several holes was taken too large, but not which.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

_PERIOD = 8  # of float64, and of two float32
_LEAST_BYTES = 4096
_MARGIN_NATS = 60.0
_ONE_FRAME = (9, 13, 17)
"""Sizes of what one hole can have hidden besides data: a header, a window update, a ping.  More may be of two holes."""

Ranges = Sequence[tuple[int, int]]
Bytes = npt.NDArray[np.uint8]


def wrong_hole(body: memoryview, unsure: Ranges, holes: Ranges, shift: int) -> int | None:
    """Which one of the ``unsure`` holes is ``shift`` bytes smaller than it was taken for; None: that cannot be told.

    ``body``: a message with all its ``holes``, ascending, in which what follows an unsure hole may stand too late.
    What comes before the first of them is right, and so is what comes after the last, ``shift`` bytes earlier: they
    say what bytes look like at each place of a float.
    """
    data = np.frombuffer(body, dtype=np.uint8)
    before = _seen((0, unsure[0][0]), holes)
    after = _seen((min(unsure[-1][1] + shift, len(data)), len(data)), holes)
    if shift not in _ONE_FRAME or sum(end - start for start, end in (*before, *after)) < _LEAST_BYTES:
        return None
    counts = np.ones((_PERIOD, 256))
    for ranges, move in ((before, 0), (after, shift)):
        for start, end in ranges:
            places = np.arange(start - move, end - move) % _PERIOD
            found = np.bincount(places * 256 + data[start:end], minlength=_PERIOD * 256)
            counts += found.reshape(_PERIOD, 256)
    table = np.log(counts / counts.sum(axis=1, keepdims=True))
    between = [(unsure[i][1], unsure[i + 1][0]) for i in range(len(unsure) - 1)]
    verdicts = [_moved(data, _seen(range_, holes), table, shift) for range_ in between]
    if None in verdicts or verdicts != sorted(verdicts, key=bool):
        return None
    return verdicts.index(True) if True in verdicts else len(unsure) - 1


def _seen(within: tuple[int, int], holes: Ranges) -> list[tuple[int, int]]:
    """The parts of ``within`` that are in no hole."""
    found = []
    at, last = within
    for start, end in holes:
        if end > at and start < last:
            if start > at:
                found.append((at, start))
            at = end
    return [*found, (at, last)] if at < last else found


def _moved(data: Bytes, ranges: Ranges, table: npt.NDArray[np.float64], shift: int) -> bool | None:
    """Whether the bytes in ``ranges`` belong ``shift`` bytes before where they are; None: neither that nor there."""
    fits = np.zeros(_PERIOD)
    for start, end in ranges:
        skipped = min(start + shift, end)  # the rest of a header may come first
        places = np.arange(skipped, end)
        for move in range(_PERIOD):
            fits[move] += table[(places - move) % _PERIOD, data[skipped:end]].sum()
    stay, move = fits[0], fits[shift % _PERIOD]
    if max(stay, move) < fits.max() - _MARGIN_NATS or abs(stay - move) < _MARGIN_NATS:
        return None
    return bool(move > stay)
