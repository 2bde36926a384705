"""Theorems 2 and 3, measured: how fast the mean-square gradient of the PL toys falls as K grows.

    python examples/rates.py --out docs/explanation/rates.svg

Every K is a run of its own (steps, m_K and, under S2, the noise depend on K), repeated many times; its figure is the
mean over the repetitions of ||grad F(x_{i,K+1})||^2 for the agent where it is largest.  The slope is that of a line
through the logarithms: against log(K+1) under S1, against K under S2.  A theorem is an upper bound: steeper is fine.
"""

from __future__ import annotations

import argparse
import io
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from dpgt_node.algo.graph import Topology
from dpgt_node.algo.schedule import Schedule
from dpgt_node.algo.theory import check_run
from dpgt_node.config import RunConfig, load_run
from dpgt_node.learning.oracle import constants
from dpgt_node.sim.ensemble import squared_gradients

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True, slots=True)
class Case:
    """A run file, the K to run it with, how often, and another start where ``start`` is given."""

    file: str
    Ks: tuple[int, ...]
    repetitions: int
    start: float | None = None

    def run(self) -> RunConfig:
        """The run file, started elsewhere if asked."""
        run = load_run(HERE / f"{self.file}.toml")
        if self.start is None:
            return run
        return replace(run, data=replace(run.data, params={**run.data.params, "start": self.start}))


CASES = (
    Case("pl-sine-s1", (125, 250, 500, 1000, 2000, 4000, 8000), 400),
    Case("pl-sine-s1", (4000, 8000, 16000, 32000, 64000), 400, start=0.2),
    Case("pl-linear-s1", (125, 250, 500, 1000, 2000, 4000, 8000), 400),
    Case("pl-linear-s1", (4000, 8000, 16000, 32000, 64000), 100, start=0.0),
    Case("pl-sine-s2", (10000, 15000, 20000, 25000, 30000, 40000), 100),
    Case("pl-linear-s2", (200, 400, 600, 800, 1000, 1200), 400),
)


@dataclass(frozen=True, slots=True)
class Measured:
    """Worst agent's mean over the repetitions of ||grad F||^2, with its standard error, for every K."""

    label: str
    scheme: str
    Ks: tuple[int, ...]
    means: tuple[float, ...]
    errors: tuple[float, ...]
    predicted: float

    @property
    def abscissa(self) -> np.ndarray:
        """What the logarithm of the mean should be linear in."""
        return np.log(np.array(self.Ks) + 1.0) if self.scheme == "S1" else np.array(self.Ks, dtype=float)

    @property
    def slope(self) -> tuple[float, float]:
        """Least-squares slope of log mean, and its standard error from those of the means."""
        centred = self.abscissa - self.abscissa.mean()
        weights = centred / (centred @ centred)
        relative = np.array(self.errors) / np.array(self.means)
        return float(weights @ np.log(self.means)), float(np.sqrt(np.square(weights * relative).sum()))

    @property
    def holds(self) -> bool:
        """At least as fast as predicted, by more than two standard errors."""
        slope, error = self.slope
        return slope + 2.0 * error <= self.predicted


def predicted_slope(run: RunConfig) -> float:
    """Theorem 2: -(theta - p_gamma).  Theorem 3: log max(rho(A_K), 1/p_m, max p^2).  Whatever ``check`` prints."""
    known = constants(run)
    assert known is not None
    report = check_run(
        run,
        Topology.from_config(run.graph),
        Schedule.from_config(run),
        D=(None,) * run.n,
        L1=known[0],
        mu=known[1],
    )
    if run.scheme.kind == "S1":
        assert report.rates.exponent is not None
        return -report.rates.exponent
    assert report.rates.factor is not None
    return math.log(report.rates.factor)


def measure(
    run: RunConfig, Ks: Sequence[int], repetitions: int, *, label: str, predicted: float, seed: int
) -> Measured:
    """Run every K ``repetitions`` times, each with noise of its own."""
    means, errors = [], []
    for K in Ks:
        values = squared_gradients(replace(run, algorithm=replace(run.algorithm, iterations=K)), repetitions, seed + K)
        worst = values[values.mean(axis=1).argmax()]
        means.append(float(worst.mean()))
        errors.append(float(worst.std(ddof=1)) / math.sqrt(repetitions))
    return Measured(label, run.scheme.kind, tuple(Ks), tuple(means), tuple(errors), predicted)


def measure_case(case: Case, seed: int) -> Measured:
    """One line of the table."""
    run = case.run()
    start = run.data.params["start"]
    return measure(
        run,
        case.Ks,
        case.repetitions,
        label=f"{case.file}, x_0 = {start:g}",
        predicted=predicted_slope(run),
        seed=seed,
    )


def table(results: Sequence[Measured]) -> str:
    """Markdown."""
    lines = [
        "| run | K | mean of \\|\\|grad F\\|\\|^2, first and last K | slope of | measured | predicted | verdict |",
        "|---|---|---|---|---|---|---|",
    ]
    for r in results:
        slope, error = r.slope
        against = "log(K+1)" if r.scheme == "S1" else "K"
        digits, error_digits = (".3f", ".3f") if r.scheme == "S1" else (".2e", ".0e")
        verdict = "at least as fast" if r.holds else "NOT SHOWN"
        lines.append(
            f"| {r.label} | {r.Ks[0]} to {r.Ks[-1]} | {r.means[0]:.2e}, {r.means[-1]:.2e} | log against {against} "
            f"| {slope:{digits}} ± {error:{error_digits}} | {r.predicted:{digits}} | {verdict} |"
        )
    return "\n".join(lines)


def draw(results: Sequence[Measured], out: Path) -> None:
    """The picture: means with two standard errors, and dashed the predicted slope through the first mean."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, LogLocator

    style: dict[str, Any] = {"svg.hashsalt": "rates", "svg.fonttype": "none", "font.size": 9, "axes.grid": True}
    style |= {"axes.spines.top": False, "axes.spines.right": False, "grid.alpha": 0.3}
    s1 = [r for r in results if r.scheme == "S1"]
    groups = (
        ("S1 (Theorem 2), from the minimiser or close to it", s1[0::2]),
        ("S1 (Theorem 2), from far away", s1[1::2]),
        ("S2 (Theorem 3), pl-sine", [r for r in results if r.scheme == "S2" and "sine" in r.label]),
        ("S2 (Theorem 3), pl-linear", [r for r in results if r.scheme == "S2" and "linear" in r.label]),
    )
    with matplotlib.rc_context(style):
        figure = Figure(figsize=(9.0, 6.2), layout="constrained")
        axes = figure.subplots(2, 2)
        for ax, (title, group) in zip(axes.flat, groups, strict=True):
            for j, r in enumerate(group):
                color = f"C{j}"
                bars = 2.0 * np.array(r.errors)
                ax.errorbar(r.Ks, r.means, yerr=bars, color=color, marker="o", ms=3.5, lw=1.2, label=r.label)
                bound = r.means[0] * np.exp(r.predicted * (r.abscissa - r.abscissa[0]))
                ax.plot(r.Ks, bound, color=color, ls="--", lw=1)
            ax.set(title=title, xlabel="K", yscale="log", xscale="log" if group[0].scheme == "S1" else "linear")
            shown = [mean for r in group for mean in r.means]
            span = max(shown) / min(shown)  # within two decades, powers of ten are too few ticks
            subs = (1, 1.5, 2, 3, 4, 5, 6, 7, 8) if span < 3 else (1, 2, 5) if span < 100 else (1,)
            ax.yaxis.set_major_locator(LogLocator(subs=subs))
            ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            if group[0].scheme == "S1":
                ax.set_xticks(group[0].Ks, [str(K) for K in group[0].Ks])
            ax.minorticks_off()
            ax.legend(fontsize=7.5, frameon=False, loc="best")
        title = "Mean of ||grad F||², worst agent: measured (dots, ± 2 standard errors) and slope predicted (dashed)"
        figure.suptitle(title, fontsize=10)
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    # A hundredth of a point is fine enough, and a font every viewer has: half the size.
    svg = re.sub(r"-?\d+\.\d{3,}", lambda number: f"{float(number.group()):.2f}", text.getvalue())
    svg = re.sub(r"font-family: '[^;\"]*", "font-family: sans-serif", svg)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(svg)


def main() -> int:
    """Print the table, write the picture; 1 when a slope is not shown to be steep enough."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="SVG to write")
    parser.add_argument("--seed", type=int, default=1, help="of the repetitions' noise (default: %(default)s)")
    arguments = parser.parse_args()
    results = [measure_case(case, arguments.seed + 1_000_000 * i) for i, case in enumerate(CASES)]
    print(table(results))
    draw(results, arguments.out)
    return 0 if all(r.holds for r in results) else 1


if __name__ == "__main__":
    raise SystemExit(main())
