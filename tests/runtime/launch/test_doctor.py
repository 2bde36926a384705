"""``dpgt doctor``: what is wrong with a host is found before anything is started, each thing by its own row."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
import resource
import socket
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dpgt_node import cli
from dpgt_node.config import NodeConfig, NodeTls, Policy, node_to_toml, parse_run, run_sha256, to_toml
from dpgt_node.config.model import Data, Privacy
from dpgt_node.learning.oracle import build_oracle, oracle_and_digest
from dpgt_node.runtime.agent.budget import terms_of
from dpgt_node.runtime.launch import hostcheck
from dpgt_node.runtime.launch.doctor import Row, examine_node
from dpgt_node.runtime.launch.launcher import held_port
from dpgt_node.runtime.store.ledger import SYSTEM
from dpgt_node.runtime.store.store import Store
from dpgt_node.runtime.trust.channels import COORDINATOR_IDENTITY, Security, agent_identity
from dpgt_node.runtime.trust.tls import CertificateAuthority
from tests.runtime.cluster import make_run
from tests.runtime.store.records import record
from tests.runtime.trust import parties as trust
from tests.runtime.trust.parties import DATES, serving

Change = Callable[["Host"], None]


class Host:
    """A start-up folder on this machine that doctor finds nothing wrong with."""

    def __init__(self, folder: Path, listen: int, coordinator: int) -> None:
        self.folder = folder
        self.authority = CertificateAuthority.create()
        self.authority.write_folder(folder, agent_identity("agent-1"))
        self.run = make_run()
        self.listen, self.coordinator = f"127.0.0.1:{listen}", f"127.0.0.1:{coordinator}"
        self.options: dict[str, Any] = {}

    def config(self) -> NodeConfig:
        folder = self.folder
        tls = NodeTls(False, folder / "ca.pem", folder / "cert.pem", folder / "key.pem", COORDINATOR_IDENTITY)
        made: dict[str, Any] = {
            "name": "agent-1",
            "run": folder / "run.toml",
            "listen": self.listen,
            "advertise": self.listen,
            "coordinator": self.coordinator,
            "state_dir": folder / "state",
            "tls": tls,
        }
        return NodeConfig(**{**made, **self.options})

    async def rows(self) -> dict[str, Row]:
        return {row.check: row for row in await examine_node(self.config(), self.run, data_root=None)}


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    with held_port() as free, held_port() as nobody:
        yield Host(tmp_path, free, nobody)


async def test_a_good_host_has_nothing_failed_and_nothing_is_left_behind(host: Host) -> None:
    before = sorted(path.name for path in host.folder.iterdir())
    rows = await host.rows()
    assert [row for row in rows.values() if row.status == "failed"] == []
    assert rows["coordinator"].status == "unknown" and "nobody listens there" in rows["coordinator"].found
    assert rows["free space"].status == "passed" and "the run needs" in rows["free space"].found
    assert rows["identity"].found == "dpgt:agent:agent-1" and "sha256 " in rows["run file"].found
    assert "d = 3 parameters" in rows["data"].found and "protocol" in rows["versions"].found
    assert sorted(path.name for path in host.folder.iterdir()) == before


def reissue(host: Host, identity: str = "agent-1", **options: Any) -> None:
    host.authority.write_folder(host.folder, agent_identity(identity), **options)


def other_key(host: Host) -> None:
    (host.folder / "key.pem").write_bytes(host.authority.issue(agent_identity("agent-1"))[1])


def other_ca(host: Host) -> None:
    (host.folder / "ca.pem").write_bytes(CertificateAuthority.create().cert_pem)


def set_(**options: Any) -> Change:
    return lambda host: host.options.update(options)


def is_file(host: Host) -> None:
    (host.folder / "state").write_text("no folder")


WRONG: dict[str, tuple[str, Change, str]] = {
    "expired": ("expiry", lambda host: reissue(host, valid=DATES["expired"]), "expired on"),
    "early": ("expiry", lambda host: reissue(host, valid=DATES["not yet valid"]), "is this host's clock right?"),
    "another name": ("identity", lambda host: reissue(host, "agent-2"), "dpgt:agent:agent-2, not dpgt:agent:agent-1"),
    "open key": ("key mode", lambda host: (host.folder / "key.pem").chmod(0o644), "mode 0644"),
    "another key": ("certificate", other_key, "is not the key of"),
    "another CA": ("certificate", other_ca, "was not issued by a CA in"),
    "no certificate": ("certificate", lambda host: (host.folder / "cert.pem").unlink(), "cannot be read"),
    "not in the run": ("in the run", set_(name="agent-9"), 'agent "agent-9" is not in this run'),
    "no such data": ("in the run", set_(data_path=Path("/nowhere.npz")), "has no meaning"),
    "policy": ("policy", set_(policy=Policy(mechanisms=("noise-once",))), "paper"),
    "study": ("policy", set_(policy=Policy(noise_min=1e-9)), 'metrics = "study" gives the coordinator x_final'),
    "unknown name": ("advertise", set_(advertise="no-such-host.invalid:7701"), "no-such-host.invalid"),
    "wildcard": ("advertise", set_(listen="0.0.0.0:0", advertise=None), "missing, and listen is a wildcard"),
    "foreign address": ("listen", set_(listen="192.0.2.1:7701"), "annot assign requested address"),
    "state is a file": ("state directory", is_file, "is a file"),
}


@pytest.mark.parametrize("what", WRONG)
async def test_each_mistake_fails_its_own_row(what: str, host: Host) -> None:
    check, change, words = WRONG[what]
    change(host)
    rows = await host.rows()
    assert rows[check].status == "failed" and rows[check].passed is False
    assert words in rows[check].found and rows[check].todo, rows[check]


async def test_what_is_wrong_with_the_run_file_is_said_of_that_file(host: Host) -> None:
    host.run = replace(host.run, data=Data("npz:/gone.npz", params={"classes": 2}))
    found = (await host.rows())["data"]
    assert found.status == "failed" and found.found.startswith(
        f"{host.folder / 'run.toml'}: data.dataset: cannot read "
    )


@pytest.fixture
def taken(host: Host) -> Iterator[None]:
    address, _, port = host.listen.rpartition(":")
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind((address, int(port)))
        other.listen()
        yield


@pytest.mark.usefixtures("taken")
async def test_a_port_in_use(host: Host) -> None:
    row = (await host.rows())["listen"]
    assert row.status == "failed" and "in use" in row.found.lower() and "running already" in row.todo


async def test_a_state_directory_in_use_and_one_that_was_left(host: Host) -> None:
    (host.folder / "state").mkdir()
    lock = os.open(host.folder / "state" / "lock", os.O_RDWR | os.O_CREAT)
    assert (await host.rows())["state lock"].status == "passed"  # a file alone holds nobody
    fcntl.flock(lock, fcntl.LOCK_EX)
    assert (await host.rows())["state lock"].status == "failed"
    os.close(lock)
    assert (await host.rows())["state lock"].status == "passed"


async def test_what_is_soon_to_expire_and_what_the_names_lack_are_warnings(host: Host) -> None:
    host.options["advertise"] = "localhost.localdomain:7701"
    reissue(host, valid=(trust.NOW - 900 * trust.HOUR, trust.NOW + 73 * trust.HOUR))
    rows = await host.rows()
    assert rows["expiry"].status == "warning" and "in 3 days" in rows["expiry"].found and rows["expiry"].passed
    assert rows["alternative names"].status == "warning"
    assert "not localhost.localdomain" in rows["alternative names"].found


@pytest.mark.parametrize(
    ("identity", "dates", "status", "words"),
    [
        (COORDINATOR_IDENTITY, "good", "passed", "is dpgt:coordinator"),
        (COORDINATOR_IDENTITY, "expired", "failed", "expired on"),
        (COORDINATOR_IDENTITY, "not yet valid", "failed", "is this host's clock right?"),
        ("dpgt:agent:agent-2", "good", "failed", "is dpgt:agent:agent-2's, not dpgt:coordinator's"),
    ],
)
async def test_the_coordinator_is_asked_who_it_is(
    identity: str, dates: str, status: str, words: str, host: Host, tmp_path: Path
) -> None:
    folder = tmp_path / "coordinator"
    host.authority.write_folder(folder, identity, valid=DATES[dates])
    server = trust.as_if_good(Security.from_folder(folder), folder)
    async with serving(server.server_credentials()) as (_, address):
        host.coordinator = address
        row = (await host.rows())["coordinator"]
        host.options["tls"] = NodeTls(True)
        plain = (await host.rows())["coordinator"]
    assert row.status == status and words in row.found, row
    assert plain.status == "failed" and "speaks TLS, and this node does not" in plain.found, plain


def test_memory_does_not_keep_what_power_promises(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert hostcheck.mount_of(Path("/proc")) == ("proc", "/proc")
    monkeypatch.setattr(hostcheck, "mount_of", lambda _: ("tmpfs", "/run"))
    assert hostcheck.keeps(tmp_path, "power").status == "failed"
    assert hostcheck.keeps(tmp_path, "process").status == "warning"
    monkeypatch.setattr(hostcheck, "mount_of", lambda _: ("nfs4", "/home"))
    assert hostcheck.keeps(tmp_path, "power").status == "warning"
    monkeypatch.setattr(hostcheck, "mount_of", lambda _: None)
    assert hostcheck.keeps(tmp_path, "power").status == "unknown"


def test_room_and_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert hostcheck.free_space(tmp_path, 1).status == "passed"
    assert hostcheck.free_space(tmp_path, 1 << 60).status == "failed"
    unknown = hostcheck.free_space(tmp_path, None)
    assert unknown.status == "unknown" and "; what the run needs is not known here: " in unknown.found
    unknown = hostcheck.free_space(Path("/proc/self"), 1)
    assert (unknown.status, unknown.found[:34]) == ("unknown", "how much is free is not known: the")
    assert hostcheck.open_files(1).status == "passed"
    assert hostcheck.open_files(10**9).status in ("failed", "passed")
    monkeypatch.setattr(hostcheck.resource, "getrlimit", lambda _: (100, 100))
    assert hostcheck.open_files(1).status == "failed" and "ulimit -n" in hostcheck.open_files(1).todo


def test_the_command(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    (host.folder / "run.toml").write_text(to_toml(host.run))
    node = host.folder / "NODE.toml"
    node.write_text(node_to_toml(host.config()))
    assert cli.run(["doctor", str(node)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "ready"
    (host.folder / "key.pem").chmod(0o644)
    assert cli.run(["doctor", str(node), "--format", "json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["passed"] is False
    assert {c["check"] for c in found["checks"] if c["passed"] is False} == {"key mode", "certificate"}
    assert {c["check"] for c in found["checks"] if c["passed"] is None} == {"coordinator"}
    assert cli.run(["doctor", str(node), "--listen", "h:1"]) == 2
    node.write_text("name = 1\ncoordinator = 2\n")
    assert cli.run(["doctor", str(node)]) == 2
    assert "NODE.toml: name: " in capsys.readouterr().err


def test_the_command_on_the_coordinators_host(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    run = host.folder / "run.toml"
    run.write_text(to_toml(host.run))
    assert cli.run(["doctor", str(run)]) == 0
    folder = host.folder / "coordinator"
    host.authority.write_folder(folder, COORDINATOR_IDENTITY, ["127.0.0.1"])
    options = ["--listen", host.listen, "--out", str(host.folder / "out")]
    assert cli.run(["doctor", str(run), "--tls", str(folder), *options]) == 0
    capsys.readouterr()
    assert cli.run(["doctor", str(run), "--tls", str(host.folder), *options]) == 1
    assert "dpgt:agent:agent-1, not dpgt:coordinator" in capsys.readouterr().out
    assert not (host.folder / "out").exists()


async def test_a_resume_that_would_be_refused_is_foretold(host: Host) -> None:
    host.run = replace(host.run, data=Data("digits"), privacy=Privacy(clip_l2=1.0))
    _, digest = oracle_and_digest(host.run, 0)
    D = build_oracle(host.run, 0).samples
    for number, (sealed, samples, says) in enumerate(
        ((digest, D, None), (bytes(32), D, "not the same ones"), (digest, 7, "the data had 7 samples"))
    ):
        host.options["state_dir"] = host.folder / f"state-{number}"
        terms = terms_of("default", host.run, host.run.graph.agents[0], samples, SYSTEM)
        with contextlib.closing(Store(host.options["state_dir"], "process")) as store:
            store.begin_run(bytes(16), run_sha256(host.run), "agent-1", terms, shard_sha256=sealed)
            assert "goes on" not in await host.rows(), "nothing is released: it is begun anew"
            store.commit_round(bytes(16), record(0))
        row = (await host.rows())["goes on"]
        assert row.status == ("passed" if says is None else "failed") and (says or "the same data") in row.found
    with contextlib.closing(Store(host.options["state_dir"], "process")) as store:
        store.finish_run(bytes(16), np.zeros(650))
    rows = await host.rows()
    assert "goes on" not in rows and "a start is another run" in rows["finished"].found


GAUSSIAN = """
[algorithm]
iterations = 5
mechanism = "noise-once"
[scheme]
kind = "S2"
alpha = 0.2
beta = 0.2
gamma = 1.0
p_m = 1.0
samples = "full"
[noise]
law = "gaussian"
scale_eta = 0.1
[graph]
agents = ["agent-1", "agent-2"]
R = { generator = "ring" }
C = { generator = "ring" }
[data]
dataset = "digits"
normalise = "l2"
[privacy]
clip_l2 = 1.0
"""


async def test_what_a_gaussian_run_costs_is_said_by_the_tightest_accountant(host: Host) -> None:
    host.run = parse_run(GAUSSIAN, "run.toml", host.folder)
    row = (await host.rows())["policy"]
    assert row.status == "warning" and re.search(
        r"the run costs epsilon 0\.\d+ \(gdp, delta [\d.e-]+\): strong protection\nno run on", row.found
    ), row
    host.run = parse_run(GAUSSIAN.replace("clip_l2 = 1.0", ""), "run.toml", host.folder)
    assert "not bounded: no sound accountant has a value" in (await host.rows())["policy"].found


async def test_advice_is_about_what_is_wrong(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock is not renewed, a mount takes no chmod, and a secret that cannot be read is no reason for a new one."""
    reissue(host, valid=DATES["not yet valid"])
    assert (await host.rows())["expiry"].todo == "set this host's clock (NTP)"
    reissue(host)
    (host.folder / "key.pem").chmod(0o640)
    flags = SimpleNamespace(f_flag=os.ST_RDONLY, f_blocks=0)
    with monkeypatch.context() as mounted:
        mounted.setattr("dpgt_node.runtime.trust.files.os.statvfs", lambda _: flags)
        rows = await host.rows()
    assert "defaultMode: 0400" in rows["key mode"].todo and "chmod 600" not in rows["key mode"].todo
    assert rows["certificate"].todo == "first close the key to others"
    (host.folder / "key.pem").chmod(0o600)
    with monkeypatch.context() as other_user:
        other_user.setattr("dpgt_node.runtime.launch.doctor.os.access", lambda path, _: path.name != "key.pem")
        row = (await host.rows())["certificate"]
    assert row.found.endswith("key.pem cannot be read") and "fsGroup" in row.todo and "renew" not in row.todo


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.EACCES, "from 1024 on"),
        (errno.EADDRINUSE, "end the process"),
        (errno.EADDRNOTAVAIL, "that this host has"),
    ],
)
def test_where_nobody_can_listen_the_reason_decides_the_advice(
    number: int, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hostcheck, "why_not_listen", lambda *_: OSError(number, os.strerror(number)))
    assert words in hostcheck.listens("127.0.0.1", 80).todo


def test_the_limit_on_open_files_is_that_of_the_daemons(host: Host, capfd: pytest.CaptureFixture[str]) -> None:
    """They raise the soft limit to the hard one, and so does doctor."""
    (host.folder / "run.toml").write_text(to_toml(host.run))
    (host.folder / "NODE.toml").write_text(node_to_toml(host.config()))
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (100, before[1]))
    try:
        assert cli.run(["doctor", str(host.folder / "NODE.toml")]) == 0
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert "ready" in capfd.readouterr().out
