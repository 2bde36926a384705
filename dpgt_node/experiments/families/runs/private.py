"""A run at a stated epsilon: the least noise for it, and a split of training samples to tune on."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from dpgt_node.accounts.account import AgentAccount
from dpgt_node.accounts.planner import calibrate
from dpgt_node.agent.noise import accounts_for
from dpgt_node.algo.graph import Topology
from dpgt_node.algo.methods import method_of
from dpgt_node.algo.schedule import Schedule
from dpgt_node.config import RunConfig
from dpgt_node.config.vocabulary import NAME
from dpgt_node.durable import replacing
from dpgt_node.errors import ConfigError
from dpgt_node.learning.data.shards import run_dataset
from dpgt_node.learning.oracle import build_oracle, sample_counts
from dpgt_node.privacy.accountants.registry import APPROXIMATE
from dpgt_node.privacy.mechanisms import MECHANISMS
from dpgt_node.values import dataclass

KEPT_BACK = 6
"""One training sample in so many judges candidates."""
_SEED = 123
_COINS = 1024
"""Fair coins in a code, at least: their noise is 16 steps of the code then, and next to Gaussian."""
_LEVELS = tuple((1 << power) + 1 for power in range(4, 24))
_MOST_COINS = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class Private:
    """``run`` with its noise; ``reached``: the largest epsilon of an agent, by ``accountant``."""

    run: RunConfig
    accountant: str
    reached: float


def at_epsilon(run: RunConfig, epsilon: float, data_root: Path | None) -> Private:
    """``run`` with the least constant noise, or the fewest coins, at which no agent exceeds ``epsilon``, by the
    accountant that asks for the least.  ConfigError: no sound accountant of (epsilon, delta) covers every agent.
    """
    counts, d = sample_counts(run, data_root), build_oracle(run, 0, data_root=data_root).dimension

    def accounts(one: RunConfig) -> Sequence[AgentAccount]:
        topology, schedule = Topology.from_config(one.graph), Schedule.from_config(one)
        return accounts_for(one, topology, schedule, counts, d)

    if method_of(run).coins(run) is not None:
        return _with_coins(run, epsilon, accounts)
    ratio, found = None if MECHANISMS[run.algorithm.mechanism].x_public else 1.0, list[Private]()
    for name in APPROXIMATE:
        if all(account.total(name) is not None for account in accounts(run)):
            fitting = calibrate(run, name, epsilon, accounts, ratio=ratio)
            spent = [account.total(name) or 0.0 for account in accounts(fitting)]
            found.append(Private(fitting, name, max(spent)))
    if not found:
        raise ConfigError.one("run file", "", "no sound accountant covers every agent: there is no epsilon to meet")
    return min(found, key=lambda one: _total(one.run))


def _with_coins(run: RunConfig, epsilon: float, accounts: Callable[[RunConfig], Sequence[AgentAccount]]) -> Private:
    """The coarsest code, its step halved each time, that needs ``_COINS`` coins or more, and the fewest of them."""

    def spent(levels: int, trials: int) -> float:
        one = _coded(run, levels, trials)
        totals = [account.total(name) for account in accounts(one) for name in APPROXIMATE]
        return max((total for total in totals if total is not None), default=math.inf)

    levels = next((one for one in _LEVELS if spent(one, _COINS) > epsilon), _LEVELS[-1])
    low, high, most = _COINS - 1, _COINS, _MOST_COINS - levels
    while spent(levels, high) > epsilon:
        if high == most:
            raise ConfigError.one("run file", "method.trials", f"no number of coins has an epsilon of {epsilon:g} here")
        low, high = high, min(2 * high, most)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if spent(levels, middle) <= epsilon else (middle, high)
    reached = spent(levels, high)
    (name,) = {name for account in accounts(_coded(run, levels, high)) for name in APPROXIMATE if account.total(name)}
    return Private(_coded(run, levels, high), name, reached)


def _coded(run: RunConfig, levels: int, trials: int) -> RunConfig:
    return replace(run, method_options={**run.method_options, "levels": levels, "trials": trials})


def _total(run: RunConfig) -> float:
    return math.inf if run.noise.eta is None else sum(run.noise.eta.values)


def on_training_samples(run: RunConfig, out: Path, data_root: Path | None) -> RunConfig:
    """``run`` on its training samples alone: a fixed sixth of them is its test set, and no test sample is in it.

    The split of a named set lies beside the picture sets, that of a file, which may change, in ``out``.
    """
    named = data_root is not None and NAME.fullmatch(run.data.dataset) is not None
    path = data_root / "tuning" / f"{run.data.dataset}.npz" if named and data_root else out / "tuning.npz"
    if not path.exists():
        data = run_dataset(run, data_root)
        order = np.random.default_rng(_SEED).permutation(len(data.y_train))
        kept, rest = np.split(order, [len(order) // KEPT_BACK])
        x = {
            name: np.asarray(data.real_train(rows), dtype=np.float32)
            for name, rows in (("test", kept), ("train", rest))
        }
        if data.image is not None:
            x = {name: values.reshape(-1, *data.image) for name, values in x.items()}
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path, "whole") as file:
            np.savez(file, allow_pickle=False, x_train=x["train"], y_train=data.y_train[rest], x_test=x["test"],
                     y_test=data.y_train[kept])  # fmt: skip
    return replace(run, data=replace(run.data, dataset=f"npz:{path.absolute()}"))
