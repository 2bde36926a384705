"""What an interrupted simulation goes on from: ``OUT/simulation.npz``, written whole, now and then and on every stop.

Nothing of a simulation leaves its process before the end but metrics, so rounds after the last save may be drawn anew;
their rows of metrics are dropped when it goes on.  A stop that was asked for saves at once, so nothing is drawn twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from dpgt_node.durable import replacing
from dpgt_node.errors import ConfigError
from dpgt_node.protocol.types import Payload, Recovered, RoundRecord, State
from dpgt_node.record.released import ReleasedSum
from dpgt_node.sim.world import SimAgent
from dpgt_node.types import Codes, Stream, WireDtype

SAVED_FILE = "simulation.npz"
SAVE_EVERY_S = 60.0
_SHARE = 20.0
"""At most one part in so many of the time goes into saving."""
Arrays = Mapping[str, npt.NDArray[Any]]
How = Literal["agents", "matrices"]


class Saver:
    """Saves what ``arrays()`` gives when it is time; ``how`` says which simulator can go on from it."""

    def __init__(
        self,
        out: Path,
        how: How,
        arrays: Callable[[], tuple[int, Arrays] | None],
        *,
        every_s: float = SAVE_EVERY_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path, self._how, self._arrays = out / SAVED_FILE, how, arrays
        self._every_s, self._clock, self._next_s = every_s, clock, clock() + every_s

    def perhaps(self) -> None:
        """Save if the last time was long enough ago."""
        if self._clock() >= self._next_s:
            self.now()

    def now(self) -> None:
        """Save; nothing where there is nothing yet.  OSError."""
        begin, found = self._clock(), self._arrays()
        if found is not None:
            k, arrays = found
            _write(self._path, {"how": np.array(self._how), "k": np.array(k), **arrays})
        end = self._clock()
        self._next_s = end + max(self._every_s, _SHARE * (end - begin))

    def done(self) -> None:
        """The run is over: there is nothing to go on from."""
        self._path.unlink(missing_ok=True)


def begins_anew(out: Path) -> bool:
    """Nothing was saved: a simulation that was begun in ``out`` and cut off goes on from round 0."""
    return not (out / SAVED_FILE).exists()


def load(out: Path, how: How) -> tuple[int, dict[str, npt.NDArray[Any]]] | None:
    """(round, arrays) of the last save; None when there is none.  ConfigError: unreadable, or the other simulator's."""
    path = out / SAVED_FILE
    if not path.exists():
        return None
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        held, k = str(arrays.pop("how")), int(arrays.pop("k"))
    except (OSError, ValueError, KeyError, EOFError, RuntimeError) as error:
        message = f"cannot be read ({error}): remove it to begin again from round 0"
        raise ConfigError.one(str(path), "", message) from error
    if held != how:
        began = "with --fast" if held == "matrices" else "without --fast"
        raise ConfigError.one("command line", "--fast", f"the simulation in {out} began {began}; go on likewise")
    return k, arrays


def _write(path: Path, arrays: Arrays) -> None:
    with replacing(path, "whole") as file:
        np.savez(file, allow_pickle=False, **arrays)


# --- agents as machines ----------------------------------------------------------------------------------------------


def agents_arrays(agents: Sequence[SimAgent], sums: Sequence[ReleasedSum]) -> tuple[int, Arrays] | None:
    """Every agent's records from the last round that all of them released, each with its state: what a restart needs.

    ``sums``: of their released x.  None before round 0 was released by everybody.
    """
    k = min(max(agent.records, default=-1) for agent in agents)
    if k < 0:
        return None
    arrays: dict[str, npt.NDArray[Any]] = {}
    for i, (agent, total) in enumerate(zip(agents, sums, strict=True)):
        arrays[f"{i}/sum"] = total.total
        arrays[f"{i}/counts"] = np.array([agent.releases, agent.bytes_sent, total.first, total.through])
        for record in (record for at, record in agent.records.items() if at >= k):
            at, state = f"{i}/{record.k}", record.checkpoint
            assert state is not None, "these machines store the state of every round"
            arrays |= {f"{at}/{name}": vector for name, vector in state.vectors.items()}
            for payload in record.payloads:
                dtype, codes = np.dtype(payload.dtype).newbyteorder("<"), payload.codes
                arrays[f"{at}/{payload.stream}"] = np.frombuffer(payload.data, dtype=dtype)
                if codes is not None:
                    arrays[f"{at}/{payload.stream}/codes"] = np.array([codes.step, codes.offset, codes.low, codes.high])
                arrays[f"{at}/{payload.stream}/sha256"] = np.frombuffer(payload.sha256, dtype=np.uint8)
            arrays[f"{at}/batch"] = record.batch
            if record.noisy_gradient is not None:
                arrays[f"{at}/noisy"] = record.noisy_gradient
    return k, arrays


def recovered(i: int, k: int, arrays: Arrays, names: Sequence[str], streams: Sequence[Stream]) -> Recovered:
    """What ``agents_arrays`` held of agent ``i``; ``names``: of its state's vectors, ``streams``: what it sends."""
    records: list[RoundRecord] = []
    while (name := f"{i}/{k + len(records)}/") + "batch" in arrays:
        at, batch = k + len(records), arrays[name + "batch"]
        state = State(at, {part: arrays[name + part] for part in names}, batch)
        payloads = tuple(_payload(stream, at, arrays, name + stream) for stream in streams)
        records.append(RoundRecord(at, payloads, (), batch, state, arrays.get(name + "noisy")))
    first = records[0].checkpoint
    assert first is not None
    return Recovered(first, tuple(records))


def counts(i: int, arrays: Arrays) -> tuple[int, int]:
    """(releases, bytes sent) of agent ``i`` at the save."""
    return int(arrays[f"{i}/counts"][0]), int(arrays[f"{i}/counts"][1])


def sum_of(i: int, run_id: bytes, arrays: Arrays) -> ReleasedSum:
    """The sum of released x of agent ``i`` at the save."""
    first, through = (int(value) for value in arrays[f"{i}/counts"][2:])
    return ReleasedSum(run_id, first, through, np.array(arrays[f"{i}/sum"]))


def _payload(stream: Stream, k: int, arrays: Arrays, name: str) -> Payload:
    values, sha256 = arrays[name], arrays[f"{name}/sha256"].tobytes()
    if (said := arrays.get(f"{name}/codes")) is not None:
        step, offset, low, high = said.tolist()
        codes = Codes(step, offset, int(low), int(high))
        return Payload(stream, k, codes.dtype, values.size, values.tobytes(), sha256, codes)
    dtype: WireDtype = "float64" if values.dtype.itemsize == 8 else "float32"
    return Payload(stream, k, dtype, values.size, values.tobytes(), sha256)
