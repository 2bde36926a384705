"""Which hole was taken too large, told by the bytes of floats; and no answer where they do not tell."""

from __future__ import annotations

import numpy as np
import pytest

from dpgt_node.adversary.decode.alignment import wrong_hole

HOLES = [(10_000, 11_000), (30_000, 31_448), (50_000, 51_448), (70_000, 71_000)]
UNSURE = [HOLES[0], HOLES[1], HOLES[3]]


def body(dtype: str, wrong: int, shift: int, values: np.ndarray | None = None) -> memoryview:
    """A message with holes, in which the bytes behind hole ``wrong`` stand ``shift`` bytes too late."""
    data = (np.random.default_rng(wrong).normal(size=40_000) if values is None else values).astype(dtype).tobytes()
    out = bytearray(data[:100_000])
    end = UNSURE[wrong][1]
    out[end + shift :] = out[end : len(out) - shift]
    out[end : end + shift] = bytes(range(shift))  # the rest of a frame header
    for start, stop in HOLES:
        out[start:stop] = bytes(stop - start)
    return memoryview(out)


@pytest.mark.parametrize("dtype", ["<f4", "<f8"])
@pytest.mark.parametrize("shift", [9, 13, 17])
@pytest.mark.parametrize("wrong", [0, 1, 2])
def test_floats_tell(dtype: str, shift: int, wrong: int) -> None:
    assert wrong_hole(body(dtype, wrong, shift), UNSURE, HOLES, shift) == wrong


def test_no_answer_where_nothing_tells() -> None:
    assert wrong_hole(body("<f4", 1, 9, np.zeros(40_000)), UNSURE, HOLES, 9) is None
    noise = np.frombuffer(np.random.default_rng(0).bytes(160_000), dtype="<f4")
    assert wrong_hole(body("<f4", 1, 9, noise), UNSURE, HOLES, 9) is None
    assert wrong_hole(body("<f4", 1, 22), UNSURE, HOLES, 22) is None  # two frames may hide in two holes
    assert wrong_hole(body("<f4", 1, 10), UNSURE, HOLES, 9) is None
