"""Frames of HTTP/2 with holes between them: what is still known of a call, and whose bytes come behind a hole."""

from __future__ import annotations

import random
from types import SimpleNamespace

import pytest

from dpgt_node.adversary.decode.http2 import Calls, Frames
from dpgt_node.adversary.decode.stages import Gap, Segment
from tests.adversary.decode.wires import opening
from tests.fuzz.http2 import DATA, END_STREAM, HEADERS, RST, WINDOW, frame, request

NOISE = random.Random(5).randbytes(60_000)
"""What no header looks like by chance."""
BEGIN = b"\0" + (20_000).to_bytes(4, "big") + NOISE[4_000:5_000]
"""Of a message of 20,000 bytes."""


class Direction:
    """One direction of a connection, fed in order."""

    def __init__(self) -> None:
        reader = SimpleNamespace(
            close=lambda **_: None, message=lambda _: None, compressed=lambda: None, keeps_regions=False
        )
        self.named: list[tuple[int, str]] = []
        calls = Calls(lambda _: reader, lambda *one: self.named.append(one), lambda _: None, set())  # type: ignore[arg-type]
        self.frames, self.at = Frames(calls, at_start=True), 0

    def say(self, *parts: bytes) -> Direction:
        for part in parts:
            self.frames.feed(Segment(self.at, part, 1))
            self.at += len(part)
        return self

    def lose(self, size: int) -> Direction:
        self.frames.feed(Gap(self.at, self.at + size))
        self.at += size
        return self

    def at_a_message(self, stream: int) -> bool:
        return not self.frames._open[stream]._lost


def begun() -> Direction:
    """Calls 1, 3 and 5, and data of the second."""
    heads = [frame(HEADERS, 4, stream, request(b"/dpgt.v1.Agent/Exchange")) for stream in (3, 5)]
    return Direction().say(opening(), *heads, frame(DATA, 0, 3, b"\0" + (20_000).to_bytes(4, "big") + NOISE[:4_000]))


def test_behind_a_hole_a_call_whose_data_were_not_seen_is_in_mid_message() -> None:
    assert begun().say(frame(DATA, 0, 5, BEGIN)).at_a_message(5), "its headers were seen"
    holed = begun().lose(500).say(frame(DATA, 0, 5, BEGIN), frame(DATA, 0, 3, NOISE[5_000:6_000]))
    assert not holed.at_a_message(5), "there may have been data of it in the hole"
    again = holed.say(frame(HEADERS, 4, 7, request(b"/dpgt.v1.Agent/Exchange")), frame(DATA, 0, 7, BEGIN))
    assert again.at_a_message(7), "it began behind the hole"
    assert not again.lose(500).say(frame(DATA, 0, 9, BEGIN)).frames._open.keys() & {9}, "nobody began that one"


@pytest.mark.parametrize("missed", [1, 3, 8])
def test_the_rest_of_a_header_is_no_data(missed: int) -> None:
    """A hole takes some bytes of a frame's header: the others come first behind it."""
    one, told = begun(), list[tuple[str, bytes | int]]()
    stub = SimpleNamespace(
        gap=lambda size, **_: told.append(("gap", size)), data=lambda data, _: told.append(("data", bytes(data)))
    )
    one.frames._last = stub  # type: ignore[assignment]
    header, body = frame(DATA, 0, 3, NOISE[:700])[:9], NOISE[:700]
    one.lose(missed).say(header[missed:] + body + frame(DATA, 0, 1, NOISE[700:900]))
    assert told == [("gap", 0), ("data", body)]


def test_a_call_that_ends_in_a_hole_has_ended() -> None:
    ending = frame(DATA, END_STREAM, 3, NOISE[:1_000])
    one = begun().say(ending[:500])
    assert 3 in one.frames._open
    one.lose(len(ending) - 500)
    assert 3 not in one.frames._open


@pytest.mark.parametrize(("last", "ended"), [(frame(DATA, END_STREAM, 3), True), (frame(RST, 0, 3, bytes(4)), False)])
def test_a_call_that_its_sender_broke_off_has_no_end(last: bytes, ended: bool) -> None:
    one, told = begun(), list[bool]()
    one.frames._open[3].close = lambda *, ended: told.append(ended)  # type: ignore[method-assign]
    one.say(last)
    assert told == [ended]


def test_padded_data_are_nobody_s() -> None:
    one = begun().say(frame(DATA, 8, 5, b"\4" + NOISE[:100] + bytes(4)))
    assert 5 not in one.frames._open


def test_a_header_block_with_a_hole_names_nothing() -> None:
    one, block = begun(), request(b"/dpgt.v1.Agent/Exchange")
    known = list(one.named)
    one.say(frame(HEADERS, 4, 7, block)[:-3]).lose(3)
    assert one.named == known


def test_what_was_read_wrongly_is_said_to_be_so() -> None:
    """A frame that cannot be: what came before it may have been taken for something else."""
    one, told = begun(), list[bool]()
    one.frames._last = SimpleNamespace(gap=lambda *_, broken, **__: told.append(broken), data=lambda *_: None)  # type: ignore[assignment]
    one.say(bytes([0, 0, 1, 99, 0, 0, 0, 0, 3]) + NOISE[:500], frame(DATA, 0, 3, NOISE[500:900]))
    one.frames._last = SimpleNamespace(gap=lambda *_, broken, **__: told.append(broken), data=lambda *_: None)  # type: ignore[assignment]
    one.lose(700).say(NOISE[900:950], frame(DATA, 0, 3, NOISE[1_000:1_400]))
    assert told == [True, False]


@pytest.mark.parametrize(("size", "sensible"), [(3, False), (4, True), (8, False)])
def test_a_window_is_four_bytes(size: int, sensible: bool) -> None:
    assert begun().frames._sensible(bytearray(frame(WINDOW, 0, 3, bytes(size))), 0) == sensible
