"""What a recording agent holds after crashes at any byte: everything it saw, once; else a refusal."""

from __future__ import annotations

import hashlib
import os
import random
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpgt_node.agent.work import Private
from dpgt_node.algo.graph import Topology
from dpgt_node.config import Adversary
from dpgt_node.errors import ConfigError, StoreError
from dpgt_node.protocol.types import Payload, Recovered, RoundRecord, State
from dpgt_node.record import truth
from dpgt_node.record.recording import TRANSCRIPT, TRUTH, Recording
from dpgt_node.types import Stream
from dpgt_node.wire.transcript import Transcript, TranscriptError
from tests.runtime.cluster import make_run
from tests.states import parts, tracking

RUN_ID = bytes(range(16))
K = 9
EVERY = 3
SEEDS = 24
INDEX = 0  # agent-1 of the cluster's run: X from agent-2, Y from agent-3
SENDERS: tuple[tuple[int, Stream], ...] = ((1, "X"), (2, "Y"))


def payload(sender: int, stream: Stream, k: int) -> Payload:
    data = np.array([sender + 0.5, k, ord(stream)], dtype="<f8").tobytes()
    return Payload(stream, k, "float64", 3, data, hashlib.sha256(data).digest())


def state(k: int) -> State:
    one = np.ones(1)
    return tracking(k, np.full(1, k / 7), one, one, one, np.full(1, k / 3), np.arange(k % 3))


def record(k: int, *, checkpoint: bool) -> RoundRecord:
    payloads = payload(0, "X", k), payload(0, "Y", k)
    return RoundRecord(k, payloads, (), state(k).batch, state(k) if checkpoint else None)


class Work:
    """Stands in for AgentWork: its samples are a function of the batch."""

    def private(self, at: State, samples_bytes: int) -> Private:
        found = parts(at)
        return Private(found.x, found.y, found.g, at.batch + 1, at.batch / 2)


def recording(
    folder: Path, kind: type[Recording] = Recording, run_id: bytes = RUN_ID, *, sync: bool = False, **changes: Any
) -> Recording:
    run = replace(make_run(K), adversary=Adversary(**{"semi_honest": ("agent-1",), "truth": True, **changes}))
    work: Any = Work()
    topology = Topology.from_config(run.graph)
    return kind(folder, run, topology, INDEX, run_id, work, source="test", sync=sync, now_ns=lambda: 5)


@dataclass
class Durable:
    """The agent's store and its in-neighbours' ones, as far as a recording depends on them."""

    checkpoint: int = -1
    released: int = -1

    def recovered(self) -> Recovered | None:
        if self.released < 0:
            return None
        records = tuple(record(k, checkpoint=False) for k in range(self.checkpoint, self.released + 1))
        return Recovered(state(self.checkpoint), records)


class Killed(Exception):
    pass


def live(target: Recording, durable: Durable, step: Callable[[], None], order: random.Random) -> None:
    """An agent's life as the driver leads it, from what is durable to the end; ``step`` may kill it anywhere."""
    target.begin(durable.recovered())
    k = max(durable.checkpoint, 0)
    while k <= K:
        step()
        if k > durable.released:
            whole = record(k, checkpoint=k % EVERY == 0)
            if whole.checkpoint is not None:
                target.flush()
                step()
                durable.checkpoint = k
            durable.released = k
            step()
            target.released(whole, state(k))
        elif k > durable.checkpoint:
            target.replayed(state(k))
        came = [(sender, stream, k) for sender, stream in SENDERS] * order.choice([1, 1, 2])
        order.shuffle(came)
        for sender, stream, at in came:
            step()
            target.received(sender, payload(sender, stream, at))
        k += 1
    step()
    target.finish()


def crashed(folder: Path, seed: int, kind: type[Recording] = Recording) -> None:
    """A run that is killed a few times; each time any suffix of what was not flushed is lost, perhaps in mid-entry."""
    dice = random.Random(seed)
    durable, path = Durable(), folder / TRANSCRIPT
    flushed = [0]  # bytes that no crash takes, of this life or an earlier one
    for kills in range(4):
        left = dice.randrange(1, 60) if kills < 3 else 10**9

        def step() -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise Killed

        class Noting(kind):  # type: ignore[misc,valid-type]
            def flush(self) -> None:
                super().flush()
                flushed[0] = path.stat().st_size

        target = recording(folder, Noting, sync=seed % 3 == 0)
        try:
            live(target, durable, step, dice)
            return
        except Killed:
            target.close(ended=False)  # gives the descriptor back; the file is cut below
            size = path.stat().st_size
            data = path.read_bytes()[: dice.randint(min(flushed[0], size), size)]
            path.write_bytes(data + bytes(dice.choice([0, 0, 3, 40])))  # zeros, as a power cut may leave
    raise AssertionError("it was killed once too often")


def whole(folder: Path) -> None:
    """Every vector once, with the right bytes; every round of truth."""
    transcript = Transcript(folder / TRANSCRIPT)
    found = [(e.sender, e.receiver, e.own, e.stream, e.k, bytes(e.data or b"")) for e in transcript]
    expected = []
    for k in range(K + 1):
        expected += [("agent-2", "agent-1", False, "X", k, bytes(payload(1, "X", k).data))]
        expected += [("agent-3", "agent-1", False, "Y", k, bytes(payload(2, "Y", k).data))]
        expected += [("agent-1", "", True, s, k, bytes(payload(0, s, k).data)) for s in ("X", "Y")]
    assert sorted(found) == sorted(expected)
    counts = transcript.counts()
    assert (counts.messages, counts.complete, counts.conflicting) == (4 * (K + 1), 4 * (K + 1), 0)
    assert transcript.header.vantage == "semi-honest" and transcript.header.observers == ("agent-1",)
    known = truth.AgentTruth(folder / TRUTH)
    assert known.run_id() == RUN_ID and known.rounds() == tuple(range(K + 1))
    for one in known:
        at, found = state(one.k), parts(state(one.k))
        assert all(np.array_equal(getattr(one, name), getattr(found, name)) for name in ("x", "y", "g"))
        assert np.array_equal(one.batch, at.batch) and np.array_equal(one.labels, at.batch + 1)
        assert np.array_equal(one.samples, at.batch / 2)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_killed_anywhere_a_recording_is_whole_in_the_end(tmp_path: Path, seed: int) -> None:
    crashed(tmp_path, seed)
    whole(tmp_path)


class NoFlush(Recording):
    """Forgets that a checkpoint lets the others forget."""

    def flush(self) -> None:
        pass


class NoOwn(Recording):
    """Takes up its own releases only as they are made."""

    def begin(self, recovered: Recovered | None) -> None:
        super().begin(None if recovered is None else replace(recovered, records=()))


class NoReplay(Recording):
    """Writes the truth of a round only as it is released."""

    def replayed(self, at: State) -> None:
        if self.new:
            super().replayed(at)

    new = False

    def released(self, record: RoundRecord, state: State) -> None:
        self.new = True
        super().released(record, state)
        self.new = False


class Doubling(Recording):
    """Takes every copy for new."""

    def received(self, sender: int, payload: Payload) -> None:
        assert self._transcript is not None
        self._transcript._recent.clear()
        self._transcript._next[(self._names[sender], payload.stream)] = payload.k
        super().received(sender, payload)


@pytest.mark.parametrize("mutant", [NoFlush, NoOwn, NoReplay, Doubling])
def test_a_recorder_that_forgets_is_found_out(tmp_path: Path, mutant: type[Recording]) -> None:
    """By a refusal to go on, or by what it holds in the end: never a whole-looking transcript in every run."""
    wrong = 0
    for seed in range(SEEDS):
        folder = tmp_path / str(seed)
        folder.mkdir()
        try:
            crashed(folder, seed, mutant)
            whole(folder)
        except (StoreError, AssertionError, TranscriptError):
            wrong += 1
    assert wrong > 2


def test_while_it_grows_and_after_an_abort_its_readers_are_told(tmp_path: Path) -> None:
    target = recording(tmp_path)
    target.begin(None)
    target.received(1, payload(1, "X", 0))
    target.flush()
    for _ in range(2):
        with pytest.raises(TranscriptError, match=r"cut short at byte .*: the observer did not end"):
            list(Transcript(tmp_path / TRANSCRIPT))
        target.close(ended=False)
    assert len(list(Transcript(tmp_path / TRANSCRIPT).whole())) == 2  # the header and one entry


def test_a_run_that_was_stopped_can_be_read_and_gone_on_with(tmp_path: Path) -> None:
    target = recording(tmp_path)
    target.begin(None)
    target.received(1, payload(1, "X", 0))
    target.close(ended=True)
    assert Transcript(tmp_path / TRANSCRIPT).counts().messages == 1
    live(recording(tmp_path), Durable(), lambda: None, random.Random(1))
    whole(tmp_path)


def test_another_run_in_the_same_state_directory_starts_afresh(tmp_path: Path) -> None:
    live(recording(tmp_path, run_id=bytes(16)), Durable(), lambda: None, random.Random(1))
    assert truth.AgentTruth(tmp_path / TRUTH).run_id() == bytes(16)
    live(recording(tmp_path), Durable(), lambda: None, random.Random(1))
    whole(tmp_path)
    (tmp_path / "agents").mkdir()
    (tmp_path / "agents" / "a").mkdir()
    (tmp_path / "agents" / "a" / "state").symlink_to(tmp_path)
    assert truth.find_truth(tmp_path, ["a"], RUN_ID)["a"].rounds() == tuple(range(K + 1))
    with pytest.raises(ConfigError, match=f"ground truth of run {RUN_ID.hex()}, not of run {bytes(16).hex()}"):
        truth.find_truth(tmp_path, ["a"], bytes(16))


@pytest.mark.parametrize("what", ["transcript", "an entry", "a round of truth"])
def test_what_was_taken_away_is_missed_before_anything_is_drawn(tmp_path: Path, what: str) -> None:
    durable, left = Durable(), [40]

    def step() -> None:
        left[0] -= 1
        if left[0] < 0:
            raise Killed

    target = recording(tmp_path)
    with pytest.raises(Killed):
        live(target, durable, step, random.Random(3))
    target.close(ended=True)
    assert durable.checkpoint > 2
    path = tmp_path / TRANSCRIPT
    if what == "transcript":
        path.unlink()
    elif what == "an entry":
        data = bytearray(path.read_bytes())
        data[len(data) // 4] ^= 1
        path.write_bytes(data)
    else:
        (tmp_path / TRUTH / "0000002.npz").unlink()
    with pytest.raises(StoreError, match=r"round .* is missing, and nobody can send it again"):
        recording(tmp_path).begin(durable.recovered())


def test_a_copy_with_other_bytes_is_kept_and_counted(tmp_path: Path) -> None:
    """What a second draw of one release would look like to its receiver."""
    target = recording(tmp_path, truth=False)
    target.begin(None)
    first = payload(1, "X", 0)
    other = replace(first, data=bytes(24), sha256=hashlib.sha256(bytes(24)).digest())
    for one in (first, first, other):
        target.received(1, one)
    target.close(ended=True)
    transcript = Transcript(tmp_path / TRANSCRIPT)
    assert [bytes(e.data or b"") for e in transcript] == [first.data, bytes(24)]
    assert transcript.counts().conflicting == 1


@pytest.mark.parametrize("beside", [False, True])
def test_copies_are_looked_at_from_the_newest_checkpoint_on(tmp_path: Path, beside: bool) -> None:
    """Where a restart goes on: it asks for that round again, and for none before."""
    target = recording(tmp_path, truth=False)
    target.begin(None)
    for k in range(3):
        target.received(1, payload(1, "X", k))
        target.released(record(k, checkpoint=k == 2 and not beside), state(k))
    if beside:
        target.kept(2)
    for k in (1, 2):
        target.received(1, replace(payload(1, "X", k), data=bytes(24), sha256=hashlib.sha256(bytes(24)).digest()))
    target.close(ended=True)
    found = [e.k for e in Transcript(tmp_path / TRANSCRIPT) if not e.own]
    assert found == [0, 1, 2, 2]


def test_a_finished_recording_that_lacks_something_is_refused(tmp_path: Path) -> None:
    target = recording(tmp_path, truth=False)
    target.begin(None)
    with pytest.raises(StoreError, match="transcript: round 0 is missing"):
        target.finish()
    with pytest.raises(TranscriptError, match="did not end"):
        list(Transcript(tmp_path / TRANSCRIPT))


@pytest.mark.parametrize("sync", [False, True])
def test_against_power_cuts_what_is_flushed_is_synced(
    tmp_path: Path, sync: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    real = os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (synced.append(os.readlink(f"/proc/self/fd/{fd}")), real(fd))[1])
    live(recording(tmp_path, sync=sync), Durable(), lambda: None, random.Random(1))
    names = {re.sub(r"^\.(.*)\.\d+\.tmp$", r"\1", Path(name).name) for name in synced}
    assert names == ({TRANSCRIPT, TRUTH, tmp_path.name, *(f"{k:07d}.npz" for k in range(K + 1))} if sync else set())
