"""One agent's training samples as a hash: whether a run goes on with the data it was begun with."""

from __future__ import annotations

import hashlib

import numpy as np

from dpgt_node.learning.data.arrays import Dataset
from dpgt_node.learning.data.pictures.folders import Pictures
from dpgt_node.types import I64

_ROWS = 4096  # bounds the copy


def shard_sha256(data: Dataset, rows: I64 | None = None) -> bytes:
    """SHA-256 over the training samples ``rows`` (None: all) and their labels, in order: 32 bytes.

    Values count, not how they are stored; of pictures in files the files' bytes count.  PRIVATE: of few samples it can
    be guessed, so it stays on this host and is stored with a salt only.
    """
    chosen = np.arange(len(data.y_train)) if rows is None else rows
    found = hashlib.sha256(f"{data.divisor!r} {data.image} {len(chosen)}\n".encode())
    held: object = data.x_train
    for start in range(0, len(chosen), _ROWS):
        block = chosen[start : start + _ROWS]
        found.update(np.asarray(data.y_train[block], dtype="<i8").tobytes())
        if isinstance(held, Pictures):
            for content in held.contents(block):
                found.update(hashlib.sha256(content).digest())
        else:
            found.update(np.asarray(data.x_train[block], dtype="<f8").tobytes())
    return found.digest()
