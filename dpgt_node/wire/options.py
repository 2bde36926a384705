"""Channel arguments of gRPC that both ends use: signs of life, sizes, reconnecting."""

from __future__ import annotations

from dpgt_node.wire.fields import MAX_MESSAGE_BYTES
from dpgt_node.wire.server import METADATA_BYTES

PING_EVERY_S = 5.0
ANSWER_S = 60.0
LONG_BYTES = 64 * 1024
"""A vector that is longer, gRPC measures by pings of its own how much of it the link takes ahead of its reader.  For
others a window of ``WINDOW_BYTES`` is enough, and an agent with twenty neighbours would spend half its wakes on pings.
"""
WINDOW_BYTES = 1 << 20
Options = tuple[tuple[str, int], ...]


def ping_timeout_s(patience_s: float) -> float:
    """How long nothing may be heard after a ping, where the others are given ``patience_s`` (T).

    With the 5 s before it this ends at about half of T, so that a stream whose other end is gone is opened anew in
    time.
    """
    return max(PING_EVERY_S, (patience_s - PING_EVERY_S) / 2)


def answer_timeout_s(patience_s: float, vector_bytes: int) -> float:
    """How long the answer to a ping, or to new settings, may be on its way.

    Where vectors travel it queues behind the megabytes that the other end gave to its socket: half a minute of them at
    1 Mbit/s.  Elsewhere a process that was stopped is noticed by it.
    """
    return max(ANSWER_S, patience_s) if vector_bytes else ping_timeout_s(patience_s)


def _windows(vector_bytes: int) -> Options:
    """How far whoever sends may be ahead of whoever reads."""
    if vector_bytes > LONG_BYTES:
        return ()
    return (("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", WINDOW_BYTES))


def _pings(silence_s: float, answer_s: float) -> Options:
    """After a ping ``silence_s`` pass without any byte from the other end, or ``answer_s`` without the answer.

    ``silence_s`` is also how long bytes may stay unacknowledged: gRPC makes it TCP_USER_TIMEOUT.
    """
    return (
        ("grpc.keepalive_time_ms", int(1000 * PING_EVERY_S)),
        ("grpc.keepalive_timeout_ms", int(1000 * silence_s)),
        ("grpc.http2.ping_timeout_ms", int(1000 * answer_s)),
    )


_COMMON: Options = (
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.absolute_max_metadata_size", METADATA_BYTES),
)
_CHANNEL: Options = (
    *_COMMON,
    ("grpc.enable_http_proxy", 0),  # lower-case http_proxy would be used even for 127.0.0.1
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 2000),
    ("grpc.max_reconnect_backoff_ms", 1000),
)
_SERVER: Options = (
    *_COMMON,
    ("grpc.so_reuseport", 0),  # else two servers share one port silently
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 1000),
    ("grpc.http2.max_ping_strikes", 0),
)
CHANNEL_OPTIONS: Options = (*_pings(PING_EVERY_S, PING_EVERY_S), *_windows(0), *_CHANNEL)
"""For short calls."""
SERVER_OPTIONS: Options = (*_pings(PING_EVERY_S, PING_EVERY_S), *_windows(0), *_SERVER)


def channel_options(patience_s: float, vector_bytes: int) -> Options:
    """For a channel of a run on which vectors of so many bytes travel, 0: none; ``patience_s``: T of the run."""
    pings = _pings(ping_timeout_s(patience_s), answer_timeout_s(patience_s, vector_bytes))
    return (*pings, *_windows(vector_bytes), *_CHANNEL)


def server_options(patience_s: float, vector_bytes: int) -> Options:
    """For a server of a run to which vectors of so many bytes travel, 0: none."""
    answer_s = answer_timeout_s(patience_s, vector_bytes)
    # gRPC sends new settings in the midst of a vector, as it learns what the link carries.
    settings = (("grpc.http2.settings_timeout", int(1000 * answer_s)),) if vector_bytes else ()
    return (*_pings(ping_timeout_s(patience_s), answer_s), *_windows(vector_bytes), *settings, *_SERVER)
