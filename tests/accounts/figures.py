"""Runs whose costs are pinned to the last bit: every example, and 120 drawn from seeds."""

from __future__ import annotations

import hashlib
import itertools
import random
from pathlib import Path
from typing import Any

import numpy as np

from dpgt_node.agent.noise import account_for
from dpgt_node.algo.graph import Topology
from dpgt_node.algo.schedule import Schedule
from dpgt_node.config import model
from dpgt_node.config.run import load_run

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
DRAWN = 120
PINNED = ("lemma5", "corrected", "tight", "amplified", "zcdp", "gdp")
_RING = ((0.0, 0.0, 1.0), (1.0, 0.0, 0.0), (0.0, 1.0, 0.0))


def runs() -> dict[str, tuple[model.RunConfig, int | None, int]]:
    """(run, D, d) by name; D None: not known."""
    found: dict[str, tuple[model.RunConfig, int | None, int]] = {}
    for path in sorted(EXAMPLES.glob("*.toml")):
        run = load_run(path)
        found[path.stem] = (run, 287 if run.K > 100 else 12_000, 650)
    kinds = itertools.cycle(
        itertools.product(("paper", "published-point", "public-state", "noise-once"), ("laplace", "gaussian"))
    )
    for seed, (mechanism, law) in zip(range(DRAWN), kinds, strict=False):
        found[f"drawn-{seed:03d}"] = _drawn(random.Random(seed), mechanism, law)
    return found


def _drawn(rng: random.Random, mechanism: str, law: Any) -> tuple[model.RunConfig, int | None, int]:
    K, D = rng.choice((0, 1, 7, 60, 200)), rng.choice((None, 64, 64, 1_000, 1_000, 1_000))
    m: Any = rng.choice(("full", 1, 64))
    clip = rng.choice(("declared", "l1", "l1", "l1", "l2", "l2", "none"))
    size = rng.uniform(0.1, 4.0)
    privacy = {
        "declared": model.Privacy(C=size, delta=1e-6),
        "l1": model.Privacy(clip_l1=size, delta=1e-5),
        "l2": model.Privacy(clip_l2=size, delta=1e-5),
        "none": model.Privacy(),
    }[clip]
    if rng.random() < 0.3:
        zeta, eta = (model.NoiseStream("exponent", tuple(rng.uniform(0.97, 1.0) for _ in range(3))) for _ in range(2))
    else:
        zeta, eta = (model.NoiseStream("constant", tuple(rng.uniform(0.01, 9.0) for _ in range(3))) for _ in range(2))
    run = model.RunConfig(
        name="drawn",
        algorithm=model.Algorithm(iterations=K, mechanism=mechanism),
        scheme=model.SchemeS2(rng.uniform(0.01, 0.9), rng.uniform(0.01, 0.9), rng.uniform(0.01, 2.0), 1.0, samples=m),
        noise=model.Noise(zeta, eta, law=law, multiplier=rng.choice((1.0, 1.0, 1.0, 1.0, 0.5, 0.0))),
        graph=model.Graph(("a", "b", "c"), _RING, _RING),
        data=model.Data("zeros", params={"dimension": 5}),
        privacy=privacy,
    )
    return run, D, rng.choice((1, 5, 650))


def figures(run: model.RunConfig, D: int | None, d: int) -> dict[str, Any]:
    """Each accountant's cost of the first agent's whole run; a hash over every agent's rows and reasons."""
    topology, schedule = Topology.from_config(run.graph), Schedule.from_config(run)
    accounts = [account_for(run, topology, schedule, i, D, d) for i in range(run.n)]
    rows = [
        [account.cost_after(k, s) for k in range(run.K + 1) for s in account.charged_streams()] for account in accounts
    ]
    digest = hashlib.sha256()
    for name in PINNED:
        for curve in rows:
            digest.update(np.array([float("nan") if r[name] is None else r[name] for r in curve]).tobytes())
    for account in accounts:
        digest.update(repr([account.why_not(name) for name in PINNED]).encode())
        shifts = [account.sensitivity(s, k) for k in (0, run.K // 2, run.K) for s in ("X", "Y")]
        digest.update(repr([shifts, account.charged_streams(), account.scale("X", run.K)]).encode())
    totals = {name: accounts[0].total(name) for name in PINNED}
    return {"epsilon": {name: repr(v) for name, v in totals.items() if v is not None}, "sha256": digest.hexdigest()}
