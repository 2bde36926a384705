"""``dpgt eavesdrop decode``: what it prints, what it exits with, and that a part never passes for the whole."""

from __future__ import annotations

import gzip
import json
import os
import signal
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dpgt_node import cli
from dpgt_node.adversary.decode.packets import PcapWriter
from dpgt_node.wire.transcript import Transcript, TranscriptError
from tests.adversary.decode import wires as w
from tests.adversary.decode.test_packets import block, pcapng
from tests.adversary.decode.tlstalk import talk
from tests.e2e.processes import LIMIT_S, command, environment, eventually

Dpgt = Callable[..., tuple[int, str, list[str]]]
RUN_TOML = """
[algorithm]
iterations = 2
[scheme]
kind = "S2"
alpha = 0.1
beta = 0.1
gamma = 0.1
p_m = 1.0
[noise]
multiplier = 0.0
[graph]
agents = 2
R = [[0, 1], [1, 0]]
C = [[0, 1], [1, 0]]
[data]
dataset = "zeros"
dimension = 300
"""


@pytest.fixture
def dpgt(capsys: pytest.CaptureFixture[str]) -> Dpgt:
    def run(*arguments: object) -> tuple[int, str, list[str]]:
        code = cli.run(["eavesdrop", "decode", *map(str, arguments)])
        captured = capsys.readouterr()
        return code, captured.out, captured.err.splitlines()

    return run


@pytest.fixture
def wires() -> list[w.Wire]:
    payloads = [[w.payload(stream, k, 300) for stream in ("X", "Y")] for k in range(3)]  # type: ignore[arg-type]
    return w.exchange(payloads).wires


def test_json_is_the_contract(dpgt: Dpgt, tmp_path: Path, wires: list[w.Wire]) -> None:
    pcap = w.write_pcap(tmp_path / "x.pcap", wires)
    code, out, err = dpgt(pcap, "--out", tmp_path / "t", "--format", "json")
    found: dict[str, Any] = json.loads(out)
    assert (code, err) == (0, [])
    assert list(found)[:6] == ["messages", "complete", "with_holes", "agents", "rounds", "segments_lost"]
    assert list(found.values())[:6] == [6, 6, 0, 2, 3, 0]
    assert found["run_id"] == w.RUN.hex() and found["names"] == ["agent-1", "agent-2"]
    assert found["edges"] == [{"sender": "agent-1", "receiver": "agent-2", "X": 3, "Y": 3, "again": 0}]
    assert found["statistics"]["agent-1"]["X"]["count"] == 3
    assert len(list(Transcript(tmp_path / "t"))) == 6


def test_text_says_the_same(dpgt: Dpgt, tmp_path: Path, wires: list[w.Wire]) -> None:
    code, out, err = dpgt(w.write_pcap(tmp_path / "x.pcap", wires), "--out", tmp_path / "t")
    assert code == 0 and "6 messages of 2 agents in 3 rounds" in out and "6 complete, 0 with holes" in out and not err


def test_copies_that_a_sender_repeats_are_counted_by_edge(dpgt: Dpgt, tmp_path: Path) -> None:
    """X of the round before behind X and Y of rounds 1 to 3, one of them on an edge where nothing else is repeated."""
    ones = [[w.payload("X", k, 300), w.payload("Y", k, 300)] for k in range(4)]
    behind = [these for k, both in enumerate(ones) for these in (both, ones[k - 1][:1])[: 1 + (k > 0)]]
    other = w.exchange(ones, receiver="agent-3", talk=w.Talk(client=("127.0.0.1", 9), server=("127.0.0.1", 7001)))
    pcap = w.write_pcap(tmp_path / "x.pcap", [*w.exchange(behind).wires, *other.wires])
    assert dpgt(pcap, "--out", tmp_path / "t")[1].splitlines()[1:4] == [
        "sender   receiver  X  Y  again",
        "agent-1  agent-2   4  4  3",
        "agent-1  agent-3   4  4  0",
    ]
    assert {e.copies for e in Transcript(tmp_path / "t") if e.receiver == "agent-2" and e.stream == "X"} == {1, 2}


def test_a_capture_that_was_cut_is_named_and_leaves_no_whole_transcript(
    dpgt: Dpgt, tmp_path: Path, wires: list[w.Wire]
) -> None:
    pcap = w.write_pcap(tmp_path / "x.pcap", wires)
    pcap.write_bytes(pcap.read_bytes()[:-30])
    code, out, (line,) = dpgt(pcap, "--out", tmp_path / "t")
    assert code == 2 and out == "" and "x.pcap: cut short at byte" in line
    assert not (tmp_path / "t").exists()
    with pytest.raises(TranscriptError):
        list(Transcript(tmp_path / "t.part"))


def test_a_transcript_is_replaced_only_by_a_whole_one(dpgt: Dpgt, tmp_path: Path, wires: list[w.Wire]) -> None:
    pcap, out = w.write_pcap(tmp_path / "x.pcap", wires), tmp_path / "t"
    assert dpgt(pcap, "--out", out)[0] == 0 and not (tmp_path / "t.part").exists()
    before, capture = out.read_bytes(), pcap.read_bytes()
    pcap.write_bytes(capture[:-30])
    assert dpgt(pcap, "--out", out)[0] == 2
    assert out.read_bytes() == before and (tmp_path / "t.part").exists()
    pcap.write_bytes(capture)
    (tmp_path / "link").symlink_to("t")
    assert dpgt(pcap, "--out", tmp_path / "link", "--keep", "digests")[0] == 0
    assert (tmp_path / "link").is_symlink() and not (tmp_path / "t.part").exists()
    assert [entry.data for entry in Transcript(out)] == [None] * 6


@pytest.mark.parametrize("more", [[], ["-"]], ids=["a file", "standard input"])
@pytest.mark.parametrize("named", ["x.pcap", "hard", "soft", "notes", "folder", "notes2"])
def test_nothing_but_a_transcript_is_replaced(
    dpgt: Dpgt, tmp_path: Path, wires: list[w.Wire], named: str, more: list[str]
) -> None:
    pcap = w.write_pcap(tmp_path / "x.pcap", wires)
    (tmp_path / "hard").hardlink_to(pcap)
    (tmp_path / "soft").symlink_to("x.pcap")
    (tmp_path / "notes").write_text("kept")
    (tmp_path / "notes2.part").write_text("kept")
    (tmp_path / "folder.part").mkdir()
    before = pcap.read_bytes()
    code, _, err = dpgt(*(more or [pcap]), "--out", tmp_path / named)
    assert code == 2 and len(err) == 1 and err[0].startswith("dpgt eavesdrop: command line: --out: ")
    assert f"{tmp_path / named}" in err[0] and "give another file name" in err[0]
    assert pcap.read_bytes() == before and (tmp_path / "hard").read_bytes() == before
    assert (tmp_path / "notes").read_text() == (tmp_path / "notes2.part").read_text() == "kept"
    assert len(list(tmp_path.iterdir())) == 6


def test_packets_that_the_tap_lost_fail(dpgt: Dpgt, tmp_path: Path) -> None:
    (tmp_path / "x.pcapng").write_bytes(pcapng(dropped=3))
    code, _, err = dpgt(tmp_path / "x.pcapng", "--out", tmp_path / "t")
    assert code == 1 and any("the tap lost 3 packets" in line for line in err)
    assert any("no vector of a run was found" in line for line in err)


def test_traffic_of_others_is_named(dpgt: Dpgt, tmp_path: Path, wires: list[w.Wire]) -> None:
    other = w.Talk(client=("127.0.0.1", 9)).open().say(0, b"GET / HTTP/1.1\r\n\r\n").wires
    ours = w.exchange([[w.payload("X", 0, 300)]], sender="a", receiver="b", talk=w.Talk(client=("127.0.0.1", 8))).wires
    (tmp_path / "run.toml").write_text(RUN_TOML.replace("agents = 2", 'agents = ["a", "b"]'))
    code, out, err = dpgt(
        w.write_pcap(tmp_path / "x", [*wires, *ours, *other]), "--out", tmp_path / "t", "--run", tmp_path / "run.toml",
        "--format", "json",
    )  # fmt: skip
    assert code == 0 and json.loads(out)["foreign"] == 7
    assert any("not HTTP/2" in line for line in err)
    assert any("agent-1, who is not in the run file (6 times)" in line for line in err)


def test_the_folder_of_a_run_says_which_run_is_meant(dpgt: Dpgt, tmp_path: Path, wires: list[w.Wire]) -> None:
    (tmp_path / "run.toml").write_text(RUN_TOML)
    (tmp_path / "summary.json").write_text(json.dumps({"run_id": "00" * 16}))
    pcap = w.write_pcap(tmp_path / "x", wires)
    code, out, (line,) = dpgt(pcap, "--out", tmp_path / "t", "--run", tmp_path, "--format", "json")
    assert (code, out) == (2, "") and f"--run: {tmp_path}: none of the 6 vectors" in line and w.RUN.hex() in line
    assert not list(tmp_path.glob("t*"))
    code, out, _ = dpgt(
        pcap, "--out", tmp_path / "t", "--run", tmp_path, "--run-id", w.RUN.hex(), "--format", "json",
        "--link", "agent-1>agent-2", "--port", 7000, "--keep", "coordinates=0,7,20-29",
    )  # fmt: skip
    assert code == 0 and json.loads(out)["complete"] == 6
    assert Transcript(tmp_path / "t").header.coordinates == (0, 7, *range(20, 30))


def test_the_output_folder_of_a_lab_is_its_runs(dpgt: Dpgt, tmp_path: Path, wires: list[w.Wire]) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.toml").write_text(RUN_TOML)
    (tmp_path / "run" / "summary.json").write_text(json.dumps({"run_id": w.RUN.hex()}))
    pcap = w.write_pcap(tmp_path / "x", wires)
    code, out, err = dpgt(pcap, "--out", tmp_path / "t", "--run", tmp_path, "--format", "json")
    assert (code, err) == (0, []) and json.loads(out)["complete"] == 6


def test_a_run_or_link_that_is_not_the_captures_is_an_error(dpgt: Dpgt, tmp_path: Path, wires: list[w.Wire]) -> None:
    pcap, run = w.write_pcap(tmp_path / "x", wires), tmp_path / "run.toml"
    run.write_text(RUN_TOML)
    other = tmp_path / "other.toml"
    other.write_text(RUN_TOML.replace("agents = 2", 'agents = ["a", "b"]'))
    for arguments, says in (
        (["--run", other], f"--run: {other}: none of the 6 vectors"),
        (["--run-id", "00" * 16], f"--run-id: {'00' * 16}: none of the 6 vectors"),
        (["--run", run, "--link", "agent-1>agent-9"], "--link: 'agent-1>agent-9' is no link of this run; it has"),
        (["--link", "agent-1>agent-9"], "--link: none of the 6 vectors in the capture went over agent-1>agent-9"),
    ):
        code, out, (line,) = dpgt(pcap, "--out", tmp_path / "t", *arguments)
        assert (code, out) == (2, "") and says in line
        assert not list(tmp_path.glob("t*"))
    code, out, (line,) = dpgt(pcap, "--out", tmp_path / "t", "--run", run, "--link", "agent-2>agent-1")
    assert code == 1 and "none of the 6 vectors in the capture went over the links asked for" in line
    assert not list(tmp_path.glob("t*"))


def test_tls_without_keys_says_what_can_be_done(dpgt: Dpgt, tmp_path: Path) -> None:
    hello = bytes([22, 3, 1, 0, 60, 1, 0, 0, 56, 3, 3]) + bytes(54)
    talk = w.Talk().open().say(0, hello).end()
    pcap = w.write_pcap(tmp_path / "x", talk.wires)
    code, _, (line,) = dpgt(pcap, "--out", tmp_path / "t")
    assert code == 1 and "1 connections are TLS: without --keys FILE" in line and "--attack traffic" in line
    (tmp_path / "keys").write_text(f"CLIENT_TRAFFIC_SECRET_0 {'11' * 32} {'22' * 32}\n")
    code, _, (line,) = dpgt(pcap, "--out", tmp_path / "t", "--keys", tmp_path / "keys")
    assert code == 1 and "1 of 1 TLS connections could not be opened" in line


def test_a_capture_without_a_vector_replaces_nothing(dpgt: Dpgt, tmp_path: Path, wires: list[w.Wire]) -> None:
    out = tmp_path / "t"
    assert dpgt(w.write_pcap(tmp_path / "good.pcap", wires), "--out", out)[0] == 0
    good = out.read_bytes()
    code, _, (line,) = dpgt(
        w.write_pcap(tmp_path / "other.pcap", w.Talk().open().say(0, b"GET /").end().wires), "--out", out
    )
    assert code == 1 and "no vector of a run was found" in line
    assert out.read_bytes() == good and not out.with_name("t.part").exists()


@pytest.mark.parametrize(
    ("head", "words"),
    [
        (b"\x1f\x8b\x08", "what packs it is damaged or cut short"),
        (b"\x28\xb5\x2f\xfd", "packed by zstd: unpack it first"),
        (b"\xfd7zXZ", "what packs it is damaged or cut short"),
    ],
)
def test_a_packed_capture_that_cannot_be_read_is_named(head: bytes, words: str, dpgt: Dpgt, tmp_path: Path) -> None:
    (tmp_path / "x.pcap.gz").write_bytes(head + bytes(50))
    code, _, (line,) = dpgt(tmp_path / "x.pcap.gz", "--out", tmp_path / "t")
    assert code == 2 and f"x.pcap.gz: {words}" in line


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (["--keep", "some"], "--keep"),
        (["--keep", "coordinates="], "--keep"),
        (["--keep", "coordinates=9-3"], "--keep"),
        (["--keep", "coordinates=300"], "coordinate 300 of 300"),
        (["--run-id", "xyz"], "--run-id"),
        (["--link", "agent-1"], "--link"),
        (["--run", "no.toml"], "no.toml"),
        (["no.pcap"], "no.pcap"),
        (["--keys", "no.keys"], "no.keys"),
    ],
)
def test_bad_input_is_one_line(dpgt: Dpgt, tmp_path: Path, wires: list[w.Wire], more: list[str], says: str) -> None:
    code, _, err = dpgt(w.write_pcap(tmp_path / "x.pcap", wires), "--out", tmp_path / "t", *more)
    assert code == 2 and len(err) == 1 and says in err[0]
    code, _, err = dpgt(tmp_path / "x.pcap", "--out", tmp_path / "none" / "t")
    assert code == 2 and "none" in err[0]


@pytest.mark.parametrize("interrupted", [False, True])
def test_standard_input_is_decoded_while_it_is_written(tmp_path: Path, wires: list[w.Wire], interrupted: bool) -> None:
    """Ctrl-C reaches the tap and the decoder: the tap ends, and the decoder ends well."""
    pcap = w.write_pcap(tmp_path / "x.pcap", wires).read_bytes()
    out = tmp_path / "t"
    arguments = command("eavesdrop", "decode", "-", "--out", out, "--format", "json")
    with subprocess.Popen(
        arguments, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        process.stdin.write(pcap[:-2000])
        process.stdin.flush()
        eventually("the first vectors are decoded", lambda: out.with_name("t.part").exists())
        if interrupted:
            os.kill(process.pid, signal.SIGINT)
        process.stdin.write(pcap[-2000:])
        said, error = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0, error
    assert json.loads(said)["complete"] == 6 and len(list(Transcript(out))) == 6


# --- TLS, with keys


@pytest.fixture(scope="module")
def spoken(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[w.Wire], Path, Path]:
    """A run's exchange inside TLS, its key log, and one of another connection."""
    folder = tmp_path_factory.mktemp("tls")
    turns = [(wire.side, wire.data) for wire in w.exchange([[w.payload("X", k, 300)] for k in range(3)]).wires]
    inside = talk(folder, folder / "keys", [(side, data) for side, data in turns if data])
    talk(folder, folder / "others", [(0, b"another connection")])
    outside = w.Talk().open()
    for side, data in inside.wire:
        outside.say(side, data)
    return outside.end().wires, folder / "keys", folder / "others"


def with_keys(folder: Path, wires: list[w.Wire], *logs: bytes) -> Path:
    """A pcapng file with key logs in it, as Wireshark and editcap write them."""
    out = block("<", 0x0A0D0D0A, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1))
    for log in logs:
        out += block("<", 0x0A, struct.pack("<II", 0x544C534B, len(log)) + log)
    out += block("<", 1, struct.pack("<HHI", 1, 0, 0))
    for wire in wires:
        ticks = wire.time_ns // 1000
        head = struct.pack("<IIIII", 0, ticks >> 32, ticks & 0xFFFFFFFF, len(wire.packet), len(wire.packet))
        out += block("<", 6, head + wire.packet)
    (folder / "x.pcapng").write_bytes(out)
    return folder / "x.pcapng"


def test_keys_that_a_capture_holds_are_used(
    dpgt: Dpgt, tmp_path: Path, spoken: tuple[list[w.Wire], Path, Path]
) -> None:
    wires, keys, others = spoken
    pcap = with_keys(tmp_path, wires, others.read_bytes(), keys.read_bytes())
    packed = tmp_path / "x.pcapng.gz"
    packed.write_bytes(gzip.compress(pcap.read_bytes()))
    for path in (pcap, packed):
        code, out, err = dpgt(path, "--out", tmp_path / "t", "--format", "json")
        found = json.loads(out)
        assert (code, err) == (0, []) and (found["complete"], found["channel"]) == (3, "tls+keys")
        assert found["tls"]["without_keys"] == 0 and len(list(Transcript(tmp_path / "t"))) == 3


@pytest.mark.parametrize("embedded", [False, True])
def test_keys_of_another_connection_are_the_reason_and_replace_nothing(
    embedded: bool, dpgt: Dpgt, tmp_path: Path, spoken: tuple[list[w.Wire], Path, Path]
) -> None:
    wires, keys, others = spoken
    good = w.write_pcap(tmp_path / "good.pcap", wires)
    assert dpgt(good, "--out", tmp_path / "t", "--keys", keys)[0] == 0
    before = (tmp_path / "t").read_bytes()
    if embedded:
        code, out, (line,) = dpgt(with_keys(tmp_path, wires, others.read_bytes()), "--out", tmp_path / "t")
    else:
        code, out, (line,) = dpgt(good, "--out", tmp_path / "t", "--keys", others)
    assert code == 1 and "1 of 1 TLS connections could not be opened" in line
    assert ("the capture holds no keys" if embedded else f"{others} holds no keys") in line
    assert "No transcript was written." in out and (tmp_path / "t").read_bytes() == before


def test_values_without_their_headers_are_no_transcript(dpgt: Dpgt, tmp_path: Path) -> None:
    """A tap that came in the midst of one large vector has nothing that could be kept."""
    wires = w.exchange([[w.payload("X", 0, 60_000)]], largest=16384).wires
    (tmp_path / "t").write_bytes(b"")
    large = [wire for wire in wires if len(wire.data) > 1000]
    code, _, err = dpgt(w.write_pcap(tmp_path / "x", large[20:60]), "--out", tmp_path / "t")
    assert code == 1 and err and (tmp_path / "t").read_bytes() == b""


def test_what_a_capture_without_tcp_holds_is_named(dpgt: Dpgt, tmp_path: Path) -> None:
    packets = [bytes(12) + b"\x08\x06" + bytes(28)] * 3 + [bytes(12) + b"\x88\xe5" + bytes(60)]
    wires = [w.Wire(i, 0, 0, b"", raw) for i, raw in enumerate(packets)]
    code, out, (line,) = dpgt(w.write_pcap(tmp_path / "x", wires), "--out", tmp_path / "t", "--format", "json")
    assert code == 1 and line.endswith("its packets are ARP (3 times), MACsec, which is encrypted (1 times)")
    assert json.loads(out)["capture"]["ignored_packets"] == {"ARP": 3, "MACsec, which is encrypted": 1}


@pytest.mark.parametrize("snap", [96, 40])
def test_where_packets_were_cut_that_is_the_reason(snap: int, dpgt: Dpgt, tmp_path: Path, wires: list[w.Wire]) -> None:
    with PcapWriter(tmp_path / "x") as writer:
        for wire in wires:
            writer.write(wire.time_ns, wire.packet[:snap], len(wire.packet))
    code, _, err = dpgt(tmp_path / "x", "--out", tmp_path / "t")
    assert code == 1 and "packets are cut: capture with a larger snap length" in err[0]
    assert ("too little of each packet was kept" if snap == 96 else "cut within their headers (") in err[1]


def test_a_port_that_nobody_uses_is_the_reason(dpgt: Dpgt, tmp_path: Path, wires: list[w.Wire]) -> None:
    code, _, (line,) = dpgt(w.write_pcap(tmp_path / "x", wires), "--out", tmp_path / "t", "--port", 9)
    assert code == 1 and "no TCP that --port asks for is in the capture" in line
