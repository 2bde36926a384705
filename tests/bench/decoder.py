"""The decoder in MB/s, beside tshark: ``python -m tests.bench.decoder [--tshark] [--repeat 3] [--keep digests]``.

Two agents send 12 messages of 5 MB and 4 of 45 MB (real launches, tapped without root); what crossed the links is
written again in segments as large as the loopback's (65,483 bytes) and an Ethernet's (1,448).  With --tshark, in turn
on the same file:

    tshark -r FILE -d tcp.port==7000-7001,http2 -Y grpc -T fields -e grpc.message_data

which prints the same payloads (and with grpc.message_length: finds them, and prints only how long they are).
MB/s are of payloads, the best of the repetitions, on the processor's clock (a busy machine disturbs it less).  Exact:
sha256 of what was decoded is the one declared.  Then 1 % of the segments are left out: how many bytes of values they
carried, how many the transcript lacks, and how many bytes of what it has are wrong.
"""

from __future__ import annotations

import argparse
import random
import resource
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from dpgt_node.adversary.decode.decoder import Decoded, Decoder, Keep, decode
from dpgt_node.adversary.decode.packets import Capture
from dpgt_node.adversary.decode.stages import Connection, Gap, Item
from dpgt_node.adversary.decode.tcp import Reassembly
from dpgt_node.runtime.process import tune_malloc
from dpgt_node.wire.transcript import Transcript
from tests.adversary.decode.wires import Talk, Wire, write_pcap
from tests.e2e import processes

SIZES = {"5 MB": (1_250_000, 2), "45 MB": (11_250_000, 0)}  # d in float32, K
SEGMENTS = {"loopback": 65_483, "Ethernet": 1448}


class Pieces:
    """What one direction said, piece by piece."""

    def __init__(self, said: list[tuple[int, bytes]], side: int) -> None:
        self._said, self._side = said, side

    def feed(self, item: Item) -> None:
        assert not isinstance(item, Gap)
        self._said.append((self._side, bytes(item.data)))

    def close(self) -> None:
        pass


def recorded(folder: Path, dimension: int, K: int) -> list[list[tuple[int, bytes]]]:
    """The connections between two agents of a real launch: what their ends said, in turn."""
    run, capture = folder / "run.toml", folder / "tap.pcap"
    text = processes.quadratic(2, max(K, 1)).replace("dimension = 3", f"dimension = {dimension}")
    text = text.replace("iterations = 1\n", f"iterations = {K}\n")
    text = text.replace('metrics = "study"', 'metrics = "local"')
    run.write_text(text + '[runtime]\nchannel = "plain"\n', encoding="utf-8")
    done = processes.dpgt("launch", run, "--out", folder / "out", "--insecure", "--tap", capture)
    assert done.returncode == 0, done.stderr
    connections: list[list[tuple[int, bytes]]] = []

    def begun(_: Connection) -> tuple[Pieces, Pieces]:
        connections.append([])
        return Pieces(connections[-1], 0), Pieces(connections[-1], 1)

    tcp = Reassembly(begun)
    with capture.open("rb") as stream:
        for packet in Capture(stream, str(capture)):
            tcp.feed(packet)
    tcp.close()
    return connections


def segmented(connections: list[list[tuple[int, bytes]]], mss: int) -> list[Wire]:
    """The same connections in segments of another size."""
    wires = []
    for number, said in enumerate(connections):
        talk = Talk(client=("127.0.0.1", 40_000 + number), server=("127.0.0.1", 7000 + number), mss=mss).open()
        for side, data in said:
            talk.say(side, data)
        wires += talk.end().wires
    return sorted(wires, key=lambda wire: wire.time_ns)


def cpu(who: int) -> float:
    used = resource.getrusage(who)
    return used.ru_utime + used.ru_stime


def decoded(path: Path, out: Path, keep: Keep) -> tuple[Decoded, float]:
    begin = cpu(resource.RUSAGE_SELF)
    with path.open("rb") as stream:
        found = decode([Capture(stream, str(path))], Decoder(out, keep=keep))
    return found, cpu(resource.RUSAGE_SELF) - begin


def tshark(path: Path, field: str) -> float:
    begin = cpu(resource.RUSAGE_CHILDREN)
    command = ["tshark", "-r", str(path), "-d", "tcp.port==7000-7001,http2", "-Y", "grpc", "-T", "fields", "-e", field]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        size = 0
        while part := process.stdout.read(1 << 20):
            size += len(part)
    assert process.returncode == 0 and size > 20, "tshark found nothing"
    return cpu(resource.RUSAGE_CHILDREN) - begin


def lossy(wires: list[Wire], folder: Path) -> str:
    """Without 1 % of the segments, beside the transcript of all of them."""
    whole = {(e.sender, e.k, e.stream): bytes(e.data or b"") for e in Transcript(folder / "whole")}
    rng = random.Random(1)
    lost = {i for i, wire in enumerate(wires) if len(wire.data) > 100 and rng.random() < 0.01}
    path = write_pcap(folder / "lossy.pcap", (wire for i, wire in enumerate(wires) if i not in lost))
    found, seconds = decoded(path, folder / "lossy", Keep())
    wrong = missing = 0
    entries: Iterable = Transcript(folder / "lossy")
    for entry in entries:
        mask = np.ones(entry.nbytes, dtype=bool)
        for start, end in entry.missing:
            mask[start:end] = False
        missing += int(np.count_nonzero(~mask))
        truth = np.frombuffer(whole[entry.sender, entry.k, entry.stream], np.uint8)
        wrong += int(np.count_nonzero(truth[mask] != np.frombuffer(entry.data, np.uint8)[mask]))
    carried = sum(len(wires[i].data) for i in lost)
    return (
        f"1 % lost: {len(lost)} segments ({found.segments_lost} counted) of {carried:,} bytes; of {found.messages} "
        f"messages {missing:,} bytes ({missing // 4:,} coordinates) missing, {wrong} wrong; "
        f"{found.bytes / seconds / 1e6:.0f} MB/s"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--tshark", action="store_true")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--keep", choices=("all", "digests"), default="all")
    options = parser.parse_args()
    tune_malloc()  # as the command does
    for size, (dimension, K) in SIZES.items():
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            connections = recorded(folder, dimension, K)
            for kind, mss in SEGMENTS.items():
                wires = segmented(connections, mss)
                path = write_pcap(folder / f"{mss}.pcap", wires)
                ours: list[float] = []
                theirs: list[tuple[float, float]] = []
                for _ in range(options.repeat):
                    found, seconds = decoded(path, folder / "whole", Keep(options.keep))
                    ours.append(seconds)
                    if options.tshark:
                        theirs.append((tshark(path, "grpc.message_data"), tshark(path, "grpc.message_length")))
                rate = found.bytes / min(ours) / 1e6
                line = f"{size:>6} {kind:<9} {found.complete}/{found.messages} exact  {rate:6.0f} MB/s"
                if theirs:
                    other, finds = (found.bytes / min(times) / 1e6 for times in zip(*theirs, strict=True))
                    line += f"   tshark {other:.1f} MB/s, ratio {rate / other:.1f}"
                    line += f"   (lengths only: {finds:.1f}, {rate / finds:.1f})"
                print(line, flush=True)
                if kind == "Ethernet" and options.keep == "all":
                    print(f"{'':>6} {lossy(wires, folder)}", flush=True)


if __name__ == "__main__":
    main()
