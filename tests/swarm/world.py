"""One trial: processes, disks, network and faults, and an operator who starts again what ended."""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any
from unittest import mock

from dpgt_node.agent.noise import sampler_for
from dpgt_node.agent.work import AgentWork
from dpgt_node.algo.graph import Topology
from dpgt_node.algo.methods import network_of
from dpgt_node.algo.schedule import Schedule
from dpgt_node.config import canonical_json
from dpgt_node.config.privacy.cancelling import masks
from dpgt_node.errors import ExitCode
from dpgt_node.learning.oracle import build_oracle
from dpgt_node.privacy.laws.keystream import TestKeystream
from dpgt_node.privacy.laws.noise import ByteStream, Keystream, Purpose
from dpgt_node.privacy.laws.pairs import PairKeys, TestPairKeys
from dpgt_node.privacy.laws.sampler import LaplaceSampler
from dpgt_node.privacy.mechanisms import MECHANISMS
from dpgt_node.protocol import messages as m
from dpgt_node.protocol.agent.machine import AgentMachine
from dpgt_node.protocol.agent.session import Session
from dpgt_node.protocol.coordinator import barrier as co
from dpgt_node.protocol.coordinator.coordination import Coordination
from dpgt_node.protocol.coordinator.membership import Membership
from dpgt_node.protocol.types import Advance, AdvanceFinal, DrawRelease, State
from dpgt_node.types import F64, Stream
from dpgt_node.wire import codec
from tests.swarm.agent import AgentProcess
from tests.swarm.checkers import Checkers, Violation
from tests.swarm.clock import SECOND, Clock
from tests.swarm.coordinator import CoordinatorProcess, OutFolder
from tests.swarm.disk import Disk
from tests.swarm.network import KEEPALIVE_NS, Network
from tests.swarm.pairs import Watched as WatchedPairs
from tests.swarm.plan import MILLISECOND, Fault, Plan, who
from tests.swarm.process import COORDINATOR, Process
from tests.swarm.seats import disturbed
from tests.swarm.twins import Twin

LIVENESS_NS = 90 * SECOND
"""After the last fault is over the run must be over in this time."""
AFTERLIFE_NS = 15 * SECOND
"""How long a run that ended is watched on."""
OPERATOR_NS = 5 * SECOND
"""From a stop to the operator's next start."""
SUPERVISOR_NS = SECOND
"""From the end of one process to its restart."""
RECOVERY_NS = KEEPALIVE_NS + 3 * SECOND
"""After a fault a stream may take so long to be given up and opened again: whoever is called lost sooner was not."""
RUN_ID = bytes(range(16))


@dataclass(frozen=True, slots=True)
class Parts:
    """What a world is made of; a mutant replaces one."""

    session: Callable[..., Session] = Session
    agent: Callable[..., AgentMachine] = AgentMachine
    coordination: Callable[..., Coordination] = Coordination
    membership: Callable[..., Membership] = Membership
    barrier: Callable[..., co.CoordinatorMachine] = co.CoordinatorMachine
    work: Callable[..., AgentWork] = AgentWork
    state_first: bool = True
    """A state is a file before a row names it."""


PRODUCT = Parts()


@dataclass(frozen=True, slots=True)
class Seen:
    """One line of a transcript."""

    at_ns: int
    process: int
    verb: str
    what: Any


class _Watched:
    """The keystream of one agent, and who asks for it."""

    def __init__(self, world: World, index: int) -> None:
        self._world = world
        self._index = index
        self.inner: Keystream = TestKeystream(world.plan.key, index)

    def stream(self, k: int, purpose: Purpose) -> ByteStream:
        """The bytes of ``(k, purpose)``."""
        self._world.checkers.uses_keystream(self._index, k, purpose)
        return self.inner.stream(k, purpose)


def in_chunks(size: int) -> AbstractContextManager[Any]:
    """Every vector counts as a large one: a header, then chunks of ``size`` bytes."""
    return mock.patch.multiple(codec, INLINE_BYTES=0, CHUNK_BYTES=size)


class World:
    """Runs ``plan`` once.  ``trace``: keep a transcript."""

    def __init__(self, plan: Plan, parts: Parts = PRODUCT, *, trace: bool = False) -> None:
        run = plan.run
        self.plan, self.parts = plan, parts
        self.n, self.K, self.names, self.run_id = run.n, run.K, run.graph.agents, RUN_ID
        self.run_json = canonical_json(run)
        self.transcript: list[Seen] | None = [] if trace else None
        self.clock = Clock()
        self._chance = random.Random(f"world {plan.seed}")
        self.network = Network(self.clock, self._chance, self._delay_ns, self._processes_get)
        topology, schedule = Topology.from_config(run.graph), Schedule.from_config(run)
        network = network_of(run, topology)
        self.params = tuple(network.edges(i) for i in range(self.n))
        self._keystreams = tuple(_Watched(self, i) for i in range(self.n))
        self.graph = masks(run)
        """Who shares noise with whom, None where nobody does."""
        oracles = tuple(build_oracle(run, i) for i in range(self.n))

        def build(
            work: Callable[..., AgentWork], keystream: Callable[[int], Keystream], pairs: Callable[[int], PairKeys]
        ) -> tuple[AgentWork, ...]:
            plain = self.graph is None and MECHANISMS[run.algorithm.mechanism].noises > 0
            sampler = LaplaceSampler if plain else partial(sampler_for, run)
            return tuple(
                work(run, topology, schedule, i, oracles[i], keystream(i), sampler(), pairs(i)) for i in range(self.n)
            )

        self._works = build(parts.work, lambda i: self._keystreams[i], partial(WatchedPairs, self))
        self._reference = build(AgentWork, lambda i: TestKeystream(plan.key, i), lambda i: TestPairKeys(plan.key, i))
        self.dimension = self._reference[0].dimension
        self.caps = tuple(
            None if last is None else self._reference[i].epsilon_after(last) for i, last in enumerate(plan.budget)
        )
        self.edges = network
        self.edges_in = tuple(sum(map(len, p.incoming.values())) for p in self.params)
        self.disks = [Disk(name) for name in self.names]
        self._backups: list[list[Disk]] = [[] for _ in range(self.n)]
        self.out = OutFolder(RUN_ID)
        self.checkers = Checkers(self)
        self._processes: dict[int, Process] = {}
        self._lives: Counter[int] = Counter()
        self.boundaries: Counter[int] = Counter()
        self._at_boundary: dict[tuple[int, int], list[Fault]] = {}
        self._slow: dict[tuple[int, int], int] = {}
        self._mended_ns = [0] * self.n
        self._quiet_ns = self._disturbed_ns = 0
        self._over_ns: int | None = None
        self.struck: Counter[str] = Counter()
        self.disturbed_ns = [-LIVENESS_NS] * self.n
        """Until when something may have kept each agent's heartbeats from the coordinator."""
        self.excused = False
        """Whether an agent's operator made a mistake that ends the run."""
        self.other_keys = False
        """Whether an agent may have lost the key that others pinned."""
        self.status = "unfinished"

    # --- the trial ----------------------------------------------------------------------------------------------

    def go(self) -> None:
        """Run to the end.  Raises Violation."""
        with contextlib.nullcontext() if self.plan.chunk is None else in_chunks(self.plan.chunk):
            self._go()

    def _go(self) -> None:
        for fault in self.plan.faults:
            if fault.boundary is None:
                self.clock.at(fault.at_ns, lambda fault=fault: self._strike(fault))  # type: ignore[misc]
            else:
                self._at_boundary.setdefault((fault.trigger, fault.boundary), []).append(fault)
        for index in range(-1, self.n):
            self.clock.at(self._chance.randint(0, SECOND), lambda index=index: self._start(index))  # type: ignore[misc]
        while self._over_ns is None or (self.clock.now_ns < self._over_ns + AFTERLIFE_NS and self._somebody()):
            assert self.clock.step()
            if self._over_ns is None and self.clock.now_ns > self._quiet_ns + LIVENESS_NS:
                raise Violation("liveness", f"not over {LIVENESS_NS // SECOND} s after the last fault: {self._stand()}")
        if self.status == "finished":
            self.checkers.at_the_end()
            self._equal_to_a_calm_run()

    def _somebody(self) -> bool:
        return any(process.alive for process in self._processes.values())

    def _stand(self) -> str:
        stands = []
        for j, process in self.agents():
            machine = None if process is None else process.machine
            stands.append(f"{self.names[j]} {'out' if machine is None else f'{machine.phase.name} {machine.k}'}")
        coordinator = self._processes.get(COORDINATOR)
        if isinstance(coordinator, CoordinatorProcess):
            machine = coordinator.machine
            stands.append(f"coordinator {machine.stage.name} {machine.state} {machine.barrier.go_through}")
        return ", ".join(stands)

    def agents(self) -> Iterator[tuple[int, AgentProcess | None]]:
        """Every agent and its living process."""
        for j in range(self.n):
            process = self._processes.get(j)
            yield j, process if isinstance(process, AgentProcess) and process.alive else None

    def saw(self, process: int, verb: str, what: Any) -> None:
        """For the transcript."""
        if self.transcript is not None:
            self.transcript.append(Seen(self.clock.now_ns, process, verb, what))

    def pause_ns(self) -> int:
        """How long a thread takes for something."""
        return self._chance.randint(0, 20 * MILLISECOND) if self.plan.threads else 0

    def _delay_ns(self, source: int, target: int) -> int:
        delay = self._chance.randint(*self.plan.delay_ns)
        if self._slow.get((source, target), 0) > self.clock.now_ns:
            delay += self._chance.randint(0, 2 * SECOND)
        return delay

    # --- processes ----------------------------------------------------------------------------------------------

    def _processes_get(self, index: int) -> Process | None:
        return self._processes.get(index)

    def _start(self, index: int) -> None:
        running = self._processes.get(index)
        if running is not None and running.alive:
            return
        self._lives[index] += 1
        self.saw(index, "starts", f"life {self._lives[index]}")
        if index == COORDINATOR:
            if self.out.concluded is not None and self.out.concluded.status != "finished":
                self.out.concluded = None
            coordinator = self._processes[index] = CoordinatorProcess(self, self.out)
            coordinator.run(coordinator.start)
            return
        if self.plan.fresh:
            self._keystreams[index].inner = TestKeystream(f"{self.plan.key}{self._lives[index]:04x}", index)
        process = AgentProcess(self, index, self.disks[index], self._works[index], self._lives[index])
        self._processes[index] = process
        process.run(process.start)

    def at_boundary(self, process: Process) -> bool:
        """Whether the process dies here; any other fault strikes right after."""
        index = process.index
        count = self.boundaries[index]
        self.boundaries[index] = count + 1
        if index >= 0 and count % 4 == 0:
            self._backups[index].append(self.disks[index].copy())
        dies = False
        for fault in self._at_boundary.get((index, count), ()):
            if fault.kind == "crash" and fault.process == index:
                dies = True
                self._note(fault)
                self.clock.after(fault.length_ns, lambda: self._start(index))
            else:
                self.clock.after(0, lambda fault=fault: self._strike(fault))  # type: ignore[misc]
        return dies

    def crashed(self, process: Process, *, noticed: bool = True) -> None:
        """It died; the kernel ends its streams, unless the whole host is gone: then the keepalive does."""
        process.alive = False
        process.ended_ns = self.clock.now_ns
        self.saw(process.index, "is killed", "" if noticed else "unnoticed")
        if noticed:
            self.network.reset_host(process)
        else:
            self.clock.after(KEEPALIVE_NS, lambda: self.network.reset_host(process))

    def exited(self, process: Process) -> None:
        """It ended by itself."""
        self.saw(process.index, "exits", process.exit_code)
        self.network.reset_host(process)
        index, code = process.index, process.exit_code
        if index == COORDINATOR or self._over_ns is not None:
            return
        disk = self.disks[index]
        if disk.torn:
            self._over("torn")
            return
        if code is ExitCode.DONE and disk.final is None:
            raise Violation("goodbye", f"{process.name} ended before the run did")
        if code is ExitCode.BUG:
            raise Violation("assertion", f"{process.name} exits 70")
        if self.out.concluded is None:
            self.clock.at(max(self._mended_ns[index], self.clock.now_ns + SUPERVISOR_NS), lambda: self._start(index))

    def concluded(self, end: co.Conclude) -> None:
        """The coordinator ended the run."""
        if self._over_ns is not None:
            return
        status = end.status
        if status == "finished" or status == "budget":
            used_up = any(disk.released == last for disk, last in zip(self.disks, self.plan.budget, strict=True))
            if status == "budget" and not (used_up or self.checkers.rolled_back):
                raise Violation("cap", "the run ended for a budget that nobody has used up")
            self._over(status)
        elif status == "refused" and (
            self.checkers.rolled_back or self.other_keys or any(disk.torn for disk in self.disks)
        ):
            self._over(status)
        elif not self._may_end(status):
            raise Violation("end", f"the run ended as {status}: {end.reason}")
        else:
            self._quiet_ns = max(self._quiet_ns, self.clock.now_ns + OPERATOR_NS, *self._mended_ns)
            self.clock.at(self._quiet_ns, self._again)

    def _may_end(self, status: str) -> bool:
        struck = self.struck
        if status == "stopped":
            return struck["stop"] > 0
        if status == "lost":
            runtime = self.plan.run.runtime
            return runtime.on_agent_loss == "stop" and self._disturbed_ns >= runtime.round_timeout_s * SECOND
        return status == "refused" and (self.excused or struck["full"] + struck["lies"] > 0)

    def _over(self, status: str) -> None:
        self.status = status
        self._over_ns = self.clock.now_ns
        self.saw(COORDINATOR, "is over", status)

    def _again(self) -> None:
        """The operator starts the same command again."""
        for process in list(self._processes.values()):
            if process.alive:
                self.crashed(process)
        for index in range(-1, self.n):
            self._start(index)

    # --- faults -------------------------------------------------------------------------------------------------

    def _note(self, fault: Fault) -> None:
        self.struck[fault.kind] += 1
        self._quiet_ns = max(self._quiet_ns, self.clock.now_ns + fault.length_ns)
        self._disturbed_ns += fault.length_ns + RECOVERY_NS
        if (whose := disturbed(fault.kind, fault.process, fault.peer)) is not None:
            self.disturbed_ns[whose] = max(self.disturbed_ns[whose], self.clock.now_ns + fault.length_ns)
        self.saw(fault.process, "FAULT", fault)

    def _strike(self, fault: Fault) -> None:
        if self._over_ns is not None:
            return
        self._note(fault)
        now, a, b = self.clock.now_ns, fault.process, fault.peer
        process = self._processes.get(a)
        match fault.kind:
            case "crash" | "power" | "torn" | "rollback":
                self._kill(fault, process)
            case "twin" | "impostor":
                self._double(fault, process)
            case "cut":
                self.network.cut(a, b, fault.length_ns)
            case "split":
                self.network.cut(a, b, fault.length_ns)
                self.network.cut(b, a, fault.length_ns)
            case "break":
                self.network.reset(a, b)
            case "stuck":
                self.network.stick(a, b)
            case "misled":
                others = [i for i in range(self.n) if i not in (a, b)]
                if min(a, b) >= 0 and others:
                    self.network.misled[a, b] = (self._chance.choice(others), now + fault.length_ns)
                    self.network.reset(a, b)
            case "copies":
                self.network.copies[a, b] = now + fault.length_ns
            case "slow":
                self._slow[a, b] = now + fault.length_ns
            case "freeze":
                self._freeze(fault, process)
            case "full":
                self.disks[a].full = True
                self._mended_ns[a] = now + fault.length_ns
                self.clock.after(fault.length_ns, lambda: self._mend(a))
            case "lies":
                self.disks[a].lies = True
            case "pause":
                resume = partial(self._control, "resume")
                self._control("pause", lambda: self.clock.after(fault.length_ns, resume))
            case "stop":
                self._control("stop")

    def _mend(self, a: int) -> None:
        self.disks[a].full = False

    def _kill(self, fault: Fault, process: Process | None) -> None:
        a = fault.process
        if process is not None and process.alive:
            self.crashed(process, noticed=fault.kind != "power")
        if fault.kind == "torn":
            self.disks[a].torn = self.disks[a].checkpoint is not None
        elif fault.kind == "rollback" and self._backups[a]:
            newest = self._backups[a][-4:]  # hardest to notice
            disk = self._chance.choice(newest if self._chance.random() < 0.6 else self._backups[a]).copy()
            if disk.released < self.disks[a].released or self.disks[a].final is not None:
                self.checkers.rolled_back.add(a)
            # Before round 0 that is no fork; but the others may have pinned another key, and go on with no second one.
            self.other_keys |= disk.pairs.offer != self.disks[a].pairs.offer
            self.disks[a] = disk
        self.clock.after(fault.length_ns, lambda: self._start(a))

    def _double(self, fault: Fault, first: Process | None) -> None:
        """Somebody starts an agent a second time, with a copy of its state, or without any and of another version."""
        if first is None or not first.alive:
            return
        a = fault.process
        copy = fault.kind == "twin"
        twin = Twin(self, a, self.disks[a].copy()) if copy else Twin(self, a, Disk(self.names[a]), "0.0.1")
        twin.run(twin.start)

    def coordinator(self) -> CoordinatorProcess:
        """The coordinator's process of now."""
        process = self._processes[COORDINATOR]
        assert isinstance(process, CoordinatorProcess)
        return process

    def _freeze(self, fault: Fault, process: Process | None) -> None:
        if process is None or not process.alive:
            return
        process.freeze(fault.length_ns)
        if fault.length_ns > KEEPALIVE_NS:
            self.clock.after(KEEPALIVE_NS, lambda: self.network.reset_host(process) if process.alive else None)

    def _control(self, action: m.Action, then: Callable[[], None] = lambda: None) -> None:
        """The operator tries until the coordinator is there; a pause that is still being tried is not resumed yet."""
        coordinator = self._processes.get(COORDINATOR)
        if self._over_ns is None and isinstance(coordinator, CoordinatorProcess):
            answered = coordinator.alive
            if answered:
                coordinator.run(lambda: coordinator.control(m.ControlRequest(action)))
            # A process that is frozen or dies with the word in its ears has not heard it: the operator sees no answer.
            answered = answered and (coordinator.alive or coordinator.exit_code is not None)
            unheard = action == "resume" and (self.out.paused or coordinator.frozen)
            if not answered or unheard:
                self.clock.after(SECOND // 2, lambda: self._control(action, then))
            else:
                then()

    # --- references ---------------------------------------------------------------------------------------------

    def recompute(self, i: int, k: int, old: State, inputs: Mapping[Stream, Mapping[int, F64]]) -> State:
        """Agent i's state of round ``k`` from that of k-1 and from what was released."""
        before, record = self.checkers.records[i, k - 1], self.checkers.records[i, k]
        effect = Advance(old, inputs, before.payloads, record)
        return self._reference[i].advance(effect).state

    def recompute_final(self, i: int, old: State, inputs: Mapping[Stream, Mapping[int, F64]]) -> F64:
        """Agent i's result."""
        last = self.checkers.records[i, self.K]
        return self._reference[i].advance_final(AdvanceFinal(old, inputs, last.payloads)).x

    def calm(self) -> list[F64]:
        """Every x_{i,K+1} of a run under the test keystream in which nothing ever happens: loops, no protocol."""
        works, n = self._reference, self.n
        states = [works[i].advance(Advance(None)).state for i in range(n)]
        for k in range(self.K + 1):
            released = [works[i].release(DrawRelease(states[i])) for i in range(n)]
            ins = [
                {s: {j: released[j].on(s).array() for j, _ in edges} for s, edges in p.incoming.items()}
                for p in self.params
            ]
            own = [r.payloads for r in released]
            if k == self.K:
                return [works[i].advance_final(AdvanceFinal(released[i].state, ins[i], own[i])).x for i in range(n)]
            states = [works[i].advance(Advance(released[i].state, ins[i], own[i])).state for i in range(n)]
        raise AssertionError

    def _equal_to_a_calm_run(self) -> None:
        if self.plan.fresh:
            return
        for i, expected in enumerate(self.calm()):
            final = self.disks[i].final
            if i in self.checkers.rolled_back:
                continue
            if final is None or final.tobytes() != expected.tobytes():
                raise Violation("oracle", f"the result of {who(i)} is not that of a run without faults")
