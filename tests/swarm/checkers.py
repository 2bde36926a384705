"""What must hold after each effect, judged from outside: from what reached disks and wires, not from what a machine
believes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from dpgt_node.algo.methods import rule_of
from dpgt_node.algo.methods.dpgt import Tracking
from dpgt_node.algo.schedule import Schedule
from dpgt_node.privacy.mechanisms import MECHANISMS
from dpgt_node.protocol import messages as m
from dpgt_node.protocol.agent.keeping import AHEAD_ROUNDS
from dpgt_node.protocol.types import Advance, AdvanceFinal, Payload, RoundRecord, State
from dpgt_node.types import F64, Stream
from tests.states import parts

if TYPE_CHECKING:
    from tests.swarm.agent import AgentProcess
    from tests.swarm.world import World

TOLERANCE = 1e-9


class Violation(BaseException):
    """``checker`` found ``message``.  Not an Exception: no simulated process may swallow it."""

    def __init__(self, checker: str, message: str) -> None:
        super().__init__(f"{checker}: {message}")
        self.checker = checker
        self.message = message


class Checkers:
    """Watches one world.  ``bytes_of`` below is the truth about every release: the first durable record of a round.

    durable    whatever leaves is durable, with its ledger rows, at the sender
    payload    one payload for each (agent, k, stream), byte for byte
    draws      a durable round is never drawn again, nor is its batch; a round that releases nothing draws nothing
    ledger     a row for every charged release, none for a round that releases nothing; epsilon never falls
    cap        no release beyond the owner's budget
    order      rounds are released in order, without gaps
    barrier    nobody releases a round that the barrier keeps shut
    mixing     what is mixed in round k are the round-k releases, whole, of exactly the in-neighbours
    mass       sum_i y_i + what is in flight = sum_i g_i + the noise that was mixed
    replay     a replayed state has the bits it had
    oracle     every state has the bits of a recursion without any protocol
    states     a state is kept once its round is durable, whole, one at a time, and a restart never goes back further
    retention  no payload is dropped that somebody may ask for
    calls      of a neighbour's calls the newest is served, and no other
    queues     inbox, outbox and streams stay bounded
    keys       nobody draws before all pairs agreed; both ends of a pair draw with one key, and every round with another
    stale      with an old copy of the state directory nothing is drawn that somebody remembers
    """

    def __init__(self, world: World) -> None:
        self._world = world
        run, n = world.plan.run, world.n
        self._mechanism, self._release = MECHANISMS[run.algorithm.mechanism], Schedule.from_config(run).release
        self._C = np.array(run.graph.C, dtype=float).reshape(n, n)
        self._beta = Schedule.from_config(run).beta
        self._streams = world.params[0].streams
        self._tracks = issubclass(rule_of(run), Tracking)
        # Where the stream of a charge is not sent, the one that is carries it.
        self._carrier = {s: s if s in self._streams else self._streams[0] for s in self._mechanism.charged}
        self._ins: dict[tuple[int, Stream], tuple[int, ...]] = {}
        for p in world.params:
            self._ins |= {(p.index, s): tuple(j for j, _ in edges) for s, edges in p.incoming.items()}
        self.records: dict[tuple[int, int], RoundRecord] = {}
        self.states: dict[tuple[int, int], State] = {}
        self.mixed = [-1] * n
        """Last round whose inputs each agent ever mixed."""
        self._top = [-1] * n
        zero = np.zeros(world.dimension)
        self._trackers, self._in_flight, self._gradients, self._noise = zero, zero, zero, zero
        every = run.runtime.barrier_every
        self._back = world.plan.checkpoint_every
        """So far before a round that is drawn the newest state lies at most."""
        if world.plan.beside:
            self._back += min(AHEAD_ROUNDS, world.plan.checkpoint_every - 1)
        # A peer replays from its checkpoint; its neighbour is at most a barrier ahead of where it had been.
        self._outbox = self._back + 2 * every + 1
        self._inbox = every + 1
        self.rolled_back: set[int] = set()
        self.agreed: set[int] = set()
        """Whose keys were durable once, confirmed by all partners."""
        self._keys: dict[tuple[int, int, int], bytes] = {}
        self._used: dict[bytes, tuple[int, int, int]] = {}

    # --- drawing and committing ---------------------------------------------------------------------------------

    def draws(self, i: int, k: int) -> None:
        """Agent ``i`` is about to draw round ``k``."""
        if self._world.graph is not None and len(self.agreed) < self._world.n:
            raise Violation("keys", f"{self._name(i)} draws round {k}, and not all pairs have agreed on keys")
        if (i, k) in self.records:
            if i not in self.rolled_back:
                raise Violation("draws", f"{self._name(i)} draws round {k} a second time")
            for j, process in self._world.agents():
                machine = None if process is None else process.machine
                for stream in self._streams:
                    if (
                        j != i
                        and i in self._ins[j, stream]
                        and machine is not None
                        and machine.needs(i)[stream == "Y"] > k
                    ):
                        raise Violation("stale", f"{self._name(i)} draws round {k} again; {self._name(j)} has it")
            if self._world.out.heads.get(self._name(i), (-1, b""))[0] >= k:
                raise Violation("stale", f"{self._name(i)} draws round {k} again; the coordinator has it")
        every = self._world.plan.run.runtime.barrier_every
        start = k // every * every - 1
        late = [j for j in range(self._world.n) if self.mixed[j] < start]
        if late:
            raise Violation("barrier", f"{self._name(i)} draws round {k}, {self._name(late[0])} is before {start}")
        if k > 0 and (resumes := self._resumes(i)) < k - self._back:
            raise Violation("states", f"{self._name(i)} draws round {k}; a restart would go back to round {resumes}")

    def draws_with(self, i: int, partner: int, k: int, key: bytes) -> None:
        """Agent ``i`` draws what it shares with ``partner`` in round ``k``."""
        low, high = sorted((i, partner))
        if self._keys.setdefault((low, high, k), key) != key:
            raise Violation("keys", f"{self._name(low)} and {self._name(high)} draw round {k} with different keys")
        if self._used.setdefault(key, (low, high, k)) != (low, high, k):
            raise Violation("keys", f"{self._name(i)} draws round {k} with a key that was used before")

    def uses_keystream(self, i: int, k: int, purpose: str) -> None:
        """Randomness of round ``k`` is asked for."""
        if self._release(k) is None:
            raise Violation("draws", f"{self._name(i)} draws {purpose} of round {k}, which releases nothing")
        if (i, k) in self.records and i not in self.rolled_back:
            raise Violation("draws", f"{self._name(i)} draws {purpose} of round {k}, which is durable, a second time")

    def commits(self, i: int, record: RoundRecord) -> None:
        """A record is about to become durable."""
        k, disk = record.k, self._world.disks[i]
        if k != disk.released + 1:
            raise Violation("order", f"{self._name(i)} commits round {k} after round {disk.released}")
        rows = {row.stream: row for row in record.rows}
        if len(rows) != len(record.rows) or set(rows) != set(self._charged(k)):
            raise Violation("ledger", f"{self._name(i)} commits round {k} with rows for {sorted(rows)}")
        for stream, row in rows.items():
            if row.sha256 != record.on(self._carrier[stream]).sha256 or row.k != k:
                raise Violation("ledger", f"{self._name(i)}'s row for {stream} of round {k} is of other bytes")
        before = disk.ledger[-1].cost if disk.ledger else {}
        for row in record.rows:
            for name, cost in row.cost.items():
                last = before.get(name)
                if cost is not None and (math.isnan(cost) or (last is not None and cost < last)):
                    raise Violation("ledger", f"epsilon of {self._name(i)} fell from {last} to {cost} in round {k}")
            before = row.cost
        cap = self._world.caps[i]
        for name, cost in before.items():
            most = None if cap is None else cap.get(name)
            if most is not None and cost is not None and cost > most:
                raise Violation("cap", f"{self._name(i)} spends {cost} on round {k}; the cap is {most} ({name})")

    def committed(self, i: int, record: RoundRecord, state: State) -> None:
        """A record is durable: from here on its bytes are the round's bytes, and ``state`` is what they came from."""
        known = self.records.get((i, record.k))
        if known is not None:
            self._forget(i, record.k)
        self.records[i, record.k] = record
        assert state.k == record.k and not state.pending
        self.states[i, record.k] = state
        self._oracle(i, record.k, state)
        self._weigh(i, record.k)

    def _forget(self, i: int, k: int) -> None:
        """A legitimate second draw after a rollback: nobody remembers the first."""
        for known in [key for key in self.records if key[0] == i and key[1] >= k]:
            del self.records[known], self.states[known]

    # --- the wire -----------------------------------------------------------------------------------------------

    def leaves(self, i: int, peer: int, payload: Payload) -> None:
        """A byte of ``payload`` is about to leave for ``peer``."""
        what = f"{payload.stream} of round {payload.k} from {self._name(i)} to {self._name(peer)}"
        disk = self._world.disks[i]
        record = disk.rounds.get(payload.k)
        if record is None:
            raise Violation("durable", f"{what} leaves before it is durable")
        charged = [stream for stream in self._charged(payload.k) if self._carrier[stream] == payload.stream]
        rows = [row for row in disk.ledger if row.k == payload.k and row.sha256 == payload.sha256]
        # X and Y may be the same bytes; a row of the other stream then has the same hash, and is that one's.
        if {row.stream for row in rows if self._carrier.get(row.stream, payload.stream) == payload.stream} != set(
            charged
        ):
            raise Violation("ledger", f"{what} leaves without its ledger row")
        kept = self.records[i, payload.k].on(payload.stream)
        if bytes(kept.data) != bytes(payload.data):
            raise Violation("payload", f"{what} has other bytes than before")

    def mixes(self, i: int, effect: Advance | AdvanceFinal) -> None:
        """Agent ``i`` mixes what its effect holds."""
        if effect.state is None:
            return
        k = effect.state.k
        for stream, values in effect.received.items():
            if set(values) != set(self._ins[i, stream]):
                raise Violation("mixing", f"{self._name(i)} mixes {stream} of {sorted(values)} in round {k}")
            for j, value in values.items():
                record = self.records.get((j, k))
                if record is None:
                    raise Violation("mixing", f"{self._name(i)} mixes round {k} of {self._name(j)}, not released yet")
                if value.tobytes() != record.on(stream).floats().tobytes():
                    raise Violation("mixing", f"{self._name(i)} mixes another {stream} of {self._name(j)} in round {k}")
        self.mixed[i] = max(self.mixed[i], k)

    def done(self, i: int, k: int, durable: int) -> None:
        """Agent ``i`` reports round ``k`` done, and that it will not ask for rounds up to ``durable`` again."""
        if self._resumes(i) <= durable:
            resumes = self._resumes(i)
            raise Violation("retention", f"{self._name(i)} gives up round {durable}, and would resume at {resumes}")
        missing = [j for s in self._streams for j in self._ins[i, s] if (j, k) not in self.records]
        if missing or (i, k) not in self.records:
            raise Violation("order", f"{self._name(i)} reports round {k} done without that of {missing}")
        self.mixed[i] = max(self.mixed[i], k)

    # --- states -------------------------------------------------------------------------------------------------

    def keeps(self, i: int, state: State) -> bytes:
        """Agent ``i`` hands ``state`` out to be written; the bits of it."""
        if state.k not in self._disk(i) or state.pending:
            raise Violation("states", f"{self._name(i)} keeps the state of round {state.k}, which is not durable")
        return _bits(state)

    def writes(self, i: int, state: State, before: bytes) -> None:
        """It is written; ``before``: its bits when it was handed out."""
        if _bits(state) != before:
            raise Violation("states", f"{self._name(i)}'s state of round {state.k} changed before it was written")

    def _resumes(self, i: int) -> int:
        """Where agent ``i`` would go on after a crash."""
        disk = self._world.disks[i]
        return self._world.K + 1 if disk.final is not None else disk.checkpoint.k if disk.checkpoint else 0

    def replayed(self, i: int, state: State, record: RoundRecord | None) -> None:
        """A state was computed; where its round is durable it must be the same."""
        known = self.states.get((i, state.k))
        if known is None or state.pending or i in self.rolled_back or (record is None and state.k not in self._disk(i)):
            return
        if _bits(state) != _bits(known):
            raise Violation(
                "replay", f"{self._name(i)}'s state of round {state.k} differs from the one it released from"
            )

    def _disk(self, i: int) -> Mapping[int, RoundRecord]:
        return self._world.disks[i].rounds

    def _oracle(self, i: int, k: int, state: State) -> None:
        if k == 0 or (i, k - 1) not in self.states:
            return
        expected = self._world.recompute(i, k, self.states[i, k - 1], self._inputs(i, k - 1))
        if _bits(state) != _bits(expected):
            raise Violation("oracle", f"{self._name(i)}'s state of round {k} is not that of its method")

    def _inputs(self, i: int, k: int) -> dict[Stream, dict[int, F64]]:
        return {s: {j: self.payload(j, k, s).array() for j in sorted(self._ins[i, s])} for s in self._streams}

    def payload(self, j: int, k: int, stream: Stream) -> Payload:
        """The release of (j, k, stream)."""
        return self.records[j, k].on(stream)

    def finals(self, i: int, x: F64) -> None:
        """Agent ``i`` is about to save its result."""
        K = self._world.K
        expected = self._world.recompute_final(i, self.states[i, K], self._inputs(i, K))
        if x.tobytes() != expected.tobytes():
            raise Violation("oracle", f"{self._name(i)}'s result is not that of its method")

    def _weigh(self, i: int, k: int) -> None:
        """Agent ``i`` went on to round ``k``: move the mass it took from its neighbours and gave to them."""
        if not self._tracks or k != self._top[i] + 1:
            return  # another round than the next one: only after a rollback
        state = parts(self.states[i, k])
        self._top[i] = k
        if k == 0:
            self._trackers = self._trackers + state.y
            self._gradients = self._gradients + state.g
        else:
            old = parts(self.states[i, k - 1])
            released = self.payload(i, k - 1, "Y").array()
            weight = self._beta * float(self._C[:, i].sum())
            self._trackers = self._trackers + (state.y - old.y)
            self._gradients = self._gradients + (state.g - old.g)
            self._noise = self._noise + weight * (released - old.y)
            self._in_flight = self._in_flight + weight * released
            for j in self._ins[i, "Y"]:
                taken = self.payload(j, k - 1, "Y").array()
                self._in_flight = self._in_flight - self._beta * float(self._C[i, j]) * taken
        defect = float(np.abs(self._trackers + self._in_flight - self._gradients - self._noise).max())
        scale = 1.0 + float(np.abs(self._trackers).max() + np.abs(self._in_flight).max())
        if not defect <= TOLERANCE * scale:
            raise Violation("mass", f"{defect:.3g} too much or too little after {self._name(i)} reached round {k}")

    # --- retention, bounds --------------------------------------------------------------------------------------

    def tells(self, name: str, message: object) -> None:
        """The coordinator is about to tell an agent something."""
        match message:
            case m.AllDurableMessage(through):
                self._still_needed(through, "the coordinator announces")
            case m.Goodbye():
                self._dismisses(name)

    def prunes(self, i: int, through: int) -> None:
        """Agent ``i`` drops payloads up to ``through``."""
        self._still_needed(through, f"{self._name(i)} drops")

    def _still_needed(self, through: int, what: str) -> None:
        for j in range(self._world.n):
            resumes = self._resumes(j)
            if resumes <= through and j not in self.rolled_back:
                raise Violation("retention", f"{what} round {through}; {self._name(j)} would resume at round {resumes}")

    def _dismisses(self, name: str) -> None:
        for j, disk in enumerate(self._world.disks):
            if disk.final is None and j not in self.rolled_back:
                raise Violation("goodbye", f"{name} is dismissed before {self._name(j)} saved its result")
        if self._world.out.concluded is None:
            raise Violation("goodbye", f"{name} is dismissed before the end of the run is durable")

    def bounded(self, process: AgentProcess) -> None:
        """An event was handled."""
        machine, session = process.machine, process.session
        if machine is None or session is None:
            return
        for peer, length in (session.inside.outboxes() if session.inside else {}).items():
            if length > self._outbox:
                raise Violation("queues", f"{length} entries wait at {process.name} for {peer}")
        if machine.inbox_size > self._inbox * self._world.edges_in[process.index]:
            raise Violation("queues", f"{machine.inbox_size} vectors in the inbox of {process.name}")

    def at_the_end(self) -> None:
        """The run finished: nothing is missing anywhere."""
        K = self._world.K
        for i, disk in enumerate(self._world.disks):
            if i in self.rolled_back:
                continue
            if sorted(disk.rounds) != list(range(K + 1)):
                raise Violation("order", f"{self._name(i)} released rounds {sorted(disk.rounds)} of 0..{K}")
            rows = [(row.k, row.stream) for row in disk.ledger]
            if rows != [(k, stream) for k in range(K + 1) for stream in self._charged(k)]:
                raise Violation("ledger", f"the ledger of {self._name(i)} has other rows than its releases")
            if disk.final is None:
                raise Violation("goodbye", f"the run finished without the result of {self._name(i)}")

    def _charged(self, k: int) -> tuple[Stream, ...]:
        """Streams with a row in round ``k``."""
        return () if self._release(k) is None else self._mechanism.charged

    def _name(self, i: int) -> str:
        return self._world.names[i]


def _bits(state: State) -> bytes:
    return b"".join(v.tobytes() for v in state.vectors.values()) + state.batch.tobytes()
