"""A run of real processes through renewal, revocation and replacement of its certificates."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from cryptography import x509

from tests.e2e.processes import ENDLESS, LIMIT_S, asked, command, environment, eventually, no_traceback, quadratic

pytestmark = pytest.mark.e2e

# Loopback addresses of this process alone: fixed ports collide with nobody's.
HOST = f"127.{77 + os.getpid() % 100}.{os.getpid() // 100 % 250}.{1 + os.getpid() // 25000 % 250}"
PORTS = {"coordinator": 7700, "agent-1": 7701, "agent-2": 7702, "agent-3": 7703}


class Deployment:
    """Start-up folders as on hosts of their own, and the processes started from them."""

    def __init__(self, folder: Path, stack: ExitStack, rounds: int = ENDLESS, keys: str = "all") -> None:
        self.folder, self._stack = folder, stack
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        (folder / "run.toml").write_text(quadratic(3, rounds))
        hosts = (f"--host={name}={HOST}:{port}" for name, port in PORTS.items())
        self.pki("init", "run.toml", "--out", "h", "--keys", keys, *hosts)

    def pki(self, verb: str, *arguments: object) -> str:
        where = () if verb in ("init", "request") else ("--pki", "h")
        done = asked("pki", verb, *arguments, *where, cwd=self.folder)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def start(self, name: str, folder: str | None = None) -> subprocess.Popen[bytes]:
        at = self.folder / "h" / (folder or name)
        if name == "coordinator":
            listen = f"{HOST}:{PORTS[name]}"
            arguments = [
                "coordinator",
                "--config",
                at / "run.toml",
                "--listen",
                listen,
                "--tls",
                at,
                "--out",
                "results",
            ]
        else:
            arguments = ["node", "--config", at / "NODE.toml"]
        with (self.folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                command(*arguments),
                cwd=self.folder,
                env=environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self._stack.callback(_end, process)
        self.processes[name] = process
        return process

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(encoding="utf-8")

    def control(self, verb: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        tls = self.folder / "h" / "operator"
        return asked(verb, "--coordinator", f"{HOST}:{PORTS['coordinator']}", "--tls", tls, *arguments)

    def round(self) -> int:
        done = self.control("status", "--format", "json")
        return int(json.loads(done.stdout)["k"]) if done.returncode == 0 else -1

    def goes_on(self) -> None:
        """Rounds are being made now."""
        before = self.round()
        eventually("more rounds are made", lambda: (before >= 0 and self.round() > before + 3) or None)

    def served(self, name: str) -> int:
        """The serial number of the certificate that ``name`` shows to a new connection."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.set_alpn_protocols(["h2"])
        with socket.create_connection((HOST, PORTS[name]), 10) as raw, context.wrap_socket(raw) as tls:
            return x509.load_der_x509_certificate(tls.getpeercert(True) or b"").serial_number


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGKILL)
    process.wait(LIMIT_S)


@pytest.fixture
def deployed(tmp_path: Path) -> Iterator[Deployment]:
    with ExitStack() as stack:
        made = Deployment(tmp_path, stack)
        made.pki("issue", "operator")
        for name in PORTS:
            made.start(name)
        eventually("the rounds begin", lambda: "rounds 0.." in made.log("coordinator") or None)
        yield made


def serial(folder: Path) -> int:
    return x509.load_pem_x509_certificate((folder / "cert.pem").read_bytes()).serial_number


def test_renewal_revocation_and_replacement_without_a_restart_of_the_run(deployed: Deployment) -> None:
    hosts = deployed.folder / "h"
    # everybody's certificate is replaced while the rounds go on
    before = {name: deployed.served(name) for name in PORTS}
    deployed.pki("renew", *PORTS)
    for name in PORTS:
        eventually(f"{name} shows its new certificate", lambda name=name: deployed.served(name) == serial(hosts / name))
        assert deployed.served(name) != before[name]
    deployed.goes_on()

    # agent-2's host is lost: whoever has its keys is put out, once, and the others wait
    assert "on the hosts of coordinator, agent-1, agent-3 (" in deployed.pki("revoke", "agent-2")
    assert deployed.processes["agent-2"].wait(LIMIT_S) == 3
    assert "this certificate is revoked (serial " in deployed.log("agent-2").splitlines()[-1]
    again = deployed.start("agent-2")
    assert again.wait(LIMIT_S) == 2 and "cert.pem: is revoked" in deployed.log("agent-2").splitlines()[-1]
    (hosts / "agent-2" / "crl.pem").unlink()  # a thief does not keep the list
    thief = deployed.start("agent-2")
    assert thief.wait(LIMIT_S) == 3 and "is revoked" in deployed.log("agent-2").splitlines()[-1]
    # one line a certificate: connections from before the renewal were the old one's
    reasons = re.findall(r"refused dpgt:agent:agent-2 at \S+: (.*)", deployed.log("coordinator"))
    assert 1 <= len(reasons) == len(set(reasons)) <= 2, reasons
    assert all(process.poll() is None for name, process in deployed.processes.items() if name != "agent-2")

    # its replacement, with the old host's state from where it was, goes on
    deployed.pki("issue", "agent-2", "--host", f"{HOST}:{PORTS['agent-2']}", "--into", "h/new")
    node = hosts / "new" / "NODE.toml"
    node.write_text(re.sub('state_dir = ".*"', f'state_dir = "{hosts / "agent-2" / "state"}"', node.read_text()))
    done = asked("doctor", node)
    assert done.returncode == 0, done.stdout
    deployed.start("agent-2", "new")
    deployed.goes_on()

    # an agent's certificate controls nothing; the operator's does
    denied = asked("stop", "--coordinator", f"{HOST}:{PORTS['coordinator']}", "--tls", hosts / "agent-1")
    assert denied.returncode == 3 and "dpgt:agent:agent-1 may not control a run" in denied.stderr
    assert deployed.control("stop").returncode == 0
    for name, process in deployed.processes.items():
        assert process.wait(LIMIT_S) == 5, (name, deployed.log(name))
        no_traceback(deployed.log(name))


def test_a_run_of_agents_whose_keys_were_made_on_their_own_hosts(tmp_path: Path) -> None:
    with ExitStack() as stack:
        made = Deployment(tmp_path, stack, rounds=5, keys="coordinator")
        for name in [name for name in PORTS if name != "coordinator"]:
            host = tmp_path / "far" / name
            shutil.copytree(tmp_path / "h" / name, host)
            told = re.search(r"key sha256 +(\w+)", made.pki("request", name, "--into", host))
            assert told is not None
            request = tmp_path / f"{name}.request"
            shutil.copy(host / "request.pem", request)
            made.pki("sign", name, request, "--fingerprint", told[1])
            shutil.copy(tmp_path / "h" / name / "cert.pem", host)
            done = asked("doctor", host / "NODE.toml")
            assert told[1] in done.stdout and "certificate" in done.stdout
        keys = {path.parent.name for path in (tmp_path / "h").rglob("key.pem")}
        assert keys == {"authority", "coordinator"}
        for name in PORTS:
            made.start(name, None if name == "coordinator" else f"../far/{name}")
        for name, process in made.processes.items():
            assert process.wait(LIMIT_S) == 0, (name, made.log(name))
            no_traceback(made.log(name))
