"""The decoder of captures in MB/s of payload, beside tshark.

Two agents send messages (real launches, tapped without root); what crossed the links is written again in segments as
large as the loopback's and an Ethernet's.  With --tshark, in turn on the same file:

    tshark -r FILE -d tcp.port==7000-7001,http2 -Y grpc -T fields -e grpc.message_data

prints the same payloads, and -e grpc.message_length finds them and prints only how long they are.  Times are of the
processor, which a busy machine disturbs less.  Exact: the sha256 of what was decoded is the one declared.  Then 1 % of
the segments are left out: how many bytes of values they carried, how many the transcript lacks, and how many bytes of
what it has are wrong.
"""

from __future__ import annotations

import random
import resource
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from dpgt_node.adversary.decode.conversation import SEGMENT_BYTES, Conversation, Endpoint, Side
from dpgt_node.adversary.decode.decoder import Decoded, Decoder, Keep, decode
from dpgt_node.adversary.decode.packets import LINKTYPE_RAW, Capture, PcapWriter
from dpgt_node.adversary.decode.stages import Connection, Gap, Item
from dpgt_node.adversary.decode.tcp import Reassembly
from dpgt_node.bench.children import ChildFailed, run_dpgt
from dpgt_node.bench.figures import Around, Row, Spread, Value, option
from dpgt_node.errors import ConfigError
from dpgt_node.runtime.process import tune_malloc
from dpgt_node.values import dataclass
from dpgt_node.wire.transcript import Transcript

SEGMENTS = {"loopback": SEGMENT_BYTES, "Ethernet": 1448}
LOST_SHARE = 0.01
HEADERS_BYTES = 40
"""Of IPv4 and TCP."""
SMALL_BYTES = 200
"""Packets up to this size carry no values to speak of, and are not lost."""
RUN = """
name = "decoder"
[algorithm]
iterations = {K}
[scheme]
kind = "S2"
alpha = 0.2
beta = 0.2
gamma = 0.02
p_m = 1.0
[noise]
scale_zeta = 0.1
scale_eta = 0.01
[graph]
agents = 2
R = {{ generator = "ring" }}
C = {{ generator = "ring" }}
[data]
dataset = "quadratic"
dimension = {d}
[evaluate]
every = 1000000
metrics = "local"
[runtime]
channel = "plain"
wire_dtype = "float32"
"""
Said = list[tuple[Side, bytes]]
Packets = list[tuple[int, bytes]]


@dataclass(frozen=True, slots=True)
class Settings:
    size: tuple[str, ...] = option(
        ("1250000,3", "11250000,1"), "Coordinates of a vector, and rounds.", metavar="D,ROUNDS"
    )
    repeat: int = option(3, "Readings of each file.", least=1)
    keep: str = option("all", "What is kept of vectors.", choices=("all", "digests"))
    tshark: bool = option(False, "Beside tshark, which must be installed.")


def figures(settings: Settings, around: Around) -> Iterator[Row]:
    tune_malloc()
    keep = Keep("all") if settings.keep == "all" else Keep("digests")
    for d, rounds in map(_size, settings.size):
        with around.temporary() as folder:
            connections = recorded(folder, d, rounds, around)
            for kind, largest in SEGMENTS.items():
                packets = segmented(connections, largest)
                name = f"{4 * d / 1e6:.3g} MB a message, {kind}"
                yield _row(name, written(folder / f"{kind}.pcap", packets), folder / kind, keep, settings)
                if settings.keep == "all" and kind == "Ethernet":
                    yield lossy(name, packets, folder)


def _size(text: str) -> tuple[int, int]:
    try:
        d, rounds = (int(part) for part in text.split(","))
    except ValueError:
        raise ConfigError.one("command line", "--size", f"is D,ROUNDS, not {text}") from None
    if d < 1 or rounds < 1:
        raise ConfigError.one("command line", "--size", "needs a coordinate and a round at least")
    return d, rounds


def _row(name: str, path: Path, transcript: Path, keep: Keep, settings: Settings) -> Row:
    ours: list[float] = []
    theirs: dict[str, list[float]] = {"grpc.message_data": [], "grpc.message_length": []}
    for _ in range(settings.repeat):
        found, seconds = decoded(path, transcript, keep)
        ours.append(seconds)
        for field, times in theirs.items() if settings.tshark else ():
            times.append(tshark(path, field))
    payload = found.bytes / 1e6
    cells: dict[str, Value] = {"": name, "exact": found.complete, "messages": found.messages}
    cells["MB/s"] = Spread.over([payload / max(s, 1e-6) for s in ours])
    for (field, times), heading in zip(theirs.items(), ("tshark", "tshark, lengths only"), strict=True):
        if times:
            cells[f"{heading}, MB/s"] = Spread.over([payload / s for s in times])
            cells[f"ratio to {field}"] = Spread.ratio(times, ours)
    failed = "" if found.complete == found.messages else f"{found.messages - found.complete} messages are not exact"
    return Row("the decoder, MB/s of payload on the processor's clock", cells, failed)


class _Heard:
    """What one direction said, piece by piece."""

    def __init__(self, said: Said, side: Side) -> None:
        self._said, self._side = said, side

    def feed(self, item: Item) -> None:
        if isinstance(item, Gap):
            raise ChildFailed("the tap lost something")
        self._said.append((self._side, bytes(item.data)))

    def close(self) -> None:
        pass


def recorded(folder: Path, d: int, rounds: int, around: Around) -> list[Said]:
    """The connections of a real launch between two agents: what their ends said, in turn."""
    run, capture = folder / "run.toml", folder / "tap.pcap"
    run.write_text(RUN.format(K=rounds - 1, d=d), encoding="utf-8")
    run_dpgt(around.environment, "launch", run, "--out", folder / "out", "--insecure", "--tap", capture)
    connections: list[Said] = []

    def begun(_: Connection) -> tuple[_Heard, _Heard]:
        connections.append([])
        return _Heard(connections[-1], "client"), _Heard(connections[-1], "server")

    tcp = Reassembly(begun)
    with capture.open("rb") as stream:
        for packet in Capture(stream, str(capture)):
            tcp.feed(packet)
    tcp.close()
    return connections


def segmented(connections: Sequence[Said], largest: int) -> Packets:
    """The same connections in segments of at most ``largest`` bytes: (nanoseconds, IP packet), the connections side by
    side in time.
    """
    packets: Packets = []
    for number, said in enumerate(connections):
        talk = Conversation(Endpoint("127.0.0.1", 40_000 + number), Endpoint("127.0.0.1", 7000 + number))
        raw = [*talk.opened()]
        for side, data in said:
            for start in range(0, len(data), largest):
                raw += talk.said(side, data[start : start + largest])
        raw += talk.closed("client")
        packets += [(1000 * at, packet) for at, packet in enumerate(raw)]
    return sorted(packets, key=lambda packet: packet[0])


def written(path: Path, packets: Packets) -> Path:
    with PcapWriter(path, LINKTYPE_RAW) as writer:
        for time_ns, packet in packets:
            writer.write(time_ns, packet)
    return path


def decoded(path: Path, transcript: Path, keep: Keep) -> tuple[Decoded, float]:
    """What the decoder makes of a capture, and its processor seconds."""
    begin = _cpu_s(resource.RUSAGE_SELF)
    with path.open("rb") as stream:
        found = decode([Capture(stream, str(path))], Decoder(transcript, keep=keep))
    return found, _cpu_s(resource.RUSAGE_SELF) - begin


def tshark(path: Path, field: str) -> float:
    """Processor seconds of tshark.  ChildFailed: it is not there, or finds nothing."""
    begin = _cpu_s(resource.RUSAGE_CHILDREN)
    command = ["tshark", "-r", str(path), "-d", "tcp.port==7000-7001,http2", "-Y", "grpc", "-T", "fields", "-e", field]
    try:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    except OSError as error:
        raise ChildFailed(f"tshark: {error.strerror}") from error
    size = 0
    with process:
        assert process.stdout is not None
        while part := process.stdout.read(1 << 20):
            size += len(part)
    if process.returncode != 0 or size <= 20:
        raise ChildFailed("tshark found nothing")
    return _cpu_s(resource.RUSAGE_CHILDREN) - begin


def lossy(name: str, packets: Packets, folder: Path) -> Row:
    """Without a share of the segments, beside the transcript of all of them."""
    whole = {(e.sender, e.k, e.stream): bytes(e.data or b"") for e in Transcript(folder / "Ethernet")}
    rng = random.Random(1)
    lost = {i for i, (_, packet) in enumerate(packets) if len(packet) > SMALL_BYTES and rng.random() < LOST_SHARE}
    path = written(folder / "lossy.pcap", [packet for i, packet in enumerate(packets) if i not in lost])
    found, _ = decoded(path, folder / "lossy", Keep())
    wrong = missing = 0
    for entry in Transcript(folder / "lossy"):
        seen = np.ones(entry.nbytes, dtype=bool)
        for start, end in entry.missing:
            seen[start:end] = False
        missing += int(np.count_nonzero(~seen))
        truth = np.frombuffer(whole[entry.sender, entry.k, entry.stream], np.uint8)
        wrong += int(np.count_nonzero(truth[seen] != np.frombuffer(entry.data or b"", np.uint8)[seen]))
    return Row(
        "1 % of the segments left out",
        {
            "": name,
            "lost": len(lost),
            "counted": found.segments_lost,
            "bytes in them": sum(len(packets[i][1]) - HEADERS_BYTES for i in lost),
            "messages": found.messages,
            "bytes missing": missing,
            "bytes wrong": wrong,
        },
        f"{wrong} bytes are wrong" if wrong else "",
    )


def _cpu_s(who: int) -> float:
    used = resource.getrusage(who)
    return used.ru_utime + used.ru_stime
