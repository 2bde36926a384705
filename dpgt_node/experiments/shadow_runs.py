"""Shadow runs by the fast simulator: the run of a transcript, with its pool of samples dealt anew.

The pool is the run's training set and test set on this machine, less some public samples that no run ever holds.  Every
shadow run takes as many of it as the run did and deals them to its agents at random, runs with noise of its own, and is
seen from where the transcript was.  What the adversary keeps of it are signals of the scored samples.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import field, replace
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from dpgt_node.adversary.attack import NotApplicable
from dpgt_node.adversary.inference.observation import Facts, Observation
from dpgt_node.adversary.membership.rates import Guarantee
from dpgt_node.adversary.membership.shadows import NOBODY, Pool, Shadows, Signals
from dpgt_node.adversary.membership.signals import Lens
from dpgt_node.agent.noise import accounts_for
from dpgt_node.config import RunConfig, run_sha256
from dpgt_node.config.vocabulary import TOYS
from dpgt_node.durable import replacing
from dpgt_node.errors import ConfigError
from dpgt_node.learning.common import Oracle
from dpgt_node.learning.data.arrays import Dataset
from dpgt_node.learning.data.shards import data_is_here
from dpgt_node.learning.labelled import own_dataset
from dpgt_node.learning.nets.clipping import Clip
from dpgt_node.learning.nets.models import SoftmaxOracle
from dpgt_node.learning.nets.torch_models import guessed_shape
from dpgt_node.privacy.accountants.gaussian import gdp_mu_above
from dpgt_node.privacy.accountants.registry import ACCOUNTANTS
from dpgt_node.sim.fast import FastRun
from dpgt_node.types import F64, I64, Stream
from dpgt_node.values import dataclass

PUBLIC_MOST, SCORED_MOST = 100, 2000
"""Public samples that teach the filter; members of all agents that are scored, and as many others."""
FORMAT = 1
BLIND = ("iid", "contiguous")
"""Partitions that do not look at labels."""


@dataclass(frozen=True, slots=True)
class Game:
    """The pool of ``run``: ``data`` holds all of it as a training set.  ``scored``: its rows that are scored, ``own``
    their holders in the run; ``sizes``: D of every agent.  ``seen``: what the adversary has of the run.
    """

    run: RunConfig
    data: Dataset = field(repr=False)
    scored: I64 = field(repr=False)
    own: I64 = field(repr=False)
    pool: Pool = field(repr=False)
    sizes: tuple[int, ...]
    seen: Observation = field(repr=False)
    seed: int

    @classmethod
    def of(cls, observation: Observation, seed: int, data_root: Path | None) -> Game:
        """NotApplicable: there is no pool, or who holds a sample depends on its label.  ConfigError: other data."""
        run = observation.facts.run
        if run.data.dataset in TOYS:
            raise NotApplicable.one("run file", "data.dataset", f"{run.data.dataset!r} has no samples")
        if not data_is_here(run, data_root):
            message = "shadow runs need the run's data on this machine: they deal it anew"
            raise NotApplicable.one("run file", "data.dataset", message)
        if run.data.partition not in BLIND:
            message = f"'{run.data.partition}' deals by label, so a guess by class would pass for membership"
            raise NotApplicable.one("run file", "data.partition", message)
        own = [own_dataset(run, i, data_root=data_root) for i in range(run.n)]
        first, sizes = own[0], tuple(len(one.y_train) for one in own)
        tests = len(first.y_test)
        if tests < 4:
            message = f"has {tests} test samples: none are left to be public, or to be nobody's"
            raise NotApplicable.one("run file", "data.dataset", message)
        rng = np.random.default_rng([seed, 1])
        order = rng.permutation(tests)
        public, others = np.split(order, [min(PUBLIC_MOST, tests // 3)])
        x = np.concatenate([np.asarray(one.x_train[:]) for one in own] + [np.asarray(first.x_test[:])[others]])
        y = np.concatenate([one.y_train for one in own] + [first.y_test[others]])
        public_x, public_y = np.asarray(first.x_test[:])[public], first.y_test[public]
        holders = np.concatenate([np.repeat(np.arange(run.n), sizes), np.full(len(others), NOBODY)])
        data = replace(first, x_train=x, y_train=y, x_test=public_x, y_test=public_y)
        scored = np.sort(np.concatenate([_some(rng, holders >= 0), _some(rng, holders == NOBODY)]))
        shape = first.image or guessed_shape(run.model.name, int(x.shape[1]))
        phi, public_phi = (np.asarray(part, dtype=np.float64) / first.divisor for part in (x[scored], public_x))
        pool = Pool(phi, y[scored], public_phi, public_y, first.classes, len(y), shape)
        return cls(run, data, scored, holders[scored], pool, sizes, observation, seed)

    def shadow(self, s: int, lens: Lens) -> tuple[I64, Signals]:
        """Run ``s``: who holds each scored sample, and what was seen."""
        rng = np.random.default_rng([self.seed, 2, s])
        dealt = np.split(rng.permutation(len(self.data.y_train)), np.cumsum(self.sizes))[:-1]
        held = np.full(len(self.data.y_train), NOBODY, dtype=np.int64)
        for i, rows in enumerate(dealt):
            held[rows] = i
        key = hashlib.sha256(f"shadow {self.seed} {s}".encode()).hexdigest()
        tapped = _Tapped(self.run, [self._oracle(np.sort(rows)) for rows in dealt], key)
        while tapped.k <= self.run.K:
            tapped.step()
        return held[self.scored], lens.look(self._seen(tapped.sent_in))

    def lens(self) -> Lens:
        """What looks at the run and at its shadows."""
        m = self.seen.facts.schedule.m or round(sum(self.sizes) / len(self.sizes))
        return Lens(self.seen, self.pool, m)

    def _oracle(self, rows: I64) -> Oracle:
        run, clip = self.run, Clip.from_config(self.run.privacy)
        if run.model.name == "softmax":
            return SoftmaxOracle(self.data, rows, bias=run.model.bias, clip=clip, init_seed=run.model.init_seed)
        from dpgt_node.learning.torch_oracle import TorchOracle

        return TorchOracle(self.data, rows, run.model, clip=clip)

    def _seen(self, sent: dict[tuple[Stream, int], F64]) -> Observation:
        """What the adversary would have had of that run: the same releases, with the same holes."""
        vectors = {}
        for (i, stream, k), vector in self.seen.vectors.items():
            vectors[i, stream, k] = np.where(np.isnan(vector), np.nan, sent[stream, k][i])
        return replace(self.seen, vectors=vectors, copies={}, conflicts=())

    def key(self) -> str:
        """Of everything that a shadow run is a function of, but its number."""
        told = [FORMAT, run_sha256(self.run), self.seed, list(self.sizes)]
        digest = hashlib.sha256(json.dumps(told).encode())
        for array in (self.data.x_train, self.data.y_train, self.scored, self.pool.public_phi):
            digest.update(np.ascontiguousarray(array).tobytes())
        for name, vector in sorted(self.seen.vectors.items()):
            digest.update(json.dumps(name).encode() + np.packbits(np.isnan(vector)).tobytes())
        return digest.hexdigest()

    def guarantees(self) -> dict[str, tuple[Guarantee, ...]]:
        """What every sound accountant says of each agent, by name; () where nothing is bounded."""
        facts = Facts.of(self.run)
        accounts = accounts_for(self.run, facts.topology, facts.schedule, self.sizes, self.seen.dimension)
        delta = self.run.privacy.delta
        out: dict[str, tuple[Guarantee, ...]] = {}
        for name, account in zip(facts.names, accounts, strict=True):
            found = []
            for accountant, one in ACCOUNTANTS.items():
                epsilon = account.total(accountant) if one.sound and one.guarantee != "total-variation" else None
                if epsilon is None or not np.isfinite(epsilon):
                    continue
                mu = gdp_mu_above(epsilon, delta) if one.guarantee == "mu" else None
                found.append(Guarantee(accountant, epsilon, 0.0 if one.pure else delta, mu))
            out[name] = tuple(found)
        return out


class _Tapped(FastRun):
    """Keeps what its agents send."""

    def __init__(self, run: RunConfig, oracles: list[Oracle], key: str) -> None:
        self.sent_in: dict[tuple[Stream, int], F64] = {}
        super().__init__(run, oracles, key)

    def wire(self, stream: Stream, k: int, values: F64) -> F64:
        sent = super().wire(stream, k, values)
        self.sent_in[stream, k] = sent.copy()
        return sent


def conduct(
    observation: Observation,
    count: int,
    *,
    seed: int = 0,
    jobs: int = 1,
    folder: Path | None = None,
    data_root: Path | None = None,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> Shadows:
    """``count`` shadow runs of the run of ``observation``, on ``jobs`` processes that give way to others.

    ``folder``: keep them there, and make only what is missing.  NotApplicable, ConfigError: see :meth:`Game.of`; the
    folder holds shadows of another run.
    """
    game = Game.of(observation, seed, data_root)
    kept = _Kept(folder, game.key())
    made = {s: found for s in range(count) if (found := kept.load(s)) is not None}
    missing = [s for s in range(count) if s not in made]
    progress(len(made), count)
    for s, found in _made(game, missing, jobs):
        made[s] = found
        kept.save(s, found)
        progress(len(made), count)
    held = np.stack([made[s][0] for s in range(count)])
    stacked = [np.stack([getattr(made[s][1], name) for s in range(count)]) for name in Signals.__slots__]
    return Shadows(game.pool, held, Signals(*stacked), game.own, game.sizes, game.guarantees(), seed)


def _made(game: Game, missing: list[int], jobs: int) -> Iterator[tuple[int, tuple[I64, Signals]]]:
    if jobs <= 1 or len(missing) <= 1:
        lens = game.lens()
        yield from ((s, game.shadow(s, lens)) for s in missing)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=_begin, initargs=(game,)) as workers:
        try:
            yield from zip(missing, workers.map(_work, missing), strict=True)
        except BaseException:
            workers.shutdown(wait=False, cancel_futures=True)
            raise


class _Worker:
    """What a process of the pool was given."""

    game: Game
    lens: Lens


def _begin(game: Game) -> None:
    os.nice(10)
    _Worker.game, _Worker.lens = game, game.lens()


def _work(s: int) -> tuple[I64, Signals]:
    return _Worker.game.shadow(s, _Worker.lens)


class _Kept:
    """Shadow runs on disk, a file each; nowhere without a folder."""

    def __init__(self, folder: Path | None, key: str) -> None:
        self._folder, self._key = folder, key
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)

    def load(self, s: int) -> tuple[I64, Signals] | None:
        path = self._path(s)
        if path is None or not path.exists():
            return None
        try:
            with np.load(path, allow_pickle=False) as file:
                if str(file["key"]) != self._key:
                    message = f"{path} is of another run, seed or vantage point: take another folder"
                    raise ConfigError.one("command line", "--keep-shadows", message)
                return file["held"], Signals(*(file[name] for name in Signals.__slots__))
        except (OSError, KeyError, ValueError) as error:
            raise ConfigError.one(str(path), "", f"is no shadow run: {error}; remove it") from error

    def save(self, s: int, found: tuple[I64, Signals]) -> None:
        path = self._path(s)
        if path is None:
            return
        held, signals = found
        arrays = {name: getattr(signals, name) for name in Signals.__slots__}
        with replacing(path, "process") as file:
            np.savez(file, key=np.array(self._key), held=held, **arrays)

    def _path(self, s: int) -> Path | None:
        return None if self._folder is None else self._folder / f"shadow-{s:05d}.npz"


def _some(rng: np.random.Generator, chosen: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> I64:
    rows = np.flatnonzero(chosen)
    return rows if len(rows) <= SCORED_MOST else rng.permutation(rows)[:SCORED_MOST]
