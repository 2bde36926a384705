from __future__ import annotations

import hashlib
import itertools
import os

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given
from hypothesis import strategies as st

from dpgt_node.errors import ConfigError, ExitCode
from dpgt_node.privacy.laws.gaussian_sampler import GaussianSampler
from dpgt_node.privacy.laws.grid_sampler import GridLaplaceSampler
from dpgt_node.privacy.laws.keystream import AesCtrKeystream, CtrStream, TestKeystream, _ForkGuard
from dpgt_node.privacy.laws.noise import ByteStream, Sampler
from dpgt_node.privacy.laws.sampler import ahead

KEY = bytes.fromhex("2b7e151628aed2a6abf7158809cf4f3c")
COUNTER = bytes.fromhex("f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff")


def by_blocks(key: bytes, counter: bytes, nbytes: int) -> bytes:
    """AES of counter, counter + 1, ... one block at a time: what CTR mode means."""
    encrypt = Cipher(algorithms.AES(key), modes.ECB()).encryptor().update
    first = int.from_bytes(counter, "big")
    blocks = (encrypt(((first + i) % 2**128).to_bytes(16, "big")) for i in range(nbytes // 16 + 1))
    return b"".join(blocks)[:nbytes]


def test_known_answers_of_sp_800_38a():
    assert CtrStream(KEY, COUNTER).take(64).hex() == (
        "ec8cdf7398607cb0f2d21675ea9ea1e4362b7c3c6773516318a077d7fc5073ae"
        "6a2cc3787889374fbeb4c81b17ba6c44e89c399ff0f198c6d40a31db156cabfe"
    )


@given(st.lists(st.integers(0, 100), max_size=20), st.binary(min_size=16, max_size=16))
def test_pieces_are_one_stream(sizes, counter):
    stream = CtrStream(KEY, counter)
    assert b"".join(stream.take(size) for size in sizes) == by_blocks(KEY, counter, sum(sizes))


@pytest.mark.parametrize("nbytes", [(1 << 17) - 1, 1 << 17, (1 << 17) + 1, 300_000])
def test_large_pieces(nbytes):
    stream = CtrStream(KEY, b"\xff" * 16)  # the counter wraps at once
    assert stream.take(nbytes) + stream.take(7) == by_blocks(KEY, b"\xff" * 16, nbytes + 7)


def test_production_never_gives_a_byte_twice():
    keystream = AesCtrKeystream(KEY, COUNTER)
    asked = [
        keystream.stream(3, "X").take(40),
        keystream.stream(3, "X").take(40),
        keystream.stream(0, "batch").take(40),
    ]
    assert b"".join(asked) == by_blocks(KEY, COUNTER, 120)


def test_test_streams_follow_the_documented_encoding():
    key = hashlib.sha256(bytes.fromhex("00ff") + b"|4|17|batch").digest()[:16]
    assert TestKeystream("00ff", 4).stream(17, "batch").take(50) == by_blocks(key, bytes(16), 50)


def test_test_streams_depend_on_nothing_but_their_labels():
    one, other = TestKeystream("AB12", 1), TestKeystream("ab12", 1)
    one.stream(9, "X").take(1000)
    assert one.stream(2, "Y").take(64) == other.stream(2, "Y").take(64) == one.stream(2, "Y").take(64)


def test_test_streams_differ_in_every_label():
    labels = itertools.product(("00", "0000", "01"), (0, 1, 11), (0, 1, 11, 110), ("batch", "X", "Y"))
    streams = [TestKeystream(secret, agent).stream(k, purpose).take(16) for secret, agent, k, purpose in labels]
    assert len(set(streams)) == len(streams) == 108


@pytest.mark.parametrize("bad", ["", "0", "xyz0", "0x12"])
def test_a_secret_that_is_not_hexadecimal_is_the_operators_mistake(bad):
    with pytest.raises(ConfigError, match="--test-keystream") as caught:
        TestKeystream(bad, 0)
    assert caught.value.exit_code is ExitCode.CONFIG


@pytest.mark.parametrize(("key", "nonce"), [(KEY[:-1], COUNTER), (KEY, COUNTER + b"0"), (KEY + KEY, COUNTER)])
def test_only_128_bits(key, nonce):
    with pytest.raises(ValueError, match="AES-128"):
        AesCtrKeystream(key, nonce)


def test_representations_show_no_key():
    for thing in (AesCtrKeystream(KEY, COUNTER), CtrStream(KEY, COUNTER), TestKeystream(KEY.hex(), 0)):
        assert KEY.hex() not in repr(thing) and str(KEY) not in repr(thing)


@pytest.mark.parametrize("nbytes", [0, 1, 100, 1 << 17, (1 << 17) + 1, 400_000])
def test_reading_into_memory_gives_the_same_bytes(nbytes):
    stream, buffer = CtrStream(KEY, COUNTER), np.full(nbytes + 15, 7, dtype=np.uint8)
    stream.take(5)
    stream.read_into(buffer, nbytes)
    assert buffer[:nbytes].tobytes() + stream.take(9) == by_blocks(KEY, COUNTER, nbytes + 14)[5:]


# --- forks -----------------------------------------------------------------------------------------------------------


def test_another_process_continues_under_another_key():
    process, keys = [100], iter([(b"k" * 16, b"n" * 16), (b"K" * 16, b"N" * 16)])
    keystream = AesCtrKeystream(KEY, COUNTER, rekey=lambda: next(keys), process=lambda: process[0])
    handed_out = keystream.stream(0, "X")
    assert handed_out.take(40) == by_blocks(KEY, COUNTER, 40)
    process[0] = 101  # the child
    assert handed_out.take(24) + keystream.stream(1, "Y").take(30) == by_blocks(b"k" * 16, b"n" * 16, 54)
    process[0] = 102  # its child
    buffer = np.zeros(55, dtype=np.uint8)
    handed_out.read_into(buffer, 40)
    assert buffer[:40].tobytes() == by_blocks(b"K" * 16, b"N" * 16, 40)


def test_the_same_process_keeps_its_stream():
    keystream = AesCtrKeystream(KEY, COUNTER, rekey=lambda: pytest.fail("re-keyed"), process=lambda: 7)
    assert keystream.stream(0, "X").take(10) + keystream.stream(0, "X").take(10) == by_blocks(KEY, COUNTER, 20)


@pytest.mark.parametrize("arguments", [{"rekey": lambda: (KEY, COUNTER)}, {"process": os.getpid}])
def test_half_a_guard_is_a_bug(arguments):
    with pytest.raises(ValueError, match="belong together"):
        AesCtrKeystream(KEY, COUNTER, **arguments)


def drawn_in_parent_and_child(keystream: AesCtrKeystream) -> tuple[bytes, bytes]:
    """Fork, and take 32 bytes on both sides."""
    receive, send = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(send, keystream.stream(3, "Y").take(32))
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    os.close(send)
    with os.fdopen(receive, "rb") as pipe:
        return keystream.stream(3, "Y").take(32), pipe.read()


def test_a_real_fork():
    def fresh() -> tuple[bytes, bytes]:
        return os.urandom(16), os.urandom(16)

    mine, its = drawn_in_parent_and_child(AesCtrKeystream(KEY, COUNTER, rekey=fresh, process=os.getpid))
    assert mine == by_blocks(KEY, COUNTER, 32) != its and len(its) == 32
    mine, its = drawn_in_parent_and_child(AesCtrKeystream(KEY, COUNTER))
    assert mine == its, "this checker can see a keystream without the guard"


def noise_of(stream: ByteStream, sampler: Sampler, count: int) -> list[bytes]:
    """Of so many vectors of 5 coordinates, under scales of their own."""
    return [sampler.perturb(np.full(5, float(i)), 1.0 + i, stream).tobytes() for i in range(count)]


class KeepsWhatItHeld(_ForkGuard):
    def held(self):
        return self._held


@pytest.mark.parametrize("sampler", [GridLaplaceSampler(compiled=False), GaussianSampler(compiled=False)])
def test_noise_that_was_drawn_ahead_is_that_of_its_turn_and_stays_in_its_process(sampler: Sampler) -> None:
    """As many vectors as make three batches; then the process forks with half a batch unused."""
    process, count = [100], 2 * ahead(5) + ahead(5) // 2
    keystream = AesCtrKeystream(KEY, COUNTER, rekey=lambda: (b"k" * 16, b"n" * 16), process=lambda: process[0])
    assert noise_of(keystream.stream(0, "X"), sampler, count) == noise_of(CtrStream(KEY, COUNTER), sampler, count)
    fresh = noise_of(CtrStream(b"k" * 16, b"n" * 16), sampler, 3)
    process[0] = 101
    assert noise_of(keystream.stream(0, "X"), sampler, 3) == fresh
    mutant = KeepsWhatItHeld(CtrStream(KEY, COUNTER), lambda: (b"k" * 16, b"n" * 16), lambda: process[0])
    noise_of(mutant, sampler, 3)
    process[0] = 102
    assert noise_of(mutant, sampler, 3) != fresh, "this checker can see noise that two processes use"
