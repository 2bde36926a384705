"""The result of a run as a file: x_{i,K+1}, written whole and known by its hash."""

from __future__ import annotations

import hashlib
import io
from pathlib import Path

import numpy as np

from dpgt_node.durable import Durability, write_whole
from dpgt_node.errors import StoreError
from dpgt_node.types import F64

X_FINAL = "x_final.npy"


def write_final(path: Path, x_final: F64, durability: Durability) -> bytes:
    """Write the vector, float64 (d,), at once: SHA-256 of its values."""
    values = np.ascontiguousarray(x_final, dtype="<f8")
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, np.lib.format.header_data_from_array_1_0(values))
    digest = hashlib.sha256(values.data).digest()
    write_whole(path, (header.getvalue(), values.data), durability)
    return digest


def checked_final(path: Path, sha256: bytes | None, run_id: bytes) -> F64:
    """x_{i,K+1} in ``path``, if it is what was hashed.  StoreError: torn, or of another run; OSError: missing."""
    try:
        values: F64 = np.load(path, allow_pickle=False)
    except ValueError as error:
        raise StoreError(f"{path}: not a NumPy file: {error}") from error
    if sha256 is None or sha256 != hashlib.sha256(np.ascontiguousarray(values).data).digest():
        raise StoreError(f"{path}: not the result of run {run_id.hex()}")
    return values
