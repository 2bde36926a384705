"""The picture in the README: what the two demos learn, and what an eavesdropper gets.

    dpgt demo --out runs/demo
    dpgt demo --private --no-eavesdrop --out runs/private
    python examples/picture.py runs/demo runs/private --out docs/demo.png

Left: test accuracy of the worst agent in every evaluated round.  Right: five digits, and what was recovered of them
from the wire (``eavesdropper.png`` of the first demo).
"""

from __future__ import annotations

import argparse
import csv
import json
from collections import defaultdict
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt

# An epsilon is shown with its accountant: here the smallest sound one of each mechanism.
LABELS = {"corrected": "{:,.0f} (corrected)", "gdp": "{:.0f} (gdp, delta {:g})"}


def worst(folder: Path) -> dict[int, float]:
    """Least test accuracy over the agents, in per cent, by round."""
    by_round: dict[int, list[float]] = defaultdict(list)
    with (folder / "metrics.csv").open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            by_round[int(row["k"])].append(100.0 * float(row["accuracy_test"]))
    return {k: min(values) for k, values in sorted(by_round.items())}


def epsilon(folder: Path) -> str:
    """The largest epsilon of any agent, with the accountant's name."""
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    name = "corrected" if summary["mechanism"] == "paper" else "gdp"
    largest = max(agent["epsilon"][name] for agent in summary["agents"])
    return LABELS[name].format(largest, summary["privacy"]["delta"])


def main() -> None:
    """Draw it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("demo", type=Path, help="output of dpgt demo")
    parser.add_argument("private", type=Path, help="output of dpgt demo --private")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()

    mpl.rcParams.update({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False})
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.2), width_ratios=(1.1, 1), layout="constrained")
    for folder, command, colour in (
        (arguments.private, "dpgt demo --private", "tab:blue"),
        (arguments.demo, "dpgt demo", "tab:orange"),
    ):
        curve = worst(folder)
        left.plot(list(curve), list(curve.values()), color=colour, label=f"{command}: epsilon {epsilon(folder)}")
    left.set(xlabel="round", ylabel="test accuracy of the worst agent, %", ylim=(0, 100), xlim=(0, None))
    left.legend(loc="lower right", frameon=False)
    right.imshow(plt.imread(arguments.demo / "eavesdropper.png"), cmap="gray", interpolation="bicubic")
    right.set_axis_off()
    figure.savefig(arguments.out, dpi=110)


if __name__ == "__main__":
    main()
