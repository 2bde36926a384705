"""A large model through ``dpgt launch`` beside the same gradients and noise in one process.

ResNet18 on MNIST: five agents on the demo's graphs, d = 11,175,370, m = 55, mTLS, float32 wire, mechanism "paper" with
noise on x and y.  The store is off, "process" or "power", in turn; each time right after the same gradients and the
same two draws of noise for all five agents, one after another in one process without network and store, with one torch
thread and with two.  The images are MNIST's own, but 3,000 and 500 of them, since only m decides what a round costs.

Parts are ms of an agent and round; they overlap, because five agents share the cores.  Disk: MB an agent and round
that reached it.
"""

from __future__ import annotations

import json
import os
import shutil
import struct
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from dpgt_node.agent.noise import sampler_for
from dpgt_node.algo.schedule import Schedule
from dpgt_node.bench.children import fresh
from dpgt_node.bench.clocks import PARTS
from dpgt_node.bench.figures import Around, Row, Spread, Value, option
from dpgt_node.bench.speed.launched import Launched, launched
from dpgt_node.config import load_run
from dpgt_node.privacy.laws.keystream import AesCtrKeystream
from dpgt_node.runtime.process import tune_malloc
from dpgt_node.sim.simulate import build_oracles
from dpgt_node.values import dataclass

STORES = ("off", "process", "power")
NOISE = 0.01
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
scale_zeta = {noise}
scale_eta = {noise}
[graph]
agents = 5
R = [[0,0,0,0,1],[1,0,0,0,0],[1,1,0,0,0],[0,0,1,0,0],[0,0,0,1,0]]
C = [[0,0,1,0,1],[1,0,0,0,0],[0,1,0,0,0],[0,0,1,0,0],[0,0,0,1,0]]
[data]
dataset = "{dataset}"
[model]
name = "{model}"
{norm}
[privacy]
{clip}
[evaluate]
every = 1000000
metrics = "study"
samples = 100
[runtime]
round_timeout = 600
"""


@dataclass(frozen=True, slots=True)
class Settings:
    rounds: int = option(100, "Rounds of each run.", least=3)
    repeat: int = option(1, "Runs of each store.", least=1)
    samples: int = option(55, "Samples of a batch.", least=1)
    dataset: str = option("mnist", "The run file's data.dataset; of mnist, its first images.")
    model: str = option("resnet18", "The run file's model.name; softmax needs no torch.")
    norm: str = option("group", "Of a torch model; with batch nothing is clipped.", choices=("group", "batch"))
    no_clip: bool = option(False, "Do not clip.")
    store: tuple[str, ...] = option(STORES, "Stores to measure.", choices=STORES)


def figures(settings: Settings, around: Around) -> Iterator[Row]:
    with around.temporary() as folder:
        environment = dict(around.environment)
        if settings.dataset == "mnist":
            environment["DPGT_DATA"] = str(cut_mnist(around.data_root, folder / "data"))
        torch, run_file = settings.model != "softmax", folder / "run.toml"
        clipped = not settings.no_clip and settings.norm != "batch"
        text = RUN.format(
            K=settings.rounds - 1,
            m=settings.samples,
            noise=NOISE,
            dataset=settings.dataset,
            model=settings.model,
            norm=f'norm = "{settings.norm}"' if torch else "",
            clip="clip_l2 = 1.0" if clipped else "",
        )
        run_file.write_text(text, encoding="utf-8")
        data = environment.get("DPGT_DATA", str(around.data_root))
        threads = (1, 2) if torch else (1,)
        for store in settings.store:
            found: list[Launched] = []
            lone: dict[int, list[float]] = {count: [] for count in threads}
            for number in range(settings.repeat):
                for count in threads:
                    rounds = max(2, min(10, settings.rounds // 5))
                    one = fresh(
                        {**environment, "OMP_NUM_THREADS": str(count)},
                        "speed.resnet18",
                        run_file=str(run_file),
                        data=data,
                        rounds=rounds,
                        threads=count if torch else None,
                    )
                    lone[count].append(one)
                out = folder / f"{store}-{number}"
                found.append(launched(run_file, out, store=store, environment=environment))
                shutil.rmtree(out)
            yield from _rows(store, found, lone)


def _rows(store: str, found: list[Launched], lone: dict[int, list[float]]) -> Iterator[Row]:
    seconds = [each.round_s for each in found]
    cells: dict[str, Value] = {"store": store, "s a round": Spread.over(seconds)}
    for threads, alone in lone.items():
        cells[f"one process, {threads} threads"] = Spread.over(alone)
        cells[f"ratio, {threads} threads"] = Spread.ratio(seconds, alone)
    written = [each.written for each in found if each.written is not None]
    cells["peak of the largest agent, MiB"] = Spread.over([max(each.peak_mib) for each in found])
    cells["to the disk, MB"] = Spread.over(written, 1e-6) if written else None
    yield Row("launch beside one process", cells)
    for part in PARTS:
        yield Row(
            f"store {store}, ms of an agent and round",
            {"": part, "ms": Spread.over([each.parts[part] for each in found], 1e3)},
        )


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


def alone(run_file: str, data: str, rounds: int, threads: int | None) -> float:
    """Seconds a round of all agents' gradients and noise in this process; ``threads``: of torch."""
    if threads is not None:
        import torch

        torch.set_num_threads(threads)
    tune_malloc()
    run = load_run(Path(run_file))
    oracles, sampler, schedule = build_oracles(run, Path(data)), sampler_for(run), Schedule.from_config(run)
    keystream = AesCtrKeystream(os.urandom(16), os.urandom(16))
    x, begin = oracles[0].initial(), 0.0
    for k in range(rounds + 1):  # the first is for caches
        if k == 1:
            begin = time.perf_counter()
        for i, oracle in enumerate(oracles):
            number = k * len(oracles) + i
            batch = oracle.draw_batch(schedule.m_for(oracle.samples), keystream.stream(number, "batch"))
            g = oracle.gradient(x, batch)
            for which in ("X", "Y"):
                sampler.perturb(g, NOISE, keystream.stream(number, which))
    return (time.perf_counter() - begin) / rounds


if __name__ == "__main__":
    print(json.dumps(alone(**json.loads(sys.argv[1]))))
