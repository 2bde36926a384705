"""What the coordinator remembers tells an old or a forked state directory from the newest one, over its restart too."""

from __future__ import annotations

import asyncio
import contextlib
import re
import shutil
import sqlite3
from pathlib import Path

from dpgt_node.errors import ExitCode, StoreError
from dpgt_node.runtime.coordinator.heads import HEADS_FILE, Heads, held_samples, keep_samples
from dpgt_node.runtime.store.ledger import DATABASE, read_ledger
from tests.runtime.cluster import Cluster, cluster, make_run

NAMES = ("a", "b", "c")


def test_heads_are_remembered(tmp_path: Path) -> None:
    heads = Heads(tmp_path, NAMES)
    assert heads.known() == {}
    heads.note("a", 3, b"1" * 32)
    heads.note("a", 2, b"2" * 32)  # late
    heads.note("a", 4, b"")  # a replay
    heads.note("c", 0, b"3" * 32)
    heads.close()
    heads.note("c", 1, b"4" * 32)
    again = Heads(tmp_path, NAMES)
    assert again.known() == {"a": (3, b"1" * 32), "c": (0, b"3" * 32)}
    again.close()


def test_a_torn_slot_counts_as_none(tmp_path: Path) -> None:
    heads = Heads(tmp_path, NAMES)
    for k, name in enumerate(NAMES):
        heads.note(name, k, b"1" * 32)
    heads.close()
    path = tmp_path / HEADS_FILE
    good = path.read_bytes()
    for torn in (good[:70], good[:64] + bytes([good[64] ^ 1]) + good[65:108], b"", bytes(200)):
        path.write_bytes(torn)
        again = Heads(tmp_path, NAMES)
        assert again.known() in ({}, {"a": (0, b"1" * 32)})
        again.close()


def test_the_samples_that_are_remembered_are_the_last_ones(tmp_path: Path) -> None:
    """A run of which nobody had released anything may begin anew with other data."""
    assert held_samples(tmp_path) == {}
    for samples in ({"a": 5, "b": None}, {"a": 6, "b": None}, {"a": 6, "b": 7}):
        keep_samples(tmp_path, samples)
        assert held_samples(tmp_path) == samples


async def interrupted(c: Cluster, k: int) -> None:
    """Run to round ``k`` at least, then everything ends as a killed machine would: mid-run, nothing said."""
    c.start_all()
    await c.reached(k)
    for node in c.nodes.values():
        node.interrupt()
    await asyncio.gather(*c.agents.values(), return_exceptions=True)
    c.stop.set()
    assert c.serving is not None
    await c.serving


async def refused(c: Cluster, words: str) -> None:
    """Started again, an agent finds out before it draws anything; nobody releases another round meanwhile."""
    before = {n: read_ledger(c.folder / "state" / n).head for n in c.run.graph.agents}
    c.start_all()
    ends = await asyncio.gather(*c.agents.values(), return_exceptions=True)
    found = [end for end in ends if isinstance(end, StoreError) and re.search(words, str(end))]
    assert found and found[0].exit_code is ExitCode.CONFIG, ends
    assert ExitCode.DONE not in ends, "the others hear why they do not go on"
    for n, head in before.items():
        assert read_ledger(c.folder / "state" / n).head == head, f"{n} released something"


async def test_a_whole_restore_of_the_agents_is_found_by_the_coordinator(tmp_path: Path) -> None:
    """Every agent goes back to the same old copy: no neighbour holds a round that another forgot."""
    run, states = make_run(400), tmp_path / "state"
    async with cluster(tmp_path, run) as c:
        await interrupted(c, 5)
    shutil.copytree(states, tmp_path / "backup")
    async with cluster(tmp_path, run) as c:
        await interrupted(c, 60)
    shutil.rmtree(states)
    shutil.copytree(tmp_path / "backup", states)
    async with cluster(tmp_path, run) as c:
        await refused(c, r"the coordinator remembers a ledger of agent-\d through round")


async def test_a_fork_with_the_same_rounds_is_found(tmp_path: Path) -> None:
    """The same number of rounds, drawn differently: rounds alone would let it in."""
    run, states = make_run(400), tmp_path / "state"
    async with cluster(tmp_path, run) as c:
        await interrupted(c, 20)
    assert (tmp_path / "out" / HEADS_FILE).stat().st_size > 0
    path = states / "agent-2" / DATABASE
    fork(path)
    async with cluster(tmp_path, run) as c:
        await refused(c, "the coordinator remembers a ledger of agent-2 through round")


def fork(path: Path) -> None:
    """Give the last releases other scales, and the chain the heads that follow: whole in itself."""
    from dpgt_node.runtime.store.ledger import link, select_terms

    with contextlib.closing(sqlite3.connect(path)) as db, db:
        ((run_id, terms),) = select_terms(db).values()
        rows = db.execute("SELECT * FROM ledger ORDER BY id").fetchall()
        head = bytes(32)
        for number, _, *fields, _ in rows:
            if fields[0] >= 10:
                fields[4] *= 2.0
            head = link(head, terms.text(run_id), *fields)
            db.execute("UPDATE ledger SET scale = ?, head = ? WHERE id = ?", (fields[4], head, number))


async def test_who_kept_its_state_goes_on(tmp_path: Path) -> None:
    """The check's other side: agents and coordinator that were killed anywhere are let in and finish the run."""
    run = make_run(60)
    for k in (3, 17, 40):
        async with cluster(tmp_path, run) as c:
            await interrupted(c, k)
    async with cluster(tmp_path, run) as c:
        c.start_all()
        await c.end()
        c.assert_simulators_bits()
