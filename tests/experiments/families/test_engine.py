"""The engine: every run once, a failed one once more, a killed worker costs one attempt, nobody at an address."""

from __future__ import annotations

import os
import signal
import socket
from collections import Counter
from pathlib import Path

import pytest

from dpgt_node.errors import ConfigError
from dpgt_node.experiments.families.runs import engine
from dpgt_node.experiments.families.runs.engine import Clock, Pool, Task, pool
from dpgt_node.experiments.families.runs.folder import Folder
from tests.experiments.families import work


def tasks(log: Path, *names: str) -> list[Task]:
    return [Task(name, (name, str(log))) for name in names]


def test_a_failed_run_is_tried_once_more_after_all_others(tmp_path):
    log = tmp_path / "log"
    done = list(Pool(None, "").map(work.fails, tasks(log, "always", "a", "once", "b")))
    assert work.attempts(log) == ["always", "a", "once", "b", "always", "once"]
    assert [(one.name, one.files is not None, one.last) for one in done] == [
        ("always", False, False), ("a", True, True), ("once", False, False), ("b", True, True),
        ("always", False, True), ("once", True, True),
    ]  # fmt: skip
    assert done[0].error == "ValueError: always is broken"


def test_a_killed_worker_loses_one_run_and_no_result_comes_twice(tmp_path):
    """Two processes of Dask; the one that works on the victim dies of SIGKILL in the middle of it."""
    log, names = tmp_path / "log", ["a", "b", "victim", "c", "d", "e"]
    folder = Folder(tmp_path / "out")
    with pool(2, None) as workers:
        for done in workers.map(work.dies_once, tasks(log, *names)):
            assert done.files is not None and done.error == ""
            folder.keep(done.name, done.files)
    assert Counter(work.attempts(log)) == Counter(names) + Counter(["victim"])
    assert sorted(path.name for path in (tmp_path / "out" / "runs").iterdir()) == sorted(names)


def test_ctrl_c_of_a_terminal_reaches_the_command_and_no_worker():
    """Also a worker that took the place of a dead one."""
    with pool(2, None) as workers:
        client = workers._client
        assert client is not None and signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())
        first = client.run(os.getpid)
        client.restart_workers(list(first))
        assert not set(first.values()) & set(client.run(os.getpid).values())
        for masks in (client.run(work.blocked), {"": client.submit(work.blocked).result()}):
            assert masks and all(signal.SIGINT in mask for mask in masks.values())


def test_nobody_at_the_address_is_one_message(monkeypatch):
    monkeypatch.setattr(engine, "CONNECT_S", 0.2)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
        with pytest.raises(ConfigError, match="--scheduler: nothing answers at tcp") as caught, pool(1, address):
            pass
    assert len(caught.value.problems) == 1
    for wrong in ("", "http://x", "tcp://127.0.0.1:port"):
        with pytest.raises(ConfigError, match="is no address of a scheduler: tcp://HOST:PORT"), pool(1, wrong):
            pass


def test_without_dask_one_process_works_and_two_are_a_message(monkeypatch):
    monkeypatch.setattr(engine.importlib.util, "find_spec", lambda name: None)
    with pool(1, None) as workers:
        assert workers.words == "in this process"
    monkeypatch.setattr(engine.os, "cpu_count", lambda: 2)
    with pool(None, None) as workers:
        assert workers.words == "in this process (more need Dask: pip install 'dpgt-node[cluster]')"
    with (
        pytest.raises(ConfigError, match=r"needs Dask: pip install 'dpgt-node\[cluster\]', or --processes 1"),
        pool(2, None),
    ):
        pass


def test_what_is_left_follows_from_what_was_done():
    clock = Clock(total=10, begun_s=100.0)
    assert clock.left_s(105.0) is None
    clock.done = 2
    assert clock.left_s(106.0) == pytest.approx(24.0)
