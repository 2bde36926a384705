"""What noise that cancels hides, and from whom.

Agent i releases g~_i = g_i + s_i N_i + sum of +-sigma M_ij over its partners j, with N_i and M_ij independent standard
normal, new in every round, and M_ij = M_ji with opposite signs at the two ends.  A coalition T of other agents sees
every message, may send anything, and knows the N of its members and the M of every pair that one of them is in.  With
H the agents outside T, the honest releases of a round then have the covariance

    Sigma = diag(s_i^2) + sigma^2 L(E[H]),   L the Laplacian of the pairs inside H

and towards T agent i is mu-GDP with mu^2 = sum over the releases of (C2/m)^2 [Sigma^-1]_ii
(docs/explanation/theory-cancelling.md, Theorem A).  Leaving out the pairs that i is not in can only lower Sigma; what
is left is a star, whose Schur complement is the bound of :func:`precision`.  It needs nothing but i's own pairs, so
nothing that anybody says of other agents' pairs changes what i charges.
"""

from __future__ import annotations

from collections.abc import Sequence

from dpgt_node.privacy.accountants.rounding import up


def precision(own: float, partners: Sequence[float], sigma: float, colluding: int) -> float:
    """An upper bound of [Sigma^-1]_ii under any coalition of ``colluding`` others, rounded up.

    ``own`` = s_i > 0 and ``partners`` = s_j of everybody who shares noise with i, in any unit; ``sigma`` in the same.
    The worst coalition takes those partners whose part hides most:

        1/(s_i^2 + sum over the honest partners j of sigma^2 s_j^2/(sigma^2 + s_j^2))

    Equality for a complete mask graph with equal s.  With ``colluding`` >= len(partners): 1/s_i^2, the own noise alone.
    ValueError for ``own`` = 0: then the coalition of all others sees g_i itself, whatever sigma.
    """
    if not own > 0.0:
        raise ValueError("an agent without noise of its own has no guarantee, whatever it shares")
    hiding = sorted((sigma * s) ** 2 / (sigma * sigma + s * s) if s > 0.0 else 0.0 for s in partners)
    honest = hiding[: max(len(hiding) - colluding, 0)]
    return up(1.0 / (own * own + sum(honest)), len(partners) + 12)


def share(partners: int, r: int, colluding: int) -> float:
    """mu(t)^2/mu(n-1)^2 for equal s and sigma = ``r`` s, where t = ``colluding``; in (0, 1], rounded up.

    1 where everybody who shares noise with the agent may collude: never more than its own noise alone costs.
    """
    return min(precision(1.0, [1.0] * partners, float(r), colluding), 1.0)
