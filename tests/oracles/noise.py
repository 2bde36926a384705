"""The test keystream and the Laplace draw, one coordinate at a time, from their documented definitions alone."""

from __future__ import annotations

import hashlib
import math

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes


def key_bytes(hex_digits: str, agent: int, k: int, purpose: str, count: int) -> bytes:
    """AES-128 in ECB mode over the block counter 0, 1, 2, ...: counter mode by hand."""
    secret = hashlib.sha256(bytes.fromhex(hex_digits) + f"|{agent}|{k}|{purpose}".encode()).digest()[:16]
    block = Cipher(algorithms.AES(secret), modes.ECB()).encryptor()
    out = b""
    counter = 0
    while len(out) < count:
        out += block.update(counter.to_bytes(16, "big"))
        counter += 1
    return out[:count]


def laplace(hex_digits: str, agent: int, k: int, purpose: str, d: int, scale: float) -> np.ndarray:
    """d draws of Lap(scale): each 64-bit word gives a magnitude (top 53 bits) and a sign (lowest bit)."""
    raw = key_bytes(hex_digits, agent, k, purpose, 8 * d)
    out = []
    for j in range(d):
        word = int.from_bytes(raw[8 * j : 8 * j + 8], "little")
        magnitude = -scale * math.log(((word >> 11) + 1) / 2**53)
        out.append(-magnitude if word & 1 == 0 else magnitude)
    return np.array(out)
