"""``dpgt pki``: start-up folders for any kind of address, the authority apart, renewal, replacement, revocation."""

from __future__ import annotations

import base64
import datetime
import hashlib
import json
import os
import re
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from cryptography import x509

from dpgt_node.config import load_node, load_run
from dpgt_node.runtime.trust.credentials import load
from dpgt_node.runtime.trust.files import Files
from dpgt_node.runtime.trust.pki import Registry
from dpgt_node.runtime.trust.requests import key_fingerprint
from dpgt_node.runtime.trust.tls import CertificateAuthority
from tests.cli import documents
from tests.cli.conftest import Run

HOSTS = {
    "coordinator": "control.example.org:7700",
    "agent-1": "10.0.0.1",
    "agent-2": "fd00::2",
    "agent-3": "[fd00::3]:9000",
    "agent-4": "node-4.example.org.",
}


@pytest.fixture
def hosts(dpgt: Run, tmp_path: Path) -> Path:
    """The folder that init made for four agents; the current folder."""
    run = documents.edited(documents.quadratic(4, K=5), {})
    (tmp_path / "run.toml").write_text(tomli_w.dumps(run))
    code, said, _ = dpgt(
        "pki", "init", "run.toml", "--out", "h", *(f"--host={name}={at}" for name, at in HOSTS.items())
    )
    assert code == 0 and "Move h/authority off line" in said
    os.chdir(tmp_path / "h")
    return tmp_path / "h"


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (
            {"dataset": "csv:rows/t.csv", "label": "y", "test": "u.csv"},
            "run's data at AGENT/rows/t.csv, its test",
        ),
        (
            {"dataset": "npz:/srv/t.npz"},
            "run's data at /srv/t.npz: copy them there, or give it",
        ),
        ({"dataset": "mnist"}, "needs the run's data: dpgt data fetch mnist, or give it"),
        (
            {"dataset": "digits"},
            "digits, come with the program; give it data of its own: [data] path",
        ),
        ({"dataset": "mine:rows"}, "makes the run's data by mine:rows"),
    ],
)
def test_init_says_where_every_host_looks_for_the_data(
    data: dict[str, str], words: str, dpgt: Run, tmp_path: Path
) -> None:
    run = documents.edited(documents.quadratic(2, K=5), {}) | {"data": data}
    (tmp_path / "run.toml").write_text(tomli_w.dumps(run))
    at = [f"--host={name}=127.0.0.1:{7700 + i}" for i, name in enumerate(("coordinator", "agent-1", "agent-2"))]
    code, said, err = dpgt("pki", "init", "run.toml", "--out", "h", "--keys", "none", *at)
    assert code == 0, err
    assert words in " ".join(said.split())


@pytest.fixture
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def certificate(folder: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate((folder / "cert.pem").read_bytes())


def names(folder: Path) -> tuple[list[str], list[str], list[str]]:
    san = certificate(folder).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    addresses = [str(address) for address in san.get_values_for_type(x509.IPAddress)]
    return (
        san.get_values_for_type(x509.UniformResourceIdentifier),
        san.get_values_for_type(x509.DNSName),
        addresses,
    )


@pytest.mark.usefixtures("open_umask")
def test_init_makes_folders_whose_files_load_and_whose_keys_are_private(hosts: Path) -> None:
    for name in HOSTS:
        identity = "dpgt:coordinator" if name == "coordinator" else f"dpgt:agent:{name}"
        assert load(Files.of(hosts / name)).identity == identity
        assert names(hosts / name)[0] == [identity]
        assert stat.S_IMODE((hosts / name).stat().st_mode) == 0o700
        assert load_run(hosts / name / "run.toml").graph.agents == ("agent-1", "agent-2", "agent-3", "agent-4")
    assert "10.0.0.1" in names(hosts / "agent-1")[2] and "fd00::2" in names(hosts / "agent-2")[2]
    assert "fd00::3" in names(hosts / "agent-3")[2] and "node-4.example.org." in names(hosts / "agent-4")[1]
    assert load_node(hosts / "agent-2" / "NODE.toml").advertise == "[fd00::2]:7701"
    assert load_node(hosts / "agent-3" / "NODE.toml").advertise == "[fd00::3]:9000"
    assert load_node(hosts / "agent-4" / "NODE.toml").listen == "0.0.0.0:7701"
    assert {load_node(hosts / f"agent-{i}" / "NODE.toml").coordinator for i in range(1, 5)} == {HOSTS["coordinator"]}
    assert not any(load_node(hosts / f"agent-{i}" / "NODE.toml").tls.insecure for i in range(1, 5))
    keys = [path for path in hosts.rglob("key.pem")]
    assert len(keys) == 6 and {stat.S_IMODE(key.stat().st_mode) for key in keys} == {0o600}
    assert stat.S_IMODE((hosts / "authority").stat().st_mode) == 0o700
    records = list((hosts / "authority" / "issued").iterdir())
    assert len(records) == 5 and all(b"PRIVATE" not in path.read_bytes() for path in records)


def test_an_agent_cannot_be_called_as_a_folder_of_another_kind(dpgt: Run, tmp_path: Path) -> None:
    run = documents.edited(documents.quadratic(2, K=1), {"graph__agents": ["Authority", "b"]})
    (tmp_path / "run.toml").write_text(tomli_w.dumps(run))
    options = [f"--host={name}=10.0.0.{i}" for i, name in enumerate(("coordinator", "Authority", "b"), 1)]
    code, _, error = dpgt("pki", "init", "run.toml", "--out", "h", *options)
    assert code == 2 and "no agent can have this name" in error and not (tmp_path / "h").exists()


def shown(dpgt: Run, *where: object) -> list[dict[str, Any]]:
    _, said, _ = dpgt("pki", "show", *where, "--format", "json")
    found: list[dict[str, Any]] = json.loads(said)["certificates"]
    return found


def test_show_says_what_openssl_says(hosts: Path, dpgt: Run) -> None:
    command = ["openssl", "x509", "-in", "agent-1/cert.pem", "-noout", "-serial", "-fingerprint", "-sha256", "-dates"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    told = dict(line.split("=", 1) for line in said.splitlines())
    one = shown(dpgt, "agent-1")[0]
    assert one["identity"] == "dpgt:agent:agent-1" and one["good"] and one["revoked"] is None and one["problems"] == []
    assert f"{int(told['serial'], 16):x}" == one["serial"]
    assert told["sha256 Fingerprint"].replace(":", "").lower() == one["fingerprint_sha256"]
    end = datetime.datetime.strptime(told["notAfter"], "%b %d %H:%M:%S %Y GMT").replace(tzinfo=datetime.UTC)
    assert datetime.datetime.fromisoformat(one["not_after"]) == end
    assert "10.0.0.1" in one["ip"] and "agent-1.agent.dpgt" in one["dns"]
    assert shown(dpgt, "agent-1/cert.pem")[0] == one
    assert {c["identity"] for c in shown(dpgt, ".")} == {
        "dpgt:coordinator",
        *(f"dpgt:agent:agent-{i}" for i in (1, 2, 3, 4)),
    }
    code, text, _ = dpgt("pki", "show", "agent-1")
    assert code == 0 and "dpgt:agent:agent-1" in text and one["serial"] in text and "no revocation list here" in text
    code, _, error = dpgt("pki", "show", "authority/issued/nothing.pem")
    assert code == 2 and "cannot be read" in error


def test_an_authority_is_shown_as_one_with_the_fingerprint_to_compare(hosts: Path, dpgt: Run) -> None:
    public = subprocess.run(
        ["openssl", "x509", "-in", "authority/ca.pem", "-noout", "-pubkey"], capture_output=True, check=True
    ).stdout
    der = base64.b64decode(b"".join(public.splitlines()[1:-1]))
    code, said, _ = dpgt("pki", "show", "agent-1/ca.pem")
    assert code == 0 and said.startswith("an authority's certificate\n") and "NOT GOOD" not in said
    assert re.findall(r"(.*)sha256 +(\S+)", said) == [("  key ", hashlib.sha256(der).hexdigest())]
    assert said.replace("agent-1", "authority") == dpgt("pki", "show", "authority/ca.pem")[1]
    (one,) = shown(dpgt, "agent-1/ca.pem")
    assert one["authority"] and one["good"] and not shown(dpgt, "agent-1")[0]["authority"]
    # A second authority in the file would be believed as well, so it is shown.
    other = CertificateAuthority.create()
    (hosts / "agent-1" / "ca.pem").write_bytes((hosts / "authority" / "ca.pem").read_bytes() + other.cert_pem)
    code, said, _ = dpgt("pki", "show", "agent-1/ca.pem")
    assert code == 0 and key_fingerprint(other.certificate.public_key()) in said and "holds 2 authorities" in said
    # Neither is a process's certificate an authority's, nor the other way round.
    (hosts / "agent-2" / "ca.pem").write_bytes((hosts / "agent-2" / "cert.pem").read_bytes())
    code, said, _ = dpgt("pki", "show", "agent-2/ca.pem")
    assert code == 1 and "NOT GOOD     is not an authority's certificate" in said
    (hosts / "agent-3" / "cert.pem").write_bytes((hosts / "agent-3" / "ca.pem").read_bytes())
    for path in ("agent-3", "agent-3/cert.pem"):
        code, said, _ = dpgt("pki", "show", path)
        assert code == 1 and "is an authority's, not a process's" in said
    (hosts / "old.pem").write_bytes(CertificateAuthority.create(days=-0.02).cert_pem)
    code, said, _ = dpgt("pki", "show", "old.pem")
    assert code == 1 and said.startswith("an authority's") and "NOT GOOD     expired on" in said


def test_renew_keeps_identity_hosts_and_length_and_changes_the_key(hosts: Path, dpgt: Run) -> None:
    before, key = certificate(hosts / "agent-3"), (hosts / "agent-3" / "key.pem").read_bytes()
    node = (hosts / "agent-3" / "NODE.toml").read_bytes()
    code, said, _ = dpgt("pki", "renew", "agent-3")
    after = certificate(hosts / "agent-3")
    assert code == 0 and f"{after.serial_number:x}" in said
    assert f"dpgt pki revoke agent-3 --serial {before.serial_number:x}" in said
    assert after.serial_number != before.serial_number and (hosts / "agent-3" / "key.pem").read_bytes() != key
    assert load(Files.of(hosts / "agent-3")).identity == "dpgt:agent:agent-3"
    assert "fd00::3" in names(hosts / "agent-3")[2]
    life = after.not_valid_after_utc - after.not_valid_before_utc
    assert abs(life - (before.not_valid_after_utc - before.not_valid_before_utc)) < datetime.timedelta(minutes=1)
    assert (hosts / "agent-3" / "NODE.toml").read_bytes() == node
    assert stat.S_IMODE((hosts / "agent-3" / "key.pem").stat().st_mode) == 0o600
    code, _, _ = dpgt("pki", "renew", "agent-3", "--days", "0.01", "--into", "elsewhere")
    left = certificate(hosts / "elsewhere").not_valid_after_utc - datetime.datetime.now(datetime.UTC)
    assert code == 0 and datetime.timedelta(0) < left <= datetime.timedelta(minutes=15)
    assert certificate(hosts / "agent-3").serial_number == after.serial_number
    assert dpgt("pki", "renew", "--all")[0] == 0
    assert len({c["serial"] for c in shown(dpgt, ".")}) == 5 + 2 + 6  # init, two of agent-3, then every folder


def test_the_authority_may_live_elsewhere(hosts: Path, dpgt: Run, tmp_path: Path) -> None:
    (hosts / "authority").rename(tmp_path / "offline")
    code, _, error = dpgt("pki", "renew", "agent-1")
    assert code == 2 and "--authority: the folder with the authority's ca.pem and key.pem" in error
    assert dpgt("pki", "renew", "agent-1", "--authority", tmp_path / "offline")[0] == 0
    assert not (hosts / "authority").exists()
    (tmp_path / "offline" / "key.pem").write_bytes((hosts / "agent-1" / "key.pem").read_bytes())
    code, _, error = dpgt("pki", "renew", "agent-1", "--authority", tmp_path / "offline")
    assert code == 2 and "is not the key of" in error


def test_issue_makes_a_replacement_host_and_an_operator(hosts: Path, dpgt: Run) -> None:
    code, _, error = dpgt("pki", "issue", "agent-2", "--host", "10.0.0.9")
    assert code == 2 and "holds a certificate already" in error
    code, said, _ = dpgt(
        "pki", "issue", "agent-2", "--host", "10.0.0.9:8000", "--host", "nine.example.org", "--into", "new"
    )
    assert code == 0 and "dpgt pki revoke agent-2 --serial" in said
    node = load_node(hosts / "new" / "NODE.toml")
    assert (node.name, node.advertise, node.coordinator) == ("agent-2", "10.0.0.9:8000", HOSTS["coordinator"])
    assert load(Files.of(hosts / "new")).identity == "dpgt:agent:agent-2"
    assert {"10.0.0.9", "nine.example.org"} <= {*names(hosts / "new")[1], *names(hosts / "new")[2]}
    assert dpgt("pki", "issue", "operator")[0] == 0
    assert load(Files.of(hosts / "operator")).identity == "dpgt:operator"
    code, said, _ = dpgt("pki", "issue", "stranger", "--host", "10.0.0.7")
    assert code == 0 and "No NODE.toml" in said and not (hosts / "stranger" / "NODE.toml").exists()


@pytest.mark.parametrize(
    ("first", "second", "pair"),
    [
        ("agent-1=h", "agent-2=H.", "agent-1 and agent-2"),
        ("agent-1=h:7", "coordinator=h:7", "agent-1 and coordinator|coordinator and agent-1"),
        ("agent-1=[::1]:9", "agent-2=[0:0::1]:9", "agent-1 and agent-2"),
    ],
)
def test_no_two_share_an_address(first: str, second: str, pair: str, hosts: Path, dpgt: Run) -> None:
    given = {**{name: f"{name}={at}" for name, at in HOSTS.items()}}
    given |= {text.partition("=")[0]: text for text in (first, second)}
    run = hosts.parent / "run.toml"
    code, _, said = dpgt("pki", "init", run, "--out", "twice", *(f"--host={text}" for text in given.values()))
    assert code == 2 and re.search(f"--host: ({pair}) have one address and port", said), said
    assert not Path("twice").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("issue", "agent-9"), "--host: is missing"),
        (("issue", "a/b", "--host", "h"), "is no agent name"),
        (("issue", "agent-9", "--host", "agent-1.agent.dpgt"), "names below .dpgt are identities"),
        (("issue", "agent-9", "--host", "bad host"), "not a host name"),
        (("renew",), "give names, or --all"),
        (("renew", "agent-1", "--all"), "give names, or --all"),
        (("renew", "agent-1", "agent-2", "--into", "x"), "is for one name"),
        (("renew", "agent-9"), "has no certificate of this authority"),
        (("revoke", "agent-9"), "never issued a certificate for agent-9"),
        (("revoke", "agent-1", "--serial", "xyz"), "is not hexadecimal"),
        (("revoke", "agent-1", "--serial", "1"), "1: no certificate of agent-1"),
    ],
)
def test_mistakes_are_named_and_change_nothing(arguments: tuple[str, ...], words: str, hosts: Path, dpgt: Run) -> None:
    before = {path: path.read_bytes() for path in hosts.rglob("*") if path.is_file()}
    code, _, error = dpgt("pki", *arguments)
    assert code == 2 and words in error, error
    assert {path: path.read_bytes() for path in hosts.rglob("*") if path.is_file()} == before


def test_revoke_writes_a_list_that_openssl_reads_and_says_who_needs_it(hosts: Path, dpgt: Run) -> None:
    old = certificate(hosts / "agent-2").serial_number
    assert dpgt("pki", "renew", "agent-2")[0] == 0
    code, said, _ = dpgt("pki", "revoke", "agent-2", "--serial", f"{old:x}")
    # a ring: agent-1 sends to agent-2, agent-2 to agent-3; agent-4 never speaks with it
    assert code == 0 and "on the hosts of coordinator, agent-1, agent-3 (" in said
    text = subprocess.run(
        ["openssl", "crl", "-in", "authority/crl.pem", "-noout", "-text", "-CAfile", "authority/ca.pem"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "verify OK" in text.stderr + text.stdout and f"{old:X}" in text.stdout
    assert text.stdout.count("Serial Number:") == 1
    lists = [(hosts / name / "crl.pem").read_bytes() for name in HOSTS]
    assert set(lists) == {(hosts / "authority" / "crl.pem").read_bytes()}
    assert load(Files.of(hosts / "agent-2")).identity == "dpgt:agent:agent-2"  # the new one is good
    by_serial = {int(c["serial"], 16): c["revoked"] for c in shown(dpgt, ".") if c["identity"].endswith("agent-2")}
    assert by_serial == {old: True, certificate(hosts / "agent-2").serial_number: False}
    assert dpgt("pki", "revoke", "agent-2")[0] == 0  # all of them
    code, said, _ = dpgt("pki", "show", "agent-2")
    assert code == 1 and "REVOKED" in said and "NOT GOOD" in said
    code, _, error = dpgt("pki", "renew", "agent-2")
    assert code == 2 and "that is not revoked" in error
    code, _, error = dpgt("node", "--config", "agent-2/NODE.toml")
    assert code == 2 and "is revoked (serial" in error
    dpgt("pki", "issue", "agent-2", "--host", "10.0.0.2", "--into", "new")
    assert (hosts / "new" / "crl.pem").exists() and load(Files.of(hosts / "new"))


def test_what_was_revoked_stays_revoked_since_then(hosts: Path) -> None:
    registry, serials = Registry(hosts / "authority"), [certificate(hosts / f"agent-{i}").serial_number for i in (1, 2)]
    since = datetime.datetime(2024, 5, 6, 7, 8, 9, tzinfo=datetime.UTC)
    (hosts / "authority" / "crl.pem").write_bytes(registry.authority.revocation_list({serials[0]: since}))
    registry.revoke(serials)
    held = registry.revoked()
    assert held.keys() == set(serials) and held[serials[0]] == since < held[serials[1]]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o666])
def test_a_key_that_others_can_read_is_refused_as_ssh_does(mode: int, hosts: Path, dpgt: Run) -> None:
    key = hosts / "agent-1" / "key.pem"
    key.chmod(mode)
    for command in (
        ("node", "--config", "agent-1/NODE.toml"),
        ("coordinator", "--config", "run.toml", "--listen", "127.0.0.1:0", "--tls", "agent-1", "--out", "o"),
        ("status", "--coordinator", "127.0.0.1:1", "--tls", "agent-1"),
    ):
        if command[0] == "coordinator":
            command = (command[0], command[1], "agent-1/run.toml", *command[3:])
        code, _, error = dpgt(*command)
        assert code == 2 and f"(mode {mode:04o}): chmod 600 " in error, (command, error)
    assert not (hosts / "agent-1" / "state").exists() or not list((hosts / "agent-1" / "state").glob("*.npy"))
