"""Features of one image, one pixel at a time, in Python numbers: nothing shared with the product."""

from __future__ import annotations

import math

import numpy as np
import scipy.linalg


def padded(image: list[list[float]], row: int, column: int, pad: int) -> float:
    """The pixel of the image zero-padded by ``pad`` on every side, zero beyond as well."""
    r, c = row - pad, column - pad
    return image[r][c] if 0 <= r < len(image) and 0 <= c < len(image) else 0.0


def unit(values: list[float], order: int) -> list[float]:
    norm = math.fsum(abs(v) ** order for v in values) ** (1.0 / order)
    return [v / norm for v in values] if norm else values


def pool14(image: list[list[float]]) -> list[float]:
    pooled = []
    for r in range(0, 28, 2):
        for c in range(0, 28, 2):
            pooled.append((image[r][c] + image[r][c + 1] + image[r + 1][c] + image[r + 1][c + 1]) / 4.0)
    return pooled


def hog(image: list[list[float]], shift: float) -> list[float]:
    """privacy.md, section 8, read literally; windows left to right, top to bottom, bins of one window together."""
    return unit([v - shift for v in windows(image)], 2)


def windows(image: list[list[float]]) -> list[float]:
    values = []
    for top in range(0, 28, 4):
        for left in range(0, 28, 4):
            values += orientations(image, range(top, top + 8), range(left, left + 8))
    return unit([math.sqrt(v) for v in values], 2)


def smooth_windows(image: list[list[float]]) -> list[float]:
    """A cell of 2 x 2 pixels counts 1 in the middle of its window, 0 at 6 pixels from it, linear between, each way."""
    cells = {}
    for row in range(16):
        for column in range(16):
            cells[row, column] = orientations(image, range(2 * row, 2 * row + 2), range(2 * column, 2 * column + 2))
    values = []
    for down in range(4, 32, 4):
        for right in range(4, 32, 4):
            window = [0.0] * 8
            for (row, column), bins in cells.items():
                near = [
                    max(0.0, 1.0 - abs(2 * place + 1 - middle) / 6.0)
                    for place, middle in ((row, down), (column, right))
                ]
                window = [sum_ + near[0] * near[1] * found for sum_, found in zip(window, bins, strict=True)]
            values += window
    return unit([math.sqrt(v) for v in values], 2)


def hog_shapes(image: list[list[float]], mean: list[float], matrix: list[list[float]]) -> list[float]:
    """``matrix``: symmetric."""
    away = [v - m for v, m in zip(smooth_windows(image), mean, strict=True)]
    return unit([math.fsum(w * a for w, a in zip(row, away, strict=True)) for row in matrix], 2)


def whitening(rows: np.ndarray, power: float, ridge: float) -> tuple[list[float], list[list[float]]]:
    """Mean of ``rows`` and (their covariance + ridge times its mean eigenvalue)^(-power)."""
    p = rows.shape[1]
    mean = [math.fsum(column) / len(rows) for column in rows.T.tolist()]
    away = rows - np.array(mean)
    covariance = sum((np.outer(a, a) for a in away), np.zeros((p, p))) / (len(rows) - 1)
    found = scipy.linalg.fractional_matrix_power(covariance + ridge * np.trace(covariance) / p * np.eye(p), power)
    return mean, np.linalg.inv(found.real).tolist()


def edges(image: list[list[float]]) -> list[float]:
    """Cells of 6 x 6 in the middle 24 x 24 of the image zero-padded by 2."""
    values = []
    for top in range(4, 28, 6):
        for left in range(4, 28, 6):
            values += orientations(image, range(top, top + 6), range(left, left + 6))
    return unit([v**1.5 for v in values], 1)


def orientations(image: list[list[float]], rows: range, columns: range) -> list[float]:
    """Summed gradient strength in 8 directions over a part of the padded image."""
    bins = [0.0] * 8
    for r in rows:
        for c in columns:
            across = (padded(image, r, c + 1, 2) - padded(image, r, c - 1, 2)) / 2.0
            down = (padded(image, r + 1, c, 2) - padded(image, r - 1, c, 2)) / 2.0
            turn = math.degrees(math.atan2(down, across)) % 360.0
            for j in range(8):
                away = abs((turn - 45.0 * j + 180.0) % 360.0 - 180.0)
                bins[j] += math.hypot(across, down) * max(0.0, 1.0 - away / 45.0)
    return bins
