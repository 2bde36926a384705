"""TensorBoard events under ``OUT/tb``: one TensorBoard run an agent, so that its charts overlay the agents.

Only the library's messages are used, and the calling thread.  Its ``EventFileWriter`` would start a thread for each
agent and look for TensorFlow; its framing of records alone imports 176 modules, 7 MiB that a coordinator would keep.
"""

from __future__ import annotations

import functools
import re
import struct
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import BinaryIO

from dpgt_node.privacy.accountants.registry import ACCOUNTANTS
from dpgt_node.record.metrics import EPSILON, MetricsRow

EVENTS_FOLDER = "tb"
# The consensus error is one number a round, the same in every agent's row: it is a run of its own.
ALL_AGENTS = "all"
TAGS: dict[str, str] = {
    "loss_train": "loss/train",
    "accuracy_train": "accuracy/train",
    "accuracy_test": "accuracy/test",
    "grad_norm": "grad_norm",
    **{f"{EPSILON}{name}": f"epsilon/{name}" for name in ACCOUNTANTS},
}
_CASTAGNOLI, _MASK = 0x82F63B78, 0xA282EAD8


def record(data: bytes) -> bytes:
    """``data`` as one record of an events file: its length (uint64), ``data``, and behind each its checksum."""
    length = struct.pack("<Q", len(data))
    return length + _checksum(length) + data + _checksum(data)


def _checksum(data: bytes) -> bytes:
    """The masked CRC-32C of TFRecord files."""
    table, crc = _table(), 0xFFFFFFFF
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", ((crc >> 15 | crc << 17) + _MASK) & 0xFFFFFFFF)


@functools.cache
def _table() -> tuple[int, ...]:
    """CRC-32C of every byte, least significant bit first."""
    crcs = list(range(256))
    for _ in range(8):
        crcs = [crc >> 1 ^ (_CASTAGNOLI if crc & 1 else 0) for crc in crcs]
    return tuple(crcs)


class TensorBoardWriter:
    """Scalars of :class:`MetricsRow` as event files ``OUT/tb/AGENT/events.out.tfevents.*``; step is k.

    The first :meth:`append` imports tensorboard's messages.  A continued run adds new files.  ``clock`` gives the wall
    time of events in seconds since the epoch.
    """

    def __init__(self, out_dir: Path, *, clock: Callable[[], float] = time.time) -> None:
        self._folder = out_dir / EVENTS_FOLDER
        self._clock = clock
        self._writers: dict[str, BinaryIO] = {}
        self._consensus_at = -1

    def append(self, rows: Iterable[MetricsRow]) -> None:
        """Write the scalars that ``rows`` have, and flush."""
        touched = set()
        for row in rows:
            scalars = {tag: value for name, tag in TAGS.items() if (value := row.value(name)) is not None}
            self._write(row.agent, row.k, scalars)
            touched.add(row.agent)
            if row.consensus_error is not None and row.k > self._consensus_at:
                self._consensus_at = row.k
                self._write(ALL_AGENTS, row.k, {"consensus_error": row.consensus_error})
                touched.add(ALL_AGENTS)
        for name in touched:
            self._writers[name].flush()

    def close(self) -> None:
        """Close the files; may be called twice."""
        for writer in self._writers.values():
            writer.close()
        self._writers.clear()

    def _write(self, name: str, step: int, scalars: dict[str, float]) -> None:
        from tensorboard.compat.proto import event_pb2, summary_pb2

        if name not in self._writers:
            self._writers[name] = self._open(name)
        values = [summary_pb2.Summary.Value(tag=tag, simple_value=value) for tag, value in scalars.items()]
        event = event_pb2.Event(wall_time=self._clock(), step=step, summary=summary_pb2.Summary(value=values))
        self._writers[name].write(record(event.SerializeToString()))

    def _open(self, name: str) -> BinaryIO:
        from tensorboard.compat.proto import event_pb2

        folder = self._folder / (re.sub(r"[^A-Za-z0-9._-]|^\.+", "_", name) or "_")
        folder.mkdir(parents=True, exist_ok=True)
        now = self._clock()
        # TensorBoard reads the files of a folder in the order of their names; "xb" so that no start overwrites another.
        stem = f"events.out.tfevents.{int(now):010d}.dpgt"
        part = sum(1 for _ in folder.glob(f"{stem}.*"))
        writer = (folder / f"{stem}.{part:04d}").open("xb")
        writer.write(record(event_pb2.Event(wall_time=now, file_version="brain.Event:2").SerializeToString()))
        return writer
