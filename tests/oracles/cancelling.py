"""Noise that cancels, by explicit matrices: nothing shared with the product."""

from __future__ import annotations

import itertools

import numpy as np


def laplacian(n, edges):
    L = np.zeros((n, n))
    for i, j in edges:
        e = np.zeros(n)
        e[i], e[j] = 1, -1
        L += np.outer(e, e)
    return L


def complete(n):
    return list(itertools.combinations(range(n), 2))


def covariance(s, sigma, edges, coalition=()):
    """(honest agents, covariance of what they release in one round towards the coalition)."""
    honest = [i for i in range(len(s)) if i not in coalition]
    inside = [(honest.index(i), honest.index(j)) for i, j in edges if i in honest and j in honest]
    return honest, np.diag([s[i] ** 2 for i in honest]) + sigma**2 * laplacian(len(honest), inside)


def exact(agent, s, sigma, edges, coalition=()):
    """[Sigma^-1]_ii."""
    honest, Sigma = covariance(s, sigma, edges, coalition)
    at = honest.index(agent)
    return np.linalg.inv(Sigma)[at, at]


def worst(agent, s, sigma, edges, colluding):
    others = [j for j in range(len(s)) if j != agent]
    return max(exact(agent, s, sigma, edges, T) for T in itertools.combinations(others, colluding))
