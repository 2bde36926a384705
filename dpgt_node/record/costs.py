"""What one agent's whole transcript costs, by accountant."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Self

from dpgt_node.privacy.accountants.registry import ACCOUNTANTS


class Epsilon(Mapping[str, float | None]):
    """An immutable mapping over the registered accountants: ``inf`` without noise, None where one says nothing.

    An accountant that only another version knows is left out.
    """

    __slots__ = ("_costs",)

    def __init__(self, **costs: float | None) -> None:
        self._costs = {name: costs.get(name) for name in ACCOUNTANTS}

    @classmethod
    def of(cls, costs: Mapping[str, float | None]) -> Self:
        """From a ledger's cost by accountant name; names it lacks are None."""
        return cls(**costs)

    def __getitem__(self, name: str) -> float | None:
        return self._costs[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._costs)

    def __len__(self) -> int:
        return len(self._costs)

    def __hash__(self) -> int:
        return hash(tuple(self._costs.values()))

    def __repr__(self) -> str:
        return f"Epsilon({', '.join(f'{k}={v!r}' for k, v in self._costs.items() if v is not None)})"
