"""The example of two owners as its page has it: two tables, three processes, two models that agree."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from dpgt_node.runtime.launch.launcher import held_port
from tests.e2e import processes

EXAMPLE = processes.ROOT / "examples" / "two-owners"
PORTS = ("7700", "7701", "7702")


@pytest.fixture
def held() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.mark.e2e
def test_the_page_s_commands_run_as_they_stand(tmp_path: Path, held: ExitStack) -> None:
    """But for the ports, which nobody else gets here before the daemons do."""
    shutil.copytree(EXAMPLE, tmp_path / "examples" / "two-owners")
    tools = tmp_path / "bin"
    tools.mkdir()
    for name, module in (("dpgt", "-m dpgt_node "), ("python", "")):
        (tools / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {module}"$@"\n')
        (tools / name).chmod(0o755)
    script = "set -e\n" + "".join(re.findall(r"^```sh\n(.*?)^```", (EXAMPLE / "README.md").read_text(), re.M | re.S))
    free = {port: str(held.enter_context(held_port())) for port in PORTS}
    moved = "; ".join(f"s/:{old}/:{new}/" for old, new in free.items())
    script = script.replace(":7700", f":{free['7700']}").replace(
        "dpgt coordinator", f"sed -i '{moved}' hosts/*/NODE.toml\ndpgt coordinator", 1
    )
    environment = {**processes.environment(), "PATH": f"{tools}:{os.environ['PATH']}"}
    try:
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=2 * processes.LIMIT_S,
        )
    except subprocess.TimeoutExpired as late:
        pytest.fail(f"it does not come to its end: {(late.stdout or b'').decode()}{(late.stderr or b'').decode()}")
    assert done.returncode == 0, done.stderr
    found = re.findall(r"agent-(\d)'s (\w+)\.csv, test: accuracy ([\d.]+) %.* (\d+) samples", done.stdout)
    assert [(i, name, count) for i, name, _, count in found] == [("1", "north", "160"), ("2", "south", "140")]
    assert all(float(accuracy) > 80.0 for _, _, accuracy, _ in found)
    visitors = re.findall(r"visitors\.csv, test: accuracy ([\d.]+) %.* 600 samples", done.stdout)
    assert len(visitors) == 2 and all(float(accuracy) > 85.0 for accuracy in visitors)
    alone = re.search(r"agent-1 alone, 800 samples, epsilon 0: ([\d.]+) % of 600 test samples", done.stdout)
    assert alone is not None and float(alone[1]) < 75.0
    # Alone, nobody knows the third kind: two kinds of three is the most.
    said = " ".join(done.stdout.split())
    alone = re.search(r"Alone, without exchange and noise, the worst agent reaches ([\d.]+) %", said)
    assert alone is not None and float(alone[1]) < 75.0 and "Staying alone is expected to be better" not in said
    assert "agent-2 on its own test rows:" in said
    flowers = tmp_path / "flowers"
    one, two = (load_file(flowers / f"model-{name}" / "model.safetensors") for name in ("north", "south"))
    for name, weights in one.items():
        np.testing.assert_allclose(weights, two[name], atol=0.1 * np.abs(weights).max())
    assert "epsilon 3 (moderate)" in (flowers / "model-north" / "PRIVACY.md").read_text()
    predicted = set(done.stdout.split("\nclass\n")[1].splitlines()[:700])
    assert {"iris", "tulip"} <= predicted <= {"daisy", "iris", "tulip"}
    apart = flowers / "apart"
    assert (apart / "agent-1" / "request.pem").is_file() and not list(apart.glob("*/cert.pem"))
    assert sorted(path.name for path in (apart / "agent-2").iterdir()) == ["NODE.toml", "ca.pem", "run.toml"]
    assert len({path.read_bytes() for path in apart.glob("*/ca.pem")}) == 1
    node = (apart / "agent-2" / "NODE.toml").read_text()
    assert 'advertise = "192.0.2.3:7701"' in node and 'path = "south.csv"' in node and "epsilon_max = 3.0" in node
    for line in (
        "dpgt pki request coordinator --host 192.0.2.1 --into coordinator",
        "dpgt pki sign agent-2 apart/agent-2/request.pem --pki apart",
        "--listen 192.0.2.1:7700",
        "dpgt export agent-2/state --run agent-2/run.toml --out agent-2/model",
        "dpgt evaluate agent-2/model --node agent-2/NODE.toml",
    ):
        assert line in done.stdout
