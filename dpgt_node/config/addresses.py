"""Addresses, ``HOST:PORT``."""

from __future__ import annotations

import ipaddress
import re

from dpgt_node.config.declare.reader import show

_COLONS = re.compile(r"[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*(%.*)?")
"""What may be an IPv6 address without its brackets: two colons at least."""
_ZONE = re.compile(r"[A-Za-z0-9_.-]{1,15}")
"""An interface's name or number."""
_NUMBER = re.compile(r"\d+|0[xX][0-9A-Fa-f]*")
"""A last label that resolvers take for a number."""
_HOST_LABEL = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")


def parse_address(text: str) -> tuple[str, int]:
    """``HOST:PORT`` or ``[IPV6]:PORT`` as (host without brackets, port 0..65535); ValueError says what is wrong."""
    if "/" in text or "@" in text:
        raise ValueError(f"{show(text)} must be HOST:PORT: no scheme, no path")
    host, colon, port_text = text.rpartition(":")
    if not colon or not host:
        raise ValueError(f"{show(text)} must be HOST:PORT{', and there is no host' if colon else ''}")
    if not host.isascii():
        raise ValueError(f"{show(text)}: a host name is written in ASCII here: its xn-- form, or the address")
    if any(c in text for c in "?#="):
        raise ValueError(f"{show(text)} must be HOST:PORT and nothing else")
    if not (port_text.isascii() and port_text.isdigit() and len(port_text) <= 5 and int(port_text) <= 65535):
        raise ValueError(f"{show(text)}: the port must be 0 to 65535")
    if host.startswith("[") and host.endswith("]"):
        try:
            address = ipaddress.IPv6Address(host[1:-1])
        except ValueError:
            raise ValueError(f"{show(text)}: not an IPv6 address in the brackets") from None
        if address.scope_id is not None and not (address.is_link_local and _ZONE.fullmatch(address.scope_id)):
            raise ValueError(f"{show(text)}: only a link-local address (fe80::) has a zone, the name of an interface")
        if address.is_link_local and address.scope_id is None:
            raise ValueError(f"{show(text)}: a link-local address needs its interface, [ADDRESS%INTERFACE]:PORT")
        return host[1:-1], int(port_text)
    if ":" in host and not _COLONS.fullmatch(host):
        raise ValueError(f"{show(text)} must be HOST:PORT, with one port")
    if ":" in host:
        raise ValueError(f"{show(text)}: write an IPv6 address in brackets, [ADDRESS]:PORT")
    labels = host.removesuffix(".").split(".")
    if len(host) > 253 or not all(_HOST_LABEL.fullmatch(label) for label in labels):
        raise ValueError(f"{show(text)}: not a host name or address")
    if _NUMBER.fullmatch(labels[-1]):  # no host name ends in a number, so it must be a full IPv4 address
        try:
            ipaddress.IPv4Address(host)
        except ValueError:
            message = f"{show(text)}: not an IPv4 address (four numbers, 0 to 255, without leading zeros)"
            raise ValueError(message) from None
    return host, int(port_text)


def listen_address(text: str) -> str:
    """``[HOST:]PORT`` as HOST:PORT, on the loopback where no host is given; ValueError says what is wrong."""
    address = f"127.0.0.1:{text}" if text.isascii() and text.isdigit() else text
    parse_address(address)
    return address


def format_address(host: str, port: int) -> str:
    """``HOST:PORT``, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_loopback(host: str) -> bool:
    """Whether ``host`` is a name or address by which every machine means itself."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower().removesuffix(".") == "localhost"


def is_wildcard(host: str) -> bool:
    """Whether ``host`` is an address to listen on that nobody can dial (0.0.0.0, ::)."""
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False
