"""TLS put around a plain link by a process beside each end, which writes down its session keys.

gRPC for Python hands out no keys, so a study of what a tap with the keys of a link sees (``tls+keys``) runs the agents
without TLS on their own hosts and has sidecars speak TLS 1.3 between hosts.
"""

from __future__ import annotations

import ssl
from pathlib import Path

from dpgt_node.adversary.taps.relay import Relay
from dpgt_node.errors import ConfigError

_ALPN = "h2"


def contexts(ca: Path, cert: Path, key: Path, keylog: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """(for whoever dials here, for whom we dial): TLS 1.3, both ends prove who they are, keys go to ``keylog``.

    ConfigError when one of the files cannot be used.
    """
    made = []
    for protocol in (ssl.PROTOCOL_TLS_SERVER, ssl.PROTOCOL_TLS_CLIENT):
        context = ssl.SSLContext(protocol)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.verify_mode = ssl.CERT_REQUIRED
        context.set_alpn_protocols([_ALPN])
        try:
            context.load_cert_chain(cert, key)
            context.load_verify_locations(ca)
            context.keylog_filename = str(keylog)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError.one("command line", "--tls", f"{cert.parent}, {keylog}: {error}") from error
        made.append(context)
    return made[0], made[1]


def inbound(listen: str, target: str, accept: ssl.SSLContext) -> Relay:
    """TLS from outside, plain to the process beside."""
    return Relay(listen, target, accept=accept)


def outbound(listen: str, target: str, dial: ssl.SSLContext, name: str) -> Relay:
    """Plain from the process beside, TLS to ``target``, whose certificate must hold the DNS name ``name``."""
    return Relay(listen, target, dial=dial, target_name=name)
