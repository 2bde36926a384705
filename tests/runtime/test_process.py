"""Who waits for the processor when there are more processes than processors."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from dpgt_node.runtime.process import taking_turns

ASKED = """
import os, subprocess, sys
from dpgt_node.runtime.process import taking_turns

def childs():
    ask = "import os; print(os.sched_getscheduler(0))"
    return int(subprocess.run([sys.executable, "-c", ask], capture_output=True, check=True).stdout)

if sys.argv[1] == "chosen":
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
processors = len(os.sched_getaffinity(0))
with taking_turns(processors):
    few = childs()
with taking_turns(processors + 1):
    many = childs()
print(few, many, os.sched_getscheduler(0))
"""


def _policies(word: str) -> list[int]:
    done = subprocess.run([sys.executable, "-c", ASKED, word], capture_output=True, text=True, check=True)
    return [int(policy) for policy in done.stdout.split()]


def test_processes_take_turns_where_there_are_more_than_processors_and_nobody_chose_otherwise() -> None:
    if os.sched_getscheduler(0) == os.SCHED_OTHER:
        assert _policies("usual") == [os.SCHED_OTHER, os.SCHED_BATCH, os.SCHED_OTHER]
    assert _policies("chosen") == [os.SCHED_IDLE] * 3


@pytest.mark.parametrize("call", ["sched_getscheduler", "sched_setscheduler", "sched_getaffinity"])
def test_a_system_that_refuses_it_stops_no_launch(call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(38, "Function not implemented")

    before, entered = os.sched_getscheduler(0), False
    monkeypatch.setattr(os, call, refuse)
    with taking_turns(1 << 20):
        entered = True
    monkeypatch.undo()
    assert entered and os.sched_getscheduler(0) == before
