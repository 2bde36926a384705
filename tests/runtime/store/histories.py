"""Random lives of one state directory, held against a ledger that is too dumb to be wrong.

``python -m tests.runtime.store.histories --histories 2000`` prints how many undercharged, then the mutants it catches.

A history is a chain of starts of one agent through the product's own ``Opening`` and ``Store``: runs, resumes with the
own or other data, other terms, a test keystream, restored and forked directories, a second daemon on one directory, a
new version whose accountants are tighter.  The dumb ledger is a list of everything that left, each with what it was
really drawn from; what its runs cost together is found by trying every way to add them up, by the textbook
(``tests.oracles.composition``).  The coordinator's part is the one thing it does for the ledger: it remembers each
run's last head.  A restored directory goes on with a new run only if ``dpgt ledger --head`` finds the head that its
owner wrote down.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import hashlib
import logging
import math
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from dpgt_node.agent import policy as policy_module
from dpgt_node.agent.noise import account_for
from dpgt_node.algo.graph import Topology
from dpgt_node.algo.schedule import Schedule
from dpgt_node.config import NodeConfig, NodeTls, Policy, RunConfig, canonical_json, parse_run, run_sha256
from dpgt_node.errors import RefusedError, StoreError
from dpgt_node.privacy.accountants import composition
from dpgt_node.privacy.accountants.registry import ACCOUNTANTS, SOUND
from dpgt_node.privacy.accountants.rounding import CAP_SLACK
from dpgt_node.protocol.agent import session_types as s
from dpgt_node.protocol.types import LedgerRow
from dpgt_node.runtime.agent import budget, opening
from dpgt_node.runtime.agent.opening import Opening
from dpgt_node.runtime.store import ledger as ledger_module
from dpgt_node.runtime.store import store as store_module
from dpgt_node.runtime.store import terms as terms_module
from dpgt_node.runtime.store.ledger import SYSTEM, TEST, Charge, read_ledger
from dpgt_node.runtime.store.store import Store
from tests.oracles.composition import epsilon_of_mu, least
from tests.runtime.store.records import record

K = 7
RUN = """
name = "history {number}"
[algorithm]
mechanism = "{mechanism}"
iterations = {K}
[scheme]
kind = "S2"
alpha = 0.2
beta = 0.2
gamma = 0.02
p_m = 1.0
samples = 20
[noise]
scale_zeta = 3.0
scale_eta = 2.0
law = "{law}"
[graph]
agents = 2
R = [[0, 1], [1, 0]]
C = [[0, 1], [1, 0]]
[data]
dataset = "digits"
[model]
name = "softmax"
[privacy]
{C}
delta = {delta}
"""
KINDS = [("noise-once", "laplace"), ("noise-once", "gaussian"), ("public-state", "laplace")]
CLIPS = {"laplace": ["clip_l1 = 0.5", "C = 0.01"], "gaussian": ["clip_l2 = 0.5"]}
DATA = {"own": (100, b"o" * 32), "same size": (100, b"s" * 32), "grown": (4000, b"g" * 32), "fewer": (40, b"f" * 32)}


@dataclasses.dataclass(frozen=True)
class Drawn:
    """One round that left: what it was really drawn from."""

    run_id: bytes
    k: int
    run: RunConfig
    samples: int
    data: bytes
    keystream: str


_ACCOUNTS: dict[tuple[str, int], Any] = {}


def account(run: RunConfig, samples: int) -> Any:
    key = canonical_json(run).replace(run.name, ""), samples
    if key not in _ACCOUNTS:
        _ACCOUNTS[key] = _account(run, samples)
    return _ACCOUNTS[key]


def _account(run: RunConfig, samples: int) -> Any:
    topology = Topology.from_config(run.graph)
    return account_for(run, topology, Schedule.from_config(run), 0, samples, 650)


class Tighter:
    """The account of a later version: every value is a tenth smaller."""

    def __init__(self, account: Any) -> None:
        self._account = account

    def __getattr__(self, name: str) -> Any:
        return getattr(self._account, name)

    def total(self, name: str) -> float | None:
        return self.cost(name, K)

    def cost(self, name: str, k: int) -> float | None:
        value = self._account.cost(name, k)
        return None if value is None else 0.9 * value

    def cost_after(self, k: int, stream: str) -> dict[str, float | None]:
        return {n: None if v is None else 0.9 * v for n, v in self._account.cost_after(k, stream).items()}

    def epsilon_after(self, k: int) -> dict[str, float | None]:
        return {n: None if v is None else 0.9 * v for n, v in self._account.epsilon_after(k).items()}


def _rounds(state: Path, run_id: bytes) -> int:
    return len({entry.row.k for entry in read_ledger(state).entries if entry.run_id == run_id})


def make_run(number: int, rng: random.Random) -> RunConfig:
    mechanism, law = rng.choice(KINDS)
    text = RUN.format(
        number=number, mechanism=mechanism, K=K, law=law, C=rng.choice(CLIPS[law]), delta=rng.choice([1e-5, 1e-6])
    )
    return parse_run(text, "run.toml", Path("/"))


class Undercharged(AssertionError):
    """The ledger says less than what really left."""


class History:
    """One state directory, its owner's policy, and what a coordinator remembers."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        self.folder, self.state = folder, folder / "state"
        self.policy = rng.choice(
            [
                Policy(),
                Policy(epsilon_max=rng.uniform(0.02, 0.5)),
                Policy(epsilon_max=rng.uniform(0.02, 0.5), delta_max=2e-5, allow_declared=rng.random() < 0.5),
                Policy(epsilon_max=rng.uniform(0.1, 0.5), delta_max=rng.choice([1e-6, 1e-5])),
            ]
        )
        self.runs = [(hashlib.sha256(f"{seed} {i}".encode()).digest()[:16], make_run(i, rng)) for i in range(3)]
        self.drawn: list[Drawn] = []
        self.heads: dict[bytes, tuple[int, bytes]] = {}
        self.written_down = bytes(32)
        self.read: dict[bytes, dict[str, float | None]] = {}
        self.tighter = False
        self.counts: Counter[str] = Counter()

    def live(self, steps: int) -> None:
        for _ in range(steps):
            what = self.rng.choices(["start", "restore", "fork", "newer version"], [12, 2, 1, 1])[0]
            self.counts[what] += 1
            if what == "start":
                self.start(self.state)
            elif what == "newer version":
                self.tighter = True
            elif self.state.exists():
                copy = self.folder / what
                shutil.rmtree(copy, ignore_errors=True)
                shutil.copytree(self.state, copy)
                for _ in range(self.rng.randint(1, 2)):
                    self.start(self.state)
                # The older copy is put back, or wakes up beside the newer one; only the newest goes on in the end.
                before = len(self.drawn)
                self.start(copy)
                if len(self.drawn) > before:  # it is the newest now
                    shutil.rmtree(self.state)
                    copy.rename(self.state)

    # --- one life of the process ------------------------------------------------------------------------------------

    def start(self, state: Path) -> None:
        rng = self.rng
        run_id, run = rng.choice(self.runs)
        samples, data = DATA[rng.choices(list(DATA), [6, 1, 2, 1])[0]]
        keystream = rng.choices([SYSTEM, TEST], [9, 1])[0]
        really = run
        if rng.random() < 0.15:  # the same run to the eye, on other terms
            change = rng.choice([{"delta": 1e-3}, {"clip_l1": 0.1, "clip_l2": None, "C": None}])
            if run.noise.law == "laplace" or "delta" in change:
                really = dataclasses.replace(run, privacy=dataclasses.replace(run.privacy, **change))
        config = NodeConfig(
            name="agent-1",
            run=Path("run.toml"),
            listen="127.0.0.1:0",
            advertise=None,
            coordinator="127.0.0.1:1",
            state_dir=state,
            tls=NodeTls(True),
            policy=self.policy,
            data_id="ward",
        )
        if state != self.state and not self._went_on(run_id, state) and not self._is_newest(state):
            self.counts["found by --head"] += 1
            return
        with contextlib.closing(Store(state, "process")) as store:
            self._second_daemon(state)
            truth = account(really, samples)
            costs = Tighter(truth) if self.tighter else truth
            work: Any = SimpleNamespace(account=costs, dimension=650)
            topology = Topology.from_config(run.graph)
            door = Opening(config, really, topology, 0, work, store, shard_sha256=data, keystream=keystream)
            door.sha256 = run_sha256(run)
            door.held()
            k, head = self.heads.get(run_id, (-1, b""))
            if head and store.head_after(run_id, k) != head:
                self.counts["found by the coordinator"] += 1
                return
            begun = door.begin(s.BeginRun(run_id, None, finished=False), samples)
            if isinstance(begun, s.RunRefused):
                assert isinstance(begun.error, RefusedError | StoreError)
                self.counts[f"refused: {type(begun.error).__name__}"] += 1
                return
            first = 1 + next(known.last_durable_round for known in store.runs() if known.run_id == run_id)
            last = min(first + rng.randint(0, 4), K if begun.budget_through is None else begun.budget_through)
            for k in range(first, last + 1):
                self._release(store, Drawn(run_id, k, really, samples, data, keystream), costs)
            self.check(store)

    def _second_daemon(self, state: Path) -> None:
        if self.rng.random() < 0.2:
            try:
                Store(state, "process").close()
            except StoreError:
                self.counts["second daemon refused"] += 1
            else:
                raise Undercharged("two daemons share a directory")

    def _went_on(self, run_id: bytes, state: Path) -> bool:
        """Whether the run went on after this copy was made: then the coordinator finds it out."""
        return len([d for d in self.drawn if d.run_id == run_id]) > _rounds(state, run_id)

    def _is_newest(self, state: Path) -> bool:
        """``dpgt ledger --head``: whether this directory ever had the head that was written down."""
        if not state.exists():
            return self.written_down == bytes(32)
        heads = [entry.head for entry in read_ledger(state).entries]
        return self.written_down in [bytes(32), *heads]

    def _release(self, store: Store, drawn: Drawn, costs: Any) -> None:
        if any((d.run_id, d.k) == (drawn.run_id, drawn.k) for d in self.drawn):
            raise Undercharged(f"round {drawn.k} was drawn twice")
        made = record(drawn.k, 3)
        rows = []
        for row in made.rows:
            if row.stream in costs.charged_streams():
                cost = costs.cost_after(drawn.k, row.stream)
                rows.append(LedgerRow(drawn.k, row.stream, "m", drawn.run.noise.law, 1.0, None, row.sha256, cost))
        store.commit_round(drawn.run_id, dataclasses.replace(made, rows=tuple(rows)))
        self.drawn.append(drawn)
        self.heads[drawn.run_id] = drawn.k, store.head
        self.written_down = store.head
        self.counts["rounds"] += 1

    # --- the dumb ledger --------------------------------------------------------------------------------------------

    def check(self, store: Store) -> None:
        """Undercharged, unless every run is charged at least what it cost and the policy was kept."""
        charged = {charge.run_id: charge for charge in store.charges()}
        unbounded, counted = False, []
        for run_id in {drawn.run_id for drawn in self.drawn}:
            true, its = self._cost(run_id), charged[run_id].cost
            for name, value in its.items():
                if value is None:
                    continue
                needed, before = true[name], self.read.get(run_id, {}).get(name, 0.0)
                slack = 0.9 if self.tighter else 1.0
                if needed is None or before is None or value < slack * needed * (1 - 1e-9) or value < before:
                    raise Undercharged(f"{name}: {value} is charged, {needed} was spent, {before} was read before")
            self.read[run_id] = dict(its)
            sound = [v for n in SOUND if (v := its.get(n)) is not None and v < math.inf]
            declared = any(d.run.privacy.C is not None for d in self.drawn if d.run_id == run_id)
            unbounded |= not sound or any(d.keystream == TEST for d in self.drawn if d.run_id == run_id)
            unbounded |= declared and not self.policy.allow_declared
            counted.append(({n: its[n] for n in SOUND if its.get(n) is not None}, charged[run_id].terms.delta))
        self._check_total(list(charged.values()))
        if self.policy.epsilon_max is None or not self.drawn:
            return
        delta_max = self.policy.delta_max
        spent = math.inf if unbounded else least(counted, None if delta_max is None else Fraction(repr(delta_max)))
        if spent > self.policy.epsilon_max * (1 + 2 * CAP_SLACK):
            raise Undercharged(f"{spent} of {self.policy.epsilon_max} were spent")
        plain = sum(min(epsilon.values()) for epsilon, _ in counted)
        self.counts["kept a cap that the plain sum exceeds"] += plain > self.policy.epsilon_max * (1 + 2 * CAP_SLACK)

    def _check_total(self, charges: list[Charge]) -> None:
        """Undercharged, unless the ledger says of all runs together what they really cost, or more.

        RuntimeError where it is more than the plain sum of their smallest values.
        """
        said = composition.tally(budget.spent_on("ward", charges), SOUND)
        true = [(charge.run_id, self._cost(charge.run_id), charge.terms.delta) for charge in charges]
        if said.epsilon == math.inf:
            return
        self.counts["totals that are composed"] += len(charges) > 1 and "composed" in said.recipe
        runs = [({n: cost[n] for n in SOUND if cost.get(n) is not None}, delta) for _, cost, delta in true]
        if any(value == math.inf for epsilon, _ in runs for value in epsilon.values()):
            raise Undercharged("a run without a finite epsilon counts")
        if self.tighter:
            runs = [({n: 0.9 * value for n, value in epsilon.items()}, delta) for epsilon, delta in runs]
        if said.epsilon < (real := least(runs, said.delta)) * (1 - 1e-9):
            raise Undercharged(f"{said} is said of all runs, which cost {real}")
        newest = {run_id: max((d for d in self.drawn if d.run_id == run_id), key=lambda d: d.k) for run_id, *_ in true}
        if all(drawn.run.noise.law == "gaussian" for drawn in newest.values()) and not self.tighter:
            square = sum(account(d.run, d.samples).releases.shift_norms[2 * d.k + 1] ** 2 for d in newest.values())
            if said.epsilon < epsilon_of_mu(math.sqrt(square), float(said.delta)) * (1 - 1e-9):
                raise Undercharged(f"{said} is said of Gaussian runs, whose exact composition costs more")
        plain = sum(min(v for n in SOUND if (v := charge.cost.get(n)) is not None) for charge in charges)
        if said.epsilon > plain * (1 + 1e-12):
            raise RuntimeError(f"{said} is more than the plain sum {plain}")

    def _cost(self, run_id: bytes) -> Mapping[str, float | None]:
        """What really left of the run: all its rounds at the dearest of the terms that any of them had."""
        mine = [drawn for drawn in self.drawn if drawn.run_id == run_id]
        if any(drawn.keystream == TEST for drawn in mine):
            return dict.fromkeys(ACCOUNTANTS, math.inf)
        kinds = {(canonical_json(drawn.run), drawn.samples, drawn.data) for drawn in mine}
        if len(kinds) > 1:
            return dict.fromkeys(ACCOUNTANTS, math.inf)  # two data sets, or two meanings: no account covers it
        return dict(account(mine[0].run, mine[0].samples).epsilon_after(max(drawn.k for drawn in mine)))


# --- mutants: each rule taken away -----------------------------------------------------------------------------------


def _blind(words: str) -> Callable[[], Any]:
    real = terms_module.differences
    return lambda: mock.patch.object(
        terms_module, "differences", lambda *a: [d for d in real(*a) if not d.startswith(words)]
    )


@contextlib.contextmanager
def _no_lock() -> Iterator[None]:
    with mock.patch("dpgt_node.runtime.store.opening.fcntl.flock", lambda *_: None):
        yield


@contextlib.contextmanager
def _falling() -> Iterator[None]:
    real = ledger_module.as_charged
    with mock.patch.object(store_module, "as_charged", lambda rows, _, hides: real(rows, {}, hides=hides)):
        yield


MUTANTS: dict[str, Callable[[], Any]] = {
    "D is not compared": _blind("the data had"),
    "the data are not compared": _blind("the data have"),
    "delta is not compared": _blind("delta"),
    "adjacency is not compared": _blind("adjacency"),
    "the keystream is not compared": _blind("the noise"),
    "a cost may fall": lambda: _falling(),
    "a test keystream costs what it says": lambda: mock.patch.object(store_module, "TEST", "no such"),
    "a policy takes a test keystream": lambda: mock.patch.object(opening, "TEST", "no such"),
    "a declared C counts": lambda: mock.patch.object(
        budget, "judge", lambda policy, *a, **o: _judge(dataclasses.replace(policy, allow_declared=True), *a, **o)
    ),
    "other runs are forgotten": lambda: mock.patch.object(budget, "spent_on", lambda *_: []),
    "only the largest run counts": lambda: _parts(_largest_alone),
    "rho of composed runs is halved": lambda: _scaled("rho", 0.5),
    "mu is got back a millionth too small": lambda: _scaled("mu", (1 - 1e-6) ** 2),
    "a composed run's delta is counted once": lambda: _totals(_first_delta),
    "every kind has the whole delta": lambda: _parts(
        lambda parts: [dataclasses.replace(p, delta=len(parts) * p.delta) for p in parts]
    ),
    "runs are converted at ten times the delta": lambda: _totals(_ten_deltas),
    "the head is not compared": lambda: mock.patch.object(Store, "head_after", lambda self, run_id, k: _Any()),
    "the lock is not held": _no_lock,
}
_judge, _total = budget.judge, composition.total


def _totals(change: Callable[..., Any]) -> Any:
    """Every total is made by ``change(parts, delta_max)``, in the ledger and in the policy."""
    stack = contextlib.ExitStack()
    for module in (composition, policy_module):
        stack.enter_context(mock.patch.object(module, "total", change))
    return stack


def _parts(change: Callable[[list[composition.Part]], list[composition.Part]]) -> Any:
    return _totals(lambda parts, delta_max=None: _total(change(list(parts)), delta_max))


def _scaled(kind: str, factor: float) -> Any:
    def change(parts: list[composition.Part]) -> list[composition.Part]:
        return [dataclasses.replace(p, amount=factor * p.amount) if p.kind == kind else p for p in parts]

    return _parts(change)


def _largest_alone(parts: list[composition.Part]) -> list[composition.Part]:
    kinds = dict.fromkeys(part.kind for part in parts)
    return [max((p for p in parts if p.kind == kind), key=lambda p: p.amount) for kind in kinds]


def _first_delta(parts: Any, delta_max: Any = None) -> Any:
    made = _total(parts, delta_max)
    return made and dataclasses.replace(made, delta=next((p.delta for p in parts if p.delta), made.delta))


def _ten_deltas(parts: Any, delta_max: Any = None) -> Any:
    made = _total(parts, delta_max)
    ten = [dataclasses.replace(p, delta=10 * p.delta) for p in parts]
    more = _total(ten, None if delta_max is None else 10 * delta_max)
    return made and more and dataclasses.replace(made, epsilon=more.epsilon)


class _Any(bytes):
    """Equal to every head."""

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False

    __hash__ = bytes.__hash__


def lives(seeds: range, steps: int = 14) -> tuple[Counter[str], list[int]]:
    """What happened in these histories, and those that undercharged."""
    counts: Counter[str] = Counter()
    under = []
    for seed in seeds:
        with tempfile.TemporaryDirectory() as folder:
            history = History(Path(folder), seed)
            try:
                history.live(steps)
            except (Undercharged, StoreError, RuntimeError) as error:
                counts[f"{type(error).__name__}: {str(error)[:90]}"] += 1
                under.append(seed)
            counts += history.counts
    return counts, under


def caught(mutant: str, seeds: range) -> int | None:
    """The first history in which the mutant is found out."""
    for seed in seeds:
        with MUTANTS[mutant]():
            if lives(range(seed, seed + 1))[1]:
                return seed
    return None


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.runtime.store.histories", description=__doc__)
    parser.add_argument("--histories", type=int, default=2000)
    parser.add_argument("--mutants", type=int, default=200, help="histories that each mutant gets")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    happened, undercharged = lives(range(options.histories))
    for what, count in sorted(happened.items()):
        print(f"{count:8d}  {what}")
    print(f"{options.histories} histories, {len(undercharged)} undercharged {undercharged[:10] or ''}")
    missed = []
    for name in MUTANTS:
        seed = caught(name, range(options.mutants))
        missed += [name] if seed is None else []
        print(f"  {name}: {'MISSED' if seed is None else f'caught in history {seed}'}")
    raise SystemExit(bool(undercharged or missed))
