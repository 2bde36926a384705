"""docs/howto/hosts.md, "Every command", typed as it stands: each line on the host that it names."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.e2e import processes
from tests.e2e.processes import eventually
from tests.hosts.deployment import AGENTS, HOSTS
from tests.hosts.lab import DOMAIN, Daemon, Lab

pytestmark = pytest.mark.hosts

PAGE = (processes.ROOT / "docs" / "howto" / "hosts.md").read_text(encoding="utf-8")


def lines() -> list[tuple[str, str]]:
    """(host, command) of the walk-through."""
    section = PAGE.split("\n## Every command\n")[1].split("\n## ")[0]
    block = section.split("```")[1].replace(" \\\n ", "")
    found = [re.fullmatch(r"([\w-]+)\$ (.+)", line) for line in block.strip().splitlines()]
    assert all(found), block
    return [(match[1], match[2]) for match in found if match is not None]


def test_the_walk_through_is_what_an_operator_must_type(tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    dpgt = tools / "dpgt"
    dpgt.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m dpgt_node "$@"\n')
    dpgt.chmod(0o755)
    environment = processes.environment()
    environment["PATH"] = f"{tools}:{environment['PATH']}"
    trusted = tmp_path / "trusted"
    trusted.mkdir()
    shutil.copy(processes.ROOT / "deploy" / "run.toml", trusted / "run.toml")
    daemons: dict[str, Daemon] = {}

    with Lab(tmp_path / "lab", HOSTS, environment) as lab:
        for host, line in lines():
            words = shlex.split(line.removesuffix(" &"))
            if words[0] == "scp":  # no ssh between the hosts of the lab: the copy itself
                source, target = words[-2:]
                to = lab[target.removesuffix(f".{DOMAIN}:")]
                shutil.copytree(trusted / source, to.folder / Path(source).name)
            elif host == "trusted":
                subprocess.run(words, cwd=trusted, env=environment, check=True, capture_output=True)
            elif line.endswith(" &"):
                daemons[host] = lab[host].start(host, *words)
            elif "status" in words:  # the coordinator may still be starting; it waits for the last agent
                eventually(line, lambda host=host, words=words: lab[host].run(*words).returncode == 0)
            else:
                done = lab[host].run(*words)
                assert done.returncode == 0, (line, done.stdout, done.stderr)
        assert set(daemons) == set(HOSTS)
        codes = {name: daemon.wait(processes.LIMIT_S) for name, daemon in daemons.items()}
        assert set(codes.values()) == {0}, {name: daemon.said for name, daemon in daemons.items()}
        for agent in AGENTS:
            assert np.isfinite(np.load(lab[agent].folder / agent / "state" / "x_final.npy")).all()
        assert (lab["coordinator"].folder / "results" / "report.html").stat().st_size > 0
