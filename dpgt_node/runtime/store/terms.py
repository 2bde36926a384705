"""Whether a run goes on under the terms that it was begun under: delta, adjacency, data and noise.

The terms are part of every row's text, and so of the chain, whose heads others remember.  A plain hash of the data in
them could be guessed there, value by value; the store's own salt, which never leaves the host, prevents that.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from dpgt_node.errors import StoreError
from dpgt_node.runtime.store.ledger import Terms
from dpgt_node.runtime.store.runs import RunInfo

SALT_BYTES = 32
UNRECORDED = Terms("default", 1.0, "not recorded by the version that wrote it; delta unknown, taken as 1")
"""What version 1 did not say about a run: the worst is assumed."""


class OtherTerms(StoreError):
    """The run would go on under other terms, or on other data, than it was begun."""

    told = "would go on with other data or on other terms than it began"


def data_seal(salt: bytes, shard_sha256: bytes) -> str:
    """What the ledger knows the data by, hex; empty for an objective without data (``shard_sha256`` empty)."""
    return hashlib.sha256(salt + shard_sha256).hexdigest() if shard_sha256 else ""


def differences(begun: Terms, now: Terms, shard_sha256: bytes, salt: bytes) -> list[str]:
    """What ``now`` says otherwise than the terms a run was ``begun`` under, by name; what those did not record is no
    difference.
    """
    found = []
    if begun.adjacency != UNRECORDED.adjacency:
        if begun.delta != now.delta:
            found.append(f"delta was {begun.delta:g} and is {now.delta:g}")
        if begun.adjacency != now.adjacency:
            found.append(f'adjacency was "{begun.adjacency}" and is "{now.adjacency}"')
    if begun.since is None:
        return found
    if begun.samples != now.samples:
        found.append(f"the data had {_count(begun.samples)} and have {_count(now.samples)}")
    elif begun.seal != data_seal(salt, shard_sha256):
        found.append(f"the data have {_count(now.samples)} as before, but not the same ones in the same order")
    if begun.keystream != now.keystream:
        found.append(f"the noise was of the {begun.keystream} keystream and is of the {now.keystream} one")
    return found


def _count(samples: int | None) -> str:
    return "no samples" if samples is None else f"{samples} sample{'' if samples == 1 else 's'}"


def of_these_data(runs: Iterable[RunInfo], shard_sha256: bytes) -> list[RunInfo]:
    """The runs that had these very data, bit for bit, whatever the data set was called; none for no data."""
    return [run for run in runs if run.seal and run.seal == data_seal(run.salt, shard_sha256)]


def sealed(terms: Terms, shard_sha256: bytes, since: int, runs: Iterable[RunInfo] = ()) -> tuple[Terms, bytes]:
    """``terms`` with a seal of the data, in force behind row ``since``; and its salt.

    The salt is fresh, unless one of ``runs`` had these data: with its salt the seals are equal, which tells whoever
    reads the ledger without the data that they are the same.
    """
    salt = next((run.salt for run in of_these_data(runs, shard_sha256)), None) or os.urandom(SALT_BYTES)
    return replace(terms, seal=data_seal(salt, shard_sha256), since=since), salt


def continued(
    where: Path,
    run_id: bytes,
    begun: Terms,
    now: Terms,
    shard_sha256: bytes,
    salt: bytes,
    charged: int | None,
    runs: Iterable[RunInfo] = (),
) -> tuple[Terms, bytes] | None:
    """New terms and salt of a run that goes on, None where they stay.  OtherTerms: it was ``begun`` under other ones.

    ``charged``: rows in the ledger; None: the run released nothing yet, and is begun anew.  What old rows say of delta
    and adjacency is not said anew.  ``runs``: all that are known here.
    """
    if charged is None:
        return sealed(now, shard_sha256, 0, runs)
    if found := differences(begun, now, shard_sha256, salt):
        raise OtherTerms(
            f"{where}: run {run_id.hex()} was begun under other terms: {'; '.join(found)}. A run goes on with what it "
            "was begun with: bring that back, or start a new run. What this one spent of data set "
            f'"{begun.data_id}" stays spent'
        )
    if begun.since is not None:
        return None
    return sealed(replace(now, delta=begun.delta, adjacency=begun.adjacency), shard_sha256, charged, runs)


def written(terms: Terms, salt: bytes) -> tuple[object, ...]:
    """The values of UPDATE_TERMS and, behind the run's name, of INSERT_RUN."""
    noise = (terms.samples, terms.keystream, salt, terms.seal, terms.since, terms.shares)
    return (terms.delta, terms.adjacency, *noise)
