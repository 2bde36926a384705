"""What a seed means: a small run with its options, and faults with the moments at which they strike."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Literal

from dpgt_node.algo.graph import Topology
from dpgt_node.algo.methods import METHODS
from dpgt_node.algo.methods.base import Method, Setting
from dpgt_node.algo.schedule import Schedule
from dpgt_node.config import model
from dpgt_node.config.privacy.traffic import Traffic
from dpgt_node.privacy.mechanisms import MECHANISMS as _MECHANISMS
from dpgt_node.privacy.mechanisms import TRACKING
from tests.sim.cases import CARRIED, NEEDED
from tests.swarm.clock import SECOND
from tests.swarm.process import COORDINATOR

Kind = Literal[
    "crash",
    "power",
    "twin",
    "impostor",
    "cut",
    "split",
    "break",
    "stuck",
    "misled",
    "copies",
    "slow",
    "freeze",
    "full",
    "lies",
    "torn",
    "rollback",
    "pause",
    "stop",
]
"""crash: kill -9, back after ``length_ns``.  power: its host is gone, which nobody notices before the keepalive does;
back likewise.  twin: somebody starts a second process with a copy of its state.  impostor: one without any, of another
version.  cut: nothing from ``process`` to ``peer``.  split: in neither direction.  break: their streams are reset.
stuck: their streams stay open and take nothing more.  misled: whoever dials ``peer`` finds another agent there.
copies: frames arrive a second time, later.  slow: messages take up to 2 s.  freeze: SIGSTOP.  full: the disk takes
nothing.  lies: a commit is durable and reports a failure.  torn: killed, and its stored bytes are damaged.  rollback:
killed, and a backup of its state directory is put back.  pause, stop: by the operator.
"""

MILLISECOND = 1_000_000
MECHANISMS = tuple(one.name for one in TRACKING)


@dataclass(frozen=True, slots=True)
class Fault:
    """``trigger``, ``boundary``: when process ``trigger`` passes its boundary of this number (all lives counted), or,
    with ``boundary`` None, at ``at_ns``.  Processes are 0-based agents, -1 is the coordinator.
    """

    kind: Kind
    process: int
    peer: int = 0
    trigger: int = 0
    boundary: int | None = None
    at_ns: int = 0
    length_ns: int = 0

    def __str__(self) -> str:
        where = f"{who(self.process)} -> {who(self.peer)}" if self.kind in _ON_LINKS else who(self.process)
        when = (
            f"at {self.at_ns / SECOND:.3f} s"
            if self.boundary is None
            else f"at boundary {self.boundary} of {who(self.trigger)}"
        )
        return f"{self.kind} {where} {when} for {self.length_ns / SECOND:.3f} s"


_ON_LINKS = ("cut", "split", "break", "stuck", "misled", "copies", "slow")


def who(index: int) -> str:
    """Name of a process."""
    return "coordinator" if index == COORDINATOR else f"agent-{index + 1}"


@dataclass(frozen=True, slots=True)
class Plan:
    """One trial.

    ``key``: hex of the keystream.  ``fresh``: every life of a process has its own keystream, as in production; else
    the test keystream, and the result must equal that of a run without faults, bit for bit.
    ``checkpoint_every``: rounds between checkpoints.  ``beside``: they are written beside the rounds.
    ``threads``: work and commits take time and come back as events.
    ``budget``: last round each agent's budget covers, None without a cap.  ``window``: unread messages a stream takes.
    ``chunk``: every vector travels in chunks of so many bytes; None: within its header, as small ones do.
    """

    seed: int
    run: model.RunConfig
    key: str
    fresh: bool
    checkpoint_every: int
    beside: bool
    announce_every: int
    threads: bool
    budget: tuple[int | None, ...]
    delay_ns: tuple[int, int]
    window: int
    faults: tuple[Fault, ...]
    chunk: int | None = None

    def __str__(self) -> str:
        run = self.run
        lines = [
            f"seed {self.seed}: n = {run.n}, K = {run.K}, {run.algorithm.method} {run.algorithm.mechanism}, "
            f"{run.data.dataset} {dict(run.data.params)}, barrier every {run.runtime.barrier_every}, checkpoint every "
            f"{self.checkpoint_every}{' beside' if self.beside else ''}, announce every {self.announce_every}, "
            f"{'threads' if self.threads else 'inline'}, {'fresh' if self.fresh else 'test'} keystream, "
            f"on_agent_loss = {run.runtime.on_agent_loss}, budget {list(self.budget)}, window {self.window}, "
            f"{'vectors inline' if self.chunk is None else f'chunks of {self.chunk} bytes'}",
            f"R = {[list(row) for row in run.graph.R]}",
            f"C = {[list(row) for row in run.graph.C]}",
            *(f"fault {number}: {fault}" for number, fault in enumerate(self.faults)),
        ]
        return "\n".join(lines)

    def without(self, number: int) -> Plan:
        """The same with one fault less."""
        return replace(self, faults=self.faults[:number] + self.faults[number + 1 :])


def plan_for(seed: int) -> Plan:
    """The trial of ``seed``."""
    chance = random.Random(seed)
    run = _run(chance)
    budget: tuple[int | None, ...] = (None,) * run.n
    if chance.random() < 0.12:
        budget = tuple(chance.choice([None, chance.randint(0, run.K)]) for _ in range(run.n))
    plan = Plan(
        seed,
        run,
        key=f"{chance.getrandbits(64):016x}",
        fresh=chance.random() < 0.5,
        checkpoint_every=chance.choice([1, 1, 2, 3, 5, 10]),
        beside=random.Random(f"states of {seed}").random() < 0.6,
        announce_every=chance.choice([1, 1, 2, 64]),
        threads=chance.random() < 0.5,
        budget=budget,
        delay_ns=(100_000, chance.choice([1, 10, 100]) * MILLISECOND),
        window=chance.choice([1, 2, 3, 64]),
        faults=(),
    )
    return replace(plan, faults=_faults(chance, plan))


def forgotten(seed: int) -> Plan:
    """A run in which one agent is cut off from what it would mix, loses its newest state, and an out-neighbour that
    mixed what was lost replays from a checkpoint: only what that neighbour once mixed proves the loss.
    """
    plan, chance = plan_for(seed), random.Random(f"forgotten {seed}")
    every = chance.choice([2, 3, 5])
    run = replace(plan.run, runtime=replace(plan.run.runtime, barrier_every=every, on_agent_loss="wait"))
    edges = [(j, i) for i in range(run.n) for j in range(run.n) if i != j and (run.graph.R[i][j] or run.graph.C[i][j])]
    chosen = [(a, b) for a, b in edges if any(i == a for _, i in edges)]
    plan = replace(plan, run=run, checkpoint_every=10, faults=(), budget=(None,) * run.n)
    if not chosen:
        return plan
    a, b = chance.choice(chosen)
    at = chance.randrange(40, 24 * (run.K + 1))
    late = at + chance.randrange(5, 74)
    faults = [Fault("cut", j, a, trigger=a, boundary=at, length_ns=5 * SECOND) for j, i in edges if i == a]
    faults.append(Fault("rollback", a, trigger=b, boundary=late, length_ns=SECOND))
    faults.append(Fault("crash", b, trigger=b, boundary=late + 1, length_ns=SECOND // 2))
    return replace(plan, faults=tuple(faults))


def sharing(seed: int) -> Plan:
    """The trial of ``seed`` where agents share noise, so that they agree on keys first."""
    plan, chance = plan_for(seed), random.Random(f"sharing {seed}")
    run = plan.run
    if run.n == 1:
        return plan
    pairs = tuple((i, chance.randrange(1, i)) for i in range(2, run.n + 1))  # a tree
    noise = model.Noise(
        None,
        model.NoiseStream("constant", (round(chance.uniform(0.05, 1.0), 3),) * run.n),
        law="gaussian",
        cancel=chance.choice([1, 2]),
        mask_graph=chance.choice(["complete", "ring", pairs]),
    )
    return replace(plan, run=replace(run, algorithm=replace(run.algorithm, mechanism="noise-once"), noise=noise))


def any_method(seed: int) -> Plan:
    """The trial of ``seed`` by Algorithm 1 in six of ten cases, else by another method; in one of five with shared
    noise.  Where each gradient is perturbed once, some rounds release nothing in half of the cases.  In one of three
    cases vectors travel in chunks; in one of four rounds are padded, or everybody sends to everybody, or both.

    Mutants are hunted in ``plan_for``: where there is no noise, a redraw does not show.
    """
    chunk = random.Random(f"chunks of {seed}").choice([None, None, None, None, 3, 5])
    plan = replace(_any_method(seed), chunk=chunk)
    dice = random.Random(f"traffic of {seed}")
    if dice.random() < 0.75:
        return plan
    traffic = Traffic(dice.choice([None, 64, 1000, "power-of-two"]), dice.choice(["none", "all-pairs", "all-pairs"]))
    return replace(plan, run=replace(plan.run, traffic=traffic))


def _any_method(seed: int) -> Plan:
    chance, plan = random.Random(f"method of {seed}"), plan_for(seed)
    if seed % 5 == 3:
        return _apart(seed, sharing(seed))
    method = METHODS["dpgt" if chance.random() < 0.6 else chance.choice([name for name in CARRIED if name != "dpgt"])]
    if method.name == plan.run.algorithm.method:
        return _apart(seed, plan)
    return _apart(seed, replace(plan, run=by(method, plan.run)))


def by(method: Method, run: model.RunConfig) -> model.RunConfig:
    """``run`` under ``method`` and its default mechanism: without noise where it draws none, on a toy that it takes."""
    algorithm = replace(run.algorithm, method=method.name, mechanism=next(iter(method.rules)))
    noise = run.noise if method.noisy else replace(run.noise, multiplier=0.0)
    run = replace(run, algorithm=algorithm, noise=noise, method_options=NEEDED.get(method.name, {}))
    setting = Setting(run, Topology.from_config(run.graph), Schedule.from_config(run), (None,) * run.n)
    if any(demand.breakers(setting) for demand in method.demands if demand.key == "data.dataset"):
        run = replace(run, data=model.Data("quadratic", params={"dimension": run.data.params.get("dimension", 1)}))
    return run


def _apart(seed: int, plan: Plan) -> Plan:
    chance, run = random.Random(f"releases of {seed}"), plan.run
    if not _MECHANISMS[run.algorithm.mechanism].accounted.once or chance.random() < 0.5:
        return plan
    settle = chance.randint(0, run.K // 2)
    later = [k for k in range(1, run.K - settle + 1) if chance.random() < 0.4]
    scheme = replace(run.scheme, releases=(0, *later), settle=settle)
    return replace(plan, run=replace(run, scheme=scheme, noise=replace(run.noise, by_release=(2.0, 0.5))))


def _matrix(chance: random.Random, n: int) -> model.Matrix:
    density, loops = chance.choice([0.3, 0.5, 0.9]), chance.choice([0.0, 0.0, 0.3, 1.0])
    weight = [0.25, 0.5, 1.0, 1.0, 1.7]
    return tuple(
        tuple(chance.choice(weight) if chance.random() < (loops if i == j else density) else 0.0 for j in range(n))
        for i in range(n)
    )


def _run(chance: random.Random) -> model.RunConfig:
    n = chance.choice([1, 2, 2, 3, 3, 3, 4, 5])
    K = chance.randint(3, 12)
    R, C = _matrix(chance, n), _matrix(chance, n)
    widest = max([sum(row) for row in R] + [sum(row[j] for row in C) for j in range(n)] + [1.0])
    step = 0.4 / widest
    dataset = chance.choice(["quadratic", "pl-sine", "pl-linear"])
    params: dict[str, model.Scalar] = {} if dataset == "pl-sine" else {"dimension": chance.randint(1, 4)}
    scales = tuple(round(chance.uniform(0.05, 1.0), 3) for _ in range(n))
    stream = model.NoiseStream("constant", scales)
    mechanism = chance.choice(MECHANISMS)
    return model.RunConfig(
        name="swarm",
        algorithm=model.Algorithm(iterations=K, mechanism=mechanism),
        scheme=model.SchemeS2(alpha=step, beta=step * 0.7, gamma=0.02, p_m=1.0, samples=chance.randint(1, 3)),
        noise=model.Noise(stream, stream, multiplier=chance.choice([1.0, 1.0, 1.0, 0.0])),
        graph=model.Graph(tuple(who(i) for i in range(n)), R, C),
        data=model.Data(dataset, params=params),
        privacy=model.Privacy(C=1.0),
        evaluate=model.Evaluation(every=chance.choice([1, 10])),
        runtime=model.Runtime(
            round_timeout_s=chance.choice([5.0, 20.0, 60.0]),
            register_timeout_s=600.0,
            on_agent_loss=chance.choice(["wait", "wait", "wait", "stop"]),
            barrier_every=chance.choice([1, 1, 2, 3, 5]),
        ),
    )


_WEIGHTS: dict[Kind, int] = {
    "crash": 12,
    "power": 3,
    "twin": 3,
    "impostor": 2,
    "cut": 4,
    "split": 3,
    "break": 6,
    "stuck": 4,
    "misled": 3,
    "copies": 5,
    "slow": 2,
    "freeze": 3,
    "full": 1,
    "lies": 1,
    "torn": 0,
    "rollback": 0,
    "pause": 2,
    "stop": 1,
}


def _faults(chance: random.Random, plan: Plan) -> tuple[Fault, ...]:
    n, K = plan.run.n, plan.run.K
    pairs = [(j, i) for i in range(n) for j in range(n) if i != j]
    edges = [(j, i) for j, i in pairs if plan.run.graph.R[i][j] or plan.run.graph.C[i][j]]
    kinds, weights = list(_WEIGHTS), list(_WEIGHTS.values())
    count = chance.choice([1, 2, 3, 3, 4, 6, 8])
    faults = []
    for kind in chance.choices(kinds, weights, k=count):
        process = chance.randrange(-1, n)
        if kind in ("full", "lies", "twin", "impostor"):
            process = chance.randrange(n)
        peer = chance.choice([p for p in range(-1, n) if p != process])
        if kind in _ON_LINKS and edges and (kind in ("copies", "misled") or chance.random() < 0.5):
            process, peer = chance.choice(edges)
        fault = _when(chance, Fault(kind, process, peer, length_ns=_length(chance, kind, plan)), n, K)
        faults.append(fault)
        if kind in ("twin", "impostor") and chance.random() < 0.4:  # the first looks dead
            faults.append(replace(fault, kind="freeze", length_ns=int(chance.uniform(2, 15) * SECOND)))
    if chance.random() < 0.12:  # ends the run: at most one, after the others
        kind = chance.choice(["rollback", "rollback", "torn"])
        faults.append(_when(chance, Fault(kind, chance.randrange(n), length_ns=_length(chance, "crash", plan)), n, K))
    return tuple(faults)


def _when(chance: random.Random, fault: Fault, n: int, K: int) -> Fault:
    if chance.random() < 0.2:
        return replace(fault, at_ns=int(chance.uniform(0, 4) * SECOND))
    trigger = fault.process if fault.kind == "crash" else chance.randrange(-1, n)
    most = 22 * (K + 1) if trigger != COORDINATOR else (3 * n + 2) * (K + 3)
    return replace(fault, trigger=trigger, boundary=chance.randrange(most))


def _length(chance: random.Random, kind: Kind, plan: Plan) -> int:
    if kind in ("break", "lies", "twin", "impostor"):
        return 0
    if kind == "stuck":  # until each end in turn has had enough of it
        return int(2 * plan.run.runtime.round_timeout_s * SECOND)
    longest = {"crash": 3.0, "power": 3.0, "rollback": 3.0, "torn": 3.0, "copies": 5.0}.get(kind, 15.0)
    return int(longest ** chance.uniform(-1, 1) * SECOND)
