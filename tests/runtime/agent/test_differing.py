"""A run file that differs: the others hear which keys, its own agent hears the values."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dpgt_node.errors import RefusedError
from dpgt_node.protocol.coordinator import admission, coordination
from dpgt_node.runtime.agent import node as node_module
from tests.runtime.agent.test_told import NUMBER, OWNER, SECRET, everybody, leaked, run_of
from tests.runtime.cluster import cluster, eventually


@pytest.fixture(autouse=True)
def _short_farewells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_module, "FAREWELL_S", 0.3)
    monkeypatch.setattr(coordination, "LATE_NS", 0)


async def hear_differing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> tuple[str, list[str]]:
    """(the refused agent's own error, its file's private words that anybody else got) where a run file differs."""
    run = run_of(tmp_path)
    held = tmp_path / SECRET / f"{NUMBER}.csv"
    held.parent.mkdir()
    held.write_bytes((tmp_path / "public.csv").read_bytes())
    params = {**run.data.params, "classes": ("anna", "positive", "unsure")}
    async with cluster(tmp_path / "cluster", run) as c:
        c.start("agent-1")
        c.start("agent-3")
        await eventually("they are there", lambda: c.round("agent-1") >= 0 and c.round("agent-3") >= 0)
        own = replace(c.run, data=replace(c.run.data, dataset=f"csv:{held}", params=params))
        node = c.node(OWNER, run=own)
        with pytest.raises(RefusedError) as caught:
            await node.serve()
        reason, kept = await everybody(c)
    assert reason == f"{OWNER} refused: the run file of {OWNER} differs in data.classes, data.dataset"
    logs = "\n".join(record.getMessage() for record in caplog.records if "coordinator" in record.name)
    assert "differs in data.classes, data.dataset" in logs
    return str(caught.value), leaked([SECRET, str(NUMBER), "anna"], kept, logs.encode())


async def test_a_run_file_that_differs_tells_the_others_its_keys_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", "dpgt_node")
    error, found = await hear_differing(tmp_path, caplog)
    assert found == [] and "anna" in error and "csv:" in error, "its own log compares both"


async def test_the_values_of_a_run_file_are_noticed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mutant: what everybody heard before."""
    caplog.set_level("DEBUG", "dpgt_node")
    keys = "data.classes, data.dataset"
    monkeypatch.setattr(admission, "differing_keys", lambda mine, theirs: [keys, *admission.diff_runs(mine, theirs)])
    with pytest.raises(AssertionError, match="anna"):
        await hear_differing(tmp_path, caplog)
