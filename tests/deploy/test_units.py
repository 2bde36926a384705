"""The systemd units under a real systemd: installed by their own instructions, hardened, killed, stopped."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.deploy import debian
from tests.deploy.image import context
from tests.deploy.machine import LIMIT_S, Machine
from tests.e2e import processes

pytestmark = [pytest.mark.deploy, pytest.mark.long]
DEPLOY = debian.ROOT / "deploy"
AGENTS = ("agent-1", "agent-2", "agent-3")
UNITS = {"coordinator": "dpgt-coordinator", **{name: f"dpgt-node@{name}" for name in AGENTS}}
DPGT = "/opt/dpgt/bin/dpgt"
EXPOSURE = 1.1
"""The most that ``systemd-analyze security`` may say: 0 is shut in, 10 not at all; below 2 it calls a unit OK."""
ROUNDS = 6001
"""Enough for all that is done to the run while it goes on."""
RUN = """
name = "units"
[algorithm]
iterations = 6000
[scheme]
kind = "S2"
alpha = 0.1
beta = 0.01
gamma = 0.1
p_m = 1.0
samples = 55
[noise]
scale_zeta = 0.1
scale_eta = 0.1
[graph]
agents = 3
R = [[0, 0, 1], [1, 0, 0], [0, 1, 0]]
C = [[0, 0, 1], [1, 0, 0], [0, 1, 0]]
[data]
dataset = "digits"
[model]
name = "softmax"
[privacy]
clip_l1 = 40.0
[runtime]
register_timeout = 240
round_timeout = 60
"""


def instructions(unit: str, about: str) -> list[str]:
    """Lines of the comment at the head of a unit that have ``about`` in them."""
    text = (DEPLOY / "systemd" / unit).read_text()
    return [m[1].partition("  #")[0].strip() for m in re.finditer(r"^#   (.*)$", text, re.MULTILINE) if about in m[1]]


def eventually(what: str, probe: Callable[[], bool], machine: Machine) -> None:
    end = time.monotonic() + LIMIT_S
    while not probe():
        assert time.monotonic() < end, f"{what} never came about\n{machine.journal()}"
        time.sleep(0.1)


@pytest.fixture(scope="module")
def installed(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root with /opt/dpgt in it, as the unit says that it is made."""
    folder = tmp_path_factory.mktemp("installed")
    root = debian.copy(base, folder / "root")
    context(debian.ROOT, root / "usr/src/dpgt")
    (line,) = instructions("dpgt-node@.service", "pip install")
    print(line, flush=True)
    debian.inside(root, f"cd /usr/src/dpgt; {line}", {})
    return root


@pytest.fixture
def machine(installed: Path, scratch: Path) -> Iterator[Machine]:
    """Booted, with units and start-up folders where their instructions put them; nothing is started."""
    for unit in (DEPLOY / "systemd").glob("*.service"):
        (installed / "etc/systemd/system" / unit.name).write_bytes(unit.read_bytes())
    (scratch / "run.toml").write_text(RUN)
    hosts = [f"--host={name}=127.0.0.1:{7700 + i}" for i, name in enumerate(UNITS)]
    made = processes.dpgt("pki", "init", scratch / "run.toml", "--out", scratch / "hosts", *hosts)
    assert made.returncode == 0, made.stderr
    with Machine(installed, scratch / "console.log") as booted:
        for name, unit in UNITS.items():
            file = "dpgt-coordinator.service" if name == "coordinator" else "dpgt-node@.service"
            (line,) = instructions(file, "START-UP-FOLDER")
            debian.done(["cp", "-r", scratch / "hosts" / name, installed / "root" / name])
            booted.shell(f"cd /root; {line.replace('START-UP-FOLDER', name).replace('agent-1', name)}")
            assert unit.startswith(file.removesuffix(".service"))
        booted.shell("touch /tmp/mine /root/mine")
        booted.run("systemctl", "enable", *UNITS.values())  # else it forgets how a unit ended that nobody wants
        yield booted
        booted.run("systemctl", "stop", "dpgt-*", ok=False)


def status(machine: Machine) -> dict[str, object]:
    found = machine.run(DPGT, "status", "--run", "/var/lib/dpgt/coordinator/out", "--format", "json", ok=False)
    return dict(json.loads(found.stdout)) if found.returncode == 0 else {"k": -1, "state": "gone", "agents": []}


def ended(unit: str, machine: Machine) -> tuple[int, str]:
    """How its main process ended by itself, and what the unit made of that."""
    eventually(f"{unit} ends", lambda: machine.show(unit, "ActiveState") == "inactive", machine)
    assert machine.show(unit, "ExecMainCode") == "1", (unit, machine.journal(unit))  # CLD_EXITED
    return int(machine.show(unit, "ExecMainStatus")), machine.show(unit, "Result")


def connected(machine: Machine) -> set[str]:
    return {one["name"] for one in status(machine)["agents"] if one["connected"]}  # type: ignore[attr-defined]


def test_a_run_by_units_survives_a_kill_and_a_stop_of_a_node(machine: Machine) -> None:
    verified = machine.run("systemd-analyze", "verify", *(f"{unit}.service" for unit in UNITS.values()))
    assert verified.stderr == ""
    machine.run("systemctl", "start", *UNITS.values())
    eventually("rounds begin", lambda: "rounds 0.." in machine.journal(UNITS["coordinator"]), machine)
    control = (DPGT, "{}", "--run", "/var/lib/dpgt/coordinator/out")
    machine.run(*(word.format("pause") for word in control))
    _hardened(machine)
    agent_2 = machine.process(UNITS["agent-2"])
    machine.run(*(word.format("resume") for word in control))
    agent_2.kill()  # as the kernel does when memory runs out
    eventually("the unit starts it again", lambda: machine.show(UNITS["agent-2"], "NRestarts") == "1", machine)
    came = "agent-2 registered"
    eventually("it comes back", lambda: machine.journal(UNITS["coordinator"]).count(came) == 2, machine)

    # SIGTERM: the node leaves and is not started again; the others wait for it, and the run goes on when it is back.
    machine.run("systemctl", "kill", "--kill-whom=main", "--signal=TERM", UNITS["agent-3"])
    assert ended(UNITS["agent-3"], machine) == (5, "success") and machine.show(UNITS["agent-3"], "NRestarts") == "0"
    eventually("the coordinator hears of it", lambda: connected(machine) == {"agent-1", "agent-2"}, machine)
    assert "agent-3 left at round" in machine.journal(UNITS["coordinator"])
    assert status(machine)["state"] == "running"
    machine.run("systemctl", "start", UNITS["agent-3"])

    assert {ended(unit, machine) for unit in UNITS.values()} == {(0, "success")}, machine.journal()
    processes.no_traceback(machine.journal())
    out = machine.root / "var/lib/private/dpgt/coordinator/out"
    summary = json.loads((out / "summary.json").read_text())
    assert summary["status"] == "finished" and summary["rounds"] == ROUNDS
    assert [one["releases"] for one in summary["agents"]] == [2 * ROUNDS] * 3, "no release is lost, none is done twice"
    assert (out / "report.html").stat().st_size > 0
    for name in AGENTS:  # exits 1 where a row of the chain was changed
        told = json.loads(machine.shell(f"{DPGT} ledger /var/lib/dpgt/{name}/state --format json"))
        assert len(told["rows"]) == 2 * ROUNDS


def _hardened(machine: Machine) -> None:
    """What the units promise holds for the processes that run."""
    users = set()
    for name, unit in UNITS.items():
        process = machine.process(unit)
        said = dict(re.findall(r"^(\w+):\s*(.*)$", Path(f"/proc/{process.pid}/status").read_text(), re.MULTILINE))
        assert said["NoNewPrivs"] == "1" and int(said["CapEff"], 16) == int(said["CapBnd"], 16) == 0
        assert said["Seccomp"] == "2"
        users.add(process.uids().real)
        see = ["nsenter", f"--target={process.pid}", "--mount", "--root", "sh", "-c"]
        for place in ("/usr", "/etc", "/opt/dpgt", "/var"):  # even for root
            tried = debian.done([*see, f"touch {place}/x 2>&1 || true"])
            assert "Read-only file system" in tried, (name, place, tried)
        twin = [
            "setpriv",
            f"--reuid={process.uids().real}",
            f"--regid={process.gids().real}",
            "--clear-groups",
            "sh",
            "-c",
        ]
        for other in UNITS:  # of the others it sees nothing, though it were told where to look
            tried = debian.done([*see[:-2], *twin, f"head -1 /var/lib/private/dpgt/{other}/key.pem 2>&1 || true"])
            assert ("BEGIN PRIVATE KEY" in tried) == (other == name), (name, other, tried)
        others = debian.done([*see, "ls /var/lib/private/dpgt /home /root 2>&1; ls /tmp; ls /dev"])
        assert name in others and "mine" not in others and "kmsg" not in others, others
        score = machine.run("systemd-analyze", "security", "--no-pager", f"{unit}.service").stdout
        found = re.search(r"exposure level for \S+: ([\d.]+)", score)
        assert found is not None and float(found[1]) <= EXPOSURE, score
        print(found[0], flush=True)
    assert 0 not in users and len(users) == len(UNITS), "each daemon is a user of its own"
