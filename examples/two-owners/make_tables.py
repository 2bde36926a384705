"""Made-up tables of flowers: what two gardens measured, each for itself, and what visitors bring to both.

The gardens grow different flowers: nobody has seen a tulip in the north, nor a daisy in the south.
"""

import csv

import numpy as np

SPECIES = ("daisy", "iris", "tulip")
TYPICAL = {"height": (12.0, 60.0, 35.0), "petal": (15.0, 40.0, 60.0)}
"""Of each species, in cm and mm; one flower in three is a quarter larger or smaller."""
SHADE = (0.2, 0.5, 0.8)
"""Part of each species that stands in the shade."""


def write(name: str, rows: int, shares: tuple[float, float, float], seed: int) -> None:
    rng = np.random.default_rng(seed)
    kind = rng.choice(len(SPECIES), size=rows, p=shares)
    height, petal = (np.array(TYPICAL[what])[kind] * np.exp(0.25 * rng.standard_normal(rows)) for what in TYPICAL)
    site = np.where(rng.random(rows) < np.array(SHADE)[kind], "shade", "sun")
    with open(name, "w", newline="") as file:
        lines = csv.writer(file)
        lines.writerow(["height", "petal", "site", "species"])
        for i in range(rows):
            lines.writerow([f"{height[i]:.1f}", f"{petal[i]:.1f}", site[i], SPECIES[kind[i]]])


write("north.csv", 800, (0.5, 0.5, 0.0), seed=1)
write("south.csv", 700, (0.0, 0.5, 0.5), seed=2)
write("visitors.csv", 600, (1 / 3, 1 / 3, 1 / 3), seed=3)
