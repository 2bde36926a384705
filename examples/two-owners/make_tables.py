"""Two made-up tables of flowers, ``north.csv`` and ``south.csv``: what two gardens measured, each for itself."""

import csv

import numpy as np

SPECIES = ("daisy", "iris", "tulip")
MIDDLE = {"height": (10.0, 45.0, 30.0), "petal": (12.0, 30.0, 45.0)}
"""Of each species, in cm and mm."""


def write(name: str, rows: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    kind = rng.integers(len(SPECIES), size=rows)
    height = np.array(MIDDLE["height"])[kind] + 6.0 * rng.standard_normal(rows)
    petal = np.array(MIDDLE["petal"])[kind] + 6.0 * rng.standard_normal(rows)
    site = np.where(rng.random(rows) < np.array([0.2, 0.5, 0.8])[kind], "shade", "sun")
    with open(name, "w", newline="") as file:
        lines = csv.writer(file)
        lines.writerow(["height", "petal", "site", "species"])
        for i in range(rows):
            lines.writerow([f"{height[i]:.1f}", f"{petal[i]:.1f}", site[i], SPECIES[kind[i]]])


write("north.csv", 500, seed=1)
write("south.csv", 400, seed=2)
