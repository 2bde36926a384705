"""A coordinator's machine with three agents, driven by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from dpgt_node import __version__
from dpgt_node.config import RunConfig, canonical_json, parse_run
from dpgt_node.protocol import messages as m
from dpgt_node.protocol.calls import Accepted, Call, End, Ended, Heard, Note, Taken, Write
from dpgt_node.protocol.coordinator import coordination_types as ct
from dpgt_node.protocol.coordinator.coordination import Coordination
from dpgt_node.protocol.types import Tick

S = 1_000_000_000
NAMES = ("agent-1", "agent-2", "agent-3")
RUN_ID = b"r" * 16
RUN = """
name = "desk"
[algorithm]
iterations = {K}
[scheme]
kind = "S2"
alpha = 0.2
beta = 0.2
gamma = 0.02
p_m = 1.0
[noise]
scale_zeta = 0.1
scale_eta = 0.01
[graph]
agents = 3
R = [[0, 1, 0], [1, 0, 0], [0, 1, 0]]
C = [[0, 0, 1], [0, 0, 0], [0.5, 1, 0]]
[data]
dataset = "quadratic"
dimension = 3
[evaluate]
metrics = "study"
[runtime]
round_timeout = 16
register_timeout = 300
"""


def run_of(K: int = 2) -> RunConfig:
    """Heartbeats every 2 s, silence is lost after 16 s."""
    return parse_run(RUN.format(K=K), "run.toml", Path("/"))


class Desk:
    """``now_s`` is the time of every step; whoever changes it by more than two heartbeats puts the process to sleep."""

    def __init__(
        self,
        run: RunConfig | None = None,
        *,
        heads: Mapping[str, tuple[int, bytes]] | None = None,
        samples: Mapping[str, int | None] | None = None,
        paused: bool = False,
        machine: Callable[..., Coordination] = Coordination,
    ) -> None:
        self.run = run_of() if run is None else run
        self.json = canonical_json(self.run)
        self.now_s = 0.0
        self.numbers = 0
        self.machine = machine(
            self.run,
            RUN_ID,
            heads or {},
            samples=samples or {},
            paused=paused,
            announce=lambda dimension: 1,
            now_ns=self._now_ns(),
        )

    def _now_ns(self) -> int:
        return int(self.now_s * S)

    def feed(self, *events: ct.CoordinationEvent) -> list[Any]:
        """What the machine wants of these, log lines left out."""
        return [e for e in self.all(*events) if not isinstance(e, Note)]

    def all(self, *events: ct.CoordinationEvent) -> list[Any]:
        """The same with log lines."""
        return [effect for event in events for effect in self.machine.step(event, self._now_ns())]

    def tick(self, seconds: float) -> list[Any]:
        """Let time pass, with a Tick whenever the machine wants one."""
        end_s, out = self.now_s + seconds, []
        while (due_ns := self.machine.next_deadline_ns()) is not None and due_ns <= int(end_s * S):
            assert due_ns > self._now_ns(), "a deadline that passed and was served"
            self.now_s = due_ns / S
            out += self.feed(Tick())
        self.now_s = end_s
        return out

    def registration(self, name: str, **changes: Any) -> m.Register:
        """What a process of ``name`` says that holds nothing yet."""
        made = m.Register(
            name=name,
            run_sha256="",
            run_json=self.json,
            advertise=f"{name}:1",
            samples=None,
            dimension=3,
            shape_sha256="0" * 64,
            last_released_round=-1,
            last_done_round=-1,
            last_durable_round=-1,
            finished=False,
            run_id=b"",
            instance=name.encode(),
            package_version=__version__,
        )
        return replace(made, **changes)

    def call(self, peer: str) -> Call:
        """A call of ``peer`` that said nothing yet."""
        self.numbers += 1
        call = Call(peer, self.numbers, dialled=False)
        assert self.feed(Accepted(call, "1.2.3.4:5")) == []
        return call

    def register(self, name: str, peer: str = "", **changes: Any) -> tuple[Call, list[Any]]:
        """A process registers; ``peer``: what its certificate says."""
        call = self.call(peer or name)
        return call, self.feed(Heard(call, self.registration(name, **changes)))

    def seat(self, name: str, **changes: Any) -> tuple[Call, list[Any]]:
        """It registers, is welcome, reads so and is ready; what follows then."""
        call, out = self.register(name, **changes)
        assert [type(message) for message in said(out, call)] == [m.Welcome]
        return call, self.feed(Taken(call, 0, 0), Heard(call, m.Ready()))

    def start(self) -> list[Call]:
        """Everybody is here."""
        return [self.seat(name)[0] for name in NAMES]

    def say(self, call: Call, *messages: object) -> list[Any]:
        """An agent says something."""
        return self.feed(*(Heard(call, message) for message in messages))

    def leave(self, *calls: Call) -> list[Any]:
        """Calls end."""
        return self.feed(*(Ended(call) for call in calls))

    def conclude(self) -> list[Any]:
        """An operator stops the run, everybody leaves, and the end is written."""
        self.feed(ct.Asked(m.ControlRequest("stop", "enough")))
        calls = [seat.call for seat in self.machine._members._seats.values()]
        (conclude,) = self.leave(*calls) if calls else [None]
        return self.feed(ct.Closed(conclude))


def said(out: list[Any], call: Call) -> list[Any]:
    """What a call is told in these effects."""
    return [effect.message for effect in out if isinstance(effect, Write) and effect.call == call]


def ended(out: list[Any], call: Call) -> str | None:
    """How the machine ended a call: the gRPC status, "OK", or None where it did not."""
    ends = [effect.error for effect in out if isinstance(effect, End) and effect.call == call]
    assert len(ends) <= 1
    return None if not ends else "OK" if ends[0] is None else ends[0].grpc_status
