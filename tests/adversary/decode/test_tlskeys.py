"""TLS 1.3 opened with a key log, against what two OpenSSL ends said to each other."""

from __future__ import annotations

import hmac
import random
import struct
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from dpgt_node.adversary.decode.stages import Connection, Endpoint, Gap, Item, Segment
from dpgt_node.adversary.decode.tls import keys as tlskeys
from dpgt_node.adversary.decode.tls.keys import Decryptor, TlsCounts
from dpgt_node.adversary.decode.tls.secrets import KeyLog
from dpgt_node.errors import ConfigError
from tests.adversary.decode.tlstalk import Talk, talk

CONNECTION = Connection(0, (Endpoint("10.0.0.1", 5000), Endpoint("10.0.0.2", 7100)), True)
MID = Connection(0, CONNECTION.ends, False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tls")


@pytest.fixture(scope="module")
def spoken(folder: Path) -> Talk:
    """Sixty turns of 10 bytes to 100 kB."""
    source = random.Random(1)
    turns = [(source.randrange(2), source.randbytes(source.choice([10, 100, 5000, 100_000]))) for _ in range(60)]
    return talk(folder, folder / "keys", turns)


def opened(
    talk: Talk,
    keys: Path,
    *,
    mss: int = 1448,
    lose: Callable[[int, int], bool] = lambda side, at: False,
    start: tuple[int, int] = (0, 0),
) -> tuple[TlsCounts, tuple[list[Item], list[Item]]]:
    """The stages' output; of side's segments those at offsets for which ``lose`` holds are gaps, and the tap starts at
    ``start``.
    """
    decryptor = Decryptor(KeyLog.read(keys))
    stages = decryptor.open(CONNECTION if start == (0, 0) else MID)
    at = [0, 0]
    found: tuple[list[Item], list[Item]] = ([], [])
    for side, data in talk.wire:
        for i in range(0, len(data), mss):
            part, offset = data[i : i + mss], at[side]
            at[side] += len(part)
            if offset >= start[side]:
                gone = lose(side, offset)
                item: Item = Gap(offset, offset + len(part)) if gone else Segment(offset, memoryview(part), 7)
                found[side].extend(kept(stages[side].feed(item)))
    for side in (0, 1):
        found[side].extend(kept(stages[side].close()))
    return decryptor.counts, found


def kept(items: Iterable[Item]) -> list[Item]:
    return [Segment(i.offset, bytes(i.data), i.time_ns) if isinstance(i, Segment) else i for i in items]


def faults(items: list[Item], said: bytes, expected_missing: int | None = None) -> list[str]:
    """What is wrong with one direction's output."""
    found, end, missing = [], 0, 0
    for item in items:
        begin = item.offset if isinstance(item, Segment) else item.start
        if begin != end:
            found.append(f"an item at {begin} after {end}")
        if isinstance(item, Segment):
            end = begin + len(item.data)
            if said[begin:end] != item.data:
                found.append(f"wrong bytes at {begin}")
        else:
            end = item.end
            missing += item.end - item.start
    if end != len(said):
        found.append(f"{end} bytes of {len(said)}")
    if expected_missing is not None and missing != expected_missing:
        found.append(f"{missing} bytes missing, not {expected_missing}")
    return found


@pytest.mark.parametrize("mss", [1, 5, 1448, 65_000])
def test_every_byte_of_both_directions(spoken: Talk, folder: Path, mss: int) -> None:
    short = Talk(spoken.wire[:12], ()) if mss < 100 else spoken  # type: ignore[arg-type]
    counts, found = opened(short, folder / "keys", mss=mss)
    if short is spoken:
        assert [faults(items, said) for items, said in zip(found, spoken.said, strict=True)] == [[], []]
    else:
        heard = [b"".join(i.data for i in items if isinstance(i, Segment)) for items in found]
        assert all(said.startswith(h) for said, h in zip(spoken.said, heard, strict=True)) and any(heard)
    assert (counts.connections, counts.without_keys, counts.records_lost) == (1, 0, 0)


def records(talk: Talk, side: int) -> list[tuple[int, int]]:
    """(offset, size) of the records that hold what ``side`` said: the last ones that add up to it."""
    wire = b"".join(data for who, data in talk.wire if who == side)
    at, found = 0, []
    while at < len(wire):
        size = 5 + int.from_bytes(wire[at + 3 : at + 5], "big")
        found.append((at, size))
        at += size
    total, first = 0, len(found)
    while total < len(talk.said[side]):
        first -= 1
        total += found[first][1] - 22
    assert total == len(talk.said[side])
    return found[first:]


def holes(spoken: Talk, seed: int) -> tuple[Callable[[int, int], bool], list[int]]:
    """Losses, and what each direction must miss because of them; none in the last record, whose end nobody sees."""
    source = random.Random(seed)
    lost: set[tuple[int, int]] = set()
    missing = [0, 0]
    for side in (0, 1):
        wire_at, segments = 0, []
        for who, data in spoken.wire:
            if who == side:
                segments += [(wire_at + i, len(data[i : i + 1448])) for i in range(0, len(data), 1448)]
                wire_at += len(data)
        carrying = records(spoken, side)
        safe = carrying[-1][0]
        able = [s for s in segments if carrying[0][0] <= s[0] and s[0] + s[1] <= safe]
        chosen = source.sample(able, source.choice([1, 2, 10]))
        lost |= {(side, offset) for offset, _ in chosen}
        touched = [r for r in carrying if any(o < r[0] + r[1] and r[0] < o + size for o, size in chosen)]
        missing[side] = sum(size - 22 for _, size in touched)
    return lambda side, at: (side, at) in lost, missing


@pytest.mark.parametrize("seed", range(25))
def test_a_lost_segment_costs_the_records_it_is_part_of_and_no_other(spoken: Talk, folder: Path, seed: int) -> None:
    lose, missing = holes(spoken, seed)
    counts, found = opened(spoken, folder / "keys", lose=lose)
    assert [faults(f, s, m) for f, s, m in zip(found, spoken.said, missing, strict=True)] == [[], []]
    assert counts.records_lost > 0 and counts.records + counts.records_lost == encrypted(spoken)


def encrypted(spoken: Talk) -> int:
    """Encrypted records of both sides."""
    number = 0
    for side in (0, 1):
        data, at = b"".join(part for who, part in spoken.wire if who == side), 0
        while at < len(data):
            number += data[at] == 23
            at += 5 + int.from_bytes(data[at + 3 : at + 5], "big")
    return number


def test_broken_decryptors_are_noticed(spoken: Talk, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each with holes: one that counts the tag as payload, one that expects the next number, one that keeps framing."""
    lose, missing = holes(spoken, 3)
    true_open = tlskeys.Chain.open

    def broken() -> bool:
        _, found = opened(spoken, folder / "keys", lose=lose)
        return any(faults(f, s, m) for f, s, m in zip(found, spoken.said, missing, strict=True))

    assert not broken()
    with monkeypatch.context() as patch:
        patch.setattr(tlskeys, "_OVERHEAD", 21)
        assert broken()
    with monkeypatch.context() as patch:
        patch.setattr(tlskeys.Chain, "open", lambda self, record, skipped: true_open(self, record, 0))
        assert broken()
    with monkeypatch.context() as patch:
        patch.setattr(tlskeys._Direction, "_lose", lambda self, gap: None)
        assert broken()


def test_a_tap_that_starts_in_mid_connection_finds_its_place(spoken: Talk, folder: Path) -> None:
    counts, found = opened(spoken, folder / "keys", start=(200_000, 150_001))
    assert counts.connections == 1 and counts.without_keys == 0
    for items, said in zip(found, spoken.said, strict=True):
        heard = b"".join(item.data for item in items if isinstance(item, Segment))
        assert len(heard) > 300_000 and said.endswith(heard)


def test_what_strays_in_after_the_end_is_tried_with_its_own_keys_alone(
    spoken: Talk, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A repeated segment looks like a connection of its own; a key log may hold thousands of sessions."""
    many = folder / "many"
    others = (f"CLIENT_TRAFFIC_SECRET_0 {i:064x} {i:096x}\n" for i in range(2000))
    many.write_text((folder / "keys").read_text() + "".join(others))
    decryptor = Decryptor(KeyLog.read(many))
    for stage, side in zip(decryptor.open(CONNECTION), (0, 1), strict=True):
        data = b"".join(part for who, part in spoken.wire if who == side)
        list(stage.feed(Segment(0, data, 1)))
        list(stage.close())
    tried: list[object] = []
    true_open = tlskeys.Chain.open
    monkeypatch.setattr(tlskeys.Chain, "open", lambda self, *rest: (tried.append(self), true_open(self, *rest))[1])
    stray = b"".join(part for who, part in spoken.wire if who == 0)[-40_000:]
    heard = kept(decryptor.open(MID)[0].feed(Segment(0, stray, 2)))
    assert heard and len(set(map(id, tried))) <= 2


def test_without_its_keys_nothing_comes_out(spoken: Talk, folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "keys"
    text = (folder / "keys").read_text()
    flipped = [line[:-1] + ("0" if line[-1] != "0" else "1") for line in text.splitlines() if not line.startswith("#")]
    other.write_text("\n".join(flipped))
    for keys in (other, tmp_path / "third"):
        if keys != other:
            talk(tmp_path, keys, [(0, b"another session")])
        counts, found = opened(spoken, keys)
        assert not any(isinstance(item, Segment) for items in found for item in items)
        assert counts.records == 0 and (counts.without_keys == 1 or counts.records_lost > 0)


def test_one_direction_alone_waits_for_the_other_up_to_a_mebibyte_and_no_longer(spoken: Talk, folder: Path) -> None:
    """The server's hello, which names the cipher, is on the side that no tap saw."""
    data = b"".join(part for who, part in spoken.wire if who == 0)
    at = records(spoken, 0)
    assert at[-1][1] < 1 << 20
    decryptor = Decryptor(KeyLog.read(folder / "keys"))
    client, _ = decryptor.open(CONNECTION)
    assert not list(client.feed(Segment(0, data, 1))) and decryptor.counts.records == 0, "it waits"
    record, heard, offset = b"\x17\x03\x03\x40\x00" + bytes(1 << 14), 0, len(data)
    while offset < (1 << 20) + 2 * len(record):
        heard += sum(len(item.data) for item in client.feed(Segment(offset, record, 2)) if isinstance(item, Segment))
        offset += len(record)
    assert heard == len(spoken.said[0]), "then every key is tried, those of the handshake first"
    assert decryptor.counts.without_keys == 0


def test_a_direction_whose_keys_are_in_no_log_is_given_up_and_kept_no_longer(spoken: Talk, tmp_path: Path) -> None:
    talk(tmp_path, tmp_path / "keys", [(0, b"another session")])
    decryptor = Decryptor(KeyLog.read(tmp_path / "keys"))
    client, _ = decryptor.open(CONNECTION)
    hello = next(part for who, part in spoken.wire if who == 0)[:5]
    hello += next(part for who, part in spoken.wire if who == 0)[5 : 5 + int.from_bytes(hello[3:5], "big")]
    record, offset, most = b"\x17\x03\x03\x40\x00" + bytes(1 << 14), len(hello), 0
    assert not list(client.feed(Segment(0, hello, 1)))
    while offset < 3 << 20:
        assert not list(client.feed(Segment(offset, record, 2)))
        offset += len(record)
        assert decryptor.counts.without_keys == (offset - len(hello) > 1 << 20)
        most = max(most, len(client._buffer))
    assert 1 << 19 < most < (1 << 20) + 2 * len(record) and not client._buffer


@pytest.mark.parametrize("start", [0, 500])
def test_what_is_no_tls_passes_as_it_is(folder: Path, spoken: Talk, start: int) -> None:
    data = b"PRI * HTTP/2.0\r\n" + random.Random(4).randbytes(100_000)
    plain = Talk(((0, data), (1, data)), (data, data))
    counts, found = opened(plain, folder / "keys", start=(start, start), lose=lambda side, at: at == 2 * 1448)
    assert counts == TlsCounts()
    for items in found:
        assert all(data[i.offset : i.offset + len(i.data)] == i.data for i in items if isinstance(i, Segment))
        assert [i for i in items if isinstance(i, Gap)] == [Gap(2 * 1448, 3 * 1448)]


# --- key updates, which Python's ssl cannot ask for: records made by hand


def expand(secret: bytes, label: bytes, size: int) -> bytes:
    """HKDF-Expand-Label, SHA-256, one block: RFC 5869 and RFC 8446, 7.1, once more."""
    info = struct.pack(">H", size) + bytes((6 + len(label),)) + b"tls13 " + label + b"\0"
    return hmac.digest(secret, info + b"\1", "sha256")[:size]


class ByHand:
    """Client records under secret after secret."""

    def __init__(self, secret: bytes) -> None:
        self._secret, self._number = secret, 0
        self.wire: list[bytes] = []

    def record(self, kind: int, data: bytes) -> None:
        key, iv = expand(self._secret, b"key", 16), expand(self._secret, b"iv", 12)
        nonce = bytes(a ^ b for a, b in zip(iv, self._number.to_bytes(12, "big"), strict=True))
        header = b"\x17\x03\x03" + struct.pack(">H", len(data) + 17)
        self.wire.append(header + AESGCM(key).encrypt(nonce, data + bytes((kind,)), header))
        self._number += 1

    def update(self) -> None:
        self.record(22, bytes((24, 0, 0, 1, 0)))
        self._secret, self._number = expand(self._secret, b"traffic upd", 32), 0

    def switch(self, secret: bytes) -> None:
        self._secret, self._number = secret, 0


@pytest.mark.parametrize("lost", [(), (2,), (1, 2, 3), (3,)], ids=["whole", "update lost", "around it", "after it"])
def test_keys_that_change_in_mid_connection(tmp_path: Path, lost: tuple[int, ...]) -> None:
    client, handshake, application = bytes(range(32)), b"h" * 32, b"a" * 32
    (tmp_path / "keys").write_text(
        f"CLIENT_HANDSHAKE_TRAFFIC_SECRET {client.hex()} {handshake.hex()}\n"
        f"CLIENT_TRAFFIC_SECRET_0 {client.hex()} {application.hex()}\n"
    )
    hello = b"\x01\x00\x00\x22\x03\x03" + client
    answer = b"\x02\x00\x00\x28\x03\x03" + bytes(32) + b"\0\x13\x01\0\0\0"
    stages = Decryptor(KeyLog.read(tmp_path / "keys")).open(CONNECTION)
    made = ByHand(handshake)
    made.record(22, bytes((20, 0, 0, 4)) + b"fini")
    made.switch(application)
    texts = [b"one", b"", b"three", b"four", b"five"]
    for text in texts:
        if text:
            made.record(23, text)
        else:
            made.update()
    list(stages[0].feed(Segment(0, b"\x16\x03\x01" + struct.pack(">H", len(hello)) + hello, 1)))
    list(stages[1].feed(Segment(0, b"\x16\x03\x03" + struct.pack(">H", len(answer)) + answer, 1)))
    at, heard = 5 + len(hello), []
    for i, wire in enumerate(made.wire):
        item: Item = Gap(at, at + len(wire)) if i in lost else Segment(at, wire, 2)
        heard += kept(stages[0].feed(item))
        at += len(wire)
    expected = [text for i, text in enumerate([b"", *texts]) if i not in lost and text]
    assert [item.data for item in heard if isinstance(item, Segment)] == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "cannot be read"),
        ("rubbish\n", "is no key log"),
        ("CLIENT_TRAFFIC_SECRET_0 xx yy\n", "is no key log"),
        ("# nothing\n", "holds no secret of a TLS 1.3 session"),
        ("CLIENT_RANDOM 00 11\n", "holds no secret of a TLS 1.3 session"),
        ("\x00\xff", "is no key log"),
    ],
)
def test_a_file_that_is_no_key_log_is_named(tmp_path: Path, text: str | None, message: str) -> None:
    if text is not None:
        (tmp_path / "keys").write_text(text, encoding="latin-1")
    with pytest.raises(ConfigError, match=f"--keys: .*keys {message}"):
        KeyLog.read(tmp_path / "keys")


@pytest.mark.parametrize(("mark", "encoding"), [("", "utf-8"), ("\ufeff", "utf-8"), ("", "utf-16")])
def test_foreign_and_torn_lines_of_a_key_log_are_skipped_and_numbered(
    mark: str, encoding: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    good = "CLIENT_TRAFFIC_SECRET_0 " + "11" * 32 + " " + "22" * 32
    torn = "SERVER_TRAFFIC_SECRET_0 " + "33" * 32 + " 4"
    (tmp_path / "keys").write_text(f"{mark}{good}\nhello, ünusual\n\n# note\n{torn}", encoding=encoding)
    found = KeyLog.read(tmp_path / "keys")
    assert found.secrets == {("CLIENT_TRAFFIC_SECRET_0", b"\x11" * 32): b"\x22" * 32}
    assert found.foreign == (2, 5)
    assert "2 lines are no secret and are skipped: 2, 5" in caplog.text
