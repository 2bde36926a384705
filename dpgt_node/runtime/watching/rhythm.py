"""When a daemon says where it stands: whenever its state changes, and then ever less often."""

from __future__ import annotations

FIRST_LINE_S, LAST_LINE_S = 10.0, 300.0


def line_every_s(age_s: float) -> float:
    """How long a line lasts: ten seconds at first, five minutes in a run of days."""
    return min(max(age_s / 12, FIRST_LINE_S), LAST_LINE_S)


class Rhythm:
    """Of one process that began at ``now_s``, monotonic seconds."""

    def __init__(self, now_s: float) -> None:
        self._began_s = self._said_s = now_s
        self._said: tuple[str, int] | None = None

    def due(self, state: str, k: int, now_s: float, *, last: bool = False) -> bool:
        """Whether a line is due in ``state``, round ``k``; it counts as said then.  ``last``: nothing comes after."""
        changed = self._said is None or self._said[0] != state
        waited = now_s - self._said_s >= line_every_s(now_s - self._began_s)
        if not (changed or waited or (last and self._said != (state, k))):
            return False
        self._said, self._said_s = (state, k), now_s
        return True
