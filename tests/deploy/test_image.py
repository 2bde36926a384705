"""The image by its own steps in a bare Debian, and one run of its containers as compose.yaml starts them."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from tests.deploy import debian
from tests.deploy.image import Image, build, container, context, instructions
from tests.e2e import processes
from tests.hosts.lab import Daemon, Lab

pytestmark = [pytest.mark.deploy, pytest.mark.long]
DEPLOY = debian.ROOT / "deploy"
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
HOSTS = [name for name, one in COMPOSE["services"].items() if one["image"] == "dpgt-node" and name != "pki"]
PORT = 9400


def test_instructions_are_read_as_a_builder_reads_them(tmp_path: Path) -> None:
    text = '# a\nFROM x AS y\nRUN a \\\n && b \\\n# in between\n && c\nENTRYPOINT ["d"]\n'
    assert list(instructions(text)) == [("FROM", "x AS y"), ("RUN", "a   && b   && c"), ("ENTRYPOINT", '["d"]')]
    with pytest.raises(AssertionError, match="ONBUILD: not an instruction"):
        (tmp_path / "base/usr/local/bin").mkdir(parents=True)
        build("FROM x\nONBUILD RUN y", tmp_path, tmp_path / "base", tmp_path)


@pytest.fixture
def image(base: Path, scratch: Path) -> Image:
    seen = context(debian.ROOT, scratch / "context")
    return build((DEPLOY / "Dockerfile").read_text(), seen, base, scratch)


class Volumes:
    """Of one compose project: a new one has what the image holds at that place, its owner included."""

    def __init__(self, image: Image, folder: Path) -> None:
        self._image, self._folder = image, folder

    def of(self, service: dict[str, Any]) -> dict[str, Path]:
        """What a service mounts, by where it sees it."""
        found = {}
        for volume in service["volumes"]:
            if isinstance(volume, str):
                source, _, target = volume.partition(":")
                volume = {"source": source, "target": target}
            place = self._folder / volume["source"]
            if not place.exists():
                debian.copy(self._image.root / volume["target"].lstrip("/"), place)
            found[volume["target"]] = place / volume.get("volume", {}).get("subpath", "")
        return found


def inner(daemon: Daemon) -> int:
    """The daemon in a container, as this machine counts; 0 while there is none."""
    with contextlib.suppress(psutil.NoSuchProcess):
        for init in psutil.Process(daemon.process.pid).children():
            for one in init.children():
                if one.name() == "dpgt":
                    return one.pid
    return 0


def entered(image: Image, daemon: Daemon, *command: str) -> subprocess.CompletedProcess[str]:
    """A command in a running container, as its user."""
    uid, gid = image.ids()
    enter = ["nsenter", f"--target={inner(daemon)}", "--mount", "--net", "--pid", "--root"]
    given = [f"{key}={value}" for key, value in image.environment.items()]
    words = [*enter, f"--setuid={uid}", f"--setgid={gid}", "env", "-i", *given, *command]
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=60, preexec_fn=debian.tied)


@pytest.fixture
def lab(scratch: Path) -> Iterator[Lab]:
    with Lab(scratch / "lab", HOSTS, processes.environment()) as made:
        yield made


def test_a_run_of_containers_as_composed(image: Image, lab: Lab, scratch: Path) -> None:
    services, volumes = COMPOSE["services"], Volumes(image, scratch)
    names = Path(shutil.copy(lab.names, scratch / "names"))  # hosts do not see the lab's own folder
    assert image.user == "dpgt" and 0 not in image.ids()
    pki = services["pki"]
    setup = container(image, pki["command"], volumes.of(pki), names)
    said = debian.done(["unshare", "--net", *setup])  # network_mode: none
    assert f"{len(HOSTS)} start-up folders in /startup" in said, said

    def start(name: str) -> Daemon:
        service = services[name]
        assert service["read_only"] and service["tmpfs"] == ["/tmp"] and service["cap_drop"] == ["ALL"]
        return lab[name].start(name, *container(image, service["command"], volumes.of(service), names))

    daemons = {name: start(name) for name in HOSTS[:-1]}
    for name, daemon in daemons.items():  # they wait for the last one
        kind, *probe = services[name]["healthcheck"]["test"]
        assert kind == "CMD"
        processes.eventually(f"{name} is healthy", lambda d=daemon, p=probe: healthy(image, d, p))
        confined(image, daemon)
        shown = entered(image, daemon, "sh", "-c", "ls /startup; cat /startup/../startup/key.pem | head -1")
        assert "BEGIN PRIVATE KEY" in shown.stdout and "agent-" not in shown.stdout, shown
    scrape = [
        "python",
        "-c",
        f"import urllib.request as u; print(u.urlopen('http://{lab['agent-1'].address}:{PORT}/metrics').read())",
    ]
    assert "dpgt_node_round" in entered(image, daemons["coordinator"], *scrape).stdout
    daemons[HOSTS[-1]] = start(HOSTS[-1])
    codes = {name: daemon.wait(processes.LIMIT_S) for name, daemon in daemons.items()}
    everything = "\n".join(f"--- {name}\n{daemon.said}" for name, daemon in daemons.items())
    assert set(codes.values()) == {0}, (codes, everything)
    processes.no_traceback(everything)
    out = scratch / "results" / "run"
    summary = json.loads((out / "summary.json").read_text())
    assert summary["status"] == "finished" and summary["rounds"] == 51
    assert [one["releases"] for one in summary["agents"]] == [102] * 5
    assert out.stat().st_uid == image.ids()[0] and (out / "report.html").stat().st_size > 0


def healthy(image: Image, daemon: Daemon, probe: list[str]) -> bool:
    assert daemon.running, daemon.said
    return inner(daemon) > 0 and entered(image, daemon, *probe).returncode == 0


def confined(image: Image, daemon: Daemon) -> None:
    """Not root, nothing to gain, nothing to write to but its volumes and /tmp."""
    text = Path(f"/proc/{inner(daemon)}/status").read_text()
    said = dict(re.findall(r"^(\w+):[ \t]*(.*?)[ \t]*$", text, re.MULTILINE))
    uid, gid = image.ids()
    assert said["Uid"].split() == [str(uid)] * 4 and said["Gid"].split() == [str(gid)] * 4 and said["Groups"] == ""
    assert said["NoNewPrivs"] == "1" and {said[f"Cap{kind}"] for kind in ("Inh", "Prm", "Eff", "Bnd", "Amb")} == {
        "0" * 16
    }
    see = ["nsenter", f"--target={inner(daemon)}", "--mount", "--root", "sh", "-c"]
    for place in ("/", "/usr", "/etc", "/opt/dpgt", "/var"):  # even for root
        tried = debian.done([*see, f"touch {place}/x 2>&1 || true"])
        assert "Read-only file system" in tried, (place, tried)
    assert debian.done([*see, "ls /mnt"]) == "", "of the machine below it sees nothing"
