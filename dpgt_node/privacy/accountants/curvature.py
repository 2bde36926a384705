"""Lam: how fast the gradient of one sample can move in L1 when the point moves in L1.

Softmax regression, logits W phi + s b: with v = (phi, s) the Hessian of one sample is (diag(p) - p p') (x) v v', and
its L1 -> L1 norm is its largest absolute column sum.  Column (c, j):

    sum_{c',j'} |p_c [c=c'] - p_c p_c'| |v_j| |v_j'| = |v_j| ||v||_1 (p_c (1-p_c) + p_c sum_{c'!=c} p_c')
                                                     = 2 p_c (1-p_c) |v_j| ||v||_1 <= ||v||_inf ||v||_1 / 2

so ||grad(x) - grad(x')||_1 <= (||v||_inf ||v||_1 / 2) ||x - x'||_1, and no smaller constant serves every x.
"""

from __future__ import annotations

from dpgt_node.privacy.accountants.rounding import up


def softmax_hessian_l1(feature_l1: float, feature_max: float, bias: float) -> float:
    """L1 -> L1 bound of one sample's Hessian, rounded up; before clipping.

    ``feature_l1``, ``feature_max``: bounds of ||phi||_1 and ||phi||_inf that hold for EVERY possible sample (pixels in
    [0, 1], normalised features): a maximum over the agent's own samples says nothing of the replaced one, and is itself
    private.  ``bias``: the s of the run file.
    """
    return up(max(feature_max, abs(bias)) * (feature_l1 + abs(bias)) / 2.0, 4)
