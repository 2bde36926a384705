"""How large the parts of a state directory grow: what is kept, what is a file, when it is dropped."""

FILE_BYTES = 1 << 20
"""Larger payloads and checkpoints are files."""

LOG_BYTES = 8 << 20
"""SQLite's log shrinks to this after a reader made it grow."""

CHECKPOINT_ROUNDS = 10
"""The state is stored with every so-many-th round; the rounds in between are replayed."""

_ANNOUNCE_ROUNDS = 64
_ANNOUNCE_BYTES = 1 << 20


def announce_every(dimension: int) -> int:
    """After how many rounds that are durable everywhere agents hear so, and drop the payloads; ``dimension``: d.

    Small payloads go in batches: a message and a transaction a round would cost more.  Models of more than 1 MiB as
    float64 go at once.
    """
    return _ANNOUNCE_ROUNDS if 8 * dimension <= _ANNOUNCE_BYTES else 1
