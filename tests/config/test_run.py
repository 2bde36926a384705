from __future__ import annotations

import os
from pathlib import Path

import pytest

from dpgt_node.config import (
    Evaluation,
    Model,
    NoiseStream,
    Privacy,
    Runtime,
    demo_toml,
    load_run,
    parse_run,
    to_toml,
    with_overrides,
)
from dpgt_node.config.declare import reader
from dpgt_node.config.declare.reader import MAX_FILE_BYTES
from dpgt_node.errors import ConfigError
from tests.config.cases import DELETE, S1, parse, problems


def test_defaults_are_the_documented_ones():
    run = parse({})
    assert (run.algorithm.method, run.algorithm.mechanism) == ("dpgt", "paper")
    assert (run.noise.law, run.noise.multiplier, run.scheme.samples) == ("laplace", 1.0, None)
    assert (run.model, run.privacy) == (Model("softmax", None, 1.0, "batch"), Privacy(None, None, None, 1e-5))
    assert run.evaluate == Evaluation(10, "local")
    assert run.runtime == Runtime("auto", 60.0, 300.0, "wait", 1, "mtls", "stop")
    assert (run.data.features, run.data.normalise, run.data.partition, run.data.seed) == ("raw", "none", "iid", 0)
    assert parse({"name": DELETE}).name == "run"


def test_a_part_of_the_samples_may_be_evaluated():
    run = parse({"evaluate.samples": 500})
    assert run.evaluate.samples == 500 and "samples = 500" in to_toml(run)
    assert parse_run(to_toml(run), "again", Path("/")) == run


def test_shorthands_are_resolved():
    run = parse({"algorithm.iterations": 0})
    assert (run.n, run.K) == (3, 0)
    assert run.graph.agents == ("agent-1", "agent-2", "agent-3")
    assert run.graph.R == ((0.0, 0.0, 1.0), (1.0, 0.0, 0.0), (0.0, 1.0, 0.0))
    assert run.noise.zeta == NoiseStream("constant", (0.1, 0.1, 0.1))
    assert run.noise.eta == NoiseStream("constant", (0.1, 0.2, 0.3))


def test_integers_are_taken_as_floats():
    run = parse({"scheme.alpha": 1, "runtime.round_timeout": 5, "noise.multiplier": 2})
    for value in (run.scheme.alpha, run.runtime.round_timeout_s, run.noise.multiplier, run.graph.R[0][2]):
        assert type(value) is float


@pytest.mark.parametrize(
    "changes",
    [
        {"scheme": S1},
        {"scheme": S1, "noise": {"p_zeta": [-0.1, 0.0, 0.1], "p_eta": 0.2}},
        {"noise": {"p_zeta": 0.99, "scale_eta": 1}},
        {"noise": {"multiplier": 0.0}},
        {"noise": {"multiplier": 0.0, "scale_zeta": 0.0}},
        {"noise.multiplier": 0},
        {"scheme.samples": "full"},
        {"scheme.samples": 55},
        {"scheme.samples": 1, "scheme.p_m": 10.0, "algorithm.iterations": 10**7},
        {"graph.agents": ["a", "B-2", "c.d_e"]},
        {"data.dataset": "npz:folder/some data.npz"},
        {"data": {"dataset": "quadratic", "dimension": 100}},
        {"data": {"dataset": "zeros", "dimension": 11_175_370, "seed": 7}},
        {"data": {"dataset": "pl-sine", "start": -1}},
        {"data.partition": "contiguous"},
        {"data.features": "hog", "data.normalise": "l1"},
        {"data.features": "edges"},
        {"privacy.clip_l1": 40},
        {"privacy.clip_l2": 1.5},
        {"privacy.C": 1e-3, "privacy.delta": 0.5},
        {"model": {"name": "softmax", "init_seed": 0, "bias": 0}},
        {"evaluate": {"every": 1, "metrics": "study", "samples": 1}},
        {"graph": {"agents": 1, "R": [[0]], "C": [[0]]}, "noise.scale_eta": 1},
    ],
)
def test_accepted(changes):
    assert problems(changes) == []


def test_parameters_of_the_toys_get_their_defaults():
    assert parse({"data": {"dataset": "pl-sine"}}).data.params == {"start": 2.0}
    linear = parse({"data": {"dataset": "pl-linear", "dimension": 3}}).data.params
    assert linear == {"dimension": 3, "rows": 6, "start": 0.0}
    assert parse({"data": {"dataset": "pl-linear"}}).data.params == {"dimension": 5, "rows": 10, "start": 0.0}


def test_overrides():
    run = parse({})
    changed = with_overrides(run, iterations=3, seed=9, metrics="study", channel="plain")
    assert (changed.K, changed.data.seed, changed.model.init_seed) == (3, 9, 9)
    assert (changed.evaluate.metrics, changed.runtime.channel) == ("study", "plain")
    assert with_overrides(run) == run
    toy = with_overrides(parse({"data": {"dataset": "pl-linear"}}), seed=4)
    assert (toy.data.seed, toy.model) == (4, Model())


@pytest.mark.parametrize(("override", "key"), [({"iterations": -1}, "iterations"), ({"seed": -1}, "seed")])
def test_bad_overrides_name_the_command_line(override, key):
    with pytest.raises(ConfigError) as caught:
        with_overrides(parse({}), **override)
    assert [(p.source, p.key) for p in caught.value.problems] == [("command line", key)]


def test_metrics_are_not_overridden_under_the_ground_truth():
    run = parse({"evaluate.metrics": "study", "adversary.truth": True})
    with pytest.raises(ConfigError, match=r"command line: truth: is refused unless evaluate.metrics"):
        with_overrides(run, metrics="local")


def test_overridden_iterations_are_checked_against_the_schedule():
    with pytest.raises(ConfigError, match="m_K larger than"):
        with_overrides(parse({"scheme.p_m": 1.1}), iterations=100_000)


# --- reading the file ---------------------------------------------------------------------------------------------


def read_error(path: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        load_run(path)
    (problem,) = caught.value.problems
    assert problem.source == str(path)
    return problem.message


def test_missing_file(tmp_path):
    assert "No such file" in read_error(tmp_path / "absent.toml")


def test_a_folder(tmp_path):
    assert read_error(tmp_path) == "is a folder, not a file"


def test_not_utf8(tmp_path):
    path = tmp_path / "run.toml"
    path.write_bytes(b'name = "caf\xe9"\n')
    assert read_error(path) == "is not UTF-8 text (line 1, byte 11): save it as UTF-8"


def test_a_mark_of_utf16_before_something_else(tmp_path):
    """A file with its mark is read (tests/config/test_addresses.py); what only begins like one is no broken TOML."""
    path = tmp_path / "run.toml"
    for raw in (b"\xff\xfe\x00", b'\xff\xfename = "x"\n', b'\xfe\xffname = "x"\n'):
        path.write_bytes(raw)
        assert read_error(path).startswith("begins with the mark of UTF-16 (the bytes FF FE or FE FF)"), raw
    path.write_bytes(b'\xef\xbb\xbfname = "caf')
    assert read_error(path).startswith("not valid TOML"), "a mark of UTF-8 is no mistake"


def test_syntax_error_names_the_line(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text('name = "x"\n[graph\n')
    assert "line 2" in read_error(path)


def test_too_large_a_file(tmp_path):
    path = tmp_path / "run.toml"
    with path.open("wb") as file:
        file.truncate(MAX_FILE_BYTES + 1)
    assert "larger than 64 MB" in read_error(path)


def test_a_device_that_never_ends_is_refused_and_a_pipe_is_read(monkeypatch):
    monkeypatch.setattr(reader, "MAX_FILE_BYTES", 1_000_000)
    assert read_error(Path("/dev/zero")) == "zero is larger than 1 MB"
    end, other = os.pipe()
    try:
        os.write(other, demo_toml().encode())
        os.close(other)
        assert load_run(Path(f"/dev/fd/{end}")) == parse_run(demo_toml(), "x", Path())
    finally:
        os.close(end)


@pytest.mark.parametrize("text", ["x = " + "[" * 100_000, "x = " + "9" * 5000, "a = 1\na = 2"])
def test_hostile_toml(text):
    with pytest.raises(ConfigError, match="not valid TOML"):
        parse_run(text, "run.toml", Path())


@pytest.mark.parametrize(("method", "mechanism"), [("dpgt", "paper"), ("s-ab", "paper"), ("atc-dsgd", "noise-once")])
def test_a_method_has_its_own_default_mechanism(method, mechanism):
    text = demo_toml().replace('mechanism = "paper"\n', "").replace('"dpgt"', f'"{method}"')
    run = parse_run(text, "x", Path())
    assert (run.algorithm.method, run.algorithm.mechanism) == (method, mechanism)
    assert parse_run(to_toml(run), "x", Path()) == run


@pytest.mark.parametrize("mechanism", ["public-state", "noise-once"])
def test_mechanisms_that_noise_only_y_need_no_zeta(mechanism):
    text = demo_toml().replace('mechanism = "paper"', f'mechanism = "{mechanism}"').replace("scale_zeta = 0.1\n", "")
    run = parse_run(text, "x", Path())
    assert run.noise.zeta is None and run.noise.eta is not None
    assert parse_run(to_toml(run), "y", Path()) == run
    with pytest.raises(ConfigError, match=r"noise\.scale_zeta: give scale_zeta"):
        parse_run(text.replace(mechanism, "paper"), "x", Path())
    ignored = text.replace("scale_eta", "scale_zeta = 1e300\nscale_eta")
    assert parse_run(ignored, "x", Path()).noise.eta == run.noise.eta
    with pytest.raises(ConfigError, match=r"noise\.scale_zeta: 1e\+300"):
        parse_run(ignored.replace(mechanism, "paper"), "x", Path())
