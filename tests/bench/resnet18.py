"""ResNet18 (GroupNorm) on MNIST through ``dpgt launch`` beside the same gradients and noise in one process.

    python -m tests.bench.resnet18 [--rounds 100] [--repeat 1] [--out DIR] [--norm group] [--samples 55] [--no-clip]

Five agents on the paper's kind of graph, d = 11,175,370, m = 55, mTLS, float32 wire, literal mechanism "paper" with
noise on x and y.  The store is off, "process" or "power", in turn; each time right after the same gradients and the
same two draws of noise for all five agents, one after another in one process without network and store, with one torch
thread and with two (what it takes on a machine of two cores, with nothing else to do).  The images are MNIST's own, but
3,000 and 500 of them, since only m decides what a round costs.  Needs the extra [torch] and DPGT_DATA with MNIST.

Prints for each store: seconds a round, the ratio to one process, ms of an agent and round by part (parts overlap: five
agents share the cores), peak memory of the agents, bytes an agent and round that reached the disk.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.bench.launched import PARTS, ROOT, Launched, launched

STORES = ("off", "process", "power")
RUN = """
name = "resnet18"
[algorithm]
iterations = {K}
[scheme]
kind = "S2"
alpha = 0.1
beta = 0.01
gamma = 0.01
p_m = 1.0
samples = {m}
[noise]
scale_zeta = 0.01
scale_eta = 0.01
[graph]
agents = 5
R = [[0,0,0,0,1],[1,0,0,0,0],[1,1,0,0,0],[0,0,1,0,0],[0,0,0,1,0]]
C = [[0,0,1,0,1],[1,0,0,0,0],[0,1,0,0,0],[0,0,1,0,0],[0,0,0,1,0]]
[data]
dataset = "mnist"
[model]
name = "resnet18"
norm = "{norm}"
[privacy]
{clip}
[evaluate]
every = 1000000
metrics = "study"
samples = 100
[runtime]
round_timeout = 600
"""


def cut_mnist(source: Path, target: Path, train: int = 3000, test: int = 500) -> Path:
    """A data folder with the first images of MNIST."""
    raw = target / "MNIST/raw"
    raw.mkdir(parents=True, exist_ok=True)
    for part, count in (("train", train), ("t10k", test)):
        for name, head, size in ((f"{part}-images-idx3-ubyte", 16, 784), (f"{part}-labels-idx1-ubyte", 8, 1)):
            data = (source / "MNIST/raw" / name).read_bytes()
            cut = data[:4] + struct.pack(">I", count) + data[8 : head + count * size]
            (raw / name).write_bytes(cut)
    return target


def alone(run_file: Path, rounds: int, threads: int) -> float:
    """Seconds a round of all agents' gradients and noise in this process."""
    import torch

    from dpgt_node.agent.work import AgentWork
    from dpgt_node.algo.graph import Topology
    from dpgt_node.algo.schedule import Schedule
    from dpgt_node.config import load_run
    from dpgt_node.privacy.laws.keystream import AesCtrKeystream
    from dpgt_node.runtime.process import tune_malloc
    from dpgt_node.sim.simulate import build_oracles, sampler_for

    tune_malloc()
    run = load_run(run_file)
    topology, schedule = Topology.from_config(run.graph), Schedule.from_config(run)
    oracles = build_oracles(run, Path(os.environ["DPGT_DATA"]))
    stream = AesCtrKeystream(os.urandom(16), os.urandom(16))
    works = [
        AgentWork(run, topology, schedule, i, oracle, stream, sampler_for(run)) for i, oracle in enumerate(oracles)
    ]
    torch.set_num_threads(threads)
    x, begin = oracles[0].initial(), 0.0
    for k in range(rounds + 1):
        if k == 1:
            begin = time.perf_counter()
        for work in works:
            g, _ = work._gradient(k, x, None)
            for which in ("X", "Y"):
                work._perturb(which, k, g)
    return (time.perf_counter() - begin) / rounds


def one_process(run_file: Path, rounds: int, threads: int) -> float:
    """The same in a fresh process."""
    command = [sys.executable, "-m", "tests.bench.resnet18", "--alone", str(run_file), "--rounds", str(rounds)]
    environ = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": str(threads)}
    done = subprocess.run([*command, "--threads", str(threads)], check=True, cwd=ROOT, env=environ, capture_output=True)
    return float(json.loads(done.stdout)["round_s"])


def show(store: str, found: list[Launched], lone: list[tuple[float, float]]) -> None:
    """One store's figures, medians over the repetitions."""
    seconds = statistics.median(each.round_s for each in found)
    ratios = [statistics.median(a.round_s / b[i] for a, b in zip(found, lone, strict=True)) for i in (0, 1)]
    print(f"\nstore {store}: {seconds:.3f} s a round; {ratios[0]:.2f} of one process, {ratios[1]:.2f} with two threads")
    print(f"  one process: {', '.join(f'{a:.3f} s, two threads {b:.3f} s' for a, b in lone)}")
    for part in PARTS:
        print(f"  {part:<16}{1e3 * statistics.median(each.parts[part] for each in found):10.1f} ms an agent and round")
    peaks = [round(max(each.peak_mib)) for each in found]
    print(f"  peak memory of the largest agent {peaks} MiB; of all in the first run {found[0].peak_mib}")
    print(
        f"  to the disk {statistics.median(each.written for each in found) / 1e6:.1f} MB an agent and round", flush=True
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--samples", type=int, default=55)
    parser.add_argument("--norm", choices=["batch", "group"], default="group")
    parser.add_argument("--no-clip", action="store_true")
    parser.add_argument("--stores", nargs="+", default=STORES, choices=STORES)
    parser.add_argument("--out", type=Path, help="where states go (default: the system's temporary folder)")
    parser.add_argument("--alone", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--threads", type=int, default=1, help=argparse.SUPPRESS)
    o = parser.parse_args()
    if o.alone:
        print(json.dumps({"round_s": alone(o.alone, o.rounds, o.threads)}))
        return
    folder = Path(tempfile.mkdtemp(dir=o.out))
    try:
        source = Path(os.environ["DPGT_DATA"])
        os.environ["DPGT_DATA"] = str(cut_mnist(source, folder / "data"))
        run_file = folder / "run.toml"
        clip = "" if o.no_clip or o.norm == "batch" else "clip_l2 = 1.0"
        run_file.write_text(RUN.format(K=o.rounds - 1, m=o.samples, norm=o.norm, clip=clip))
        for store in o.stores:
            found, lone = [], []
            for repeat in range(o.repeat):
                lone.append(tuple(one_process(run_file, max(2, min(10, o.rounds // 5)), threads) for threads in (1, 2)))
                out = folder / f"{store}-{repeat}"
                found.append(launched(run_file, out, store=store))
                shutil.rmtree(out)
            show(store, found, lone)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
