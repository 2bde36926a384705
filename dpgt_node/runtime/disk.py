"""How much disk a run needs, predicted before it begins, and whether it is there.

The parts of a prediction are what is on disk at once at the worst moment.  Measured against real runs (see
``tests/runtime/test_disk.py`` and ``dpgt bench disk``) the total is between the real peak and twice it
plus 16 MiB, most of which is SQLite's log.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from dpgt_node.agent.encoding import wire_dtype_of
from dpgt_node.algo.graph import Topology
from dpgt_node.algo.methods import method_of, network_of, rule_of
from dpgt_node.algo.schedule import Schedule
from dpgt_node.config.model import RunConfig
from dpgt_node.errors import ConfigError
from dpgt_node.privacy.mechanisms import MECHANISMS
from dpgt_node.protocol.agent.keeping import AHEAD_ROUNDS
from dpgt_node.record.truth import SAMPLES_BYTES
from dpgt_node.runtime.store.limits import CHECKPOINT_ROUNDS, FILE_BYTES, LOG_BYTES, announce_every
from dpgt_node.values import dataclass

_PAGE = 4096
_ROUND_ROW = 90  # two hashes, a key
_LEDGER_ROW = 400  # words, numbers, two hashes, the costs as text; half-full pages included
_METRICS_ROW = 250
_EVENTS_ROW = 1000  # TensorBoard: a dozen scalars
_REPORT = 8 << 20  # report.html, summary.json, logs
_LOGS = 1 << 20
_TRANSCRIPT_ENTRY = 320  # two names of up to 63 bytes, two hashes, a run id, numbers
_TRUTH_FILE = 2500  # six arrays in a zip file


@dataclass(frozen=True, slots=True)
class DiskNeed:
    """Bytes of one process's folder at the worst moment of a run, by what they are for.

    ``rounds``: rows that stay for ever, ``recorded``: transcript and ground truth, both of the whole run; the other
    parts are there at once whatever the round.
    """

    name: str
    rounds: int
    payloads: int
    checkpoints: int
    log: int
    results: int
    recorded: int = 0

    @property
    def growing(self) -> int:
        """What grows with every round."""
        return self.rounds + self.recorded

    @property
    def total(self) -> int:
        return self.growing + self.payloads + self.checkpoints + self.log + self.results


def agent_need(
    run: RunConfig, name: str, dimension: int, samples: int | None, sample_size: int = 0, table: int = 0
) -> DiskNeed:
    """The state directory of agent ``name``; ``dimension`` d, ``samples``: indices of one batch (None: the run's m_K
    is not known yet, or there is no data set), ``sample_size``: numbers of one sample,
    ``table``: of the table of gradients that its method keeps.
    """
    itemsize = np.dtype(wire_dtype_of(run, dimension)).itemsize
    rounds, releases = run.K + 1, len(Schedule.from_config(run).releases)
    mechanism, rule, streams = MECHANISMS[run.algorithm.mechanism], rule_of(run), len(method_of(run).streams)
    vectors = [itemsize * dimension] * streams + [8 * dimension] * rule.keeps_drawn
    inside = sum(v for v in vectors if v <= FILE_BYTES) + 8 * (samples or 0) + 200
    files = sum(v for v in vectors if v > FILE_BYTES)
    # Pruned are rounds before the last checkpoint that every agent has passed, when the coordinator says so.  It hears
    # of a checkpoint with the round after those during which it is written.
    between = CHECKPOINT_ROUNDS + AHEAD_ROUNDS + 1
    kept = min(rounds, between + announce_every(dimension) + run.runtime.barrier_every + 1)
    state = 8 * ((len(rule.state) - rule.keeps_table) * dimension + table)
    a_round = _pages(inside) + (_pages(state) if state <= FILE_BYTES else 0) + 6 * _PAGE
    metrics = 0 if run.evaluate.metrics == "study" else _METRICS_ROW * _evaluations(run)
    return DiskNeed(
        name,
        rounds=rounds * _ROUND_ROW + releases * _LEDGER_ROW * len(mechanism.charged),
        payloads=kept * (_pages(inside) + files),
        checkpoints=2 * state,  # the new one is whole before the old one goes
        log=min(LOG_BYTES, rounds * a_round) + a_round,
        # x_final.npy and the sum of released x, one of before beside each for a moment
        results=4 * 8 * dimension + metrics + _LOGS,
        recorded=rounds * _recorded(run, name, itemsize * dimension, dimension, samples or 0, sample_size),
    )


def _recorded(run: RunConfig, name: str, nbytes: int, dimension: int, samples: int, sample_size: int) -> int:
    """What [adversary] makes of one round."""
    recorded = 0
    if name in run.adversary.semi_honest:
        network = network_of(run, Topology.from_config(run.graph))
        edges = sum(map(len, network.senders(run.graph.agents.index(name)).values()))
        recorded += (edges + len(network.streams)) * (nbytes + _TRANSCRIPT_ENTRY)  # its own releases too
    if run.adversary.truth:
        kept = 8 * samples * sample_size
        vectors = 3 * 8 * dimension + 2 * 8 * samples + (kept if kept <= SAMPLES_BYTES else 0)
        recorded += -(-(vectors + _TRUTH_FILE) // _PAGE) * _PAGE
    return recorded


def coordinator_need(run: RunConfig, dimension: int) -> DiskNeed:
    """The output folder of a coordinator, without the agents' states in it (uploads but x_final stay in memory)."""
    rows = _evaluations(run) * run.n
    study = run.evaluate.metrics == "study"
    finals = (run.n + 1) * 8 * dimension if study else 0
    return DiskNeed("coordinator", 0, 0, 0, 0, results=finals + rows * (_METRICS_ROW + _EVENTS_ROW) + _REPORT)


def _evaluations(run: RunConfig) -> int:
    return (run.K + 1) // run.evaluate.every + 2


def _pages(nbytes: int) -> int:
    """Bytes of whole pages that a row of ``nbytes`` occupies at worst."""
    return nbytes if nbytes < _PAGE // 4 else -(-nbytes // (_PAGE - 4)) * _PAGE + _PAGE // 4


def free_bytes(path: Path) -> int | None:
    """What this user may still write where ``path`` is or will be; None where the file system does not say."""
    place = path
    while not place.exists() and place != place.parent:
        place = place.parent
    found = os.statvfs(place)
    return found.f_bavail * found.f_frsize if found.f_blocks else None


def used_bytes(folder: Path) -> int:
    """Bytes allocated to the files right in ``folder``."""
    return sum(entry.stat().st_blocks * 512 for entry in os.scandir(folder) if entry.is_file(follow_symlinks=False))


def still_needed(need: DiskNeed, last_round: int, released_through: int, held: int) -> int:
    """What a run that released rounds <= ``released_through`` (-1: none) of 0..``last_round`` needs on top of
    ``held`` bytes of large files that are there already.
    """
    left = need.growing * (last_round - released_through) // (last_round + 1)
    return max(0, need.total - need.growing + left - held)


def require_room(path: Path, needed: int, *, source: str, key: str, hint: str) -> None:
    """ConfigError naming both numbers unless ``needed`` bytes are free where ``path`` lies."""
    free = free_bytes(path)
    if free is not None and free < needed:
        raise ConfigError.one(
            source, key, f"{path} needs {readable(needed)} for this run, and {readable(free)} are free: {hint}"
        )


def readable(nbytes: int) -> str:
    """12.3 MB; units of 1000, as disks are sold."""
    value, units = float(nbytes), ["bytes", "kB", "MB", "GB", "TB"]
    while value >= 1000 and len(units) > 1:
        value, units = value / 1000, units[1:]
    return f"{value:.1f} {units[0]}" if units[0] != "bytes" else f"{nbytes} bytes"
