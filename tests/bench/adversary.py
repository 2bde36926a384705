"""What the adversaries find on MNIST, beside what theory predicts.

    python -m tests.bench.adversary MNIST.npz [--parts gradients membership properties labels] [--rounds 60]

MNIST.npz: x_train (60000, 784) in [0, 1], y_train, x_test, y_test, as numpy.savez writes them.  Runs are the
simulator's own, on the demo's graphs, softmax on raw pixels (d = 7,850), mechanism `paper`, every link tapped; noise is
the sampler's from a test keystream, so that the figures repeat.

gradients: D = 12,000 an agent, m = 55, alpha .1, beta .01, gamma .1, scales b.  The largest deviation of measured from
predicted errors over agents, cosines averaged over agents and rounds, and every fusion's error over that of B.
membership: D = 100, 400 rounds; samples of the second half of the training images are public.  properties: eight agents
with two digits each, the noise of Section IV.  labels: m = 1 and m = 55.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np

from dpgt_node.adversary.attack import Attack, Options, Result
from dpgt_node.adversary.attacks.gradients import attack as gradients
from dpgt_node.adversary.attacks.labels import attack as labels
from dpgt_node.adversary.attacks.membership import attack as membership
from dpgt_node.adversary.attacks.properties import attack as properties
from dpgt_node.config import RunConfig, parse_run
from tests.adversary.record import play

R = [[0, 0, 0, 0, 1], [1, 0, 0, 0, 0], [1, 1, 0, 0, 0], [0, 0, 1, 0, 0], [0, 0, 0, 1, 0]]
C = [[0, 0, 1, 0, 1], [1, 0, 0, 0, 0], [0, 1, 0, 0, 0], [0, 0, 1, 0, 0], [0, 0, 0, 1, 0]]
RING8 = [[1 if i == (j + 1) % 8 else 0 for j in range(8)] for i in range(8)]
S2 = 'kind = "S2"\nalpha = 0.1\nbeta = 0.01\ngamma = 0.1\np_m = 1.0'
# Section IV's constants at K = 2000, for the first rounds of such a run.
S1 = 'kind = "S1"\na1 = 0.04\na2 = 0.005\na3 = 0.05\na4 = 1\np_alpha = 0\np_beta = 0\np_gamma = 0\np_m = 0.5'
SCALES = (0.0, 1e-4, 1e-3, 1e-2, 0.1, 1.0)
PARTS = ("gradients", "labels", "membership", "properties")


def run_file(
    data: Path, *, K: int, m: object, noise: str, scheme: str = S2, graphs: object = (R, C), partition: str = ""
) -> RunConfig:
    first, second = graphs  # type: ignore[misc]
    return parse_run(
        f"""
[algorithm]
iterations = {K}
[scheme]
{scheme}
samples = {m}
[noise]
{noise}
[graph]
agents = {len(first)}
R = {first}
C = {second}
[data]
dataset = {json.dumps(f"npz:{data}")}
{partition}
[evaluate]
metrics = "study"
""",
        "bench",
        Path(),
    )


def scale(b: float) -> str:
    return f"scale_zeta = {b}\nscale_eta = {b}" if b else "multiplier = 0.0"


def attacked(attack: Attack, run: RunConfig, folder: Path, *options: Options) -> list[Result]:
    p = play(run, samples=attack is not gradients)
    seen = p.observe(folder / "transcript")
    return [attack.run(seen, p.memory(), option) for option in options]


def bench_gradients(data: Path, folder: Path, K: int) -> None:
    single = ("A", "X", "B", "B_from_x", "D", "E", "fused", "x")
    print(f"\ngradients, K = {K}: largest |measured/predicted - 1| over five agents, in percent")
    print(f"{'b':>8} " + " ".join(f"{n:>9}" for n in single))
    rows = []
    for b in SCALES:
        (result,) = attacked(gradients, run_file(data, K=K, m=55, noise=scale(b)), folder, Options())
        rows.append((b, result))
        off = {
            name: max(abs(f.measured[f"{name}_rms"] / f.predicted[f"{name}_rms"] - 1) for f in result.findings)
            for name in single
            if b
        }
        if b:
            print(f"{b:8g} " + " ".join(f"{100 * off[n]:9.2f}" for n in single), flush=True)
        else:
            worst = {n: max(f.measured[f"{n}_rms"] for f in result.findings) for n in single}
            print(f"{b:8g} " + " ".join(f"{worst[n]:9.1e}" for n in single) + "   (errors themselves)", flush=True)
    print("\ncosine with g_k, averaged over agents and rounds: measured / predicted; largest rms error over that of B")
    print(
        f"{'b':>8} {'B':>17} {'fused':>17} {'smoothed':>17} {'L1':>8}   {'fused/B':>8} {'smoothed/B':>10} {'L1/B':>8}"
    )
    for b, result in rows:
        cells = [f"{_mean(result, f'{n}_cosine'):8.5f}/{_mean(result, f'{n}_cosine', predicted=True):8.5f}"
                 for n in ("B", "fused", "smoothed")]  # fmt: skip
        over = ["       -"] * 3
        if b:
            over = [
                f"{max(f.measured[f'{n}_over_B'] for f in result.findings):8.4f}"
                for n in ("fused", "smoothed", "likely")
            ]
        likely = f"{_mean(result, 'likely_cosine'):8.5f}" if b else "       -"
        print(f"{b:8g} " + " ".join(cells) + f" {likely}   " + " ".join(over))


def _mean(result: Result, key: str, *, predicted: bool = False) -> float:
    return float(np.mean([(f.predicted if predicted else f.measured)[key] for f in result.findings]))


def bench_labels(data: Path, folder: Path, K: int) -> None:
    print(f"\nlabels, K = {K}: share right (guessing); public test images where m > 1")
    for m in (1, 55):
        for b in SCALES:
            run = run_file(data, K=K, m=m, noise=scale(b))
            (result,) = attacked(labels, run, folder, Options(extra={"aux": "yes"} if m > 1 else {"classes": "10"}))
            exact = _mean(result, "batches_exact")
            print(
                f"  m = {m:2d}, b = {b:g}: {_mean(result, 'labels_right'):.3f} ({_mean(result, 'guessing'):.3f}), "
                f"whole batches {exact:.3f}",
                flush=True,
            )


def bench_membership(data: Path, folder: Path, K: int) -> None:
    with np.load(data) as whole:
        x, y = whole["x_train"], whole["y_train"]
    few = folder / "few.npz"
    np.savez(few, x_train=x[:500], y_train=y[:500], x_test=x[30000:32000], y_test=y[30000:32000])
    print(f"\nmembership, D = 100, {K} rounds: AUC [95 %] of each of five agents, then the mean")
    for m in ('"full"', 10):
        for b in (0.0, 0.1, 1.0):
            run = run_file(few, K=K - 1, m=m, noise=scale(b))
            kinds = (Options(extra={"D": "100"}), Options(extra={"filter": "plain"}))
            for kind, result in zip(("whitened", "plain"), attacked(membership, run, folder, *kinds), strict=True):
                cells = [
                    f"{f.measured['auc']:.3f} [{f.measured['auc_low']:.2f}, {f.measured['auc_high']:.2f}]"
                    for f in result.findings
                ]
                print(f"  m = {m}, b = {b:g}, {kind}: {', '.join(cells)}; {_mean(result, 'auc'):.3f}", flush=True)


def bench_properties(data: Path, folder: Path, K: int, draws: int = 5) -> None:
    print("\nproperties, eight agents with two digits each")
    partition = 'partition = "by-label"\nclass_assignment_mode = "random"\nseed = {seed}'
    exponents = [round(0.09 + 0.01 * i, 2) for i in range(1, 9)]
    settings = {
        "S1, p = 0.1": (S1, f"p_zeta = {exponents}\np_eta = {exponents}", 53),
        "S2, p = .9996": (S2, scale(0.9996**2000), 55),
    }
    for name, (scheme, noise, m) in settings.items():
        options = [Options(extra={"aux": aux, "classes": "10"}) for aux in ("no", "yes")]
        found: list[list[Result]] = [[], []]
        for seed in range(draws):
            run = run_file(
                data, K=K, m=m, noise=noise, scheme=scheme, graphs=(RING8, RING8), partition=partition.format(seed=seed)
            )
            for results, result in zip(found, attacked(properties, run, folder, *options), strict=True):
                results.append(result)
        for aux, results in zip(("no", "yes"), found, strict=True):
            findings = [f for result in results for f in result.findings]
            right = sum(f.verdict == "succeeds" for f in findings)
            curves = [r.curves[f"{f.agent}: its classes are right"][1] for r in results for f in r.findings]
            told = sorted(int(f.measured["rounds_needed"]) for f in findings if f.measured["rounds_needed"] is not None)
            low, high = _wilson(right, 8 * draws)
            print(
                f"  {name}, public samples {aux}: {right} of {8 * draws} agents [95 %: {low:.2f}, {high:.2f}] after "
                f"{K + 1} rounds; {sum(int(c[0]) for c in curves)} of {8 * draws} at message 1; right for good from "
                f"round {told[len(told) // 2] if told else '-'} (median), {told[-1] if told else '-'} (last)",
                flush=True,
            )


def _wilson(hits: int, n: int) -> tuple[float, float]:
    z, p = 1.96, hits / n
    middle, half = p + z * z / (2 * n), z * np.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return float((middle - half) / (1 + z * z / n)), float((middle + half) / (1 + z * z / n))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--rounds", type=int, default=60)
    arguments = parser.parse_args()
    data = arguments.data.absolute()
    with tempfile.TemporaryDirectory() as folder:
        for part in arguments.parts:
            begin = time.monotonic()
            if part == "gradients":
                bench_gradients(data, Path(folder), arguments.rounds)
            elif part == "labels":
                bench_labels(data, Path(folder), 20)
            elif part == "membership":
                bench_membership(data, Path(folder), 400)
            else:
                bench_properties(data, Path(folder), arguments.rounds)
            print(f"({part}: {time.monotonic() - begin:.0f} s)", flush=True)


if __name__ == "__main__":
    main()
