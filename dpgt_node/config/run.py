"""RUN.toml to :class:`RunConfig`.  Keys, units, defaults and ranges: ``docs/configuration.md``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Literal

from dpgt_node.config.data import read_data, word_or_plug_in
from dpgt_node.config.graphs import read_graph
from dpgt_node.config.model import (
    Adversary,
    Algorithm,
    Data,
    Evaluation,
    Model,
    Noise,
    NoiseStream,
    Privacy,
    RunConfig,
    Runtime,
    Samples,
    Scheme,
    SchemeS1,
    SchemeS2,
)
from dpgt_node.config.reader import Section, bad_number, parse_toml, read_text, show, suggestion
from dpgt_node.config.vocabulary import (
    LAWS,
    LAWS_PLANNED,
    MAX_ITERATIONS,
    MECHANISMS,
    METHODS,
    MODELS,
    TOYS,
)
from dpgt_node.errors import ConfigError, Problem
from dpgt_node.privacy.mechanisms import DEFAULT
from dpgt_node.privacy.mechanisms import MECHANISMS as FACTS

_S1_KEYS = ("a1", "a2", "a3", "a4", "p_alpha", "p_beta", "p_gamma")
_S2_KEYS = ("alpha", "beta", "gamma")
_MAX_TIMEOUT_S = 1e7
_LOG_RANGE = 700.0  # exp(+-700) is the range of normal float64
# What privacy.grid draws; a hair inside, as logarithms are rounded.
_LOG_MIN_SCALE, _LOG_MAX_SCALE = math.log(1e-290) * (1 - 1e-12), math.log(1e290) * (1 - 1e-12)
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
    return resources.files("dpgt_node.config").joinpath(name).read_text(encoding="utf-8")


def parse_document(document: Mapping[str, object], source: str, base: Path) -> RunConfig:
    """The run in a parsed TOML document."""
    problems: list[Problem] = []
    top = Section(document, source, "", problems)
    name = top.text("name", "run")
    if len(name) > 100:
        top.problem("name", "must be at most 100 characters")
    algorithm, algorithm_ok = _algorithm(top.section("algorithm", required=True))
    graph = read_graph(top.section("graph", required=True), base)
    scheme_section = top.section("scheme", required=True)
    scheme = _scheme(scheme_section)
    noise_section = top.section("noise", required=True)
    noise = _noise(noise_section, len(graph.agents), algorithm.mechanism)
    data_section = top.section("data", required=True)
    data = read_data(data_section)
    model_section = top.section("model")
    model = _model(model_section, data)
    privacy = _privacy(top.section("privacy"))
    evaluate = _evaluate(top.section("evaluate"))
    runtime = _runtime(top.section("runtime"))
    adversary = _adversary(top.section("adversary"), graph.agents, evaluate)
    top.done()
    run = RunConfig(
        name, algorithm, scheme, noise, graph, data, model, privacy, evaluate, runtime, adversary, base=base.absolute()
    )
    if algorithm_ok:
        _check_scheme_magnitudes(scheme_section, scheme, algorithm.iterations)
        if scheme_section.ok("kind"):
            _check_noise_magnitudes(noise_section, noise, algorithm.mechanism, scheme.kind, algorithm.iterations)
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
    section = Section({"iterations": iterations, "seed": seed}, "command line", "", problems)
    if iterations is not None:
        iterations = section.integer("iterations", at_most=MAX_ITERATIONS)
        if section.ok("iterations"):
            _check_scheme_magnitudes(section, run.scheme, iterations)
            _check_noise_magnitudes(section, run.noise, run.algorithm.mechanism, run.scheme.kind, iterations)
        run = replace(run, algorithm=replace(run.algorithm, iterations=iterations))
    if seed is not None:
        seed = section.integer("seed")
        model = run.model if run.data.dataset in TOYS else replace(run.model, init_seed=seed)
        run = replace(run, data=replace(run.data, seed=seed), model=model)
    if metrics is not None:
        run = replace(run, evaluate=replace(run.evaluate, metrics=metrics))
        _check_truth(section, run.adversary, run.evaluate)
    if channel is not None:
        run = replace(run, runtime=replace(run.runtime, channel=channel))
    if problems:
        raise ConfigError(problems)
    return run


def _algorithm(section: Section) -> tuple[Algorithm, bool]:
    algorithm = Algorithm(
        iterations=section.integer("iterations", at_most=MAX_ITERATIONS),
        method=section.choice("method", METHODS.built, "dpgt", planned=METHODS.planned),
        mechanism=section.choice("mechanism", MECHANISMS.built, DEFAULT.name, planned=MECHANISMS.planned),
    )
    section.done()
    return algorithm, section.ok("iterations")


def _scheme(section: Section) -> Scheme:
    kind: Literal["S1", "S2"] = section.choice("kind", ("S1", "S2"))
    samples = _samples(section)
    if not section.ok("kind"):
        return SchemeS2(1.0, 1.0, 1.0, 1.0, samples)
    if kind == "S1":
        first = SchemeS1(
            a1=section.number("a1", above=0.0),
            a2=section.number("a2", above=0.0),
            a3=section.number("a3", above=0.0),
            a4=section.number("a4", above=0.0),
            p_alpha=section.number("p_alpha"),
            p_beta=section.number("p_beta"),
            p_gamma=section.number("p_gamma"),
            p_m=section.number("p_m", at_least=0.0),
            samples=samples,
        )
        section.done(dict.fromkeys(_S2_KEYS, "is a key of scheme S2, not of S1"))
        return first
    scheme = SchemeS2(
        alpha=section.number("alpha", above=0.0),
        beta=section.number("beta", above=0.0),
        gamma=section.number("gamma", above=0.0),
        p_m=section.number("p_m", above=0.0),
        samples=samples,
    )
    section.done(dict.fromkeys(_S1_KEYS, "is a key of scheme S1, not of S2"))
    return scheme


def _samples(section: Section) -> Samples | None:
    value = section.get("samples")
    if value is None:
        return None
    if value == "full":
        return "full"
    if isinstance(value, str):
        section.problem("samples", f'must be an integer >= 1 or "full", not {show(value)}')
        return None
    return section.integer("samples", at_least=1)


def _noise(section: Section, n: int, mechanism: str) -> Noise:
    multiplier = section.number("multiplier", 1.0, at_least=0.0)
    needed = not (section.ok("multiplier") and multiplier == 0.0)
    noise = Noise(
        # Where x is sent as it is, zeta keys may be there and are ignored.
        zeta=_stream(section, "zeta", n, needed and not FACTS[mechanism].x_public),
        eta=_stream(section, "eta", n, needed),
        law=section.choice("law", LAWS, "laplace", planned=LAWS_PLANNED),
        multiplier=multiplier,
    )
    section.done()
    return noise


def _stream(section: Section, name: str, n: int, needed: bool) -> NoiseStream | None:
    scale, exponent = f"scale_{name}", f"p_{name}"
    if section.has(scale) and section.has(exponent):
        section.problem(exponent, f"give {scale} or {exponent}, not both")
        return None
    if section.has(exponent):
        return NoiseStream("exponent", _per_agent(section, exponent, n, above=None))
    if section.has(scale):
        if needed:
            return NoiseStream("constant", _per_agent(section, scale, n, above=0.0))
        return NoiseStream("constant", _per_agent(section, scale, n, at_least=0.0))
    if needed:
        section.problem(scale, f"give {scale} or {exponent} (or multiplier = 0.0 for no noise)")
    return None


def _per_agent(
    section: Section, key: str, n: int, *, above: float | None = None, at_least: float | None = None
) -> tuple[float, ...]:
    """A number for all agents, or a list with one per agent.  ``n`` 0: the number of agents is not known."""
    value = section.get(key)
    if not isinstance(value, list):
        return (section.number(key, above=above, at_least=at_least),) * n
    if n and len(value) != n:
        section.problem(key, f"has {len(value)} values for {n} agents")
    values: list[float] = []
    for index, entry in enumerate(value):
        why = bad_number(entry, above=above, at_least=at_least)
        if why is None and isinstance(entry, (int, float)):
            values.append(float(entry))
        else:
            section.problem(f"{key}[{index}]", why or "must be a number")
    return tuple(values)


def _model(section: Section, data: Data) -> Model:
    if data.dataset in TOYS:
        section.done(dict.fromkeys(Model.__slots__, f'"{data.dataset}" has no model'))
        return Model()
    name = word_or_plug_in(section, "name", MODELS, "softmax")
    seed = section.integer("init_seed") if section.has("init_seed") else None
    model = Model(name, seed, norm=section.choice("norm", ("batch", "group"), "batch"))
    if name == "softmax":
        model = replace(model, bias=section.number("bias", 1.0, at_least=0.0))
    else:
        model = replace(
            model,
            precision=section.choice("precision", ("float32", "float64", "bfloat16"), "float32"),
            memory_mb=section.integer("memory_mb", 512, at_least=1, at_most=1 << 20),
        )
    section.done(dict.fromkeys(Model.__slots__, f'is no parameter of "{name}"'))
    return model


def _privacy(section: Section) -> Privacy:
    ways = ("clip_l1", "clip_l2", "C")
    given = {key: section.number(key, above=0.0) for key in ways if section.has(key)}
    if len(given) > 1:
        section.problem("", f"give at most one of {', '.join(ways)}, not {' and '.join(given)}")
    privacy = Privacy(**given, delta=section.number("delta", 1e-5, above=0.0, below=1.0))
    section.done()
    return privacy


def _evaluate(section: Section) -> Evaluation:
    evaluate = Evaluation(
        every=section.integer("every", 10, at_least=1, at_most=MAX_ITERATIONS),
        metrics=section.choice("metrics", ("study", "local"), "local"),
        samples=section.integer("samples", at_least=1) if section.has("samples") else None,
    )
    section.done()
    return evaluate


def _runtime(section: Section) -> Runtime:
    runtime = Runtime(
        wire_dtype=section.choice("wire_dtype", ("auto", "float64", "float32"), "auto"),
        round_timeout_s=section.number("round_timeout", 60.0, above=0.0, at_most=_MAX_TIMEOUT_S),
        register_timeout_s=section.number("register_timeout", 300.0, above=0.0, at_most=_MAX_TIMEOUT_S),
        on_agent_loss=section.choice("on_agent_loss", ("wait", "stop"), "wait"),
        barrier_every=section.integer("barrier_every", 1, at_least=1, at_most=1_000_000),
        channel=section.choice("channel", ("mtls", "plain"), "mtls"),
    )
    section.done()
    return runtime


def _adversary(section: Section, agents: tuple[str, ...], evaluate: Evaluation) -> Adversary:
    value = section.get("semi_honest")
    given: list[object] = [] if value is None else list(value) if isinstance(value, list) else [value]
    for i, name in enumerate(given):
        key = f"semi_honest[{i}]" if isinstance(value, list) else "semi_honest"
        if not isinstance(name, str):
            section.problem(key, f"must be the name of an agent, not {show(name)}")
        elif agents and name not in agents:  # none: their section is wrong, which was said
            section.problem(key, f"{show(name)} is no agent of this run{suggestion(name, agents)}")
        elif name in given[:i]:
            section.problem(key, f"{show(name)} is there twice")
    adversary = Adversary(tuple(name for name in agents if name in given), section.flag("truth", False))
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


def _check_noise_magnitudes(section: Section, noise: Noise, mechanism: str, kind: str, iterations: int) -> None:
    """Refuse scales that no sampler draws, in the first round or the last: every schedule is monotone in between."""
    if noise.multiplier == 0.0 or not section.ok("multiplier"):
        return
    for name, stream in (("zeta", noise.zeta), ("eta", noise.eta)):
        if stream is None or (name == "zeta" and FACTS[mechanism].x_public):
            continue
        key = f"scale_{name}" if stream.kind == "constant" else f"p_{name}"
        if not section.ok(key):
            continue
        for value in stream.values:
            if stream.kind == "exponent" and kind == "S2" and value <= 0.0:
                section.problem(key, f"must be > 0 under scheme S2 (sigma = p^K), not {value!r}")
                break
            if stream.kind == "constant":
                logs = [math.log(value)] if value > 0.0 else []  # a value that is not has been named already
            elif kind == "S2":
                logs = [iterations * math.log(value)]
            else:
                logs = [0.0, value * math.log1p(iterations)]
            times = math.log(noise.multiplier)
            if any(not _LOG_MIN_SCALE <= log + times <= _LOG_MAX_SCALE for log in logs):
                section.problem(
                    key, f"{value!r} (multiplier {noise.multiplier!r}) makes a noise scale leave 1e-290 .. 1e290"
                )
                break
