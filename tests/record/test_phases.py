"""phases.csv: spans since the row before, a file that is continued, torn or no table."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpgt_node.errors import ConfigError
from dpgt_node.record.phases import PHASES_FILE, PhaseRow, PhaseStore, read_phases

A, B = (1_000_000, 0, 2, 3, 4, 5), (3_000_000, 7, 2, 3, 4, 5)


def test_a_row_holds_what_came_since_the_one_before(tmp_path: Path) -> None:
    assert read_phases(tmp_path) == ()
    store = PhaseStore(tmp_path)
    store.note("agent-1", 0, 0, (0,) * 6)  # no round yet: no row
    store.note("agent-1", 10, 10, A)
    store.note("agent-1", 10, 10, A)  # said again
    store.note("agent-1", 0, 16, B)  # came back and says its first metrics again
    store.note("agent-1", 20, 20, B)
    store.close()
    first = PhaseRow("agent-1", 10, 10, (1.0, 0.0, 2e-6, 3e-6, 4e-6, 5e-6))
    assert read_phases(tmp_path) == (first, PhaseRow("agent-1", 20, 10, (2.0, 7e-6, 0.0, 0.0, 0.0, 0.0)))


def test_a_continued_run_goes_on_in_the_file_and_a_torn_line_goes(tmp_path: Path) -> None:
    store = PhaseStore(tmp_path)
    store.note("agent-1", 10, 10, A)
    store.close()
    with (tmp_path / PHASES_FILE).open("a") as file:
        file.write("agent-1,20,1")
    again = PhaseStore(tmp_path)
    again.note("agent-1", 30, 5, A)  # counted anew in this life
    again.close()
    assert [(row.k, row.rounds) for row in read_phases(tmp_path)] == [(10, 10), (30, 5)]
    with (tmp_path / PHASES_FILE).open("a") as file:
        file.write("agent-1,40,x,1,1,1,1,1,1\n")
    with pytest.raises(ConfigError, match="line 4"):
        read_phases(tmp_path)
