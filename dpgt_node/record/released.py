"""What an agent released of x, kept for a model that may be published: the last x̆ and a running sum of x̆.

Both are functions of the transcript alone, so keeping them costs nothing.  The window of the sum is the second half of
the run, rounds ceil(K/2)..K: by then the start is forgotten, and half the rounds take out most of what noise an average
can take out.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import field
from pathlib import Path

import numpy as np

from dpgt_node.config.model import RunConfig
from dpgt_node.documents import parse_json
from dpgt_node.errors import StoreError, invariant
from dpgt_node.types import F64, Floats
from dpgt_node.values import dataclass

SUM_FILE = "x_released.sum"
"""In a state directory: the sum of the newest run."""
LAST_FILE = "x_released.npy"
"""In a simulated agent's state directory: x̆_K.  A daemon's is in its database."""
_HEAD_BYTES = 4096


def window_start(last_round: int) -> int:
    """The first round whose x̆ belongs to the average of a run with last round K."""
    return (last_round + 1) // 2


@dataclass(slots=True)
class ReleasedSum:
    """The sum of x̆_k over rounds ``first``..``through`` of run ``run_id``; ``through`` = ``first`` - 1: none yet.

    ``total``: float64 (d,), written to in place.
    """

    run_id: bytes
    first: int
    through: int
    total: F64 = field(repr=False)

    @classmethod
    def empty(cls, run_id: bytes, first: int, dimension: int) -> ReleasedSum:
        return cls(run_id, first, first - 1, np.zeros(dimension))

    def add(self, k: int, x: Floats) -> None:
        """Count x̆_k in, in float64; rounds before the window or counted already are left out, the next comes next."""
        if k <= self.through:
            return
        invariant(k == self.through + 1, "released rounds are added in order")
        with np.errstate(over="ignore"):  # an active role may release what ends float64
            self.total += x
        self.through = k

    @property
    def rounds(self) -> int:
        return self.through - self.first + 1

    def mean(self) -> F64:
        """The average, float64 (d,)."""
        return np.asarray(self.total / self.rounds)

    def parts(self) -> Iterator[bytes | memoryview]:
        """The file: a line of JSON, then ``total`` as little-endian float64."""
        data = np.ascontiguousarray(self.total, dtype="<f8").data.cast("B")
        head = {
            "run_id": self.run_id.hex(),
            "first": self.first,
            "through": self.through,
            "sha256": hashlib.sha256(data).hexdigest(),
        }
        yield json.dumps(head).encode() + b"\n"
        yield data


def read_sum(path: Path) -> ReleasedSum | None:
    """The sum in a file; None when there is none.  StoreError: it is torn."""
    try:
        with path.open("rb") as file:
            head = parse_json(file.readline(_HEAD_BYTES))
            data = np.empty(os.fstat(file.fileno()).st_size - file.tell(), dtype=np.uint8)
            whole = file.readinto(data.data) == data.size
        if not whole or hashlib.sha256(data.data).hexdigest() != head["sha256"]:
            raise StoreError(f"{path}: torn: its bytes are not those that were stored")
        total = data.view("<f8")  # where it was read: it may be as long as all the model
        return ReleasedSum(bytes.fromhex(head["run_id"]), int(head["first"]), int(head["through"]), total)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{path}: cannot be read: {error}") from error


def recorded(run: RunConfig, name: str) -> bool:
    """Whether agent ``name`` records more than that for a study (``record.recording``)."""
    return run.adversary.truth or name in run.adversary.semi_honest
