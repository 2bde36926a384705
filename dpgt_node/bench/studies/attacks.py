"""What the adversaries find on MNIST, beside what theory predicts.

DATA.npz: x_train (60000, 784) in [0, 1], y_train, x_test, y_test, as numpy.savez writes them.  Runs are the simulator's
own, on the demo's graphs, softmax on raw pixels (d = 7,850), mechanism "paper", every link tapped; noise is the
sampler's from a test keystream, so that the figures repeat.

gradients: D = 12,000 an agent, m = 55, alpha .1, beta .01, gamma .1, scales b.  The largest deviation of measured from
predicted errors over agents, cosines averaged over agents and rounds, and every fusion's error over that of B.
membership: D = 100, 400 rounds; samples of the second half of the training images are public.  properties: eight agents
with two digits each, the noise of Section IV.  labels: m = 1 and m = 55.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from dpgt_node.adversary.attack import Attack, Finding, Options, Result
from dpgt_node.adversary.attacks.gradients import attack as gradients
from dpgt_node.adversary.attacks.labels import attack as labels
from dpgt_node.adversary.attacks.membership import attack as membership
from dpgt_node.adversary.attacks.properties import attack as properties
from dpgt_node.adversary.inference.observation import Observation
from dpgt_node.bench.children import ChildFailed
from dpgt_node.bench.figures import Around, Row, Spread, Value, option, required
from dpgt_node.config import Adversary, RunConfig, parse_run
from dpgt_node.record.truth import find_truth
from dpgt_node.sim.simulate import simulate
from dpgt_node.values import dataclass
from dpgt_node.wire.transcript import Header, Transcript
from dpgt_node.wire.transcript_writer import TranscriptWriter

R = [[0, 0, 0, 0, 1], [1, 0, 0, 0, 0], [1, 1, 0, 0, 0], [0, 0, 1, 0, 0], [0, 0, 0, 1, 0]]
C = [[0, 0, 1, 0, 1], [1, 0, 0, 0, 0], [0, 1, 0, 0, 0], [0, 0, 1, 0, 0], [0, 0, 0, 1, 0]]
RING8 = [[1 if i == (j + 1) % 8 else 0 for j in range(8)] for i in range(8)]
S2 = 'kind = "S2"\nalpha = 0.1\nbeta = 0.01\ngamma = 0.1\np_m = 1.0'
# Section IV's constants at K = 2000, for the first rounds of such a run.
S1 = 'kind = "S1"\na1 = 0.04\na2 = 0.005\na3 = 0.05\na4 = 1\np_alpha = 0\np_beta = 0\np_gamma = 0\np_m = 0.5'
SCALES = (0.0, 1e-4, 1e-3, 1e-2, 0.1, 1.0)
SINGLE = ("A", "X", "B", "B_from_x", "D", "E", "fused", "x")
KEY, RUN_ID = "5eed", bytes(range(16))
PARTS = ("gradients", "labels", "membership", "properties")


Graphs = tuple[list[list[int]], list[list[int]]]


@dataclass(frozen=True, slots=True)
class Settings:
    data: Path = required("", metavar="DATA.npz", positional=True)
    part: tuple[str, ...] = option(PARTS, "What to measure.", choices=PARTS)
    rounds: int = option(60, "K of gradients and properties.", least=2)
    labels_rounds: int = option(20, "K of labels.", least=1)
    membership_rounds: int = option(400, "Rounds of membership.", least=2)
    draws: int = option(5, "Of the classes that agents hold.", least=1)
    scale: tuple[float, ...] = option(SCALES, "b of gradients and labels.")


def figures(settings: Settings, around: Around) -> Iterator[Row]:
    parts = {
        "gradients": measured_gradients,
        "labels": measured_labels,
        "membership": measured_membership,
        "properties": measured_properties,
    }
    for part in settings.part:
        with around.temporary() as folder:
            yield from parts[part](settings, folder)


def run_file(
    data: Path, *, K: int, m: object, noise: str, scheme: str = S2, graphs: Graphs = (R, C), partition: str = ""
) -> RunConfig:
    """A run on ``data``; ``m``: scheme.samples."""
    first, second = graphs
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
    """Both scales are b."""
    return f"scale_zeta = {b}\nscale_eta = {b}" if b else "multiplier = 0.0"


def attacked(attack: Attack, run: RunConfig, folder: Path, *options: Options) -> list[Result]:
    """What ``attack`` finds in a simulated run of which every link was tapped."""
    names = run.graph.agents
    run = replace(run, adversary=Adversary(names, truth=True))
    with around_run(folder) as out:
        simulate(run, out, RUN_ID, test_keystream=KEY)
        path = out / "transcript"
        with TranscriptWriter(path, Header("eavesdropper", run_id=RUN_ID, source="dpgt simulate")) as writer:
            for name in names:
                for entry in Transcript(out / "agents" / name / "state" / "transcript"):
                    if not entry.own:
                        writer.write(entry)
        seen, truth = Observation.load([path], run), find_truth(out, names, RUN_ID)
        return [attack.run(seen, truth, option) for option in options]


@contextlib.contextmanager
def around_run(folder: Path) -> Iterator[Path]:
    """A folder below ``folder`` for one run; gigabytes go when it is over."""
    with tempfile.TemporaryDirectory(dir=folder) as name:
        yield Path(name)


def measured_gradients(settings: Settings, folder: Path) -> Iterator[Row]:
    K, rows = settings.rounds, []
    for b in settings.scale:
        (result,) = attacked(gradients, run_file(settings.data, K=K, m=55, noise=scale(b)), folder, Options())
        rows.append((b, result))
        if not b:
            errors = {n: max(_number(f.measured, f"{n}_rms") for f in result.findings) for n in SINGLE}
            yield Row(f"gradients without noise, K = {K}: largest rms error", errors)
            continue
        off = {n: max(_off(finding, f"{n}_rms") for finding in result.findings) for n in SINGLE}
        yield Row(f"gradients, K = {K}: largest |measured/predicted - 1|", {"b": b, **off})
    for b, result in rows:
        cells: dict[str, Value] = {"b": b}
        for name in ("B", "fused", "smoothed"):
            cells[name] = _mean(result, f"{name}_cosine")
            cells[f"{name} predicted"] = _mean(result, f"{name}_cosine", predicted=True)
        cells["L1"] = _mean(result, "likely_cosine") if b else None
        for name in ("fused", "smoothed", "likely"):
            cells[f"{name}/B"] = max(_number(f.measured, f"{name}_over_B") for f in result.findings) if b else None
        yield Row("cosine with g_k, agents and rounds; largest rms error over that of B", cells)


def _mean(result: Result, key: str, *, predicted: bool = False) -> float:
    return float(np.mean([_number(f.predicted if predicted else f.measured, key) for f in result.findings]))


def _off(finding: Finding, key: str) -> float:
    return abs(_number(finding.measured, key) / _number(finding.predicted, key) - 1)


def _number(figures: Mapping[str, float | None], key: str) -> float:
    value = figures[key]
    if value is None:
        raise ChildFailed(f"the attack does not say {key}")
    return value


def measured_labels(settings: Settings, folder: Path) -> Iterator[Row]:
    K = settings.labels_rounds
    for m in (1, 55):
        for b in settings.scale:
            run = run_file(settings.data, K=K, m=m, noise=scale(b))
            (result,) = attacked(labels, run, folder, Options(extra={"aux": "yes"} if m > 1 else {"classes": "10"}))
            names = {"right": "labels_right", "guessing": "guessing", "whole batches": "batches_exact"}
            cells: dict[str, Value] = {"m": m, "b": b}
            cells |= {heading: _mean(result, key) for heading, key in names.items()}
            yield Row(f"labels, K = {K}; public test images where m > 1", cells)


def measured_membership(settings: Settings, folder: Path) -> Iterator[Row]:
    with np.load(settings.data, allow_pickle=False) as whole:
        x, y = whole["x_train"], whole["y_train"]
    few, rounds, half = folder / "few.npz", settings.membership_rounds, len(y) // 2
    np.savez(few, x_train=x[:500], y_train=y[:500], x_test=x[half : half + 2000], y_test=y[half : half + 2000])
    for m in ('"full"', 10):
        for b in (0.0, 0.1, 1.0):
            run = run_file(few, K=rounds - 1, m=m, noise=scale(b))
            kinds = (Options(extra={"D": "100"}), Options(extra={"filter": "plain"}))
            for kind, result in zip(("whitened", "plain"), attacked(membership, run, folder, *kinds), strict=True):
                first = result.findings[0].measured
                yield Row(
                    f"membership, D = 100, {rounds} rounds: AUC of agents, and 95 % of the first one's",
                    {
                        "filter": kind,
                        "m": str(m).strip('"'),
                        "b": b,
                        "AUC": Spread.over([_number(f.measured, "auc") for f in result.findings]),
                        "mean": _mean(result, "auc"),
                        "low": first["auc_low"],
                        "high": first["auc_high"],
                    },
                )


def measured_properties(settings: Settings, folder: Path) -> Iterator[Row]:
    partition = 'partition = "by-label"\nclass_assignment_mode = "random"\nseed = {seed}'
    exponents = [round(0.09 + 0.01 * i, 2) for i in range(1, 9)]
    cases = {
        "S1, p = 0.1": (S1, f"p_zeta = {exponents}\np_eta = {exponents}", 53),
        "S2, p = .9996": (S2, scale(0.9996**2000), 55),
    }
    for name, (scheme, noise, m) in cases.items():
        options = [Options(extra={"aux": aux, "classes": "10"}) for aux in ("no", "yes")]
        found: list[list[Result]] = [[], []]
        for seed in range(settings.draws):
            run = run_file(
                settings.data,
                K=settings.rounds,
                m=m,
                noise=noise,
                scheme=scheme,
                graphs=(RING8, RING8),
                partition=partition.format(seed=seed),
            )
            for results, result in zip(found, attacked(properties, run, folder, *options), strict=True):
                results.append(result)
        for aux, results in zip(("no", "yes"), found, strict=True):
            yield Row(
                f"properties, eight agents with two digits each, {settings.rounds + 1} rounds",
                {"noise": name, "public samples": aux, **_told(results)},
            )


def _told(results: Sequence[Result]) -> dict[str, Value]:
    findings = [f for result in results for f in result.findings]
    right = sum(f.verdict == "succeeds" for f in findings)
    curves = [r.curves[f"{f.agent}: its classes are right"][1] for r in results for f in r.findings]
    needed = [f.measured["rounds_needed"] for f in findings]
    told = sorted(int(n) for n in needed if n is not None)
    low, high = _wilson(right, len(findings))
    return {
        "right": right,
        "of": len(findings),
        "95 % low": low,
        "high": high,
        "at message 1": sum(int(c[0]) for c in curves),
        "for good from round, median": told[len(told) // 2] if told else None,
        "last": told[-1] if told else None,
    }


def _wilson(hits: int, n: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share."""
    z, p = 1.96, hits / n
    middle, half = p + z * z / (2 * n), z * np.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return float((middle - half) / (1 + z * z / n)), float((middle + half) / (1 + z * z / n))
