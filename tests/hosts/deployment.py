"""A run on the hosts of a lab, as an operator makes it: ``pki init``, one folder to each host, one daemon a host."""

from __future__ import annotations

import contextlib
import json
import shutil
import sqlite3
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from tests.e2e import processes
from tests.e2e.processes import command, eventually
from tests.hosts.lab import Daemon, Lab

AGENTS = tuple(f"agent-{i}" for i in range(1, 6))
HOSTS = ("coordinator", *AGENTS)
KEY = "a5"
COORDINATOR_PORT = 7700


class Deployment:
    """``run_file`` on the hosts ``coordinator`` and the run's agents of ``lab``, by their fully qualified names.

    ``study``: under the test keystream, so that the bits are those of ``simulate`` under it.
    """

    def __init__(
        self, lab: Lab, run_file: Path, scratch: Path, agents: Iterable[str] = AGENTS, *, study: bool = True
    ) -> None:
        self.lab = lab
        self._keystream = ("--test-keystream", KEY) if study else ()
        self.agents = tuple(agents)
        self.daemons: dict[str, Daemon] = {}
        places = [f"--host={name}={lab[name].fqdn}" for name in ("coordinator", *self.agents)]
        made = processes.dpgt("pki", "init", run_file, "--out", scratch / "hosts", *places)
        assert made.returncode == 0, made.stderr
        self.instructions = made.stdout
        for name in ("coordinator", *self.agents):
            shutil.copytree(scratch / "hosts" / name, lab[name].folder / name)
        shutil.rmtree(scratch / "hosts")  # the machine that made them keeps nothing

    def start(self, name: str) -> Daemon:
        """The daemon that belongs on host ``name``."""
        if name == "coordinator":
            verb = ["coordinator", "--config", "coordinator/run.toml", "--listen", f"0.0.0.0:{COORDINATOR_PORT}"]
            verb += ["--tls", "coordinator", "--out", "results"]
        else:
            verb = ["node", "--config", f"{name}/NODE.toml"]
        self.daemons[name] = self.lab[name].start(name, *command(*verb, *self._keystream))
        return self.daemons[name]

    def start_all(self, order: Iterable[str] | None = None) -> None:
        for name in ("coordinator", *self.agents) if order is None else order:
            self.start(name)

    def exit_codes(self, limit_s: float = processes.LIMIT_S) -> dict[str, int]:
        """Of all daemons, in the end."""
        return {name: daemon.wait(limit_s) for name, daemon in self.daemons.items()}

    def finished(self) -> None:
        """Every daemon exits 0, and nobody was given up."""
        codes = self.exit_codes()
        assert set(codes.values()) == {0}, (codes, self.everything_said())
        processes.no_traceback(self.everything_said())

    def everything_said(self) -> str:
        return "\n".join(f"--- {name}\n{daemon.said}" for name, daemon in self.daemons.items())

    @property
    def results(self) -> Path:
        return self.lab["coordinator"].folder / "results"

    def released(self, agent: str) -> int:
        """The last round that ``agent`` released, -1 for none; read from its database, which it goes on writing."""
        path = self.lab[agent].folder / agent / "state" / "dpgt.sqlite3"
        if not path.exists():
            return -1
        try:
            with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
                return int(db.execute("SELECT COALESCE(MAX(k), -1) FROM ledger").fetchone()[0])
        except sqlite3.OperationalError:  # not made yet
            return -1

    def reaches(self, k: int, agent: str = "agent-1") -> None:
        """Wait until ``agent`` released round ``k``."""

        def there() -> bool:
            gone = {name: d.process.returncode for name, d in self.daemons.items() if not d.running}
            assert not gone, (gone, self.everything_said())
            return self.released(agent) >= k

        eventually(f"{agent} releases round {k}", there)

    def ask(self, *verb: str, asked_on: str = "coordinator") -> subprocess.CompletedProcess[str]:
        """``dpgt VERB`` (status, pause, ...) by name from host ``asked_on``, with that host's own certificate."""
        where = f"{self.lab['coordinator'].fqdn}:{COORDINATOR_PORT}"
        return self.lab[asked_on].run(*command(*verb, "--coordinator", where, "--tls", asked_on))

    def status(self) -> dict[str, Any]:
        """What the coordinator says."""
        done = self.ask("status", "--format", "json")
        assert done.returncode == 0, done.stderr
        return dict(json.loads(done.stdout))

    def same_bits_as(self, simulated: Path) -> None:
        """Each agent's x_final, and the coordinator's copy, are those of ``dpgt simulate``; two releases a round."""
        for agent in self.agents:
            wanted = np.load(simulated / "agents" / agent / "state" / "x_final.npy")
            for held in (self.lab[agent].folder / agent / "state", self.results / "agents" / agent):
                assert np.load(held / "x_final.npy").tobytes() == wanted.tobytes(), (agent, held)
        summary = json.loads((self.results / "summary.json").read_text())
        assert [a["releases"] for a in summary["agents"]] == [2 * summary["rounds"]] * len(self.agents)
