"""kill -9 at any moment: what was reported durable is there, and what is there is whole."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.runtime.store.records import BESIDE, RUN, opened, record, same_record, same_state, state

ROOT = Path(__file__).resolve().parents[3]
SEED = 20240817


def run_and_kill(state_dir: Path, d: int, every: int, lines: int, delay_s: float) -> list[str]:
    """Kill the committing process after it said ``lines`` lines and a moment more; everything it said."""
    command = [sys.executable, "-m", "tests.runtime.store.records", str(state_dir), str(d), str(every)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        said = [child.stdout.readline().strip() for _ in range(lines)]
        timer = threading.Timer(delay_s, os.kill, (child.pid, signal.SIGKILL))  # lands somewhere in a commit
        timer.start()
        said += child.stdout.read().splitlines()
        timer.join()
    assert child.returncode == -signal.SIGKILL
    return said


@pytest.mark.parametrize(("d", "every"), [(10, 1), (10, 7), (200_000, 3)], ids=["every", "some", "files"])
def test_killed_between_any_two_instructions(tmp_path: Path, d: int, every: int) -> None:
    """Several crashes of one run in a row; each start goes on where the last one was cut off."""
    chance = random.Random(f"{SEED} {d} {every}")
    last, before = -1, 0
    for _ in range(4):
        lines = chance.randrange(2, 20 if d > BESIDE else 60)
        said = run_and_kill(tmp_path, d, every, lines, chance.random() * 0.02)
        done = max([last, *(int(line) for line in said if line.isdigit())])
        began = max(int(line.split()[1]) for line in said if line.startswith("began ") and line[6:].isdigit())
        with contextlib.closing(opened(tmp_path)) as store:
            recovered = store.recover(RUN)
            assert recovered is not None, (SEED, said)
            last = recovered.records[-1].k
            assert done <= last <= began, (SEED, said[-4:])
            newest = last - last % every
            if d <= BESIDE:
                assert recovered.checkpoint.k == newest
            else:  # the newest one may still have been on its way to the disk, but none that was said to be there
                kept = [int(line.split()[1]) for line in said if line.startswith("kept ") and line[5:].isdigit()]
                before = max([before, *kept])
                assert before <= recovered.checkpoint.k <= newest and recovered.checkpoint.k % every == 0
                before = recovered.checkpoint.k
            assert same_state(recovered.checkpoint, state(recovered.checkpoint.k, d))
            assert all(same_record(got, record(got.k, d)) for got in recovered.records)
            charged = [(e.row.k, e.row.stream) for e in store.ledger().entries]
            assert charged == [(k, stream) for k in range(last + 1) for stream in ("X", "Y")]
            assert store.releases(RUN) == 2 * (last + 1)
