"""The API does what the commands do, in processes that end with whoever asked for them."""

from __future__ import annotations

import inspect
import json
import os
import re
import signal
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import click
import numpy as np
import psutil
import pytest

from dpgt_node import api
from dpgt_node.api.children import Child
from dpgt_node.cli import dpgt
from dpgt_node.record.metrics import METRICS_FILE, MetricsStore
from tests.e2e import processes

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "reference" / "api.md").read_text()
HEX = "ab" * 16
OF_ANSWERS = (api.Begun, api.Exported, api.Evaluated)
OF_LAUNCH = {"tap", "tap_links", "places_file", "die_with_parent", "no_restart", "http", "metrics", "format_"}


def quadratic(K: int = 12, every: int = 5) -> dict[str, Any]:
    return tomllib.loads(processes.quadratic(3, K, every))


@pytest.fixture(autouse=True)
def found_by_children(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", processes.environment()["PYTHONPATH"])


# ---------------------------------------------------------------- runs
@pytest.mark.e2e
async def test_daemons_and_a_simulation_give_the_same_arrays_and_rounds(tmp_path: Path) -> None:
    """Called where an event loop is running, as in a notebook."""
    with api.start(quadratic(), tmp_path / "run", test_keystream=HEX) as running:
        rounds = list(running)
    assert not running.alive
    simulated = api.simulate(quadratic(), tmp_path / "sim", test_keystream=HEX)
    results = api.load_results(tmp_path / "run")
    assert [at.k for at in rounds] == [0, 5, 10, 13] and {at.K for at in rounds} == {12}
    assert rounds[0].agents == results.agents == ("agent-1", "agent-2", "agent-3")
    k, loss = results.curve("loss_train")
    np.testing.assert_array_equal(k, [at.k for at in rounds])
    np.testing.assert_array_equal(loss, [at["loss_train"] for at in rounds])
    np.testing.assert_array_equal(loss, simulated.curve("loss_train")[1])
    assert results.x is not None and results.x.shape == (3, 3)
    np.testing.assert_array_equal(results.x, simulated.x)
    np.testing.assert_array_equal(results.loss_train, loss[-1])
    assert results.status == "finished" and np.isnan(results.accuracy_test).all()
    assert [at.k for at in running] == [0, 5, 10, 13]  # again, from the file


INTERRUPTED = """
import json, os, signal, sys
from dpgt_node import api
run = json.loads(sys.argv[1])
if sys.argv[3] == "waiting":
    import threading
    running = api.start(run, sys.argv[2])
    for at in running:
        break
    threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    running.wait()
else:
    with api.start(run, sys.argv[2]) as running:
        for at in running:
            os.kill(os.getpid(), signal.SIGINT if sys.argv[3] == "iterating" else signal.SIGKILL)
"""


@pytest.mark.e2e
@pytest.mark.parametrize("how", ["waiting", "iterating", "killed"])
def test_daemons_end_in_order_with_whoever_asked_for_them(how: str, tmp_path: Path) -> None:
    out = tmp_path / "run"
    said = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, json.dumps(quadratic(processes.ENDLESS)), str(out), how],
        env=processes.environment(), capture_output=True, text=True, timeout=processes.LIMIT_S, check=False,
    )  # fmt: skip
    assert said.returncode in (-signal.SIGINT, -signal.SIGKILL), said.stderr
    assert how == "killed" or "KeyboardInterrupt" in said.stderr

    def ended() -> bool:
        return not [p for p in psutil.process_iter(["cmdline"]) if str(out) in " ".join(p.info["cmdline"] or ())]

    assert how == "killed" or ended()
    processes.eventually("every daemon is gone", ended)
    results = api.load_results(out)
    assert results.status == "stopped"


@pytest.mark.e2e
def test_a_run_that_was_stopped_goes_on(tmp_path: Path) -> None:
    run, out = quadratic(400, every=20), tmp_path / "run"
    running = api.start(run, out)
    first = next(iter(running))
    results = running.stop()
    assert first.k == 0 and results.status == "stopped"
    with pytest.raises(api.Stopped):
        running.wait()
    assert api.run(run, out).status == "finished"
    with pytest.raises(api.ConfigError, match="finished; choose another folder") as refused:
        list(api.start(run, out))  # no old round before the refusal
    assert (refused.value.problems[0].source, refused.value.problems[0].key) == ("argument", "out")


# ---------------------------------------------------------------- errors
def test_every_problem_of_a_run_file_is_raised_at_once(tmp_path: Path) -> None:
    run = quadratic() | {"noise": {"scale_zeta": -1.0, "scale_eta": 0.1}}
    run["scheme"]["kind"] = "S3"
    path = tmp_path / "run.toml"
    path.write_text(processes.quadratic(3, 5).replace('"S2"', '"S3"').replace("scale_zeta = 0.1", "scale_zeta = -1"))
    for wrong, source in ((run, "run"), (path, str(path))):
        for call in (api.load_run, api.check, lambda given: api.start(given, tmp_path / "out")):
            with pytest.raises(api.ConfigError) as error:
                call(wrong)  # type: ignore[operator]
            assert {(p.source, p.key) for p in error.value.problems} == {
                (source, "scheme.kind"),
                (source, "noise.scale_zeta"),
            }
    assert not (tmp_path / "out").exists()


def test_what_a_command_refuses_is_raised_with_its_problems(tmp_path: Path) -> None:
    run = quadratic()
    run["evaluate"]["metrics"] = "local"
    with pytest.raises(api.ConfigError) as error:
        api.simulate(run, tmp_path / "out", test_keystream="ab" * 16)
    (problem,) = error.value.problems
    assert (problem.source, problem.key) == ("argument", "test_keystream")
    with pytest.raises(api.ConfigError, match="cuba"):
        api.simulate(run, tmp_path / "out", device="cuba")  # type: ignore[arg-type]
    with pytest.raises(api.ConfigError, match=r"run\.toml: cannot read"):
        api.load_results(tmp_path)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("code", "kind"),
    [(3, api.RefusedError), (4, api.BudgetReached), (5, api.Stopped), (6, api.PeerLost), (-9, api.Stopped),
     (1, api.DpgtError), (2, api.ConfigError), (70, RuntimeError)],
)  # fmt: skip
def test_exit_codes_are_exceptions(code: int, kind: type[Exception]) -> None:
    child = Child(["check", "nothing.toml", "--nonsense"])
    assert child.wait() == 2
    error = child.failure(code)
    assert type(error) is kind and "--nonsense" in str(error)


# ---------------------------------------------------------------- answers
def test_check_is_the_command_s_answer(tmp_path: Path) -> None:
    path = ROOT / "examples" / "demo.toml"
    found = api.check(path)
    assert found.passed and found.refused is None and found.failed
    assert found.document == json.loads(processes.dpgt("check", path, "--format", "json").stdout)
    assert found.epsilon["corrected"].shape == (5,) and np.isnan(found.epsilon["tight"]).all()
    run = tomllib.loads(path.read_text()) | {"noise": {"multiplier": 0.0}}
    run["scheme"]["samples"] = 10_000
    refused = api.check(run)  # an answer, not an error
    assert not refused.passed and np.isinf(refused.epsilon["corrected"]).all()


def test_plan_is_the_command_s_run_file(tmp_path: Path) -> None:
    path, shape = tmp_path / "run.toml", (4, 2, 30)
    table = "f0,f1,f2,f3,label\n" + "".join(f"{i % 7},{i % 3},{i % 5},{i % 2},{i % 2}\n" for i in range(90))
    (tmp_path / "a.csv").write_text(table)
    text = (ROOT / "examples" / "demo.toml").read_text().replace('"digits" ', '"csv:a.csv"\nlabel = "label" ')
    path.write_text(text.replace("55 ", "5 ").replace("iterations = 200", "iterations = 10"))
    found = api.plan(path, 0.01, shape=shape, keep_steps=True)
    said = processes.dpgt("plan", path, "--epsilon", 0.01, "--shape", "4,2,30", "--keep-steps")
    assert found.text == said.stdout and found.run.data.dataset == "csv:a.csv" and found.run.base == tmp_path
    assert api.load_run(found.save(tmp_path / "planned.toml")) == found.run
    assert [line for line in found.warnings if "nothing learns" in line] and "nothing learns" in said.stderr
    with pytest.raises(api.ConfigError, match="epsilon"):
        api.plan(path, -1.0, shape=shape)


def test_a_run_can_be_written_with_arrays() -> None:
    run = quadratic()
    ring = np.roll(np.eye(3, dtype=int), 1, axis=0)
    run["graph"] |= {"R": ring, "C": ring}
    run["noise"]["scale_eta"] = np.float64(0.01)
    assert api.load_run(run) == api.load_run(api.load_run(run))
    assert api.load_run(run).graph == api.load_run(quadratic()).graph


def test_a_table_becomes_a_run_a_model_and_predictions(tmp_path: Path) -> None:
    """``init``, a run, ``export``, ``evaluate``, ``predict`` and ``report``, each on what the one before left."""
    table = tmp_path / "trees.csv"
    lines = [f"{i % 7},{i % 3 + 3 * (i % 2)},{('fir', 'oak')[i % 2]}\n" for i in range(240)]
    table.write_text("height,girth,kind\n" + "".join(lines))
    begun = api.init(table, tmp_path / "run.toml", label="kind", agents=2, epsilon=30)
    assert begun.run.n == 2 and begun.run.base == tmp_path and "dpgt launch" in begun.told
    assert api.check(begun.out).passed
    assert begun.text == begun.out.read_text() and begun.text.startswith("# dpgt init:")
    with pytest.raises(api.ConfigError, match="is there already"):
        api.init(table, begun.out, label="kind")
    with pytest.raises(api.ConfigError, match="height"):
        api.init(table, tmp_path / "other.toml", label="kind", bounds={"height": (6.5, 0.0)})
    api.simulate(begun.out, tmp_path / "out")
    model = api.export(tmp_path / "out", tmp_path / "model", agent="agent-2")
    assert max(len(repr(one).replace(str(tmp_path), "")) for one in (begun, model)) < 100, "short enough for a notebook"
    assert model.privacy == json.loads((model.folder / "privacy.json").read_text()) and "epsilon" in model.statement
    judged = api.evaluate(model.folder, run=begun.out)
    said = processes.dpgt("evaluate", model.folder, "--run", begun.out).stdout
    assert f"accuracy {100 * judged.accuracy:.2f} %, loss {judged.loss:.4f} nats, {judged.samples} samples" in said
    assert (judged.part, judged.calibrated) == ("test", 0)
    named = api.predict(model.folder, table, chances=True)
    again = api.predict(model.folder, np.array([[i % 7, i % 3 + 3 * (i % 2)] for i in range(240)]))
    assert list(named) == ["class", "chance of fir", "chance of oak"] and list(again) == ["class"]
    np.testing.assert_array_equal(named["class"], again["class"])
    np.testing.assert_array_equal(named["class"] == "oak", named["chance of oak"] > 0.5)
    page = tmp_path / "out" / "report.html"
    page.unlink()
    assert api.report(tmp_path / "out") == page and "<html" in page.read_text()
    with pytest.raises(api.ConfigError, match="needed for several DIR"):
        api.report(tmp_path / "out", tmp_path / "out")


# ---------------------------------------------------------------- tables
def test_a_table_says_what_it_holds() -> None:
    table = api.Table(agent=np.array(["<a>"] * 30), k=np.arange(30), loss=np.array([np.nan, 0.12345] * 15))
    assert table.height == 30 and table.rows()[1] == {"agent": "<a>", "k": 1, "loss": 0.12345}
    assert repr(table).splitlines()[2].split() == ["<a>", "1", "0.1235"] and "10 more rows" in repr(table)
    page = table._repr_html_()
    assert "<td>&lt;a&gt;</td>" in page and page.count("<tr>") == 21
    assert api.Table().height == 0 and repr(api.Table()) == ""


def test_a_column_that_is_not_there_is_named(tmp_path: Path) -> None:
    results = api.load_results(_written(tmp_path))
    assert results.status == "unfinished" and results.x is None
    assert results.metrics["k"].tolist() == [0, 0] and results.table["agent"].tolist() == list(results.agents)
    with pytest.raises(KeyError, match="loss_train"):
        results.curve("loss")
    _, values = results.curve("loss_train")
    np.testing.assert_array_equal(values, [[0.5, np.nan, 0.25]])


def _written(out: Path) -> Path:
    (out / "run.toml").write_text(processes.quadratic(3, 12))
    with MetricsStore(out):
        pass
    with (out / METRICS_FILE).open("a") as file:
        file.write("agent-3,0,1.0,0.25\n")
        file.write("agent-1,0,1.0,0.5\n")
    return out


# ---------------------------------------------------------------- what is promised
def test_the_page_has_every_name_with_its_signature() -> None:
    assert [name for name in api.__all__ if f"`{name}" not in PAGE and f"\n{name}(" not in PAGE] == []
    shown = " ".join(PAGE.split())
    for name in api.__all__:
        value = getattr(api, name)
        if inspect.isfunction(value):
            signature = re.sub("[\"']", "", f"{name}{inspect.signature(value)}")
            assert signature in shown


def test_methods_and_properties_are_on_the_page() -> None:
    for kind in (api.Running, api.Round, api.Results, api.Checked, api.Planned, api.Table, *OF_ANSWERS):
        public = [name for name in vars(kind) if not name.startswith("_")]
        public += [name for name in getattr(kind, "__dataclass_fields__", ())]
        assert [name for name in public if not any(f"`{name}{end}" in PAGE for end in ("`", "("))] == [], kind


@pytest.mark.parametrize(
    ("call", "verb", "left_out"),
    [
        (api.run, "launch", OF_LAUNCH),
        (api.start, "launch", OF_LAUNCH),
        (api.simulate, "simulate", {"format_"}),
        (api.start_simulation, "simulate", {"format_"}),
        (api.init, "init", {"format_"}),
        (api.export, "export", {"format_"}),
        (api.evaluate, "evaluate", {"format_"}),
        (api.predict, "predict", {"format_"}),
        (api.report, "report", {"format_"}),
        (api.check, "check", {"format_", "alike", "everything", "shape_text"}),
        (api.plan, "plan", {"shape_text", "pareto", "format_"}),
    ],
)
def test_options_of_a_command_are_arguments(call: Any, verb: str, left_out: set[str]) -> None:
    command = dpgt.get_command(click.Context(dpgt), verb)
    assert command is not None
    options = {p.name for p in command.params} - {"log_level", "log_format"}
    names = {"run_file": "run", "node_file": "node", "data_path": "data", "names": "data"}
    options = {names.get(str(name), name) for name in options}
    given = set(inspect.signature(call).parameters) - {"restart", "shape"}
    assert given == options - left_out


def test_importing_it_is_cheap() -> None:
    heavy = ("asyncio", "click", "grpc", "matplotlib", "networkx", "numpy", "scipy", "torch")
    code = f"import sys; from dpgt_node import api; print(*[m for m in {heavy!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], env=os.environ, capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
