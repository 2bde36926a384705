"""``dpgt pki request`` and ``sign``: keys that never leave their hosts, and what an authority must not sign."""

from __future__ import annotations

import datetime
import json
import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.asymmetric.types import CertificateIssuerPrivateKeyTypes

from dpgt_node.config import load_run
from dpgt_node.runtime.trust.credentials import load
from dpgt_node.runtime.trust.files import Files
from dpgt_node.runtime.trust.pki import Registry, who_needs_list
from dpgt_node.runtime.trust.requests import key_fingerprint
from dpgt_node.runtime.trust.tls import CertificateAuthority
from tests.cli import documents
from tests.cli.conftest import Run

AGENTS = ("agent-1", "agent-2", "agent-3")


@pytest.fixture
def authority(dpgt: Run, tmp_path: Path) -> Path:
    """What init made where agents make their own keys."""
    (tmp_path / "run.toml").write_text(tomli_w.dumps(documents.edited(documents.quadratic(3, K=5), {})))
    hosts = [f"--host={name}=10.0.0.{i}" for i, name in enumerate(("coordinator", *AGENTS), 1)]
    code, said, _ = dpgt("pki", "init", "run.toml", "--out", "h", "--keys", "coordinator", *hosts)
    assert code == 0 and "dpgt pki request AGENT" in said and "dpgt pki sign AGENT REQUEST --pki h" in said
    return tmp_path / "h"


def fingerprint(said: str) -> str:
    return next(line.split()[-1] for line in said.splitlines() if "key sha256" in line)


def asked(dpgt: Run, name: str, folder: Path) -> str:
    code, said, error = dpgt("pki", "request", name, "--host", "10.0.0.9", "--into", folder)
    assert code == 0, error
    return fingerprint(said)


def signed(dpgt: Run, name: str, request: Path, sha256: str, *more: object) -> tuple[int, str, str]:
    return dpgt("pki", "sign", name, request, "--fingerprint", sha256, "--pki", "h", *more)


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_init_may_make_the_coordinators_key_alone_or_none(authority: Path, dpgt: Run) -> None:
    assert {path.parent.name for path in authority.rglob("key.pem")} == {"authority", "coordinator"}
    assert load(Files.of(authority / "coordinator")).identity == "dpgt:coordinator"
    for name in AGENTS:
        assert sorted(p.name for p in (authority / name).iterdir()) == ["NODE.toml", "ca.pem", "run.toml"]
    hosts = [f"--host={name}=10.0.0.{i}" for i, name in enumerate(("coordinator", *AGENTS), 1)]
    code, said, _ = dpgt("pki", "init", "run.toml", "--out", "bare", "--keys", "none", *hosts)
    assert code == 0 and "dpgt pki request NAME" in said
    assert [path.parent.name for path in Path("bare").rglob("key.pem")] == ["authority"]


def test_a_key_is_made_on_its_host_and_signed_elsewhere(authority: Path, dpgt: Run, tmp_path: Path) -> None:
    """The host's folder is a copy of the invitation; its addresses come from the node file."""
    before, host = os.umask(0), tmp_path / "host"
    try:
        host.mkdir(mode=0o700)
        for name in ("NODE.toml", "ca.pem", "run.toml"):
            (host / name).write_bytes((authority / "agent-1" / name).read_bytes())
        code, said, _ = dpgt("pki", "request", "agent-1", "--into", host)
    finally:
        os.umask(before)
    assert code == 0 and "10.0.0.2" in said and "dpgt pki sign agent-1 FILE" in said
    assert stat.S_IMODE((host / "key.pem").stat().st_mode) == 0o600
    assert b"PRIVATE" not in (host / "request.pem").read_bytes()
    told = fingerprint(said)
    code, shown, _ = dpgt("pki", "show", host / "request.pem")
    assert code == 0 and fingerprint(shown) == told and "dpgt:agent:agent-1" in shown and "10.0.0.2" in shown
    code, shown, _ = dpgt("pki", "show", host / "request.pem", "--format", "json")
    assert json.loads(shown)["request"] == {
        "identity": "dpgt:agent:agent-1",
        "hosts": ["10.0.0.2"],
        "key_sha256": told,
    }
    spelled = ":".join(told.upper()[i : i + 2] for i in range(0, 64, 2))
    code, said, error = signed(dpgt, "agent-1", host / "request.pem", spelled)
    assert code == 0, error
    assert "10.0.0.2" in said and told in said and "dpgt:agent:agent-1" in said
    assert "Send cert.pem back, to lie beside the host's key.pem and ca.pem." in said  # nothing was revoked: no list
    assert not (authority / "agent-1" / "key.pem").exists()
    (host / "cert.pem").write_bytes((authority / "agent-1" / "cert.pem").read_bytes())
    material = load(Files.of(host))
    assert material.identity == "dpgt:agent:agent-1"
    names = material.certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert "10.0.0.2" in map(str, names.get_values_for_type(x509.IPAddress))
    code, shown, _ = dpgt("pki", "show", host)
    assert code == 0 and fingerprint(shown) == told
    code, shown, _ = dpgt("pki", "show", "h", "--format", "json")
    assert told in {one["key_sha256"] for one in json.loads(shown)["certificates"]}


def test_a_node_that_advertises_nothing_is_reached_where_it_listens(authority: Path, dpgt: Run, tmp_path: Path) -> None:
    """As doctor has it; and whoever asks for this machine's addresses alone is told so."""
    node, text = authority / "agent-1" / "NODE.toml", (authority / "agent-1" / "NODE.toml").read_text()
    advertised = next(line for line in text.splitlines() if line.startswith("advertise"))
    node.write_text(text.replace(advertised, "").replace("10.0.0.2:7701", "0.0.0.0:7701"))
    before = contents(authority)
    code, _, error = dpgt("pki", "request", "agent-1", "--into", authority / "agent-1")
    assert code == 2 and "advertise: is needed because listen" in error and contents(authority) == before
    node.write_text(text.replace(advertised, "").replace("10.0.0.2:7701", "192.0.2.7:7721"))
    code, said, _ = dpgt("pki", "request", "agent-1", "--into", authority / "agent-1")
    assert code == 0 and "addresses    192.0.2.7\n" in said
    code, said, _ = dpgt("pki", "request", "coordinator", "--host", "127.0.0.1", "--into", tmp_path / "c")
    assert code == 0 and "addresses    localhost, 127.0.0.1, ::1\n" in said


def test_the_authority_may_be_asked_on_a_terminal(
    authority: Path, dpgt: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked(dpgt, "agent-1", tmp_path / "host")
    before, answers = contents(authority), iter((False, True))
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    monkeypatch.setattr("click.confirm", lambda _: next(answers))
    code, said, error = dpgt("pki", "sign", "agent-1", tmp_path / "host" / "request.pem", "--pki", "h")
    assert code == 3 and "nothing was signed" in error and "key sha256" in said and contents(authority) == before
    assert dpgt("pki", "sign", "agent-1", tmp_path / "host" / "request.pem", "--pki", "h")[0] == 0


def test_nothing_that_is_there_is_overwritten(authority: Path, dpgt: Run, tmp_path: Path) -> None:
    for name in ("key.pem", "cert.pem", "request.pem"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / name).write_bytes(b"mine")
        code, _, error = dpgt("pki", "request", "agent-1", "--host", "h", "--into", folder)
        assert code == 2 and f"{folder / name}: is there already" in error
        assert contents(folder) == {folder / name: b"mine"}
    dangling = tmp_path / "dangling"
    dangling.mkdir()
    (dangling / "key.pem").symlink_to(tmp_path / "elsewhere")
    code, _, error = dpgt("pki", "request", "agent-1", "--host", "h", "--into", dangling)
    assert code == 2 and not (tmp_path / "elsewhere").exists()
    # nor does the authority put a certificate beside a key that is not its own
    told = asked(dpgt, "agent-1", tmp_path / "host")
    (authority / "agent-1" / "key.pem").write_bytes((authority / "coordinator" / "key.pem").read_bytes())
    before = contents(authority)
    code, _, error = signed(dpgt, "agent-1", tmp_path / "host" / "request.pem", told)
    assert code == 2 and "is not the key that was asked for" in error and contents(authority) == before


def test_another_key_of_a_name_needs_a_word_and_renewal_keeps_the_key(
    authority: Path, dpgt: Run, tmp_path: Path
) -> None:
    first, second = asked(dpgt, "agent-1", tmp_path / "one"), asked(dpgt, "agent-1", tmp_path / "two")
    assert signed(dpgt, "agent-1", tmp_path / "one" / "request.pem", first)[0] == 0
    before = contents(authority)
    code, _, error = signed(dpgt, "agent-1", tmp_path / "two" / "request.pem", second)
    assert code == 2 and f"agent-1 has a certificate of another key ({first})" in error and "--replace" in error
    code, _, error = signed(dpgt, "agent-1", tmp_path / "two" / "request.pem", second, "--replace")
    assert code == 2 and "is there already, for another key" in error and contents(authority) == before
    again = "--replace", "--into", tmp_path / "new"
    code, said, _ = signed(dpgt, "agent-1", tmp_path / "two" / "request.pem", second, *again)
    assert code == 0 and "dpgt pki revoke agent-1 --serial" in said
    assert signed(dpgt, "agent-1", tmp_path / "one" / "request.pem", first, "--replace")[0] == 0  # its own again
    held = (authority / "agent-1" / "cert.pem").read_bytes()
    code, said, _ = dpgt("pki", "renew", "agent-1", "--pki", "h")
    new = x509.load_pem_x509_certificate((authority / "agent-1" / "cert.pem").read_bytes())
    assert code == 0 and "copy cert.pem alone" in said and held != (authority / "agent-1" / "cert.pem").read_bytes()
    assert key_fingerprint(new.public_key()) == first and not (authority / "agent-1" / "key.pem").exists()
    assert dpgt("pki", "revoke", "agent-1", "--pki", "h")[0] == 0
    third = asked(dpgt, "agent-1", tmp_path / "three")  # every other key is revoked: no word is needed
    assert signed(dpgt, "agent-1", tmp_path / "three" / "request.pem", third, "--into", tmp_path / "n")[0] == 0
    assert (tmp_path / "n" / "crl.pem").read_bytes() == (authority / "authority" / "crl.pem").read_bytes()


def csr(key: CertificateIssuerPrivateKeyTypes, *uris: str, dns: tuple[str, ...] = ()) -> bytes:
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
    names: list[x509.GeneralName] = [x509.UniformResourceIdentifier(uri) for uri in uris]
    names += [x509.DNSName(name) for name in dns]
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    algorithm = None if isinstance(key, ed25519.Ed25519PrivateKey) else hashes.SHA256()
    return builder.sign(key, algorithm).public_bytes(serialization.Encoding.PEM)


def _tampered() -> bytes:
    made = csr(ec.generate_private_key(ec.SECP256R1()), "dpgt:agent:agent-2")
    der = x509.load_pem_x509_csr(made).public_bytes(serialization.Encoding.DER)
    return x509.load_der_x509_csr(der.replace(b"agent-2", b"agent-1")).public_bytes(serialization.Encoding.PEM)


def _somebody() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


ONE = "dpgt:agent:agent-1"
BAD: dict[str, tuple[Callable[[], bytes], str]] = {
    "garbage": (lambda: b"\0\xff" * 100, "holds no PEM certificate request"),
    "empty": (lambda: b"", "holds no PEM certificate request"),
    "endless": (lambda: b"a" * 100_000, "more than 65536 bytes"),
    "a certificate": (lambda: CertificateAuthority.create().cert_pem, "holds no PEM certificate request"),
    "cut": (lambda: csr(_somebody(), ONE)[:200], "holds no PEM certificate request"),
    "another name": (lambda: csr(_somebody(), "dpgt:agent:agent-2"), "asks to be dpgt:agent:agent-2, not"),
    "the coordinator": (lambda: csr(_somebody(), "dpgt:coordinator"), "asks to be dpgt:coordinator, not"),
    "two names": (lambda: csr(_somebody(), ONE, "dpgt:agent:agent-2"), "exactly one dpgt: identity"),
    "no name": (lambda: csr(_somebody()), "exactly one dpgt: identity"),
    "a strange name": (lambda: csr(_somebody(), "dpgt:agent:../x"), "an identity that is none"),
    "another's DNS name": (lambda: csr(_somebody(), ONE, dns=("agent-2.agent.dpgt",)), "names below .dpgt"),
    "no host": (lambda: csr(_somebody(), ONE, dns=("a b\n",)), "not a host name"),
    "changed": (_tampered, "is not signed with its own key"),
    "RSA": (lambda: csr(rsa.generate_private_key(65537, 1024), ONE), "RSA with 1024 bits"),
    "Ed25519": (lambda: csr(ed25519.Ed25519PrivateKey.generate(), ONE), "kind Ed25519"),
    "a weak curve": (lambda: csr(ec.generate_private_key(ec.SECP192R1()), ONE), "a key on secp192r1"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_an_authority_does_not_sign(case: str, authority: Path, dpgt: Run, tmp_path: Path) -> None:
    make, words = BAD[case]
    (tmp_path / "request.pem").write_bytes(make())
    before = contents(authority)
    code, said, error = signed(dpgt, "agent-1", tmp_path / "request.pem", "0" * 64)
    assert code == 2 and words in error and not said, error
    assert contents(authority) == before
    assert dpgt("pki", "sign", "agent-1", tmp_path / "nothing", "--pki", "h")[0] == 2


def test_one_key_is_not_two_agents(authority: Path, dpgt: Run, tmp_path: Path) -> None:
    key = _somebody()
    for name in ("agent-1", "agent-2"):
        (tmp_path / f"{name}.pem").write_bytes(csr(key, f"dpgt:agent:{name}", dns=("h.example.org",)))
    told = key_fingerprint(key.public_key())
    assert signed(dpgt, "agent-1", tmp_path / "agent-1.pem", told)[0] == 0
    code, _, error = signed(dpgt, "agent-2", tmp_path / "agent-2.pem", told, "--replace")
    assert code == 2 and "its key is that of dpgt:agent:agent-1" in error


def test_names_that_differ_in_case_alone_are_not_two_agents(authority: Path, dpgt: Run, tmp_path: Path) -> None:
    """A client knows the other end by a DNS name, which has no case: the one would be taken for the other."""
    told, before = asked(dpgt, "Agent-1", tmp_path / "host"), contents(authority)
    code, _, error = signed(dpgt, "Agent-1", tmp_path / "host" / "request.pem", told)
    assert code == 2 and "Agent-1 and agent-1 differ in case alone" in error and contents(authority) == before
    code, _, error = dpgt("pki", "issue", "AGENT-2", "--host", "10.0.0.9", "--pki", "h")
    assert code == 2 and "AGENT-2 and agent-2 differ in case alone" in error and contents(authority) == before
    assert dpgt("pki", "issue", "spare", "--host", "10.0.0.9", "--pki", "h")[0] == 0
    assert dpgt("pki", "issue", "Spare", "--host", "10.0.0.8", "--pki", "h")[0] == 2, "of no run that is known here"
    assert dpgt("pki", "revoke", "spare", "--pki", "h")[0] == 0
    assert dpgt("pki", "issue", "Spare", "--host", "10.0.0.8", "--pki", "h")[0] == 0


def test_a_key_whose_certificate_expired_is_still_that_agents(authority: Path, dpgt: Run, tmp_path: Path) -> None:
    """It could be signed anew any day; only a revoked key is nobody's."""
    key, issued = _somebody(), authority / "authority" / "issued"
    past = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=2)
    ca = CertificateAuthority.load(authority / "authority")
    old = ca.certify(key.public_key(), "dpgt:agent:agent-1", valid=(past, past + datetime.timedelta(days=1)))
    (issued / f"{x509.load_pem_x509_certificate(old).serial_number:x}.pem").write_bytes(old)
    (tmp_path / "two.pem").write_bytes(csr(key, "dpgt:agent:agent-2", dns=("h.example.org",)))
    before, told = contents(authority), key_fingerprint(key.public_key())
    code, _, error = signed(dpgt, "agent-2", tmp_path / "two.pem", told)
    assert code == 2 and "its key is that of dpgt:agent:agent-1" in error and contents(authority) == before
    Registry(authority / "authority").revoke([x509.load_pem_x509_certificate(old).serial_number])
    assert signed(dpgt, "agent-2", tmp_path / "two.pem", told)[0] == 0


@pytest.mark.parametrize("digit", [0, 15, 16, 63])
def test_every_digit_of_a_fingerprint_counts(digit: int, authority: Path, dpgt: Run, tmp_path: Path) -> None:
    told = asked(dpgt, "agent-1", tmp_path / "host")
    other = told[:digit] + ("1" if told[digit] == "0" else "0") + told[digit + 1 :]
    before = contents(authority)
    code, _, error = signed(dpgt, "agent-1", tmp_path / "host" / "request.pem", other)
    assert code == 3 and "another fingerprint" in error and contents(authority) == before


@pytest.mark.parametrize(
    ("told", "code", "words"),
    [
        ("0" * 64, 3, "another fingerprint than the one given; nothing was signed"),
        ("abc", 2, "is not the 64 hexadecimal digits"),
        (None, 2, "--fingerprint: is needed where nobody can be asked"),
    ],
)
def test_a_fingerprint_that_nobody_confirmed(
    told: str | None, code: int, words: str, authority: Path, dpgt: Run, tmp_path: Path
) -> None:
    asked(dpgt, "agent-1", tmp_path / "host")
    before = contents(authority)
    more = () if told is None else ("--fingerprint", told)
    found, _, error = dpgt("pki", "sign", "agent-1", tmp_path / "host" / "request.pem", "--pki", "h", *more)
    assert found == code and words in error and contents(authority) == before


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("a/b", "--host", "h"), "is no agent name"),
        (("agent-1",), "--host: is missing"),
        (("agent-1", "--host", "bad host"), "not a host name"),
        (("agent-1", "--host", "0.0.0.0"), "nobody can dial"),
        (("agent-1", "--host", "agent-2.agent.dpgt"), "names below .dpgt are identities"),
        (("agent-2", "--into", "h/agent-1"), "name: is agent-1, not agent-2"),
    ],
)
def test_mistakes_of_a_request_are_named_and_make_nothing(
    arguments: tuple[str, ...], words: str, authority: Path, dpgt: Run, tmp_path: Path
) -> None:
    before = contents(tmp_path)
    code, _, error = dpgt("pki", "request", *arguments)
    assert code == 2 and words in error, error
    assert contents(tmp_path) == before


def test_an_authority_that_has_expired_signs_nothing(authority: Path, dpgt: Run, tmp_path: Path) -> None:
    told = asked(dpgt, "agent-1", tmp_path / "host")
    _expire(authority / "authority")
    before = contents(authority)
    code, _, error = signed(dpgt, "agent-1", tmp_path / "host" / "request.pem", told)
    assert code == 2 and "expired on" in error and contents(authority) == before
    code, _, error = dpgt("pki", "issue", "operator", "--pki", "h")
    assert code == 2 and "expired on" in error and not (authority / "operator").exists()


def test_a_file_with_an_authority_that_nobody_believes_is_not_good(authority: Path, dpgt: Run, tmp_path: Path) -> None:
    good = (authority / "authority" / "ca.pem").read_bytes()
    (tmp_path / "ca.pem").write_bytes(CertificateAuthority.create().cert_pem + good)
    assert dpgt("pki", "show", "ca.pem")[0] == 0
    _expire(authority / "authority")
    (tmp_path / "ca.pem").write_bytes(good + (authority / "authority" / "ca.pem").read_bytes())
    code, said, _ = dpgt("pki", "show", "ca.pem")
    assert code == 1 and said.count("an authority's certificate") == 2 and "NOT GOOD     expired on" in said


def test_a_certificate_is_on_record_before_anybody_has_it(
    authority: Path, dpgt: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that the authority does not remember could not be revoked."""
    told = asked(dpgt, "agent-1", tmp_path / "host")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(CertificateAuthority, "put", full)
    assert signed(dpgt, "agent-1", tmp_path / "host" / "request.pem", told)[0] == 2
    assert len(Registry(authority / "authority").issued("dpgt:agent:agent-1")) == 1


def _expire(folder: Path) -> None:
    key = serialization.load_pem_private_key((folder / "key.pem").read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    held, now = x509.load_pem_x509_certificate((folder / "ca.pem").read_bytes()), datetime.datetime.now(datetime.UTC)
    builder: Any = x509.CertificateBuilder(held.subject, held.subject, key.public_key(), held.serial_number)
    builder = builder.not_valid_before(now - datetime.timedelta(days=9)).not_valid_after(now - datetime.timedelta(1))
    for extension in held.extensions:
        builder = builder.add_extension(extension.value, extension.critical)
    (folder / "ca.pem").write_bytes(builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))


@pytest.mark.parametrize(("whose", "words"), [("authority", "was not issued by a CA in"), ("key", "is not the key of")])
def test_a_certificate_of_another_authority_or_key_does_not_start(
    whose: str, words: str, authority: Path, dpgt: Run
) -> None:
    host = authority / "agent-1"
    asked(dpgt, "agent-1", host)
    code, said, _ = dpgt("doctor", host / "NODE.toml", "--format", "json")
    row = next(row for row in json.loads(said)["checks"] if row["check"] == "certificate")
    assert code == 1 and "is not there yet" in row["found"] and "dpgt pki sign" in row["todo"]
    own = x509.load_pem_x509_csr((host / "request.pem").read_bytes()).public_key()
    other = _somebody().public_key()
    assert isinstance(own, ec.EllipticCurvePublicKey)
    if whose == "authority":
        made = CertificateAuthority.create().certify(own, ONE)
    else:
        made = CertificateAuthority.load(authority / "authority").certify(other, ONE)
    (host / "cert.pem").write_bytes(made)
    code, said, _ = dpgt("doctor", host / "NODE.toml")
    assert code == 1 and words in said
    code, _, error = dpgt("node", "--config", host / "NODE.toml")
    assert code == 2 and words in error, error


SHARED = {
    "algorithm__mechanism": "noise-once",
    "noise__law": "gaussian",
    "noise__cancel": 2,
    "noise__mask_graph": [[1, 3], [2, 3]],
}


def test_a_revocation_list_goes_to_those_who_share_noise_and_doctor_says_who_they_are(
    dpgt: Run, tmp_path: Path
) -> None:
    run = documents.edited(documents.quadratic(3, K=5), SHARED)
    run["graph"]["R"] = [[1, 0, 0], [0, 1, 1], [0, 1, 1]]  # agent-1 exchanges nothing with anybody
    run["graph"]["C"] = run["graph"]["R"]
    (tmp_path / "run.toml").write_text(tomli_w.dumps(run))
    hosts = [f"--host={name}=10.0.0.{i}" for i, name in enumerate(("coordinator", *AGENTS), 1)]
    assert set(who_needs_list("agent-1", load_run(tmp_path / "run.toml"))) == {"coordinator", "agent-3"}
    run = documents.edited(documents.quadratic(3, K=5), SHARED)
    (tmp_path / "run.toml").write_text(tomli_w.dumps(run))
    assert dpgt("pki", "init", "run.toml", "--out", "h", *hosts)[0] == 0
    node = tmp_path / "h" / "agent-1" / "NODE.toml"
    for durability, status, words in (("power", "passed", "with agent-3"), ("process", "failed", 'must be "power"')):
        kept = [line for line in node.read_text().splitlines() if not line.startswith("durability")]
        node.write_text("\n".join([f'durability = "{durability}"', *kept]))
        _, said, _ = dpgt("doctor", node, "--format", "json")
        row = next(row for row in json.loads(said)["checks"] if row["check"] == "shared noise")
        assert row["status"] == status and words in row["found"]
