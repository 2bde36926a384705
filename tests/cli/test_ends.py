"""How commands end: signals at any time, a terminal that goes away, too few descriptors, a run file that was edited."""

from __future__ import annotations

import os
import resource
import signal
import socket
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from dpgt_node.cli import signals
from dpgt_node.errors import ExitCode
from dpgt_node.runtime import process
from dpgt_node.runtime.coordinator.outdir import read_address
from tests.e2e import processes
from tests.e2e.processes import ENDLESS, Launch, eventually, interrupted, quadratic


@pytest.fixture
def endless(tmp_path: Path) -> Path:
    path = tmp_path / "run.toml"
    path.write_text(quadratic(2, ENDLESS), encoding="utf-8")
    return path


def start(*arguments: object, before: str = "") -> subprocess.Popen[bytes]:
    line = ["bash", "-c", f'{before} exec "$@"', "-", *processes.command(*arguments)]
    return subprocess.Popen(line, env=processes.environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def wait(started: subprocess.Popen[bytes]) -> tuple[int, str]:
    _, said = started.communicate(timeout=processes.LIMIT_S)
    return started.returncode, said.decode()


def made_rounds(out: Path) -> bool:
    """The file alone says nothing: it is there before round 0, where a signal ends a simulation at once."""
    path = out / "metrics.csv"
    return path.exists() and path.read_text(encoding="utf-8").count("\n") > 1 + 2  # its header, and two agents' row 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_a_simulation_ends_in_order(number: signal.Signals, endless: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    started = start("simulate", endless, "--out", out)
    eventually("it makes rounds", lambda: made_rounds(out))
    started.send_signal(number)
    code, said = wait(started)
    assert code == ExitCode.STOPPED and f"go on with the same command and --out {out}" in said


def test_nohup_is_meant(endless: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    started = start("simulate", endless, "--out", out, before="trap '' HUP;")
    eventually("it makes rounds", lambda: made_rounds(out))
    started.send_signal(signal.SIGHUP)
    size = (out / "metrics.csv").stat().st_size
    eventually("it goes on", lambda: (out / "metrics.csv").stat().st_size > size)
    started.send_signal(signal.SIGTERM)
    code, said = wait(started)
    assert code == ExitCode.STOPPED and f"go on with the same command and --out {out}" in said


@pytest.mark.e2e
def test_nohup_is_meant_by_a_launch_too(endless: Path, tmp_path: Path) -> None:
    """And a script's ``&``, which ignores SIGINT."""
    ignored = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGHUP, signal.SIGINT)}
    try:
        launch = Launch(tmp_path / "out", "launch", endless, "--insecure")
    finally:
        for number, before in ignored.items():
            signal.signal(number, before)
    with launch:
        launch.running()
        for number in ignored:
            launch.process.send_signal(number)
        log = launch.out / "metrics.csv"
        eventually("there are metrics", log.exists)
        size = log.stat().st_size
        eventually("it goes on", lambda: log.stat().st_size > size)
        launch.process.send_signal(signal.SIGTERM)
        assert launch.wait() == ExitCode.STOPPED
    interrupted(launch)


@pytest.mark.parametrize("rounds", [0, 1])
def test_before_the_first_round_a_signal_ends_at_once(rounds: int, endless: Path, tmp_path: Path) -> None:
    """A cost that takes for ever to compute must not need a kill -9; nor a round that never ends, the second time."""
    script = f"""
import os, signal, sys
from dpgt_node import cli
import dpgt_node.sim.simulate as module
def simulate(run, out, run_id, *, on_round, should_stop, **_):
    class Recorder:
        accuracy = dict.fromkeys(run.graph.agents); consensus = None; accountant = None
        def spent(self, name, k): return None
        def worth(self, name, k): return None
    if {rounds}: on_round(0, Recorder(), 0.1)
    print("busy", flush=True)
    while True: pass
module.simulate = simulate
sys.exit(cli.run(["simulate", {str(endless)!r}, "--out", {str(tmp_path / "out")!r}]))
"""
    started = subprocess.Popen(
        [processes.command()[0], "-c", script],
        env=processes.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert started.stdout is not None
    while "busy" not in (line := started.stdout.readline()):
        assert line, "it never began"
    for number in (signal.SIGTERM, signal.SIGINT)[: 1 + rounds]:  # two of a kind may arrive as one
        started.send_signal(number)
    _, said = started.communicate(timeout=processes.LIMIT_S)
    assert started.returncode == ExitCode.STOPPED and "dpgt simulate: interrupted" in said


def run_script(
    script: str, numbers: Sequence[signal.Signals], before: str | None = None, *, again: bool = False
) -> tuple[int, str]:
    """The exit code, and what was said, of a process that gets the next signal whenever it says that it is busy.

    ``again``: the last signal is sent until it is heeded.  One that comes just as the main thread lies down to wait for
    another thread is seen by nobody before the next.
    """
    started = subprocess.Popen(
        [processes.command()[0], "-c", (BUSY if before is None else before) + script],
        env=processes.environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert started.stdout is not None
    for number in numbers:
        while "busy" not in (line := started.stdout.readline()):
            assert line, started.communicate(timeout=processes.LIMIT_S)[1]
        started.send_signal(number)
    for _ in range(int(processes.LIMIT_S) if again else 0):
        try:
            started.wait(1.0)
            break
        except subprocess.TimeoutExpired:
            started.send_signal(numbers[-1])
    _, said = started.communicate(timeout=processes.LIMIT_S)
    return started.returncode, said


BUSY = """
import sys, threading, time
from dpgt_node import cli
def busy(*_, **__):
    print("busy", flush=True)
    while True: time.sleep(0.01)
def stubborn(*_, **__):
    while True:
        try: busy()
        except KeyboardInterrupt: pass
def blocked(*_, **__):
    print("busy", flush=True)
    threading.Event().wait()
"""
LATE = {
    "simulate": """
import dpgt_node.cli.running.ended as module
module.print_summary = {what}
sys.exit(cli.run(["simulate", {run!r}, "--out", {out!r}]))
""",
    "launch": """
import dpgt_node.cli.running.ended as module
module.print_summary = {what}
sys.exit(cli.run(["launch", {run!r}, "--out", {out!r}, "--insecure"]))
""",
    "demo": """
import dpgt_node.cli.running.demo as module
module.eavesdropped = {what}
sys.exit(cli.run(["demo", "--iterations", "2", "--out", {out!r}]))
""",
}


def late(verb: str, tmp_path: Path, what: str, signals: Sequence[signal.Signals]) -> tuple[int, str]:
    run, out = tmp_path / "run.toml", tmp_path / "out"
    run.write_text(quadratic(2, 2), encoding="utf-8")
    return run_script(LATE[verb].format(what=what, run=str(run), out=str(out)), signals)


def test_an_interrupt_after_the_end_says_that_the_run_is_finished(tmp_path: Path) -> None:
    code, said = late("simulate", tmp_path, "busy", [signal.SIGINT])
    out = tmp_path / "out"
    assert code == 0 and said.endswith(f"dpgt simulate: interrupted; the run in {out} is finished\n"), said
    again = processes.asked("simulate", tmp_path / "run.toml", "--out", out)
    assert again.returncode == ExitCode.CONFIG and "holds this run, finished" in again.stderr


def test_a_second_interrupt_after_the_end_ends_at_once(tmp_path: Path) -> None:
    code, said = late("simulate", tmp_path, "stubborn", [signal.SIGTERM, signal.SIGINT])
    assert code == ExitCode.STOPPED and said.endswith("dpgt simulate: interrupted\n")


@pytest.mark.e2e
@pytest.mark.parametrize("verb", ["launch", pytest.param("demo", marks=pytest.mark.long)])
def test_a_finished_launch_is_finished_whatever_comes_after(verb: str, tmp_path: Path) -> None:
    code, said = late(verb, tmp_path, "busy", [signal.SIGTERM])
    assert code == 0 and f"dpgt {verb}: interrupted; the run in {tmp_path / 'out'} is finished" in said, said
    assert "go on with" not in said


@pytest.mark.e2e
@pytest.mark.long
def test_an_interrupt_as_the_demo_ends_begins_no_attack(tmp_path: Path) -> None:
    script = f"""
from dpgt_node.runtime.launch.launcher import Launcher
run = Launcher.run
async def late(self):
    ended = await run(self)
    self._interrupt()  # as the signal does
    return ended
Launcher.run = late
sys.exit(cli.run(["demo", "--iterations", "2", "--out", {str(tmp_path / "out")!r}]))
"""
    code, said = run_script(script, [])
    assert code == 0 and said.endswith(f"dpgt demo: interrupted; the run in {tmp_path / 'out'} is finished\n"), said
    assert not (tmp_path / "out" / "eavesdropper.png").exists()


# --- where a verb has no handlers of its own


PROCESS = """
import sys, threading, time
def busy():
    print("busy", flush=True)
    while True: time.sleep(0.01)
{before}
sys.argv = ["dpgt", *{arguments!r}]
from dpgt_node.__main__ import main
main()
"""
STALLED = """
class Stall:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}: busy()
sys.meta_path.insert(0, Stall())
"""


@pytest.mark.parametrize(
    ("number", "module", "said"),
    [
        (signal.SIGINT, "click", "dpgt: interrupted\n"),
        (signal.SIGTERM, "click", "dpgt: interrupted\n"),
        (signal.SIGINT, "dpgt_node.cli.running.demo", "dpgt demo: interrupted\n"),
        (signal.SIGHUP, "dpgt_node.cli.running.demo", "dpgt demo: interrupted\n"),
    ],
)
def test_a_signal_in_the_midst_of_an_import(number: signal.Signals, module: str, said: str) -> None:
    script = PROCESS.format(before=STALLED.format(module=module), arguments=["demo"])
    assert run_script(script, [number], before="") == (ExitCode.STOPPED, said)


def test_a_signal_when_the_exit_code_is_known_does_not_change_it() -> None:
    a_thread = "threading.Timer(0, lambda: (threading.main_thread().join(), busy())).start()"
    script = PROCESS.format(before=a_thread, arguments=["schema", "run"])
    assert run_script(script, [signal.SIGTERM], before="", again=True) == (0, "")


def test_an_interrupt_in_code_that_was_a_string_is_an_exit_code() -> None:
    """Python would end the process by the signal, whatever became of the exception."""
    before = """
import dpgt_node.cli.schema as module
module.schema.invoke = lambda *_, **__: exec("raise KeyboardInterrupt")
"""
    code, said = run_script(PROCESS.format(before=before, arguments=["schema", "run"]), [], before="")
    assert (code, said.strip()) == (ExitCode.STOPPED, "dpgt schema: interrupted")


# --- a daemon, in every phase


NODE = """
import asyncio
import dpgt_node.cli.running.node as verb
import dpgt_node.runtime.agent.driver as driver
import dpgt_node.runtime.agent.node as node
import dpgt_node.runtime.agent.refusal as refusal
from dpgt_node.agent.work import AgentWork
verb.ORDER_S = 0.5
driver.INLINE_BYTES = 0
{patch}
sys.exit(cli.run(["node", "--config", {config!r}]))
"""
PHASES = {
    "gathering data": "refusal.oracle_and_digest = blocked",
    "preparing": "AgentWork.prepare = blocked",
    "reading its state": "node.Opening.read = blocked",
    "in a round": "AgentWork.release = blocked",
    "finishing": "AgentWork.advance_final = blocked",
    "its last evaluation": "evaluate = AgentWork.evaluate; "
    "AgentWork.evaluate = lambda work, effect: blocked() if effect.k == 3 else evaluate(work, effect)",
}


QUICK = ("gathering data", "in a round")


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[Path]:
    """The node file of the only agent of a run whose coordinator waits."""
    run, out, config = tmp_path / "run.toml", tmp_path / "out", tmp_path / "node.toml"
    run.write_text(quadratic(1, 2), encoding="utf-8")
    coordinator = start("coordinator", "--config", run, "--out", out, "--listen", "127.0.0.1:0", "--insecure")
    address = eventually("it listens", lambda: read_address(out)).address
    config.write_text(
        f'name = "agent-1"\nrun = "run.toml"\nlisten = "127.0.0.1:0"\ncoordinator = "{address}"\n'
        'state_dir = "state"\n[tls]\ninsecure = true\n',
        encoding="utf-8",
    )
    yield config
    coordinator.send_signal(signal.SIGTERM)
    assert wait(coordinator)[0] == ExitCode.STOPPED


@pytest.mark.e2e
@pytest.mark.parametrize("phase", [p if p in QUICK else pytest.param(p, marks=pytest.mark.long) for p in PHASES])
def test_a_node_ends_in_every_phase(phase: str, alone: Path) -> None:
    """Whatever its threads compute, and cannot stop."""
    code, said = run_script(NODE.format(patch=PHASES[phase], config=str(alone)), [signal.SIGTERM])
    assert code == ExitCode.STOPPED and "interrupted" in said, said
    processes.no_traceback(said)


WAITING = """
serve_health = node.serve_health
async def telling(*arguments):
    health = await serve_health(*arguments)
    print("busy", flush=True)
    return health
node.serve_health = telling
"""


@pytest.mark.e2e
def test_a_node_without_a_coordinator_ends(alone: Path) -> None:
    with socket.socket() as bound:  # nobody listens
        bound.bind(("127.0.0.1", 0))
        text = alone.read_text(encoding="utf-8").replace(
            "coordinator = ", f'coordinator = "127.0.0.1:{bound.getsockname()[1]}" #'
        )
        alone.write_text(text, encoding="utf-8")
        code, said = run_script(NODE.format(patch=WAITING, config=str(alone)), [signal.SIGTERM])
    assert code == ExitCode.STOPPED and "interrupted in round -" in said, said


@pytest.mark.e2e
def test_a_coordinator_ends_while_it_reports(tmp_path: Path) -> None:
    run, out = tmp_path / "run.toml", tmp_path / "out"
    run.write_text(quadratic(1, 2), encoding="utf-8")
    script = f"""
from dpgt_node.cli import common
from dpgt_node.runtime.coordinator.outdir import read_address
from pathlib import Path
import os, subprocess
common.report_or_word = blocked
folder, out = Path({str(tmp_path)!r}), Path({str(out)!r})
def node():
    while (found := read_address(out)) is None: time.sleep(0.01)
    (folder / "node.toml").write_text(
        'name = "agent-1"\\nrun = "run.toml"\\nlisten = "127.0.0.1:0"\\nstate_dir = "state"\\n'
        f'coordinator = "{{found.address}}"\\n[tls]\\ninsecure = true\\n')
    line = [sys.executable, "-m", "dpgt_node", "node", "--config", str(folder / "node.toml")]
    subprocess.run(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
threading.Thread(target=node, daemon=True).start()
arguments = ["--config", {str(run)!r}, "--out", {str(out)!r}, "--listen", "127.0.0.1:0", "--insecure"]
sys.exit(cli.run(["coordinator", *arguments]))
"""
    code, said = run_script(script, [signal.SIGTERM])
    assert code == 0 and f"interrupted; the run in {out} is over, and `dpgt report {out}` makes its report" in said, (
        said
    )
    assert not (out / ".closing").exists()


def test_an_ignored_signal_stays_ignored() -> None:
    for number in (signal.SIGHUP, signal.SIGINT):
        before = signal.signal(number, signal.SIG_IGN)
        try:
            assert number not in signals.ending_signals() and signal.SIGTERM in signals.ending_signals()
        finally:
            signal.signal(number, before)
        assert number in signals.ending_signals()


# --- descriptors


@pytest.mark.parametrize("verb", ["launch", "coordinator"])
def test_too_few_descriptors_are_named_before_anything_starts(verb: str, tmp_path: Path) -> None:
    run = tmp_path / "run.toml"
    run.write_text(quadratic(12, 3), encoding="utf-8")
    out, how = tmp_path / "out", {"launch": [run], "coordinator": ["--config", run, "--listen", "127.0.0.1:0"]}[verb]
    code, said = wait(start(verb, *how, "--out", out, "--insecure", before="ulimit -n 40;"))
    assert code == ExitCode.CONFIG and "open files: limit 40, about 224 needed: ulimit -n 224" in said, said
    assert not out.exists()


def test_the_soft_limit_is_raised_to_the_hard_one(monkeypatch: pytest.MonkeyPatch) -> None:
    set_: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: set_.append(limits))
    for soft, hard, expected in (
        (40, 4096, [(4096, 4096)]),
        (4096, 4096, []),
        (256, resource.RLIM_INFINITY, [(process.FILES_MAX, resource.RLIM_INFINITY)]),
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, []),
        (1 << 20, 1 << 20, []),
    ):
        set_.clear()
        monkeypatch.setattr(resource, "getrlimit", lambda _, limits=(soft, hard): limits)
        process.raise_open_files()
        assert set_ == expected

    def refused(*_: object) -> None:
        raise ValueError("not allowed to raise maximum limit")

    monkeypatch.setattr(resource, "setrlimit", refused)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (40, 4096))
    process.raise_open_files()


def test_a_simulation_of_60_agents_fits_where_the_hard_limit_does(tmp_path: Path) -> None:
    """Each has a file of TensorBoard open."""
    run = tmp_path / "run.toml"
    run.write_text(quadratic(60, 0), encoding="utf-8")
    for limits, expected in (("ulimit -Sn 50;", 0), ("ulimit -n 50;", ExitCode.CONFIG)):
        code, said = wait(start("simulate", run, "--out", tmp_path / str(int(expected)), before=limits))
        assert code == expected and ("Too many open files" in said) == bool(expected), said


# --- true advice


def test_an_edited_run_file_names_the_key(endless: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    endless.write_text(quadratic(2, 3), encoding="utf-8")
    assert processes.asked("simulate", endless, "--out", out).returncode == 0
    endless.write_text(quadratic(2, 4), encoding="utf-8")
    done = processes.asked("simulate", endless, "--out", out)
    assert done.returncode == 2 and "or undo what was edited: algorithm.iterations: 4 here, 3 there" in done.stderr
    os.truncate(out / "run.toml", 3)
    assert "choose another folder\n" in processes.asked("simulate", endless, "--out", out).stderr
