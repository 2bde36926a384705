"""Key offers, rings and proofs <-> protobuf.  Whether they are to be believed is for the agents to find out."""

from __future__ import annotations

from dpgt_node.protocol import messages as m
from dpgt_node.wire.fields import bytes_field, name_field, parse, require
from dpgt_node.wire.gen.dpgt.v1 import coordinator_pb2 as pb

KEY_BYTES = PROOF_BYTES = 32
MAX_CERTIFICATE_BYTES = 8192
MAX_SIGNATURE_BYTES = 256


def offer_to_protobuf(v: m.KeyOffer) -> pb.KeyOffer:
    return pb.KeyOffer(name=v.name, key=v.key, certificate=v.certificate, signature=v.signature)


def offer_from_protobuf(p: pb.KeyOffer) -> m.KeyOffer:
    """PeerError for sizes that no offer has."""
    for what, value, most in (
        ("certificate", p.certificate, MAX_CERTIFICATE_BYTES),
        ("signature", p.signature, MAX_SIGNATURE_BYTES),
    ):
        require(1 <= len(value) <= most, f"{what} of {len(value)} bytes; allowed are 1 to {most}")
    name = name_field(p.name, "name")
    return m.KeyOffer(name, bytes_field(p.key, "key", KEY_BYTES), p.certificate, p.signature)


def proofs_to_protobuf(v: m.KeyProofs) -> pb.KeyProofs:
    return pb.KeyProofs(proofs=dict(v.proofs))


def proofs_from_protobuf(p: pb.KeyProofs) -> m.KeyProofs:
    require(len(p.proofs) >= 1, "KeyProofs without a proof")
    return m.KeyProofs(
        {name_field(name, "peer"): bytes_field(proof, "proof", PROOF_BYTES) for name, proof in p.proofs.items()}
    )


def ring_to_protobuf(v: m.KeyRing) -> pb.KeyRing:
    return pb.KeyRing(offers=[offer_to_protobuf(offer) for offer in v.offers])


def ring_from_protobuf(p: pb.KeyRing) -> m.KeyRing:
    require(len(p.offers) >= 1, "KeyRing without an offer")
    return m.KeyRing(tuple(offer_from_protobuf(offer) for offer in p.offers))


def proof_to_protobuf(v: m.KeyProof) -> pb.KeyProof:
    return pb.KeyProof(sender=v.sender, proof=v.proof)


def proof_from_protobuf(p: pb.KeyProof) -> m.KeyProof:
    return m.KeyProof(name_field(p.sender, "sender"), bytes_field(p.proof, "proof", PROOF_BYTES))


# --- as a state directory keeps them ----------------------------------------------------------------------------------


def encode_offer(v: m.KeyOffer) -> bytes:
    return offer_to_protobuf(v).SerializeToString()


def decode_offer(data: bytes) -> m.KeyOffer:
    """PeerError for what is none."""
    return offer_from_protobuf(parse(pb.KeyOffer, data, "key offer"))


def encode_proofs(v: m.KeyProofs) -> bytes:
    """The same bytes in whatever order they are given."""
    return proofs_to_protobuf(v).SerializeToString(deterministic=True)


def decode_proofs(data: bytes) -> m.KeyProofs:
    """PeerError for what are none."""
    return proofs_from_protobuf(parse(pb.KeyProofs, data, "proofs of keys"))
