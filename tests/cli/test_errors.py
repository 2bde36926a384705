"""Bad input at the command line: one line a problem, the right exit code, no traceback, nothing half-written."""

from __future__ import annotations

import datetime
import re
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from dpgt_node import cli
from dpgt_node.config import demo_toml
from dpgt_node.config.declare.reader import parse_toml
from dpgt_node.runtime.trust import tls
from tests.cli import documents

Run = Callable[..., tuple[int, list[str]]]


@pytest.fixture
def dpgt(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command line in an empty folder; (exit code, lines of standard error)."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: object) -> tuple[int, list[str]]:
        code = cli.run([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err and "this is a bug" not in captured.err, captured.err
        return code, captured.err.splitlines()

    return run


def write(path: Path, document: dict[str, Any]) -> Path:
    path.write_text(tomli_w.dumps(document), encoding="utf-8")
    return path


def demo(**changes: Any) -> dict[str, Any]:
    """The demo's run file with dotted keys (``__`` for the dot) replaced; None takes a key out."""
    document: dict[str, Any] = dict(parse_toml(demo_toml(), "demo"))
    return documents.edited(document, changes)


def node_file(folder: Path, run: Path, **changes: Any) -> Path:
    document = {
        "name": "agent-1",
        "run": str(run),
        "listen": "127.0.0.1:0",
        "coordinator": "127.0.0.1:1",
        "state_dir": str(folder / "state"),
        "tls": {"insecure": True},
    }
    return write(folder / "NODE.toml", documents.edited(document, changes))


# --- run files: the same message from every verb that reads one ------------------------------------------------------

BAD_RUNS: dict[str, tuple[dict[str, Any], list[tuple[str, str]]]] = {
    "unknown keys": (
        {"grahp": {}, "scheme__apha": 1.0},
        [("grahp", "unknown key"), ("scheme.apha", "unknown key")],
    ),
    "wrong shapes": (
        {"graph__R": [[0, 1], [1, 0, 0]], "graph__C": [[0, 1], [1, 0]], "noise__scale_eta": [0.1, 0.1]},
        [("graph.R", ""), ("graph.C", ""), ("noise.scale_eta", "2 values for 5 agents")],
    ),
    "negative weights": (
        {"graph__R": [[0, 0, 0, 0, -1], [1, 0, 0, 0, 0], [1, 1, 0, 0, 0], [0, 0, 1, 0, 0], [0, 0, 0, 1, 0]]},
        [("graph.R", "-1")],
    ),
    "K < 0": ({"algorithm__iterations": -1}, [("algorithm.iterations", "must be >= 0, not -1")]),
    "an agent name twice": (
        {"graph__agents": ["a", "b", "A", "d", "e"]},
        [("graph.agents", "")],
    ),
    "everything at once": (
        {"algorithm__iterations": -1, "scheme__alpha": "x", "privacy__delta": 2.0, "data__dataset": "digit"},
        [("algorithm.iterations", ""), ("scheme.alpha", ""), ("privacy.delta", ""), ("data.dataset", "digits")],
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", BAD_RUNS)
def test_a_bad_run_file_is_told_line_by_line_by_every_verb(what: str, dpgt: Run, tmp_path: Path) -> None:
    changes, expected = BAD_RUNS[what]
    run = write(tmp_path / "run.toml", demo(**changes))
    node = node_file(tmp_path, run)
    verbs: list[tuple[object, ...]] = [
        ("launch", run, "--out", "out"),
        ("simulate", run, "--out", "out"),
        ("check", run),
        ("coordinator", "--config", run, "--listen", "127.0.0.1:0", "--insecure", "--out", "out"),
        ("node", "--config", node),
        ("pki", "init", run, "--out", "out"),
    ]
    for verb, *arguments in verbs:
        code, lines = dpgt(verb, *arguments)
        assert code == 2, verb
        assert len(lines) >= len(expected)
        for key, words in expected:
            assert any(f": {key}" in line and words in line for line in lines), (verb, key, lines)
        for line in lines:
            assert re.fullmatch(rf"dpgt {verb}: {re.escape(str(run))}: \S+: .+", line), line
    assert sorted(path.name for path in tmp_path.iterdir()) == ["NODE.toml", "run.toml"]


def starting(run: Path, node: Path) -> list[tuple[object, ...]]:
    return [
        ("launch", run, "--out", "out"),
        ("simulate", run, "--out", "out"),
        ("coordinator", "--config", run, "--listen", "127.0.0.1:0", "--insecure", "--out", "out"),
        ("node", "--config", node),
        ("pki", "init", run, "--out", "out"),
    ]


ISLAND = [[0, 0, 0, 0, 0], [1, 0, 0, 0, 0], [1, 1, 0, 0, 0], [0, 0, 0, 0, 1], [0, 0, 0, 1, 0]]


def test_a_graph_without_a_common_root_names_the_agents_that_break_it(dpgt: Run, tmp_path: Path) -> None:
    run = write(tmp_path / "run.toml", demo(graph__R=ISLAND))
    for verb, *arguments in starting(run, node_file(tmp_path, run)):
        code, lines = dpgt(verb, *arguments)
        assert code == 2 and any("Assumption 1" in line for line in lines), (verb, lines)
        assert any("agent-4" in line and "agent-5" in line for line in lines), (verb, lines)
    code, _ = dpgt("check", run)
    assert code == 1
    assert not (tmp_path / "out").exists() and not (tmp_path / "state").exists()


def test_a_i_and_b_i_outside_0_1_are_errors_and_each_agent_is_named(dpgt: Run, tmp_path: Path) -> None:
    run = write(tmp_path / "run.toml", demo(scheme__alpha=0.6, scheme__beta=1.0))
    for verb, *arguments in starting(run, node_file(tmp_path, run)):
        code, lines = dpgt(verb, *arguments)
        text = "\n".join(lines)
        assert code == 2 and "agent-3" in text and "agent-1" in text, (verb, lines)
        assert "scheme.alpha: a_i" in text and "scheme.beta: b_i" in text, (verb, lines)
    assert not (tmp_path / "out").exists() and not (tmp_path / "state").exists()
    assert dpgt("check", run)[0] == 1


def test_steps_beyond_lemma_1_are_a_warning_and_the_run_runs(dpgt: Run, tmp_path: Path) -> None:
    document = documents.quadratic(3, K=2)
    document["scheme"]["alpha"] = 0.9
    document["graph"]["R"] = [[0, 1, 0], [0, 0, 1], [1, 0, 0]]
    run = write(tmp_path / "run.toml", document)
    code, lines = dpgt("simulate", run, "--out", "out")
    assert code == 0
    assert lines[0].startswith(f"{run}: FAILS Lemma 1: alpha < "), "as dpgt check says it, and no record of a log"
    assert dpgt("check", run)[0] == 0


def test_more_samples_than_an_agent_has(dpgt: Run, tmp_path: Path) -> None:
    run = write(tmp_path / "run.toml", demo(scheme__samples=289))
    for verb, *arguments in (("launch", run, "--out", "out"), ("simulate", run, "--out", "out")):
        code, lines = dpgt(verb, *arguments)
        assert code == 2 and any("289" in line and "287" in line and "agent-5" in line for line in lines), lines
    code, lines = dpgt("node", "--config", node_file(tmp_path, run))
    assert code == 2 and any(line.startswith(f"dpgt node: {run}: ") and "289" in line for line in lines), lines
    assert dpgt("check", run)[0] == 1
    assert not (tmp_path / "out").exists()


def test_missing_and_unreadable_files(dpgt: Run, tmp_path: Path) -> None:
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\0")
    (tmp_path / "torn.toml").write_text('name = "x')
    for path, words in (("absent.toml", "No such file"), (".", "folder"), ("binary.toml", ""), ("torn.toml", "")):
        for verb, *arguments in (
            ("launch", path, "--out", "out"),
            ("simulate", path, "--out", "out"),
            ("check", path),
            ("coordinator", "--config", path, "--listen", "h:1", "--insecure", "--out", "out"),
            ("node", "--config", path),
        ):
            code, lines = dpgt(verb, *arguments)
            assert code == 2 and len(lines) == 1 and lines[0].startswith(f"dpgt {verb}: ") and words in lines[0]
    assert not (tmp_path / "out").exists()


# --- output folders --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["launch", "simulate", "demo", "coordinator"])
def test_a_folder_of_something_else_is_left_alone(verb: str, dpgt: Run, tmp_path: Path) -> None:
    run = write(tmp_path / "run.toml", documents.quadratic(2, K=1))
    arguments: dict[str, tuple[object, ...]] = {
        "launch": (run,),
        "simulate": (run,),
        "demo": (),
        "coordinator": ("--config", run, "--listen", "127.0.0.1:0", "--insecure"),
    }
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.tex").write_text("do not touch")
    code, lines = dpgt(verb, *arguments[verb], "--out", "out")
    assert code == 2 and lines == [
        f"dpgt {verb}: command line: --out: out is not empty and holds no run; choose another folder"
    ]
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["thesis.tex"]


def test_a_finished_run_is_not_run_again_and_no_other_run_takes_its_place(dpgt: Run, tmp_path: Path) -> None:
    run = write(tmp_path / "run.toml", documents.quadratic(2, K=1))
    assert dpgt("simulate", run, "--out", "out")[0] == 0
    code, lines = dpgt("simulate", run, "--out", "out")
    assert code == 2 and lines == [
        "dpgt simulate: command line: --out: out holds this run, finished; choose another folder"
    ]
    other = write(tmp_path / "other.toml", documents.quadratic(2, K=2))
    code, lines = dpgt("simulate", other, "--out", "out")
    assert code == 2 and "holds another run" in lines[0]


@pytest.mark.parametrize("out", ["/dev/null/x", "/proc/x"])
def test_an_output_folder_that_cannot_be_made(out: str, dpgt: Run, tmp_path: Path) -> None:
    run = write(tmp_path / "run.toml", documents.quadratic(2, K=1))
    for verb, *arguments in (
        ("launch", run),
        ("simulate", run),
        ("coordinator", "--config", run, "--listen", "127.0.0.1:0", "--insecure"),
    ):
        code, lines = dpgt(verb, *arguments, "--out", out)
        assert code == 2 and len(lines) == 1 and f"--out: {out} cannot be used" in lines[0], lines


# --- the test keystream ----------------------------------------------------------------------------------------------


def test_the_test_keystream_is_refused_where_a_run_could_be_taken_for_private(dpgt: Run, tmp_path: Path) -> None:
    document = documents.quadratic(2, K=1)
    document["evaluate"]["metrics"] = "local"
    run = write(tmp_path / "run.toml", document)
    for verb, *arguments in starting(run, node_file(tmp_path, run))[:4]:
        code, lines = dpgt(verb, *arguments, "--test-keystream", "00ff")
        assert code == 2 and lines == [
            f'dpgt {verb}: command line: --test-keystream: is refused unless evaluate.metrics = "study" in the run file'
        ]
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("digits", ["zz", "0", "", "0x00"])
def test_bad_digits(digits: str, dpgt: Run, tmp_path: Path) -> None:
    run = write(tmp_path / "run.toml", documents.quadratic(2, K=1))
    code, lines = dpgt("simulate", run, "--out", "out", "--test-keystream", digits)
    assert code == 2 and len(lines) == 1 and "--test-keystream" in lines[0] and "hexadecimal" in lines[0]
    assert not (tmp_path / "out").exists()


# --- NODE.toml -------------------------------------------------------------------------------------------------------


def test_an_agent_that_is_not_in_the_run_is_told_by_the_node_itself(dpgt: Run, tmp_path: Path) -> None:
    run = write(tmp_path / "run.toml", documents.quadratic(2, K=1))
    code, lines = dpgt("node", "--config", node_file(tmp_path, run, name="agent-3"))
    assert code == 2 and len(lines) == 1 and 'agent "agent-3" is not in this run' in lines[0]
    assert not (tmp_path / "state").exists()


def test_all_problems_of_a_node_file_at_once(dpgt: Run, tmp_path: Path) -> None:
    node = node_file(
        tmp_path, tmp_path / "run.toml", listen="0.0.0.0:0", coordinator="nonsense", tls={"insecure": False}, typo=1
    )
    code, lines = dpgt("node", "--config", node)
    assert code == 2
    for key in ("advertise", "coordinator", "tls.ca", "tls.cert", "tls.key", "typo"):
        assert any(line.startswith(f"dpgt node: {node}: {key}: ") for line in lines), (key, lines)


def test_a_wildcard_is_no_address_to_advertise_or_dial(dpgt: Run, tmp_path: Path) -> None:
    run = write(tmp_path / "run.toml", documents.quadratic(2, K=1))
    for changes, key in (
        ({"listen": "0.0.0.0:7001"}, "advertise"),
        ({"listen": "[::]:7001"}, "advertise"),
        ({"advertise": "0.0.0.0:7001"}, "advertise"),
        ({"coordinator": "0.0.0.0:7000"}, "coordinator"),
        ({"coordinator": "host:0"}, "coordinator"),
    ):
        code, lines = dpgt("node", "--config", node_file(tmp_path, run, **changes))
        assert code == 2 and len(lines) == 1 and f": {key}: " in lines[0], lines


def test_a_coordinator_out_of_reach(dpgt: Run, tmp_path: Path) -> None:
    document = documents.quadratic(2, K=1)
    document["runtime"] = {"register_timeout": 0.3}
    run = write(tmp_path / "run.toml", document)
    code, lines = dpgt("--log-level", "error", "node", "--config", node_file(tmp_path, run))
    assert code == 3 and len(lines) == 1 and "no coordinator at 127.0.0.1:1 for 0.3 s" in lines[0]


def test_a_port_in_use_is_one_message(dpgt: Run, tmp_path: Path) -> None:
    run = write(tmp_path / "run.toml", documents.quadratic(2, K=1))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        code, lines = dpgt("coordinator", "--config", run, "--listen", address, "--insecure", "--out", "out")
        assert code == 2 and len(lines) == 1 and f"cannot listen on {address}" in lines[0], lines
        code, lines = dpgt("node", "--config", node_file(tmp_path, run, listen=address), "--log-level", "error")
        assert code == 2 and len(lines) == 1 and lines[0].startswith("dpgt node: NODE.toml: listen: ")
        assert f"cannot listen on {address}" in lines[0], lines
    assert not (tmp_path / "out").exists()


# --- certificates ----------------------------------------------------------------------------------------------------


def certificates(folder: Path, *, days: int = 365) -> tls.CertificateAuthority:
    authority = tls.CertificateAuthority.create()
    authority.write_folder(folder, "dpgt:coordinator", days=days)
    return authority


def secured(folder: Path, run: Path) -> list[tuple[object, ...]]:
    pem = {name: str(folder / f"{name}.pem") for name in ("ca", "cert", "key")}
    return [
        ("coordinator", "--config", run, "--listen", "127.0.0.1:0", "--tls", folder, "--out", "out"),
        ("node", "--config", node_file(folder.parent, run, tls=pem)),
        ("status", "--coordinator", "127.0.0.1:1", "--tls", folder),
    ]


def test_missing_certificates_are_named_each(dpgt: Run, tmp_path: Path) -> None:
    run = write(tmp_path / "run.toml", documents.quadratic(2, K=1))
    for verb, *arguments in secured(tmp_path / "absent", run):
        code, lines = dpgt(verb, *arguments)
        assert code == 2 and len(lines) == 3, (verb, lines)
        for name, line in zip(("ca", "cert", "key"), lines, strict=True):
            assert line == f"dpgt {verb}: {tmp_path / 'absent' / name}.pem: cannot be read: No such file or directory"
    assert not (tmp_path / "out").exists()


def test_an_expired_certificate_is_no_reason_to_try_for_ever(
    dpgt: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls, "_SKEW", datetime.timedelta(days=3))
    certificates(tmp_path / "pem", days=-1)
    run = write(tmp_path / "run.toml", documents.quadratic(2, K=1))
    day = (datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1)).strftime("%Y-%m-%d")
    for verb, *arguments in secured(tmp_path / "pem", run):
        code, lines = dpgt(verb, *arguments)
        assert code == 2 and len(lines) == 1 and f"cert.pem: expired on {day}" in lines[0], (verb, lines)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("broken", ["ca", "cert", "key"])
def test_a_file_that_is_no_pem(broken: str, dpgt: Run, tmp_path: Path) -> None:
    certificates(tmp_path / "pem")
    (tmp_path / "pem" / f"{broken}.pem").write_text("garbage")
    run = write(tmp_path / "run.toml", documents.quadratic(2, K=1))
    for verb, *arguments in secured(tmp_path / "pem", run):
        code, lines = dpgt(verb, *arguments)
        assert code == 2 and len(lines) == 1 and f"{broken}.pem: holds no" in lines[0], (verb, lines)


# --- control verbs ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["status", "pause", "resume", "stop"])
@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ((), 2, "exactly one of --run DIR and --coordinator"),
        (("--run", ".", "--coordinator", "h:1"), 2, "exactly one of --run DIR and --coordinator"),
        (("--run", "."), 2, "no coordinator ever ran in ."),
        (("--run", ".", "--insecure"), 2, "already says how to connect"),
        (("--coordinator", "h:1"), 2, "exactly one of --tls DIR and --insecure"),
        (("--coordinator", "h:1", "--insecure", "--tls", "."), 2, "exactly one of --tls DIR and --insecure"),
        (("--coordinator", "nonsense", "--insecure"), 2, "must be HOST:PORT"),
        (("--coordinator", "127.0.0.1:1", "--insecure"), 3, "no answer from the coordinator at 127.0.0.1:1"),
    ],
)
def test_control_without_a_coordinator(verb: str, arguments: tuple[str, ...], code: int, words: str, dpgt: Run) -> None:
    got, lines = dpgt(verb, *arguments)
    assert got == code and len(lines) == 1 and lines[0].startswith(f"dpgt {verb}: ") and words in lines[0]


def test_a_damaged_address_file_is_named(dpgt: Run, tmp_path: Path) -> None:
    for damaged in ("{", "{}", "[]", '{"address": "h:1", "tls": null, "pid": "x"}'):
        (tmp_path / "coordinator.json").write_text(damaged)
        code, lines = dpgt("status", "--run", ".")
        assert code == 2 and len(lines) == 1
        assert "coordinator.json: cannot be read: it is not what a coordinator writes there; " in lines[0]
    code, lines = dpgt("status", "--run", "coordinator.json")
    assert code == 2 and lines == ["dpgt status: coordinator.json: is a file, and not the output folder of a run"]


# --- the command line itself -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        ("nonsense",),
        ("launch",),
        ("launch", "run.toml"),
        ("launch", "run.toml", "--out", "out", "--nonsense"),
        ("demo", "--iterations", "many"),
        ("coordinator", "--config", "run.toml", "--out", "out"),
        ("--log-level", "loud", "check", "run.toml"),
        ("check", "run.toml", "--format", "xml"),
    ],
)
def test_usage_errors_exit_2(arguments: tuple[str, ...], dpgt: Run, tmp_path: Path) -> None:
    code, lines = dpgt(*arguments)
    assert code == 2 and len(lines) == 1, "one line, as every other problem has"
    assert lines[0].startswith("dpgt") and ": command line: " in lines[0] and lines[0].endswith(" --help)")
    assert list(tmp_path.iterdir()) == []


def test_a_usage_error_names_the_command_and_the_option(dpgt: Run) -> None:
    assert dpgt("launch", "--out", "o") == (2, ["dpgt launch: command line: RUN.toml: is missing (dpgt launch --help)"])
    many = "dpgt demo: command line: --iterations: 'many' is not a valid integer (dpgt demo --help)"
    assert dpgt("demo", "--iterations", "many") == (2, [many])
    _, lines = dpgt("pki")
    assert lines[0].startswith("Usage: dpgt pki") and len(lines) > 5, "a group alone shows its help"


def test_bad_options_of_the_demo(dpgt: Run, tmp_path: Path) -> None:
    code, lines = dpgt("demo", "--iterations", -1, "--seed", -2)
    assert code == 2 and [line.split(": ")[2] for line in lines] == ["iterations", "seed"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("listen", ["nonsense", "127.0.0.1", "127.0.0.1:99999", ":7000", "::1:7000"])
def test_a_listen_address_that_is_none(listen: str, dpgt: Run, tmp_path: Path) -> None:
    run = write(tmp_path / "run.toml", documents.quadratic(2, K=1))
    code, lines = dpgt("coordinator", "--config", run, "--listen", listen, "--insecure", "--out", "out")
    assert code == 2 and len(lines) == 1 and "--listen" in lines[0]
    assert not (tmp_path / "out").exists()


def test_a_report_on_a_folder_that_holds_no_run(dpgt: Run, tmp_path: Path) -> None:
    write(tmp_path / "run.toml", documents.quadratic(2, K=1))
    code, lines = dpgt("report", tmp_path)
    assert code == 2 and len(lines) == 1 and "holds no run" in lines[0]
    assert not (tmp_path / "report.html").exists()
    (tmp_path / "run_id.json").write_text("{}")
    assert dpgt("report", tmp_path)[0] == 0


@pytest.mark.parametrize("host", ["agent-1", "mallory=h", "agent-1=h:99999", "agent-1=0.0.0.0", "agent-1=bad host"])
def test_bad_hosts_of_pki(host: str, dpgt: Run, tmp_path: Path) -> None:
    run = write(tmp_path / "run.toml", documents.quadratic(2, K=1))
    code, lines = dpgt("pki", "init", run, "--out", "out", "--host", host)
    assert code == 2 and all(line.startswith("dpgt pki: command line: --host: ") for line in lines)
    assert not (tmp_path / "out").exists()


def test_a_bug_says_so_and_debug_shows_where(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr("dpgt_node.cli.check.examine", broken)
    run = write(tmp_path / "run.toml", documents.quadratic(2, K=1))
    assert cli.run(["check", str(run)]) == 70
    quiet = capsys.readouterr().err.splitlines()
    assert quiet == ["dpgt check: this is a bug: ZeroDivisionError: oops (--log-level debug shows where)"]
    assert cli.run(["--log-level", "debug", "check", str(run)]) == 70
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["launch", "simulate", "demo"])
def test_an_empty_out_is_a_usage_error_not_the_current_folder(verb: str, dpgt: Run, tmp_path: Path) -> None:
    run = write(tmp_path / "run.toml", demo())
    code, lines = dpgt(verb, *(() if verb == "demo" else (run,)), "--out", "")
    assert code == 2 and any("--out: the path is empty" in line for line in lines), lines
    assert [path.name for path in tmp_path.iterdir()] == ["run.toml"]
