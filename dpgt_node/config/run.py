"""RUN.toml to :class:`RunConfig`.  Its keys are declared in ``model``; here are the checks across keys."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Literal

from dpgt_node.config.data import read_data
from dpgt_node.config.declare.keys import UNSET, Declared, declared, foreign, read_fields, read_table
from dpgt_node.config.declare.kinds import Choice, Integer, Number
from dpgt_node.config.declare.reader import Section, parse_toml, read_text, show, suggestion
from dpgt_node.config.graphs.matrices import MatrixForm
from dpgt_node.config.methods import read_options
from dpgt_node.config.mixing.robust import Robust, check_robust
from dpgt_node.config.model import (
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
    Scheme,
    SchemeS1,
    SchemeS2,
)
from dpgt_node.config.own_kinds import PerAgent
from dpgt_node.config.privacy.cancelling import check_cancelling
from dpgt_node.config.privacy.releases import check_clips, check_first, check_releases
from dpgt_node.config.privacy.traffic import Traffic, check_traffic
from dpgt_node.config.roles import check_roles, parse_roles
from dpgt_node.config.vocabulary import METHOD_MECHANISMS, TOYS
from dpgt_node.errors import ConfigError, Problem
from dpgt_node.privacy.mechanisms import MECHANISMS as FACTS

_LOG_RANGE = 700.0  # exp(+-700) is the range of normal float64
# What privacy.grid draws; a hair inside, as logarithms are rounded.
_LOG_MIN_SCALE, _LOG_MAX_SCALE = math.log(1e-290) * (1 - 1e-12), math.log(1e290) * (1 - 1e-12)
_LOG_MAX_FLOAT32 = math.log(1e33)  # 65,536 scales, as far as noise reaches, are still a float32
_LOG_MAX_SAMPLES = 53 * math.log(2.0)


def load_run(path: Path) -> RunConfig:
    """The run file at ``path``; ConfigError lists all its problems."""
    return parse_run(read_text(path), str(path), path.absolute().parent)


def parse_run(text: str, source: str, base: Path) -> RunConfig:
    """The run in ``text``.  ``source`` names it in messages; relative paths are resolved against ``base``."""
    return parse_document(parse_toml(text, source), source, base)


def demo_toml(*, private: bool = False) -> str:
    """The text of the demo's run file, which is also ``examples/demo.toml``; or ``examples/demo-private.toml``."""
    name = "demo-private.toml" if private else "demo.toml"
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def parse_document(document: Mapping[str, object], source: str, base: Path) -> RunConfig:
    if {"run", "listen", "coordinator"} <= document.keys() and "graph" not in document:
        named = show(document["run"])
        raise ConfigError.one(source, "", f"is a node file, and a run file is asked for, as the one it names: {named}")
    problems: list[Problem] = []
    top = Section(document, source, "", problems, base)
    values = read_fields(top, RunConfig)
    algorithm_section = top.section("algorithm", required=True)
    algorithm = _fitting(algorithm_section, read_table(algorithm_section, Algorithm))
    graph = _graph(top.section("graph", required=True))
    scheme_section = top.section("scheme", required=True)
    scheme = _scheme(scheme_section)
    noise_section = top.section("noise", required=True)
    noise = _noise(noise_section, len(graph.agents), algorithm.mechanism)
    data_section = top.section("data", required=True)
    data = read_data(data_section)
    run = RunConfig(
        **values,
        algorithm=algorithm,
        scheme=scheme,
        noise=noise,
        graph=graph,
        data=data,
        model=_model(top.section("model"), data),
        privacy=read_table(privacy_section := top.section("privacy"), Privacy),
        evaluate=(evaluate := read_table(top.section("evaluate"), Evaluation)),
        runtime=read_table(top.section("runtime"), Runtime),
        adversary=_adversary(adversary_section := top.section("adversary"), graph.agents, evaluate),
        robust=read_table(robust_section := top.section("robust"), Robust),
        traffic=read_table(traffic_section := top.section("traffic"), Traffic),
        method_options=read_options(top.section("method"), algorithm.method),
        base=base.absolute(),
    )
    top.done()
    if algorithm_section.ok("iterations"):
        _check_scheme_magnitudes(scheme_section, scheme, algorithm.iterations)
        if scheme_section.ok("kind", "release_every", "releases", "settle"):
            check_releases(scheme_section, scheme, algorithm)
        if scheme_section.ok("kind"):
            wire = run.runtime.wire_dtype
            _check_noise_magnitudes(noise_section, noise, algorithm.mechanism, scheme.kind, algorithm.iterations, wire)
    if privacy_section.ok("by_release", "decay"):
        check_clips(privacy_section, run.privacy, algorithm)
    if data_section.ok("dataset", "features", "normalise") and scheme_section.ok("first"):
        check_first(scheme_section, scheme, algorithm, data, run.model, run.privacy)
    if noise_section.ok("cancel", "multiplier", "law") and algorithm_section.ok("mechanism", "method"):
        check_cancelling(noise_section, noise, algorithm, len(graph.agents))
    if traffic_section.ok("interval_ms"):
        check_traffic(traffic_section, run.traffic, run.runtime)
    check_robust(robust_section, run.robust, cancels=noise.cancel is not None)
    last_round = algorithm.iterations if algorithm_section.ok("iterations") else None
    check_roles(adversary_section, run.adversary.active, run.model.name, last_round)
    if data_section.ok("dataset") and data.dataset in TOYS and scheme.samples == "full":
        scheme_section.problem("samples", f'"full" has no meaning for "{data.dataset}": it has no samples')
    if problems:
        raise ConfigError(problems)
    return run


def with_overrides(
    run: RunConfig,
    *,
    iterations: int | None = None,
    seed: int | None = None,
    metrics: Literal["study", "local"] | None = None,
    channel: Literal["mtls", "plain"] | None = None,
) -> RunConfig:
    """``run`` with values of the command line; None keeps the run's.

    ``seed`` seeds the partition and the initial values, never noise.  Raises ConfigError naming the command line.
    """
    problems: list[Problem] = []
    section = Section({"iterations": iterations, "seed": seed}, "command line", "", problems, Path())
    if iterations is not None:
        iterations = read_fields(section, Algorithm)["iterations"]
        if section.ok("iterations"):
            _check_scheme_magnitudes(section, run.scheme, iterations)
            check_releases(section, run.scheme, replace(run.algorithm, iterations=iterations))
            check_roles(section, run.adversary.active, run.model.name, iterations)
            wire = run.runtime.wire_dtype
            _check_noise_magnitudes(section, run.noise, run.algorithm.mechanism, run.scheme.kind, iterations, wire)
        run = replace(run, algorithm=replace(run.algorithm, iterations=iterations))
    if seed is not None:
        seed = section.read("seed", Integer())
        model = run.model if run.data.dataset in TOYS else replace(run.model, init_seed=seed)
        run = replace(run, data=replace(run.data, seed=seed), model=model)
    if metrics is not None:
        run = replace(run, evaluate=replace(run.evaluate, metrics=metrics))
        _check_truth(section, run.adversary, run.evaluate)
    if channel is not None:
        run = replace(run, runtime=replace(run.runtime, channel=channel))
        check_traffic(section, run.traffic, run.runtime)
    if problems:
        raise ConfigError(problems)
    return run


def _fitting(section: Section, algorithm: Algorithm) -> Algorithm:
    """The mechanism must be one of the method's; where none is given, it is the method's first."""
    words = METHOD_MECHANISMS[algorithm.method]
    if algorithm.mechanism in words or not section.ok("method", "mechanism"):
        return algorithm
    if section.has("mechanism"):
        section.problem("mechanism", f'method "{algorithm.method}" has {", ".join(words)}, not {algorithm.mechanism}')
    return replace(algorithm, mechanism=words[0])


def _graph(section: Section) -> Graph:
    agents, r, c = declared(Graph)
    names = agents.read(section)
    matrices = (replace(matrix, kind=MatrixForm(names)).read(section) for matrix in (r, c))
    graph = Graph(names, *matrices)
    section.done()
    return graph


def _scheme(section: Section) -> Scheme:
    kind: Literal["S1", "S2"] = section.read("kind", Choice(("S1", "S2")))
    if not section.ok("kind"):
        # What both kinds have is read all the same; the steps are anybody's guess.
        shared = {e.field: e.read(section) for e in declared(SchemeS2) if e.default is not UNSET and not e.tag}
        return SchemeS2(1.0, 1.0, 1.0, 1.0, **shared)
    cls: type = SchemeS1 if kind == "S1" else SchemeS2
    values = read_fields(section, cls, {"kind": kind})
    name, other = ("S2", SchemeS2) if kind == "S1" else ("S1", SchemeS1)
    others = {entry.name: f"is a key of scheme {name}, not of {kind}" for entry in declared(other)}
    section.done(others | foreign(cls, values))
    scheme: Scheme = cls(**values)
    return scheme


def _noise(section: Section, n: int, mechanism: str) -> Noise:
    (multiplier,) = (entry for entry in declared(Noise) if entry.field == "multiplier")
    values = {"multiplier": multiplier.read(section)}
    needed = not (section.ok("multiplier") and values["multiplier"] == 0.0)
    # Keys of a stream that has no noise may be there and are ignored.
    for name, stream in (("zeta", "X"), ("eta", "Y")):
        values[name] = _stream(section, name, n, needed and stream in FACTS[mechanism].accounted.noised)
    noise = Noise(**read_fields(section, Noise, values))
    section.done()
    return noise


def _stream(section: Section, name: str, n: int, needed: bool) -> NoiseStream | None:
    """One of its two keys; both may be absent, and a constant scale 0, where the stream draws nothing."""
    scale, exponent = (entry for entry in declared(Noise) if entry.field == name)
    if section.has(scale.name) and section.has(exponent.name):  # which read_fields reports
        return None
    if section.has(exponent.name):
        return NoiseStream("exponent", _per_agent(section, exponent, n))
    if section.has(scale.name):
        drawn = replace(scale, kind=PerAgent(Number(above=0.0)))
        return NoiseStream("constant", _per_agent(section, drawn if needed else scale, n))
    if needed:
        section.problem(scale.name, f"give {scale.name} or {exponent.name} (or multiplier = 0.0 for no noise)")
    return None


def _per_agent(section: Section, entry: Declared, n: int) -> tuple[float, ...]:
    """One number each.  ``n`` 0: the number of agents is not known."""
    given = section.get(entry.name)
    if isinstance(given, list) and n and len(given) != n:
        section.problem(entry.name, f"has {len(given)} values for {n} agents")
    values: tuple[float, ...] = entry.read(section)
    return values if isinstance(given, list) else values * n


def _model(section: Section, data: Data) -> Model:
    if data.dataset in TOYS:
        section.done({entry.name: f'"{data.dataset}" has no model' for entry in declared(Model)})
        return Model()
    return read_table(section, Model)


def _adversary(section: Section, agents: tuple[str, ...], evaluate: Evaluation) -> Adversary:
    values = read_fields(section, Adversary)
    given = section.get("semi_honest")
    for i, name in enumerate(given if isinstance(given, list) else [given]):
        if agents and isinstance(name, str) and name not in agents:  # no agents: their key is wrong, which was said
            key = f"semi_honest[{i}]" if isinstance(given, list) else "semi_honest"
            section.problem(key, f"{show(name)} is no agent of this run{suggestion(name, agents)}")
    values["semi_honest"] = tuple(name for name in agents if name in values["semi_honest"])
    for name, text in values["active"]:
        if agents and name not in agents:
            section.problem(f"active.{name}", f"{show(name)} is no agent of this run{suggestion(name, agents)}")
        for other in {name for role in parse_roles(text) for name in role.to}:
            if agents and other not in agents:
                section.problem(f"active.{name}", f"{show(other)} is no agent of this run{suggestion(other, agents)}")
    adversary = Adversary(**values)
    _check_truth(section, adversary, evaluate)
    section.done()
    return adversary


def _check_truth(section: Section, adversary: Adversary, evaluate: Evaluation) -> None:
    if adversary.truth and evaluate.metrics != "study":
        section.problem("truth", 'is refused unless evaluate.metrics = "study": its files are as private as the data')


def _check_scheme_magnitudes(section: Section, scheme: Scheme, iterations: int) -> None:
    """Refuse schedules that leave float64, which would otherwise surface as an arithmetic error in mid-run."""
    log_k1 = math.log1p(iterations)
    if isinstance(scheme, SchemeS1):
        for key in ("p_alpha", "p_beta", "p_gamma"):
            if section.ok(key) and abs(getattr(scheme, key)) * log_k1 > _LOG_RANGE:
                section.problem(key, "makes (K+1)^p leave the range of float64")
        log_m = math.log(scheme.a4) + scheme.p_m * math.log(max(iterations, 1))
    else:
        log_m = iterations * math.log(scheme.p_m)
    if scheme.samples is None and section.ok("p_m", "a4") and log_m > _LOG_MAX_SAMPLES:
        section.problem("p_m", "makes m_K larger than 2^53 samples")


def _check_noise_magnitudes(
    section: Section, noise: Noise, mechanism: str, kind: str, iterations: int, wire: str
) -> None:
    """Refuse scales that no sampler draws, or that leave the floats of the wire, in the first round or the last: every
    schedule is monotone in between.
    """
    if noise.multiplier == 0.0 or not section.ok("multiplier"):
        return
    for name, stream in (("zeta", noise.zeta), ("eta", noise.eta)):
        if stream is None or ("X" if name == "zeta" else "Y") not in FACTS[mechanism].accounted.noised:
            continue
        key = f"scale_{name}" if stream.kind == "constant" else f"p_{name}"
        if not section.ok(key):
            continue
        for value in stream.values:
            if stream.kind == "exponent" and kind == "S2" and value <= 0.0:
                section.problem(key, f"must be > 0 under scheme S2 (sigma = p^K), not {value!r}")
                break
            if stream.kind == "constant":
                # A value that is not positive has been named already.
                logs, grown = [math.log(value)] if value > 0.0 else [], ""
            elif kind == "S2":
                logs, grown = [iterations * math.log(value)], f": it is p^K, and K = {iterations} iterations"
            else:
                logs, grown = [0.0, value * math.log1p(iterations)], f": it is (k+1)^p in round k, up to {iterations}"
            ends = (0.0, -math.log(noise.decay)) if noise.decay is not None else (0.0,)
            factors = [math.log(noise.multiplier) + math.log(factor) for factor in noise.by_release or (1.0,)]
            times = [factor + end for factor in factors for end in ends]
            if wire == "float32" and any(log + more > _LOG_MAX_FLOAT32 for log in logs for more in times):
                section.problem(key, f'{value!r} makes noise leave float32{grown}: runtime.wire_dtype = "float64"')
                break
            if any(not _LOG_MIN_SCALE <= log + more <= _LOG_MAX_SCALE for log in logs for more in times):
                section.problem(
                    key,
                    f"{value!r} (multiplier {noise.multiplier!r}) makes a noise scale leave 1e-290 .. 1e290{grown}",
                )
                break
