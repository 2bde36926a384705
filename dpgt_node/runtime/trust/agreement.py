"""How pairs of agents agree on keys that nobody else has, through a coordinator that nobody trusts.

    offer   every agent makes an X25519 key for this run, and signs it with its certificate's key, over a domain tag,
            the run's id, the hash of the run file, its name and the key
    ring    the coordinator relays all n offers; each agent checks each of them
    pair    shared = X25519(own key, the partner's); an all-zero shared secret is refused
            secret = HKDF-SHA256(shared, salt = run id, info = tag, run hash, names in order, both public keys, use),
            once for confirmation (HMAC) and once for noise (K_ij,0)
    proof   each end sends HMAC-SHA256(confirmation key, tag, sender, receiver, hash of the ring and of the mask graph)

So a proof that fits says that both ends have the same n offers, the same run file and the same mask graph in mind.  All
texts are made of parts with their lengths before them.  Pure: keys, dates and revocation lists are handed in.  Nothing
here is safe against a quantum computer that records today and computes later.
"""

from __future__ import annotations

import datetime
import hashlib
import hmac
from collections.abc import Iterable, Sequence
from dataclasses import field

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from dpgt_node.errors import NoAgreement
from dpgt_node.protocol.messages import KeyOffer
from dpgt_node.runtime.trust.certificates import UNREADABLE, Revoked, judge
from dpgt_node.runtime.trust.channels import agent_identity
from dpgt_node.values import dataclass

KEY_BYTES = 32
_OFFER, _RING, _PAIR, _PROOF = (f"dpgt {what} 1".encode() for what in ("key offer", "key ring", "pair", "proof"))
_CONFIRM, _NOISE = b"confirm", b"noise"


@dataclass(frozen=True, slots=True)
class Subject:
    """What keys are agreed on for.  ``run_id``: 16 bytes.  ``run_sha256``: hex, of the own copy of the run file.

    ``names``: of all agents, in row order.  ``pairs``: the mask graph, (i, j) of 0-based rows with i < j, ascending.
    """

    run_id: bytes
    run_sha256: str
    names: tuple[str, ...]
    pairs: tuple[tuple[int, int], ...]

    def partners(self, name: str) -> tuple[str, ...]:
        """Who shares a key with ``name``, in row order."""
        i = self.names.index(name)
        return tuple(self.names[a + b - i] for a, b in self.pairs if i in (a, b))


@dataclass(frozen=True, slots=True)
class Pair:
    """What one agent has in common with one partner.

    ``key``: K_ij,0, 32 bytes.  ``ours``: the proof to send; ``theirs``: the one to expect.  32 bytes each.
    """

    key: bytes = field(repr=False)
    ours: bytes = field(repr=False)
    theirs: bytes = field(repr=False)


def public_of(private: bytes) -> bytes:
    """The public key of 32 random bytes."""
    raw = serialization.Encoding.Raw
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes(raw, serialization.PublicFormat.Raw)


def offer(subject: Subject, name: str, private: bytes, certificate: x509.Certificate, signing: object) -> KeyOffer:
    """The offer of ``name``, signed with its certificate's key ``signing``.  ValueError: that key cannot sign."""
    if not isinstance(signing, ec.EllipticCurvePrivateKey):
        raise ValueError("its key is not on an elliptic curve; dpgt pki makes such keys")
    key = public_of(private)
    signature = signing.sign(_offered(subject, name, key), ec.ECDSA(hashes.SHA256()))
    return KeyOffer(name, key, certificate.public_bytes(serialization.Encoding.DER), signature)


def check_offer(
    subject: Subject,
    made: KeyOffer,
    authorities: Sequence[x509.Certificate],
    revoked: Revoked,
    now: datetime.datetime,
) -> None:
    """Raise NoAgreement unless ``made`` is of the agent that it names, for this run, and of a usable key."""
    name = made.name
    try:
        certificate = x509.load_der_x509_certificate(made.certificate)
        key = certificate.public_key()
    except UNREADABLE:
        raise NoAgreement(name, f"the certificate in the key offer of {name} cannot be read") from None
    reasons = judge(certificate, authorities, revoked, now=now, uses=(), identity=agent_identity(name))
    if reasons:
        raise NoAgreement(name, f"the certificate in the key offer of {name} {'; it '.join(reasons)}")
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise NoAgreement(name, f"the certificate of {name} has a key that cannot sign key offers")
    try:
        key.verify(made.signature, _offered(subject, name, made.key), ec.ECDSA(hashes.SHA256()))
    except InvalidSignature:
        raise NoAgreement(
            name,
            f"the key offer of {name} is not signed by {name} for this key, this run and this run file: somebody on "
            "the way changed it, or it is of another run",
        ) from None
    if is_small(made.key):
        raise NoAgreement(name, f"the key offer of {name} holds a point of small order, whose secret everybody knows")


def check_ring(
    subject: Subject,
    own: KeyOffer,
    ring: Sequence[KeyOffer],
    authorities: Sequence[x509.Certificate],
    revoked: Revoked,
    now: datetime.datetime,
) -> None:
    """Raise NoAgreement unless ``ring`` holds one good offer of every agent, in row order, ``own`` among them."""
    names = tuple(made.name for made in ring)
    for name in subject.names:
        if names.count(name) != 1:
            raise NoAgreement(name, f"the coordinator relayed {names.count(name)} key offers of {name} instead of one")
    if names != subject.names:
        raise NoAgreement(own.name, "the coordinator relayed key offers of strangers, or in another order")
    if ring[subject.names.index(own.name)] != own:
        raise NoAgreement(own.name, f"the coordinator relayed another key offer of {own.name} than the one made here")
    for made in ring:
        check_offer(subject, made, authorities, revoked, now)


def is_small(key: bytes) -> bool:
    """Whether a public key is of small order, in any encoding: then every shared secret with it is zero.

    Private scalars are multiples of 8, and the order of every such point divides 8.
    """
    try:
        X25519PrivateKey.from_private_bytes(b"\1" * KEY_BYTES).exchange(X25519PublicKey.from_public_bytes(key))
    except ValueError:
        return True
    return False


def ring_sha256(subject: Subject, ring: Iterable[KeyOffer]) -> bytes:
    """SHA-256 of all offers as they came, of the run and of the mask graph."""
    pairs = b"".join(i.to_bytes(4, "big") + j.to_bytes(4, "big") for i, j in subject.pairs)
    parts = [part for made in ring for part in (made.name.encode(), made.key, made.certificate, made.signature)]
    return hashlib.sha256(_text(_RING, subject.run_id, bytes.fromhex(subject.run_sha256), pairs, *parts)).digest()


def agree(subject: Subject, name: str, private: bytes, ring: Sequence[KeyOffer]) -> dict[str, Pair]:
    """What ``name`` has in common with each of its partners, by name, from a ring that ``check_ring`` passed.

    NoAgreement: a shared secret is zero.
    """
    keys = {made.name: made.key for made in ring}
    own, sha256 = X25519PrivateKey.from_private_bytes(private), ring_sha256(subject, ring)
    found = {}
    for peer in subject.partners(name):
        try:
            shared = own.exchange(X25519PublicKey.from_public_bytes(keys[peer]))
        except ValueError:
            raise NoAgreement(peer, f"the secret shared with {peer} is zero: its key is of small order") from None
        first, second = sorted((name, peer), key=subject.names.index)
        about = (bytes.fromhex(subject.run_sha256), first.encode(), second.encode(), keys[first], keys[second])
        confirm, noise = (_derive(shared, subject.run_id, _text(_PAIR, *about, use)) for use in (_CONFIRM, _NOISE))
        found[peer] = Pair(noise, _proof(confirm, name, peer, sha256), _proof(confirm, peer, name, sha256))
    return found


def _derive(shared: bytes, salt: bytes, info: bytes) -> bytes:
    return HKDF(algorithm=hashes.SHA256(), length=KEY_BYTES, salt=salt, info=info).derive(shared)


def _proof(confirm: bytes, sender: str, receiver: str, sha256: bytes) -> bytes:
    return hmac.digest(confirm, _text(_PROOF, sender.encode(), receiver.encode(), sha256), hashlib.sha256)


def _offered(subject: Subject, name: str, key: bytes) -> bytes:
    return _text(_OFFER, subject.run_id, bytes.fromhex(subject.run_sha256), name.encode(), key)


def _text(*parts: bytes) -> bytes:
    return b"".join(len(part).to_bytes(4, "big") + part for part in parts)
