"""Keys of pairs: both ends get the same, nobody else does, and every lie of the one who relays is named."""

from __future__ import annotations

import datetime
import hashlib
import hmac
from collections.abc import Callable
from dataclasses import replace

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from dpgt_node.errors import NoAgreement
from dpgt_node.protocol.messages import KeyOffer
from dpgt_node.runtime.trust import agreement
from dpgt_node.runtime.trust.agreement import Subject
from dpgt_node.runtime.trust.certificates import Revoked, key_of
from dpgt_node.runtime.trust.tls import CertificateAuthority

NOW = datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=1)  # what is made with no days left is expired
NAMES = ("agent-1", "agent-2", "agent-3", "agent-4")
SUBJECT = Subject(b"r" * 16, "ab" * 32, NAMES, ((0, 1), (0, 2), (1, 3), (2, 3)))
AUTHORITY = CertificateAuthority.create()
PRIVATE = {name: hashlib.sha256(name.encode()).digest() for name in NAMES}
Ring = list[KeyOffer]


def enrolled(
    name: str, authority: CertificateAuthority = AUTHORITY, days: float = 1
) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    pem, key = authority.issue(f"dpgt:agent:{name}", days=days)
    signing = serialization.load_pem_private_key(key, None)
    assert isinstance(signing, ec.EllipticCurvePrivateKey)
    return x509.load_pem_x509_certificate(pem), signing


ENROLLED = {name: enrolled(name) for name in NAMES}


def made(name: str, subject: Subject = SUBJECT, private: bytes | None = None, **options: object) -> KeyOffer:
    certificate, signing = ENROLLED[name] if not options else enrolled(name, **options)  # type: ignore[arg-type]
    return agreement.offer(subject, name, private or PRIVATE[name], certificate, signing)


RING = [made(name) for name in NAMES]


def check(ring: Ring, subject: Subject = SUBJECT, own: int = 0, revoked: Revoked = frozenset()) -> None:
    agreement.check_ring(subject, RING[own], ring, (AUTHORITY.certificate,), revoked, NOW)


def agreed(name: str, ring: Ring = RING, subject: Subject = SUBJECT) -> dict[str, agreement.Pair]:
    return agreement.agree(subject, name, PRIVATE[name], ring)


def test_both_ends_have_the_same_key_and_prove_it_and_no_two_pairs_have() -> None:
    for own in range(len(NAMES)):
        check(RING, own=own)
    found = {name: agreed(name) for name in NAMES}
    keys = set()
    for i, j in SUBJECT.pairs:
        one, other = found[NAMES[i]][NAMES[j]], found[NAMES[j]][NAMES[i]]
        assert one.key == other.key and len(one.key) == 32
        assert one.ours == other.theirs and one.theirs == other.ours
        assert one.ours != one.theirs, "a proof sent back proves nothing"
        keys.add(one.key)
    assert len(keys) == len(SUBJECT.pairs)
    assert {name: tuple(pairs) for name, pairs in found.items()} == {
        "agent-1": ("agent-2", "agent-3"),
        "agent-2": ("agent-1", "agent-4"),
        "agent-3": ("agent-1", "agent-4"),
        "agent-4": ("agent-2", "agent-3"),
    }
    assert "key" not in repr(found["agent-1"]["agent-2"])


def lp(*parts: bytes) -> bytes:
    return b"".join(len(part).to_bytes(4, "big") + part for part in parts)


def test_the_key_and_the_proof_are_what_the_page_says() -> None:
    """Against the primitives, put together here once more."""
    keys = {one.name: one.key for one in RING}
    shared = X25519PrivateKey.from_private_bytes(PRIVATE["agent-1"]).exchange(
        X25519PublicKey.from_public_bytes(keys["agent-2"])
    )
    sha, ends = bytes.fromhex(SUBJECT.run_sha256), (b"agent-1", b"agent-2", keys["agent-1"], keys["agent-2"])

    def derived(use: bytes) -> bytes:
        info = lp(b"dpgt pair 1", sha, *ends, use)
        return HKDF(algorithm=hashes.SHA256(), length=32, salt=SUBJECT.run_id, info=info).derive(shared)

    pair = agreed("agent-1")["agent-2"]
    assert pair.key == derived(b"noise")
    graph = b"".join(end.to_bytes(4, "big") for edge in SUBJECT.pairs for end in edge)
    offers = [part for one in RING for part in (one.name.encode(), one.key, one.certificate, one.signature)]
    ring = hashlib.sha256(lp(b"dpgt key ring 1", SUBJECT.run_id, sha, graph, *offers)).digest()
    text = lp(b"dpgt proof 1", b"agent-1", b"agent-2", ring)
    assert pair.ours == hmac.digest(derived(b"confirm"), text, "sha256")


@pytest.mark.parametrize(
    "changed",
    [
        replace(SUBJECT, run_id=b"s" * 16),
        replace(SUBJECT, run_sha256="ac" * 32),
        replace(SUBJECT, pairs=((0, 1), (0, 2), (1, 2))),
    ],
    ids=["run", "run file", "mask graph"],
)
def test_another_run_file_or_mask_graph_at_one_end_is_found(changed: Subject) -> None:
    assert agreed("agent-1")["agent-2"].theirs != agreed("agent-2", subject=changed)["agent-1"].ours


def test_two_offers_of_one_agent_shown_to_different_agents_are_found() -> None:
    """It colludes with the coordinator: both offers are well signed.  Honest pairs notice, whoever the liar is."""
    forked = [*RING[:2], made("agent-3", private=b"\7" * 32), RING[3]]
    check(forked)
    assert agreed("agent-1")["agent-2"].theirs != agreed("agent-2", forked)["agent-1"].ours
    again = [*RING[:2], made("agent-3"), RING[3]]  # the same key, signed anew: not what was shown to the others
    assert agreed("agent-1")["agent-2"].theirs != agreed("agent-2", again)["agent-1"].ours


def _swapped_key() -> Ring:
    return [RING[0], replace(RING[1], key=agreement.public_of(b"\5" * 32)), *RING[2:]]


def _resigned_by_an_insider() -> Ring:
    certificate, signing = ENROLLED["agent-3"]
    mine = agreement.offer(SUBJECT, "agent-2", b"\5" * 32, certificate, signing)
    return [RING[0], mine, *RING[2:]]


def _insiders_key_under_anothers_certificate() -> Ring:
    forged = agreement.offer(SUBJECT, "agent-2", b"\5" * 32, *ENROLLED["agent-3"])
    return [RING[0], replace(forged, certificate=RING[1].certificate), *RING[2:]]


def _of_a_strange_authority() -> Ring:
    return [RING[0], made("agent-2", authority=CertificateAuthority.create()), *RING[2:]]


def _replayed() -> Ring:
    return [RING[0], made("agent-2", replace(SUBJECT, run_id=b"s" * 16)), *RING[2:]]


def _other_run_file() -> Ring:
    return [RING[0], made("agent-2", replace(SUBJECT, run_sha256="ac" * 32)), *RING[2:]]


def _point(encoded: bytes) -> Callable[[], Ring]:
    def ring() -> Ring:
        certificate, signing = ENROLLED["agent-2"]
        text = agreement._offered(SUBJECT, "agent-2", encoded)
        signature = signing.sign(text, ec.ECDSA(hashes.SHA256()))
        der = certificate.public_bytes(serialization.Encoding.DER)
        return [RING[0], KeyOffer("agent-2", encoded, der, signature), *RING[2:]]

    return ring


P = 2**255 - 19
_ORDER_8 = (
    "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
    "5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157",
)
SMALL = [n.to_bytes(32, "little") for n in (0, 1, P - 1, P, P + 1)] + [bytes.fromhex(one) for one in _ORDER_8]
SMALL += [point[:31] + bytes([point[31] | 0x80]) for point in SMALL]  # the unused bit set

LIES: dict[str, tuple[Callable[[], Ring], str, str]] = {
    "swapped key": (_swapped_key, "agent-2", "is not signed by agent-2 for this key"),
    "an insider's certificate": (_resigned_by_an_insider, "agent-2", "is dpgt:agent:agent-3's, not dpgt:agent:agent-2"),
    "an insider's key": (_insiders_key_under_anothers_certificate, "agent-2", "is not signed by agent-2"),
    "swapped names": (
        lambda: [RING[0], replace(RING[2], name="agent-2"), replace(RING[1], name="agent-3"), RING[3]],
        "agent-2",
        "is dpgt:agent:agent-3's",
    ),
    "another authority": (_of_a_strange_authority, "agent-2", "was not issued by the authority trusted here"),
    "expired": (lambda: [RING[0], made("agent-2", days=0), *RING[2:]], "agent-2", "expired on"),
    "of another run": (_replayed, "agent-2", "or it is of another run"),
    "of another run file": (_other_run_file, "agent-2", "this run and this run file"),
    "no certificate": (lambda: [RING[0], replace(RING[1], certificate=b"x"), *RING[2:]], "agent-2", "cannot be read"),
    "no signature": (lambda: [RING[0], replace(RING[1], signature=b"x"), *RING[2:]], "agent-2", "is not signed"),
    "one is missing": (lambda: RING[:3], "agent-4", "relayed 0 key offers of agent-4"),
    "one is twice": (lambda: [RING[0], RING[1], RING[1], RING[3]], "agent-2", "relayed 2 key offers of agent-2"),
    "a stranger": (lambda: [*RING, replace(RING[3], name="agent-9")], "agent-1", "of strangers"),
    "another order": (lambda: [RING[0], RING[2], RING[1], RING[3]], "agent-1", "in another order"),
    "not mine": (
        lambda: [made("agent-1", private=b"\5" * 32), *RING[1:]],
        "agent-1",
        "another key offer of agent-1 than the one made here",
    ),
    **{f"small order {i}": (_point(point), "agent-2", "small order") for i, point in enumerate(SMALL)},
}


@pytest.mark.parametrize("case", LIES)
def test_a_lie_is_named(case: str) -> None:
    make, peer, words = LIES[case]
    with pytest.raises(NoAgreement, match=words) as caught:
        check(make())
    assert caught.value.peer == peer


def test_a_revoked_certificate_offers_no_key() -> None:
    gone = frozenset({key_of(ENROLLED["agent-3"][0])})
    with pytest.raises(NoAgreement, match="is revoked") as caught:
        check(RING, revoked=gone)
    assert caught.value.peer == "agent-3"


def test_a_key_that_is_not_on_a_curve_signs_no_offer_and_its_certificate_holds_none() -> None:
    key = rsa.generate_private_key(65537, 2048)
    with pytest.raises(ValueError, match="not on an elliptic curve"):
        agreement.offer(SUBJECT, "agent-1", PRIVATE["agent-1"], ENROLLED["agent-1"][0], key)
    foreign = AUTHORITY.certify(key.public_key(), "dpgt:agent:agent-2")  # type: ignore[arg-type]
    der = x509.load_pem_x509_certificate(foreign).public_bytes(serialization.Encoding.DER)
    with pytest.raises(NoAgreement, match="cannot sign key offers"):
        check([RING[0], replace(RING[1], certificate=der), *RING[2:]])


@pytest.mark.parametrize("point", SMALL, ids=range(len(SMALL)))
def test_no_secret_is_made_with_a_point_of_small_order(point: bytes) -> None:
    """Even if nobody had looked at the offers."""
    with pytest.raises(NoAgreement, match="the secret shared with agent-2 is zero"):
        agreed("agent-1", [RING[0], replace(RING[1], key=point), *RING[2:]])
    assert not agreement.is_small(RING[1].key)


@pytest.mark.parametrize("skipped", ["judge", "verify", "is_small"])
def test_a_check_that_is_left_out_is_missed(skipped: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutants: without one of its checks some lie passes."""
    if skipped == "judge":
        monkeypatch.setattr(agreement, "judge", lambda *_, **__: [])
    elif skipped == "is_small":
        monkeypatch.setattr(agreement, "is_small", lambda _: False)
    else:
        monkeypatch.setattr(agreement, "_offered", lambda *_: b"")  # signatures say nothing of what is signed
        monkeypatch.setattr(__import__(__name__, fromlist=["RING"]), "RING", [made(name) for name in NAMES])
    passed = []
    for name, (make, _, _) in LIES.items():
        try:
            check(make())
            passed.append(name)
        except NoAgreement:
            pass
    assert passed
