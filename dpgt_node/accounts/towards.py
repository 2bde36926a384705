"""Epsilon towards whom: what any t of the other agents together learn, where pairs of agents share noise.

No such number is shown without its t and without what it rests on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from dpgt_node.accounts.account import AgentAccount
from dpgt_node.privacy.accountants.registry import APPROXIMATE

ASSUMPTIONS: Final = (
    "two honest agents at least: the agent itself, and one that it shares noise with",
    "X25519, HKDF and AES hold, today and later: a quantum computer would undo the first",
    "whoever admits agents may be many of them: of the others, count as honest those that you trust",
)
"""What an epsilon towards fewer than all others rests on."""
ALL: Final = "towards all others together it rests on none of this"
_EVERY: Final = 12
"""Up to so many agents every t is shown."""


@dataclass(frozen=True, slots=True)
class Towards:
    """``epsilon[i][j]``: of agent i towards any ``colluding[j]`` of the others, by ``accountant`` at ``delta``.

    The last of ``colluding`` is n-1, everybody else: what the ledger charges.
    """

    accountant: str
    delta: float
    colluding: tuple[int, ...]
    epsilon: tuple[tuple[float, ...], ...]

    def to_json(self) -> dict[str, Any]:
        """{ accountant, delta, colluding: [t], epsilon: [[agent's, a number a t]], assumptions: [text] }."""
        return {
            "accountant": self.accountant,
            "delta": self.delta,
            "colluding": list(self.colluding),
            "epsilon": [list(row) for row in self.epsilon],
            "assumptions": [*ASSUMPTIONS, ALL],
        }


def shown(n: int) -> tuple[int, ...]:
    """The t of a table for ``n`` agents, ascending: all of them where they are few."""
    if n <= _EVERY:
        return tuple(range(n))
    return tuple(sorted({0, 1, n // 4, n // 2, 3 * n // 4, n - 2, n - 1}))


def towards_whom(accounts: Sequence[AgentAccount]) -> Towards | None:
    """Of the whole run, by the last accountant that has a value for everybody; None where no noise is shared."""
    n = len(accounts)
    if not any(account.shares for account in accounts):
        return None
    for name in reversed(APPROXIMATE):
        colluding = shown(n)
        rows = [[account.towards(name, t) for t in colluding] for account in accounts]
        known = tuple(tuple(v for v in row if v is not None) for row in rows)
        if all(len(row) == len(colluding) for row in known):
            return Towards(name, accounts[0].releases.delta, colluding, known)
    return None
