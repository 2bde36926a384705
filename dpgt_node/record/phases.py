"""``phases.csv``: where the rounds of each agent took their time, one row an agent and evaluation.

A row covers the ``rounds`` that the agent made since its row before, up to round ``k`` - 1; the others are seconds of
these rounds together, by the phases of :mod:`dpgt_node.protocol.pace`.  A coordinator that is killed takes with it what
it knew of the rounds since the last rows.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path

from dpgt_node.errors import ConfigError
from dpgt_node.protocol.pace import PHASES
from dpgt_node.record.metrics import cut_torn_line, whole_lines
from dpgt_node.values import dataclass

PHASES_FILE = "phases.csv"
COLUMNS = ("agent", "k", "rounds", *PHASES)


@dataclass(frozen=True, slots=True)
class PhaseRow:
    """``seconds``: of these rounds together, in the order of ``PHASES``."""

    agent: str
    k: int
    rounds: int
    seconds: tuple[float, ...]


class PhaseStore:
    """Appends to ``OUT/phases.csv``; a continued run goes on in the same file.  Rows wait for :meth:`flush`."""

    def __init__(self, out_dir: Path) -> None:
        path = out_dir / PHASES_FILE
        fresh = not path.exists() or not cut_torn_line(path)
        self._file = path.open("a", encoding="utf-8", newline="")
        self._writer = csv.writer(self._file, lineterminator="\n")
        self._before: dict[str, tuple[int, int, tuple[int, ...]]] = {}
        if fresh:
            self._writer.writerow(COLUMNS)

    def note(self, agent: str, k: int, rounds: int, total_us: Sequence[int]) -> None:
        """Agent ``agent`` is in round ``k``; its ``rounds`` of this life of the writer took ``total_us`` by phase.

        An agent that came back says earlier metrics again: no row for their ``k``, which is not where it is.
        """
        reached, made, was = self._before.get(agent, (0, 0, (0,) * len(PHASES)))
        if rounds <= made or k <= reached:
            return
        self._before[agent] = (k, rounds, tuple(total_us))
        spans = ((now - before) / 1e6 for now, before in zip(total_us, was, strict=True))
        self._writer.writerow([agent, k, rounds - made, *(f"{span:.6f}" for span in spans)])

    def flush(self) -> None:
        """Give what waits to the operating system."""
        self._file.flush()

    def close(self) -> None:
        """Flush and close; may be called twice."""
        self._file.close()


def read_phases(out_dir: Path) -> tuple[PhaseRow, ...]:
    """All whole rows of ``OUT/phases.csv``, in file order; () when there is none.

    Raises :class:`ConfigError` naming file and line for a cell that is not a number.
    """
    path = out_dir / PHASES_FILE
    reader = csv.DictReader(io.StringIO(whole_lines(path), newline=""))
    rows = []
    for record in reader:
        try:
            rows.append(phase_row(record))
        except (KeyError, TypeError, ValueError) as error:
            raise ConfigError.one(str(path), f"line {reader.line_num}", f"is not a row of phases ({error})") from error
    return tuple(rows)


def by_agent(rows: Sequence[PhaseRow], agents: Sequence[str]) -> dict[str, tuple[int, list[int]]]:
    """How many rounds took how many microseconds by phase, of those of ``agents`` that have any."""
    found: dict[str, tuple[int, list[int]]] = {}
    for row in rows:
        if row.agent in agents:
            rounds, total = found.get(row.agent, (0, [0] * len(PHASES)))
            found[row.agent] = (
                rounds + row.rounds,
                [us + round(1e6 * s) for us, s in zip(total, row.seconds, strict=True)],
            )
    return {name: found[name] for name in agents if name in found}


def phase_row(record: dict[str, str]) -> PhaseRow:
    """One line by column.  KeyError, TypeError, ValueError: it is none."""
    seconds = tuple(float(record[phase]) for phase in PHASES)
    return PhaseRow(record["agent"], int(record["k"]), int(record["rounds"]), seconds)
