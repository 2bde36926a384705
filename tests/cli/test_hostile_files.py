"""Files that an operator reads and somebody else wrote: whatever is in them, no verb says that it has a bug."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dpgt_node.cli import run
from dpgt_node.errors import ConfigError, ExitCode
from dpgt_node.runtime.trust.credentials import load
from dpgt_node.runtime.trust.files import Files
from dpgt_node.runtime.trust.tls import CertificateAuthority
from tests.runtime.cluster import RUN

VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 10**400, 1e308, -0.0, "", "x" * 5000, "\x1b[2J", "</script><script>alert(1)</script>", [], {},
    [[]], {"a": {"a": {}}}, [None] * 50, "NaN", "é\u202e", 2**63,
)  # fmt: skip
WORDS = (
    b"nan",
    b"inf",
    b"-1",
    b"1e999",
    b"\x00",
    b"\xff\xfe",
    b"\n",
    b",",
    b'"',
    b"[",
    b"{" * 3000,
    b"=",
    b"'''",
    b"9" * 5000,
)
many = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
random = st.randoms(use_true_random=False)


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run with its state directories."""
    folder = tmp_path_factory.mktemp("honest")
    (folder / "run.toml").write_text(RUN.format(K=12))
    assert run(["simulate", str(folder / "run.toml"), "--out", str(folder / "out")]) == 0
    return folder / "out"


def spoil(data: bytes, rng: Random) -> bytes:
    """Bytes changed, cut, put in, taken out."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 5))):
        at = rng.randrange(len(out) + 1)
        match rng.randrange(5):
            case 0:
                out[at:at] = rng.choice(WORDS)
            case 1:
                del out[at:]
            case 2:
                del out[at : at + rng.randint(1, 40)]
            case 3:
                out[at : at + 8] = rng.choice(WORDS)
            case _ if at < len(out):
                out[at] ^= 1 << rng.randrange(8)
    return bytes(out)


def leaves(value: Any) -> Iterator[tuple[Any, Any]]:
    """(container, key) of everything inside."""
    for key in list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield value, key
        yield from leaves(value[key])


def spoil_json(data: bytes, rng: Random) -> bytes:
    """One value becomes another, or is missing; the text stays JSON."""
    document = json.loads(data)
    found = list(leaves(document))
    if not found or rng.random() < 0.1:
        return json.dumps(rng.choice(VALUES)).encode()
    container, key = rng.choice(found)
    if rng.random() < 0.3:
        del container[key]
    else:
        container[key] = rng.choice(VALUES)
    return json.dumps(document).encode()


def spoiled(source: Path, target: Path, rng: Random) -> Path:
    """A copy of folder ``source`` with one of its files changed."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)
    path = rng.choice(sorted(p for p in target.rglob("*") if p.is_file()))
    data = path.read_bytes()
    path.write_bytes(spoil_json(data, rng) if path.suffix == ".json" and rng.random() < 0.7 else spoil(data, rng))
    return target


@settings(many, max_examples=6)  # a page takes a second
@given(random)
def test_report_over_a_spoiled_folder(outputs: Path, tmp_path: Path, rng: Random) -> None:
    folder = tmp_path / "out"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for path in outputs.iterdir():
        if path.is_file():
            shutil.copy(path, folder)
    path = rng.choice(sorted(p for p in folder.iterdir() if p.suffix in (".json", ".csv", ".toml")))
    data = path.read_bytes()
    path.write_bytes(spoil_json(data, rng) if path.suffix == ".json" and rng.random() < 0.8 else spoil(data, rng))
    code = run(["report", str(folder)])
    assert code in (ExitCode.DONE, ExitCode.CONFIG), path.name
    page = folder / "report.html"
    assert not page.exists() or "<script>alert(1)</script>" not in page.read_text()


@many
@given(random)
def test_ledger_over_a_spoiled_state_directory(outputs: Path, tmp_path: Path, rng: Random) -> None:
    folder = spoiled(outputs / "agents" / "agent-1" / "state", tmp_path / "state", rng)
    arguments = rng.choice(([], ["--verify"], ["--format", "json"], ["--format", "csv"]))
    assert run(["ledger", str(folder), *arguments]) in (ExitCode.DONE, ExitCode.CHECK_FAILED, ExitCode.CONFIG)


@many
@given(random)
def test_check_of_a_spoiled_run_file(tmp_path: Path, rng: Random) -> None:
    path = tmp_path / "run.toml"
    path.write_bytes(spoil(RUN.format(K=12).encode(), rng))
    assert run(["check", str(path)]) in (ExitCode.DONE, ExitCode.CHECK_FAILED, ExitCode.CONFIG)


NODE = b"""
name = "agent-1"
run = "run.toml"
listen = "127.0.0.1:0"
coordinator = "127.0.0.1:7000"
state_dir = "state"
[tls]
insecure = true
[policy]
epsilon_max = 3.0
"""


@many
@given(random)
def test_a_spoiled_node_file(tmp_path: Path, rng: Random) -> None:
    from dpgt_node.config import load_node

    path = tmp_path / "node.toml"
    path.write_bytes(spoil(NODE, rng))
    try:
        load_node(path)
    except ConfigError as error:
        assert str(error)


@many
@given(random)
def test_spoiled_certificates(tmp_path: Path, rng: Random) -> None:
    folder = tmp_path / "tls"
    if not folder.exists():
        CertificateAuthority.create().write_folder(folder, "dpgt:agent:agent-1")
    bad = tmp_path / "bad"
    shutil.rmtree(bad, ignore_errors=True)
    shutil.copytree(folder, bad)
    path = bad / rng.choice(("ca.pem", "cert.pem", "key.pem", "crl.pem"))
    path.write_bytes(
        spoil(path.read_bytes() if path.exists() else b"-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n", rng)
    )
    try:
        load(Files.of(bad))
    except ConfigError as error:
        assert str(error)


@pytest.mark.parametrize("name", ["ca.pem", "cert.pem", "key.pem"])
def test_a_certificate_on_a_curve_that_nobody_knows(name: str, tmp_path: Path) -> None:
    """Found by the test above: the library says so with an error of its own, and only when the key is asked for."""
    CertificateAuthority.create().write_folder(tmp_path, "dpgt:agent:agent-1")
    path = tmp_path / name
    begin, *body, end = path.read_text().splitlines()
    der = base64.b64decode("".join(body))
    known = bytes.fromhex("06082a8648ce3d030107")
    assert known in der
    path.write_text(f"{begin}\n{base64.b64encode(der.replace(known, known[:-1] + b'J')).decode()}\n{end}\n")
    with pytest.raises(ConfigError, match=name):
        load(Files.of(tmp_path))
