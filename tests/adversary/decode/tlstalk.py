"""A TLS 1.3 conversation of two OpenSSL ends in memory: what crosses the wire, what was said, the key log."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

from dpgt_node.runtime.trust.tls import CertificateAuthority


@dataclass(frozen=True, slots=True)
class Talk:
    """``wire``: (direction, bytes) in the order of sending, direction 0 is the client's; ``said``: by direction."""

    wire: tuple[tuple[int, bytes], ...]
    said: tuple[bytes, bytes]


def contexts(folder: Path, keylog: Path | None, ciphers: str | None = None) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Of a client and of a server that demand each other's certificates."""
    authority = CertificateAuthority.create()
    made = []
    for identity, protocol in (("dpgt:agent:a", ssl.PROTOCOL_TLS_CLIENT), ("dpgt:agent:b", ssl.PROTOCOL_TLS_SERVER)):
        home = folder / identity.rpartition(":")[2]
        authority.write_folder(home, identity)
        context = ssl.SSLContext(protocol)
        context.load_cert_chain(home / "cert.pem", home / "key.pem")
        context.load_verify_locations(home / "ca.pem")
        context.verify_mode = ssl.CERT_REQUIRED
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        if keylog is not None:
            context.keylog_filename = str(keylog)
        made.append(context)
    return made[0], made[1]


def talk(folder: Path, keylog: Path | None, turns: list[tuple[int, bytes]]) -> Talk:
    """Handshake, then each (direction, data) in turn."""
    client, server = contexts(folder, keylog)
    ends = []
    pipes = (ssl.MemoryBIO(), ssl.MemoryBIO())  # what the client sends, what the server sends
    for side, context in enumerate((client, server)):
        name = {"server_hostname": "b.agent.dpgt"} if side == 0 else {}
        ends.append(context.wrap_bio(pipes[1 - side], outgoing := ssl.MemoryBIO(), server_side=side == 1, **name))
        ends[-1] = (ends[-1], outgoing)  # type: ignore[call-overload]
    wire: list[tuple[int, bytes]] = []

    def move(side: int) -> None:
        if data := ends[side][1].read():  # type: ignore[index]
            wire.append((side, data))
            pipes[side].write(data)

    done = [False, False]
    while not all(done):
        for side in (0, 1):
            try:
                ends[side][0].do_handshake()  # type: ignore[index]
                done[side] = True
            except ssl.SSLWantReadError:
                pass
            move(side)
    said = [bytearray(), bytearray()]
    for side, data in turns:
        ends[side][0].write(data)  # type: ignore[index]
        said[side] += data
        move(side)
        heard = bytearray()
        while len(heard) < len(data):
            heard += ends[1 - side][0].read(1 << 20)  # type: ignore[index]
        assert heard == data
    return Talk(tuple(wire), (bytes(said[0]), bytes(said[1])))
