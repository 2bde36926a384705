"""Scripts of the coordinator's machine alone, for agents a, b and c: barrier, rejoining, losses, refusals.

``< event`` goes in, ``> effect`` comes out; ``=`` is where the machine stands after that.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.golden.adapter import ExitCode, co, coordinator_text, liveness, t

S = 1_000_000_000


class Desk:
    """A coordinator's machine for a, b and c, driven by the script."""

    def __init__(self, lines: list[str], title: str, last_round: int = 5, **options: object) -> None:
        self.lines = lines
        lines.append(f"## {title}")
        options = {"barrier_every": 1, "on_agent_loss": "wait", "grace_ns": 4 * S, "settle_ns": 3 * S, **options}
        self.machine = co.CoordinatorMachine(
            "abc",
            last_round,
            register_timeout_ns=30 * S,
            liveness_ns=10 * S,
            now_ns=0,
            **options,  # type: ignore[arg-type]
        )

    def feed(self, *events: co.CoordinatorEvent, at_s: float = 0.0) -> None:
        """Step with each event at the same time."""
        for event in events:
            at = f" at {at_s:g} s" if at_s else ""
            self.lines.append(f"< {coordinator_text(event)}{at}")
            self.lines += [f"> {coordinator_text(e)}" for e in self.machine.step(event, int(at_s * S))]
        m, now_ns = self.machine, int(at_s * S)
        troubles = "; ".join(f"{trouble.kind} {trouble.line(now_ns)}" for trouble in m.troubles(now_ns))
        deadline = m.next_deadline_ns()
        due = "-" if deadline is None else f"{deadline / S:g} s"
        waits = ",".join(m.waiting_for())
        self.lines.append(
            f"= {m.phase.name.lower()} k={m.k} go={m.go_through} durable={m.all_durable_through} waits=({waits}) "
            f"due={due} troubles=({troubles})"
        )

    def begin(self, at_s: float = 0.0) -> None:
        self.feed(*(co.AgentJoined(name, -1, -1) for name in "abc"), at_s=at_s)

    def done(self, k: int, names: str = "abc", durable: int | None = None, at_s: float = 0.0) -> None:
        self.feed(*(co.AgentDone(n, k, k - 1 if durable is None else durable) for n in names), at_s=at_s)


def barrier() -> list[str]:
    """Rounds, blocks of rounds, announcements, the end."""
    lines: list[str] = []
    desk = Desk(lines, "round by round", last_round=2)
    desk.begin()
    for k in range(3):
        desk.done(k, "ab")
        desk.done(k, "c", durable=2 if k == 2 else k - 1)
    desk.done(2, "ab", durable=2)
    desk.feed(*(co.AgentFinished(name) for name in "abc"))
    desk.feed(t.Tick(), co.AgentGone("a"), at_s=99.0)
    desk = Desk(lines, "blocks of four rounds, announced in threes", 9, barrier_every=4, announce_every=3)
    desk.begin()
    for k in range(10):
        desk.done(k)
    return lines


def rejoin() -> list[str]:
    """Agents that leave and come back, with what they had and with less."""
    lines: list[str] = []
    desk = Desk(lines, "a Done that was lost with its stream")
    desk.begin()
    desk.done(0, "ab")
    desk.feed(co.AgentGone("c"), at_s=1.0)
    desk.feed(co.AgentJoined("c", 0, -1), at_s=2.5)
    desk = Desk(lines, "it replays from its checkpoint")
    desk.begin()
    desk.done(0)
    desk.done(1)
    desk.feed(co.AgentGone("b"), at_s=1.0)
    desk.feed(co.AgentJoined("b", 0, 0, released=1), at_s=2.0)
    desk.done(2, at_s=3.0)
    for title, joined in (
        ("its releases end before what it had reported", co.AgentJoined("b", 0, 0, released=0)),
        ("its checkpoint is older than what was announced", co.AgentJoined("b", -1, -1, released=1)),
    ):
        desk = Desk(lines, title)
        desk.begin()
        desk.done(0)
        desk.done(1)
        desk.feed(co.AgentGone("b"), at_s=1.0)
        desk.feed(joined, at_s=2.0)
        desk.feed(co.AgentGone("a"), co.AgentGone("c"), co.AgentGone("b"), at_s=3.0)
    desk = Desk(lines, "a coordinator that was restarted learns the round from the agents", 9, barrier_every=2)
    desk.feed(co.AgentJoined("a", 4, 4, released=5))
    desk.done(5, "a", durable=4)
    desk.feed(co.AgentJoined("b", -1, -1, released=4))
    desk.feed(co.AgentJoined("c", 4, 3, released=4))
    desk.done(5, "bc", durable=4)
    desk = Desk(lines, "the same when it was paused, and one agent has its result", 5, paused=True)
    desk.feed(co.AgentJoined("a", 5, 5, finished=True))
    desk.feed(co.AgentJoined("b", 3, 3, released=4), co.AgentJoined("c", 3, 3, released=4))
    desk.feed(co.ResumeRequested())
    desk = Desk(lines, "all came back, one with less than the others prove", 5)
    desk.feed(co.AgentJoined("a", 3, 3, released=4), co.AgentJoined("b", 3, 3, released=3))
    desk.feed(co.AgentJoined("c", 2, 2, released=2))
    return lines


def loss() -> list[str]:
    """Agents that leave, fall silent, are cut off or are slow, under both rules; agents that never come."""
    lines: list[str] = []
    for rule in ("wait", "stop"):
        desk = Desk(lines, f"left, on_agent_loss = {rule}", on_agent_loss=rule)
        desk.begin()
        desk.feed(co.AgentGone("b"), at_s=1.0)
        desk.feed(co.AgentHeard("a"), co.AgentHeard("c"), at_s=8.0)
        desk.feed(t.Tick(), at_s=10.0)
        desk.feed(t.Tick(), at_s=11.0)
        desk.feed(t.Tick(), at_s=12.0)
        desk.feed(co.AgentJoined("b", -1, -1), at_s=13.0)
        desk = Desk(lines, f"silent, on_agent_loss = {rule}", on_agent_loss=rule)
        desk.begin()
        desk.feed(co.AgentHeard("a"), co.AgentHeard("c"), at_s=9.0)
        desk.feed(t.Tick(), at_s=10.0)
        desk.feed(co.AgentHeard("b"), at_s=11.0)
        desk = Desk(lines, f"cut, on_agent_loss = {rule}", on_agent_loss=rule)
        desk.begin()
        down = liveness.EdgeReport(0, 0, (), (liveness.Down("b", S, "refused"),))
        desk.feed(co.AgentEdges("a", down), at_s=2.0)
        desk.feed(*map(co.AgentHeard, "abc"), t.Tick(), at_s=5.0)
        lack = liveness.EdgeReport(0, 4 * S, (liveness.Lack("c", None),))
        desk.feed(co.AgentEdges("a", liveness.EdgeReport(0, 0)), co.AgentEdges("b", lack), at_s=6.0)
        desk.feed(*map(co.AgentHeard, "abc"), t.Tick(), at_s=12.5)
    desk = Desk(lines, "slow")
    desk.begin()
    desk.done(0, "ab", at_s=1.0)
    desk.feed(*map(co.AgentHeard, "abc"), at_s=9.0)
    desk.feed(t.Tick(), at_s=11.0)
    desk.done(0, "c", at_s=12.0)
    desk = Desk(lines, "two never register")
    desk.feed(co.AgentJoined("b", -1, -1))
    desk.feed(t.Tick(), at_s=29.0)
    desk.feed(t.Tick(), at_s=30.0)
    desk.feed(t.Tick(), at_s=33.0)
    desk.feed(t.Tick(), at_s=34.0)
    return lines


def refusals() -> list[str]:
    """An agent refuses, fails, or the operator stops: one word for all, the first reason stays."""
    lines: list[str] = []
    for event in (
        co.AgentRefused("b", "the policy forbids it"),
        co.AgentRefused("b", "another run file", ExitCode.CONFIG),
        co.AgentFailed("b", "the budget is used up", ExitCode.BUDGET),
        co.AgentFailed("b", "no trust", ExitCode.PEER_LOST),
        co.AgentFailed("b", "a bug", ExitCode.BUG),
        co.StopRun("stopped by the operator"),
    ):
        desk = Desk(lines, f"{type(event).__name__} {int(event.exit_code)} in the middle")
        desk.begin()
        desk.done(0)
        desk.feed(event, at_s=1.0)
        desk.feed(co.StopRun("late"), co.PauseRequested(), at_s=1.5)
        desk.feed(co.AgentJoined("a", 0, 0), at_s=2.0)
        desk.feed(*map(co.AgentGone, "abc"), at_s=3.0)
    desk = Desk(lines, "a refusal before anybody else came")
    desk.feed(co.AgentRefused("c", "no"))
    desk = Desk(lines, "pause before the start, and twice")
    desk.feed(co.PauseRequested())
    desk.begin()
    desk.feed(co.PauseRequested(), co.PauseRequested())
    desk.done(0)
    desk.feed(co.ResumeRequested(), co.ResumeRequested())
    return lines


SCRIPTS: dict[str, Callable[[], list[str]]] = {
    "coordinator-barrier": barrier,
    "coordinator-rejoin": rejoin,
    "coordinator-loss": loss,
    "coordinator-refusals": refusals,
}
