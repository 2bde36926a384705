"""Scripts of agents' machines: every event that goes in, every effect that comes out.

``< event`` goes in, ``> effect`` comes out, in order; the first word says whose machine.  A whole run is a network in
memory: one queue, first in, first out; a machine's own work is answered before anything else is delivered to it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.golden.adapter import (
    AgentMachine,
    DpgtError,
    RunConfig,
    Worker,
    agent_text,
    co,
    coordinator_text,
    params_of,
    run_of,
    t,
)

S = 1_000_000_000
RUN = """
name = "machines"
[algorithm]
iterations = {K}
mechanism = "{mechanism}"
[scheme]
kind = "S2"
alpha = 0.2
beta = 0.1
gamma = 0.02
p_m = 1.0
[noise]
scale_zeta = 0.1
scale_eta = 0.05
law = "{law}"
[graph]
agents = {n}
R = {R}
C = {C}
[data]
dataset = "quadratic"
dimension = 3
[privacy]
{clip} = 1.0
[evaluate]
every = {every}
metrics = "study"
[runtime]
barrier_every = {barrier_every}
wire_dtype = "{wire_dtype}"
"""
CROSSED = ("[[0, 0, 1], [1, 0, 0], [0.5, 1, 0]]", "[[0, 1, 0], [0, 0, 1], [1, 0, 0]]")
"""R a ring with a chord, C a ring the other way round."""
LOOPS = ("[[1, 0.5], [1, 0]]", "[[0, 1], [0.25, 1]]")
TREES = ("[[0, 0, 0], [1, 0, 0], [0, 1, 0]]", "[[0, 1, 0], [0, 0, 1], [0, 0, 0]]")
"""An agent that receives nothing in R, one that sends nothing in C."""


def run(
    graph: tuple[str, str] = CROSSED,
    *,
    K: int = 3,
    mechanism: str = "paper",
    law: str = "laplace",
    clip: str = "clip_l1",
    every: int = 2,
    barrier_every: int = 1,
    wire_dtype: str = "float64",
) -> RunConfig:
    R, C = graph
    return run_of(RUN.format(**{**locals(), "n": R.count("[") - 1}))


@dataclass
class Disk:
    """What one agent made durable."""

    records: dict[int, t.RoundRecord] = field(default_factory=dict)
    states: dict[int, t.State] = field(default_factory=dict)
    final: object = None

    def recovered(self) -> t.Recovered | None:
        """From the last checkpoint on."""
        if not self.states:
            return None
        checkpoint = self.states[max(self.states)]
        later = sorted(k for k in self.records if k >= checkpoint.k)
        return t.Recovered(checkpoint, tuple(self.records[k] for k in later))


class Net:
    """The agents of a run and their coordinator in memory; ``lines`` is the script."""

    def __init__(
        self,
        config: RunConfig,
        *,
        checkpoint_every: int = 1,
        beside: bool = False,
        budget_through: int | None = None,
    ) -> None:
        self.config = config
        self.names = config.graph.agents
        self.lines: list[str] = []
        self.disks = [Disk() for _ in self.names]
        self.workers = [Worker(config, i) for i in range(len(self.names))]
        self._options = {"checkpoint_every": checkpoint_every, "beside": beside, "budget_through": budget_through}
        self.machines = [self.made(i) for i in range(len(self.names))]
        self.links: set[tuple[int, int]] = set()
        self.started = False
        self.queue: deque[tuple[int, int, object]] = deque()
        self.writing: list[tuple[int, t.State]] = []
        self.coordinator = co.CoordinatorMachine(
            self.names,
            config.K,
            barrier_every=config.runtime.barrier_every,
            register_timeout_ns=10 * S,
            liveness_ns=10 * S,
            on_agent_loss="wait",
            now_ns=0,
        )

    def made(self, i: int) -> AgentMachine:
        """Agent i's machine on what its disk holds."""
        disk, runtime = self.disks[i], self.config.runtime
        return AgentMachine(
            params_of(self.config, i),
            self.config.K,
            evaluate_every=self.config.evaluate.every,
            run_ahead=runtime.barrier_every,
            recovered=disk.recovered(),
            finished=disk.final,  # type: ignore[arg-type]
            **self._options,  # type: ignore[arg-type]
        )

    def title(self, text: str) -> None:
        self.lines.append(f"## {text}")

    def feed(self, i: int, event: t.AgentEvent) -> None:
        """Step agent i, answer its work, queue what it sends."""
        mine: deque[t.AgentEvent] = deque([event])
        while mine:
            event = mine.popleft()
            self.lines.append(f"{self.names[i]} < {agent_text(event)}")
            for effect in self.machines[i].step(event, 0):
                self.lines.append(f"{self.names[i]} > {agent_text(effect)}")
                self._carry_out(i, effect, mine)

    def _carry_out(self, i: int, effect: t.AgentEffect, mine: deque[t.AgentEvent]) -> None:
        answer = self.workers[i].answer(effect)
        if answer is not None:
            mine.append(answer)
        match effect:
            case t.Persist(record):
                self.disks[i].records[record.k] = record
                if record.checkpoint is not None:
                    self.disks[i].states[record.k] = record.checkpoint
                mine.append(t.Persisted(record.k))
            case t.KeepState(state):
                self.writing.append((i, state))
            case t.SaveFinal(x):
                self.disks[i].final = x
                mine.append(t.FinalSaved())
            case t.Send(peer, payloads):
                self.queue.extend((i, peer, t.VectorReceived(i, payload)) for payload in payloads)
            case t.Resend(peer, k, streams):
                record = self.disks[i].records[k]
                held = [p for p in record.payloads if p.stream in streams]
                self.queue.extend((i, peer, t.VectorReceived(i, payload)) for payload in held)
            case t.ReportDone(k, durable):
                self.queue.append((i, -1, co.AgentDone(self.names[i], k, durable)))
                if k == self.config.K:
                    self.queue.append((i, -1, co.AgentFinished(self.names[i])))

    def tell(self, event: co.CoordinatorEvent) -> None:
        """Step the coordinator and queue what it says."""
        self.lines.append(f"coordinator < {coordinator_text(event)}")
        for effect in self.coordinator.step(event, 0):
            self.lines.append(f"coordinator > {coordinator_text(effect)}")
            everybody = [i for i, name in enumerate(self.names) if self.coordinator.connected(name)]
            match effect:
                case co.BroadcastStart(go):
                    self.queue.extend((-1, i, t.Started(go)) for i in everybody)
                case co.Broadcast(message):
                    self.queue.extend((-1, i, message) for i in everybody)
                case co.BroadcastStop(reason, _):
                    self.queue.extend((-1, i, t.StopRequested(reason)) for i in everybody)
                case co.Dismiss():
                    self.queue.extend((-1, i, t.Dismissed()) for i in everybody)

    def join(self, i: int) -> None:
        """Agent i registers with what it holds."""
        m = self.machines[i]
        self.tell(co.AgentJoined(self.names[i], m.done_through, m.durable_through, released=m.released_through))

    def connect(self, i: int) -> None:
        """Streams open in both directions between agent i and those it shares edges with."""
        for j in range(len(self.names)):
            for sender, receiver in ((i, j), (j, i)):
                if receiver in self.machines[sender].peers and (sender, receiver) not in self.links:
                    self.links.add((sender, receiver))
                    m = self.machines[receiver]
                    self.feed(sender, t.PeerNeeds(receiver, *m.needs(sender), m.mixed_before))

    def crash(self, i: int) -> None:
        """Agent i is gone, with everything that was on the way to it and from it."""
        self.lines.append(f"{self.names[i]} is killed")
        self.queue = deque(item for item in self.queue if i not in item[:2])
        self.writing = [item for item in self.writing if item[0] != i]
        self.machines[i] = self.made(i)
        for sender, receiver in sorted(self.links):
            if i in (sender, receiver):
                self.links.discard((sender, receiver))
                if receiver == i:
                    self.feed(sender, t.PeerGone(receiver))
        self.tell(co.AgentGone(self.names[i]))

    def deliver(self, until: Callable[[], bool] = lambda: False) -> None:
        """Deliver what waits, until ``until`` or nothing moves."""
        held = 0
        while self.queue and held < len(self.queue) and not until():
            source, target, event = self.queue.popleft()
            if isinstance(event, t.VectorReceived) and event.payload.k > self.machines[target].window()[1]:
                self.queue.append((source, target, event))  # flow control holds it
                held += 1
                continue
            held = 0
            if target < 0:
                self.tell(event)  # type: ignore[arg-type]
            else:
                self.feed(target, event)  # type: ignore[arg-type]

    def written(self) -> None:
        """Every state that is being written becomes durable."""
        writing, self.writing = self.writing, []
        for i, state in writing:
            self.disks[i].states[state.k] = state
            self.feed(i, t.StateKept(state.k))

    def start(self) -> None:
        for i in range(len(self.names)):
            self.join(i)
        for i in range(len(self.names)):
            self.connect(i)


def whole(config: RunConfig, **options: object) -> list[str]:
    """A run from the first registration to the farewell."""
    net = Net(config, **options)  # type: ignore[arg-type]
    net.start()
    net.deliver()
    return net.lines


def crashes(checkpoint_every: int) -> list[str]:
    """An agent is killed in round 2 and comes back: it replays from its checkpoint and draws nothing again."""
    net = Net(run(K=3), checkpoint_every=checkpoint_every)
    net.start()
    net.deliver(lambda: net.machines[1].released_through == 2)
    net.crash(1)
    net.title("it comes back")
    net.join(1)
    net.connect(1)
    net.deliver()
    return net.lines


def beside() -> list[str]:
    """States are written beside the rounds: they wait for one that takes long, an agent is killed while its own is
    written, and hands it out again when it comes back.
    """
    net = Net(run(K=6), checkpoint_every=3, beside=True)
    net.start()
    net.deliver()
    net.title("nobody goes on to round 6 before its state of round 3 is durable; one is killed and comes back")
    net.crash(1)
    net.join(1)
    net.connect(1)
    net.deliver()
    net.title("the states are durable")
    net.written()
    net.deliver()
    return net.lines


def comes_back_with_result() -> list[str]:
    """An agent that has its result is killed before the others have theirs; it serves, draws nothing, and leaves."""
    net = Net(run(TREES, K=1))
    net.start()
    net.deliver(lambda: net.disks[0].final is not None)
    net.crash(0)
    net.title("it comes back with its result")
    net.join(0)
    net.connect(0)
    net.deliver()
    return net.lines


def budget() -> list[str]:
    """The owner's budget covers round 1 and no later one."""
    net = Net(run(K=3), budget_through=1)
    net.start()
    net.deliver()
    return net.lines


def stop() -> list[str]:
    """The operator stops a run in round 1; the grace period passes for an agent that stays."""
    net = Net(run(K=3))
    net.start()
    net.deliver(lambda: net.coordinator.k == 1)
    net.title("stop")
    net.tell(co.StopRun("enough"))
    net.deliver()
    net.tell(co.AgentGone(net.names[0]))
    net.tell(co.AgentGone(net.names[1]))
    net.lines.append("coordinator is 11 s older")
    net.lines += [f"coordinator > {coordinator_text(effect)}" for effect in net.coordinator.step(t.Tick(), 11 * S)]
    return net.lines


def pause() -> list[str]:
    """Paused in round 1: agents finish it, nobody goes on before the resume."""
    net = Net(run(K=3))
    net.start()
    net.deliver(lambda: net.coordinator.k == 1)
    net.tell(co.PauseRequested())
    net.deliver()
    net.title("nothing moves any more; resume")
    net.tell(co.ResumeRequested())
    net.deliver()
    return net.lines


# --- one agent by hand ----------------------------------------------------------------------------------------------


class Hand:
    """One agent's machine of ``config`` in front of neighbours that are the script's."""

    def __init__(self, lines: list[str], machine: AgentMachine, worker: Worker) -> None:
        self.lines, self.machine, self.worker = lines, machine, worker

    def feed(self, event: t.AgentEvent, now_ns: int = 0) -> None:
        """Step; work is answered, what is persisted is durable at once."""
        queue: deque[t.AgentEvent] = deque([event])
        while queue:
            event = queue.popleft()
            at = f" at {now_ns}" if now_ns else ""
            self.lines.append(f"agent < {agent_text(event)}{at}")
            try:
                effects = self.machine.step(event, now_ns)
            except DpgtError as error:
                self.lines.append(f"agent ! {type(error).__name__} exit={int(error.exit_code)}: {error}")
                return
            for effect in effects:
                self.lines.append(f"agent > {agent_text(effect)}")
                answer = self.worker.answer(effect)
                if answer is not None:
                    queue.append(answer)
                elif isinstance(effect, t.Persist):
                    queue.append(t.Persisted(effect.record.k))
                elif isinstance(effect, t.SaveFinal):
                    queue.append(t.FinalSaved())


def _hand(lines: list[str], recovered: t.Recovered | None = None, **options: object) -> Hand:
    config = run(K=3)
    options = {"evaluate_every": 2, "checkpoint_every": 1, "recovered": recovered, **options}
    return Hand(lines, AgentMachine(params_of(config, 0), 3, **options), Worker(config, 0))  # type: ignore[arg-type]


def _recorded() -> tuple[Net, t.Recovered]:
    net = Net(run(K=3))
    net.start()
    net.deliver(lambda: net.machines[0].released_through == 1 and net.machines[0].done_through == 0)
    held = net.disks[0].recovered()
    assert held is not None
    return net, held


def old_state() -> list[str]:
    """Neighbours that hold what this state directory forgot: nothing is drawn, every time the same error."""
    lines: list[str] = []
    _, held = _recorded()
    for title, needs in (
        ("a fresh directory; a neighbour that holds round 0", (None, t.PeerNeeds(1, 1, 0))),
        ("releases through round 1; a neighbour that lacks round 2 is no proof", (held, t.PeerNeeds(1, 2, 2))),
        ("releases through round 1; a neighbour that holds X of round 2", (held, t.PeerNeeds(1, 3, 0))),
        ("the same of Y, which this edge does not carry", (held, t.PeerNeeds(1, 0, 3))),
        ("the same of Y, on the edge that carries it", (held, t.PeerNeeds(2, 0, 3))),
        ("a neighbour that replays, and once mixed round 2", (held, t.PeerNeeds(2, 0, 0, 3))),
    ):
        lines.append(f"## {title}")
        hand = _hand(lines, needs[0])
        hand.feed(t.Started(3))
        hand.feed(needs[1])
    return lines


def peers() -> list[str]:
    """Neighbours that come late, leave, come back, and ask again; copies; stalls; announcements."""
    lines: list[str] = []
    net, _ = _recorded()
    x3, y2 = net.disks[2].records[0].on("X"), net.disks[1].records[0].on("Y")
    hand = _hand(lines, stall_ns=5 * S)
    hand.feed(t.Started(0))
    hand.feed(t.PeerNeeds(1, 0, 0))
    lines.append("## only now has every out-neighbour said what it lacks")
    hand.feed(t.PeerNeeds(2, 0, 0))
    hand.feed(t.PeerGone(1))
    lines.append("## round 0 waits: who is missing is said after the stall time, and again")
    hand.feed(t.Tick(), 4 * S)
    hand.feed(t.Tick(), 5 * S)
    hand.feed(t.VectorReceived(2, x3), 6 * S)
    hand.feed(t.VectorReceived(2, x3), 6 * S)
    hand.feed(t.Tick(), 10 * S)
    hand.feed(t.VectorReceived(1, y2), 11 * S)
    hand.feed(t.Go(1), 11 * S)
    hand.feed(t.Go(1), 11 * S)
    lines.append("## the neighbour that was away asks for what it lacks, twice")
    hand.feed(t.PeerNeeds(1, 0, 0, 0), 12 * S)
    hand.feed(t.PeerNeeds(1, 1, 1, 1), 12 * S)
    hand.feed(t.PeerNeeds(2, 2, 1, 1), 12 * S)
    lines.append("## announcements")
    hand.feed(t.AllDurable(0), 13 * S)
    hand.feed(t.AllDurable(0), 13 * S)
    hand.feed(t.Started(1), 13 * S)
    hand.feed(t.StopRequested("enough"), 14 * S)
    hand.feed(t.Go(3), 14 * S)
    return lines


SCRIPTS: dict[str, Callable[[], list[str]]] = {
    "machine-paper": lambda: whole(run()),
    "machine-published-point": lambda: whole(run(K=2, mechanism="published-point")),
    "machine-public-state": lambda: whole(run(K=2, mechanism="public-state", law="gaussian", clip="clip_l2")),
    "machine-noise-once": lambda: whole(run(K=2, mechanism="noise-once")),
    "machine-self-loops": lambda: whole(run(LOOPS, K=2, wire_dtype="float32")),
    "machine-trees": lambda: whole(run(TREES, K=2)),
    "machine-barrier-3": lambda: whole(run(K=4, barrier_every=3)),
    "machine-crash": lambda: crashes(1),
    "machine-crash-replay": lambda: crashes(10),
    "machine-beside": beside,
    "machine-crash-finished": comes_back_with_result,
    "machine-budget": budget,
    "machine-stop": stop,
    "machine-pause": pause,
    "machine-old-state": old_state,
    "machine-peers": peers,
}
