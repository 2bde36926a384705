"""Which troubles were named to the operator: each once, and its end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

from dpgt_node.protocol.liveness import NS, Trouble


class Alarms:
    """``liveness_ns``: after how long who is lost is lost.  ``stops``: that ends the run; else it is waited for."""

    def __init__(self, liveness_ns: int, *, stops: bool) -> None:
        self._liveness_ns = liveness_ns
        self._stops = stops
        self._named: dict[tuple[str, str, str | None], Trouble] = {}

    @property
    def any(self) -> bool:
        """Whether any trouble is named."""
        return bool(self._named)

    def over(self, name: str, kinds: Iterable[Literal["left", "silent"]], now_ns: int) -> Iterator[str]:
        """A line where agent ``name`` was named as one of ``kinds``, which it is no longer."""
        ended = [self._named.pop((kind, name, None)) for kind in kinds if (kind, name, None) in self._named]
        if ended:
            yield f"{name} is back after {(now_ns - ended[0].since_ns) / NS:.1f} s"

    def judge(self, troubles: Sequence[Trouble], now_ns: int) -> Iterator[tuple[str, bool]]:
        """Lines for what is wrong, or over, and was not said before, and whether it ends the run: that is the last."""
        found = {trouble.key: trouble for trouble in troubles}
        away = {trouble.agent for trouble in troubles if trouble.kind in ("left", "silent")}
        for key in [key for key in self._named if key not in found]:
            over = self._named.pop(key)
            if over.kind == "cut" and away.isdisjoint((over.agent, over.other)):
                yield f"{over.agent} reaches {over.other} again", False
        for key, trouble in found.items():
            line = trouble.line(now_ns)
            lost = trouble.kind != "slow" and now_ns >= trouble.since_ns + self._liveness_ns
            if lost and self._stops:
                yield line, True
                return
            if key not in self._named and now_ns >= trouble.named_ns:
                self._named[key] = trouble
                yield f"{line}; waiting for it (on_agent_loss = wait)" if lost else line, False


def contradicted(name: str, held: int, furthest: str, claimed: int, reached: int) -> str:
    """Why a run ends in which agent ``name`` lacks rounds without which ``furthest`` cannot be where it says.

    Nothing that ``name`` itself ever said tells that it had them, so one word stands against the other.
    """
    return (
        f"{name} says that its last release is of round {held}; {furthest} says that it released round {claimed}, "
        f"which nobody may before all have released round {reached}: {name} has an old state directory, or {furthest} "
        "does not say what is so; put the newer one back, or start a new run"
    )
