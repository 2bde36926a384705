"""Robust mixing number by number, with plain lists: nothing shared with the product."""

from __future__ import annotations

import math
from fractions import Fraction


def mixed(rule, radius, b, i, weights, vectors, own):
    """sum_j weights[j] vectors[j] of agent ``i`` by ``rule``; ``weights``, ``vectors``: dicts by sender."""
    d = len(own)
    others = sorted(j for j in weights if j != i)
    total = [weights[i] * own[c] if i in weights else 0.0 for c in range(d)]
    if not others:
        return total
    if rule == "trimmed-mean":
        everything = sum(weights[j] for j in others)
        for c in range(d):
            ranked = sorted(others, key=lambda j: (vectors[j][c], j))
            left = ranked[b : len(ranked) - b]
            share = sum(Fraction(weights[j]) for j in left)
            mean = sum(Fraction(weights[j]) / share * Fraction(vectors[j][c]) for j in left)
            total[c] += everything * float(mean)
        return total
    centre = [0.0] * d if rule == "norm-clip" else own
    lengths = {j: math.dist(vectors[j], centre) for j in others}
    if rule == "self-clip":
        ranked = sorted(lengths.values(), reverse=True)
        radius = ranked[b]  # b of them are larger
    for j in others:
        factor = 1.0 if lengths[j] == 0.0 else min(1.0, radius / lengths[j])
        for c in range(d):
            total[c] += weights[j] * (centre[c] + factor * (vectors[j][c] - centre[c]))
    return total


def algorithm1(R, C, alpha, beta, gamma, x0, gradient, K, mix_x, mix_y):
    """x_k and y_k, lists [k][i][c], of Algorithm 1 without noise; ``mix_x(i, weights, vectors, own)`` is the sum."""
    n, d = len(x0), len(x0[0])
    x = [list(row) for row in x0]
    g = [gradient(i, x[i]) for i in range(n)]
    y = [list(row) for row in g]
    xs, ys = [x], [y]
    for _ in range(K):
        next_x, next_y = [], []
        for i in range(n):
            row = {j: R[i][j] for j in range(n) if R[i][j]}
            came = mix_x(i, row, {j: x[j] for j in row}, x[i])
            kept = 1 - alpha * sum(R[i])
            next_x.append([kept * x[i][c] + alpha * came[c] - gamma * y[i][c] for c in range(d)])
        new = [gradient(i, next_x[i]) for i in range(n)]
        for i in range(n):
            row = {j: C[i][j] for j in range(n) if C[i][j]}
            came = mix_y(i, row, {j: y[j] for j in row}, y[i])
            kept = 1 - beta * sum(C[j][i] for j in range(n))
            next_y.append([kept * y[i][c] + beta * came[c] + new[i][c] - g[i][c] for c in range(d)])
        x, y, g = next_x, next_y, new
        xs.append(x), ys.append(y)
    return xs, ys
