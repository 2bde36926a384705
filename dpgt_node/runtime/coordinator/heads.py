"""What a coordinator remembers of every agent: its ledger's head after the last round it reported, and its D.

An agent that comes back is told; one whose ledger never had that head has an old state directory, or one in which
the same rounds were drawn differently, and must not release another byte.  Rounds alone would tell the first, not the
second.  The head is a hash over what was released and charged anyway: it says nothing new to anybody.

One slot an agent in ``ledger_heads.bin``: round, head, checksum; written before the barrier moves on the report.
It survives the process; after a power cut a torn slot counts as none.  The Ds are in ``samples.json`` from before the
first round may be released: what a run costs depends on them.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from dpgt_node.config import load_run
from dpgt_node.documents import read_json
from dpgt_node.durable import write_text
from dpgt_node.errors import ConfigError
from dpgt_node.runtime.coordinator.outdir import RUN_FILE, blamed, held_run_id

HEADS_FILE = "ledger_heads.bin"
SAMPLES_FILE = "samples.json"
_WORD, _SLOT = struct.Struct("<q32s"), struct.Struct("<q32sI")
_STEP = 64


class Heads:
    """(round, head) of each of ``names``, kept under ``folder``.  OSError: cannot be read or written."""

    def __init__(self, folder: Path, names: Sequence[str]) -> None:
        self._slots = {name: i * _STEP for i, name in enumerate(names)}
        self._file = os.open(folder / HEADS_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._known = _heads(os.pread(self._file, _STEP * len(names), 0), names)

    def known(self) -> dict[str, tuple[int, bytes]]:
        """Of each agent that reported one: its last reported round, and its ledger's head after it."""
        return dict(self._known)

    def note(self, name: str, k: int, head: bytes) -> None:
        """Remember; an earlier round than the one remembered changes nothing."""
        if self._file < 0 or not head or k <= self._known.get(name, (-1, b""))[0]:
            return
        text = _WORD.pack(k, head)
        os.pwrite(self._file, text + zlib.crc32(text).to_bytes(4, "little"), self._slots[name])
        self._known[name] = (k, head)

    def close(self) -> None:
        """What comes later is not noted: the run is over."""
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)


def remembered(folder: Path) -> tuple[bytes, dict[str, tuple[int, bytes]]]:
    """The id of the run in an output folder and, of each agent that reported, the last round and the head after it.

    ConfigError: there is no run, or its heads cannot be read.
    """
    run_id = held_run_id(folder)
    if run_id is None:
        raise ConfigError.one(str(folder), "", "is no output folder of a run")
    with blamed(folder / HEADS_FILE):
        held = (folder / HEADS_FILE).read_bytes()
    return run_id, _heads(held, load_run(folder / RUN_FILE).graph.agents)


def _heads(held: bytes, names: Sequence[str]) -> dict[str, tuple[int, bytes]]:
    found = {}
    for i, name in enumerate(names):
        slot = held[i * _STEP : i * _STEP + _SLOT.size]
        if len(slot) == _SLOT.size:
            k, head, checksum = _SLOT.unpack(slot)
            if checksum == zlib.crc32(slot[:-4]) and head != bytes(32):
                found[name] = (k, head)
    return found


def keep_samples(folder: Path, samples: Mapping[str, int | None]) -> None:
    """Remember every agent's D (None: its objective has no data set).  OSError: it cannot be written."""
    if held_samples(folder) != samples:
        write_text(folder / SAMPLES_FILE, json.dumps(samples) + "\n")


def held_samples(folder: Path) -> dict[str, int | None]:
    """Every agent's D when the run began; {}: it has not.  ConfigError: the file cannot be read."""
    path = folder / SAMPLES_FILE
    try:
        held = {str(name): None if d is None else int(d) for name, d in read_json(path).items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise ConfigError.one(str(path), "", f"cannot be read: {error}") from error
    return held
