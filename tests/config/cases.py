"""A small valid run as a TOML document, ways to spoil it, and a strategy for whole RunConfigs."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from dpgt_node.config import (
    Adversary,
    Algorithm,
    Data,
    Evaluation,
    Graph,
    Model,
    Noise,
    NoiseStream,
    Privacy,
    RunConfig,
    Runtime,
    SchemeS1,
    SchemeS2,
    parse_document,
)
from dpgt_node.config.roles import Roles
from dpgt_node.errors import ConfigError

# Loaded machines are slow: no check on time.
relaxed = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
DELETE = object()
S1 = dict(kind="S1", a1=0.5, a2=0.4, a3=0.1, a4=1.0, p_alpha=0.96, p_beta=0.7, p_gamma=0.98, p_m=1.7)
GOOD: dict[str, Any] = {
    "name": "small",
    "algorithm": {"iterations": 10},
    "scheme": {"kind": "S2", "alpha": 0.1, "beta": 0.01, "gamma": 0.1, "p_m": 1.002},
    "noise": {"scale_zeta": 0.1, "scale_eta": [0.1, 0.2, 0.3]},
    "graph": {
        "agents": 3,
        "R": [[0, 0, 1], [1, 0, 0], [0, 1, 0]],
        "C": [[0, 0, 1], [1, 0, 0], [0, 1, 0]],
    },
    "data": {"dataset": "digits"},
}


def spoiled(changes: dict[str, Any]) -> dict[str, Any]:
    """GOOD with dotted keys replaced, added or (DELETE) removed."""
    document = copy.deepcopy(GOOD)
    for dotted, value in changes.items():
        *sections, last = dotted.split(".")
        table = document
        for section in sections:
            table = table.setdefault(section, {})
        if value is DELETE:
            del table[last]
        else:
            table[last] = value
    return document


def parse(changes: dict[str, Any], base: Path = Path("/nowhere")) -> RunConfig:
    return parse_document(spoiled(changes), "run.toml", base)


def problems(changes: dict[str, Any], base: Path = Path("/nowhere")) -> list[tuple[str, str]]:
    """(key, message) of every problem; empty when the run is good."""
    try:
        parse(changes, base)
    except ConfigError as error:
        assert all(p.source == "run.toml" for p in error.problems)
        return [(p.key, p.message) for p in error.problems]
    return []


positive = st.floats(min_value=1e-6, max_value=1e6)
unit = st.floats(min_value=1e-6, max_value=1.0, exclude_max=True)
names = st.sampled_from(["agent-1", "a", "B", "0", "hospital.north", "x_1", "Z-9.", "n" * 63])
weights = st.sampled_from([0.0, 0.0, 0.0, 1.0, 0.1, 1 / 3, 1e-9, 1e9, 123456789.125, 1e300])
printable = st.text(st.characters(min_codepoint=32, max_codepoint=0x2FFF), min_size=1, max_size=40).filter(
    lambda text: text.isprintable() and bool(text.strip())
)
samples = st.none() | st.integers(1, 10**6)


def _data(dataset: str) -> st.SearchStrategy[Data]:
    dimension = st.integers(1, 10**6)
    params: dict[str, st.SearchStrategy[Any]] = {
        "quadratic": st.fixed_dictionaries({"dimension": dimension}),
        "zeros": st.fixed_dictionaries({"dimension": dimension}),
        "pl-sine": st.fixed_dictionaries({"start": st.floats(-10, 10)}),
        "pl-linear": st.fixed_dictionaries(
            {"dimension": st.integers(1, 50), "rows": st.integers(50, 100), "start": st.floats(-10, 10)}
        ),
    }
    seed = st.integers(0, 2**53)
    if dataset in params:
        return st.builds(Data, dataset=st.just(dataset), seed=seed, params=params[dataset])
    path = printable.map(lambda text: f"npz:{text}")
    return st.builds(
        Data,
        dataset=path if dataset == "npz" else st.just(dataset),
        features=st.sampled_from(["raw", "pool14", "hog", "hog-shapes", "edges"]),
        normalise=st.sampled_from(["none", "l1", "l2"]),
        partition=st.sampled_from(["iid", "contiguous"]),
        seed=seed,
    )


@st.composite
def releases(draw: st.DrawFn, K: int) -> dict[str, Any]:
    """Which rounds release, and how many settle."""
    settle = draw(st.integers(0, K))
    later = draw(st.sets(st.integers(1, K - settle), max_size=5)) if settle < K else set()
    listed = draw(st.none() | st.just((0, *sorted(later))))
    every = None if listed is not None else draw(st.none() | st.integers(1, 600))
    return {"settle": settle, "releases": listed, "release_every": every}


@st.composite
def runs(draw: st.DrawFn) -> RunConfig:
    """Valid RunConfigs of every shape the parser can produce."""
    agents = draw(st.lists(names, min_size=1, max_size=4, unique=True))
    n = len(agents)
    matrix = st.tuples(*[st.tuples(*[weights] * n)] * n)
    iterations = draw(st.integers(0, 500))
    dataset = draw(st.sampled_from(["digits", "npz", "quadratic", "zeros", "pl-sine", "pl-linear"]))
    data = draw(_data(dataset))
    toy = bool(data.params)
    count = samples if toy else samples | st.just("full")
    power = st.floats(-3, 3)
    mechanism = draw(st.sampled_from(["paper", "published-point", "public-state", "noise-once"]))
    apart = draw(releases(iterations)) if mechanism == "noise-once" else {}
    scheme = draw(
        st.builds(SchemeS1, *[positive] * 4, *[power] * 3, p_m=st.floats(0, 3), samples=count)
        | st.builds(SchemeS2, positive, positive, positive, st.floats(0.9, 1.05), count)
    )
    scheme = replace(scheme, **apart)
    exponent = power if scheme.kind == "S1" else st.floats(0.9, 1.1)
    stream = st.builds(NoiseStream, st.just("constant"), st.tuples(*[positive] * n)) | st.builds(
        NoiseStream, st.just("exponent"), st.tuples(*[exponent] * n)
    )
    multiplier = draw(st.just(0.0) | positive)
    if multiplier == 0.0:
        stream = st.none() | stream
    noise = Noise(draw(stream), draw(stream), "laplace", multiplier)
    if mechanism == "noise-once" and multiplier > 0.0 and n > 1 and noise.eta is not None and draw(st.booleans()):
        pairs = tuple((i, i + 1) for i in range(1, n))
        one = replace(noise.eta, values=noise.eta.values[:1] * n)
        graph = draw(st.sampled_from([None, "complete", "ring", pairs]))
        noise = replace(noise, eta=one, law="gaussian", cancel=draw(st.integers(1, 15)), mask_graph=graph)
    factors = st.none() | st.lists(positive, min_size=1, max_size=3).map(tuple)
    clips = factors if mechanism == "noise-once" else st.none()
    decay = st.none() | st.floats(1e-3, 1e3)
    fading = decay if mechanism == "noise-once" else st.none()
    privacy = draw(
        st.one_of(
            st.builds(Privacy, delta=unit),
            st.builds(Privacy, clip_l1=positive, delta=unit, by_release=clips, decay=fading),
            st.builds(Privacy, clip_l2=positive, delta=unit, by_release=clips, decay=fading),
            st.builds(Privacy, C=positive, delta=unit),
        )
    )
    if apart and privacy.enforced and not toy and data.normalise != "none" and draw(st.booleans()):
        scheme = replace(scheme, first="class-sums", first_scale=draw(positive))
    model = st.builds(
        Model,
        init_seed=st.none() | st.integers(0, 2**53),
        bias=st.floats(0, 10),
        norm=st.sampled_from(["batch", "group"]),
    )
    runtime = st.builds(
        Runtime,
        wire_dtype=st.sampled_from(["auto", "float64", "float32"]),
        round_timeout_s=positive,
        register_timeout_s=positive,
        on_agent_loss=st.sampled_from(["wait", "stop"]),
        barrier_every=st.integers(1, 1000),
        channel=st.sampled_from(["mtls", "plain"]),
        on_forgery=st.sampled_from(["stop", "continue"]),
    )
    evaluate = Evaluation(draw(st.integers(1, 1000)), draw(st.sampled_from(["study", "local"])))
    watching, attacking = (draw(st.sets(st.sampled_from(agents))) for _ in range(2))
    roles = st.sampled_from(["poison", "trap scale=-2.5 until=2", "equivocate value=1 coordinates=0:3", "delay ms=4"])
    return RunConfig(
        name=draw(printable),
        algorithm=Algorithm(iterations, mechanism=mechanism),
        scheme=scheme,
        noise=replace(noise, by_release=draw(factors), decay=draw(decay)),
        graph=Graph(tuple(agents), draw(matrix), draw(matrix)),
        data=data,
        model=Model() if toy else draw(model),
        privacy=privacy,
        evaluate=evaluate,
        runtime=draw(runtime),
        adversary=Adversary(
            tuple(name for name in agents if name in watching),
            Roles((name, draw(roles)) for name in agents if name in attacking),
            truth=evaluate.metrics == "study" and draw(st.booleans()),
        ),
        base=Path("/somewhere"),
    )
