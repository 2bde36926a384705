"""The hosts tier: what a test needs of the machine, and the run it is compared with.

``needs(ability)`` names what else than hosts a test needs (tests/hosts/lab.py).  Tests whose ability this machine lacks
are taken out of the tier, and the end of the output says which and why; without root none of it is asked for at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e import processes
from tests.hosts import lab
from tests.hosts.deployment import HOSTS, KEY, Deployment

RUN = (processes.ROOT / "deploy" / "run.toml").read_text(encoding="utf-8")
Deploy = Callable[..., Deployment]
_left_out = pytest.StashKey[dict[str, str]]()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    wanted = [item for item in items if item.get_closest_marker("needs")]
    if not wanted:
        return
    absent = lab.missing()
    out = {
        item: f"{mark.args[0]}: {absent[mark.args[0]]}"
        for item in wanted
        for mark in item.iter_markers("needs")
        if mark.args[0] in absent
    }
    config.stash[_left_out] = {item.name: reason for item, reason in out.items()}
    items[:] = [item for item in items if item not in out]
    config.hook.pytest_deselected(items=list(out))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for name, reason in config.stash.get(_left_out, {}).items():
        terminalreporter.line(f"not run here: {name} needs {reason}")


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[lab.Lab]:
    """The coordinator's host and five agents'."""
    with lab.Lab(tmp_path / "lab", HOSTS, processes.environment()) as made:
        yield made


def _run_text(iterations: int, round_timeout: int) -> str:
    # A study, so that the coordinator's x can be compared: what is deployed says "local".
    text = RUN.replace("iterations = 50", f"iterations = {iterations}").replace('"local"', '"study"')
    return text.replace("round_timeout = 30", f"round_timeout = {round_timeout}")


@pytest.fixture
def deploy(hosts: lab.Lab, tmp_path: Path) -> Deploy:
    """The digits of deploy/run.toml on all six hosts, with this many iterations."""

    def make(iterations: int, *, round_timeout: int = 30) -> Deployment:
        run_file = tmp_path / "run.toml"
        run_file.write_text(_run_text(iterations, round_timeout), encoding="utf-8")
        return Deployment(hosts, run_file, tmp_path)

    return make


@pytest.fixture(scope="session")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Path]:
    """The output of ``dpgt simulate`` of the same run with this many iterations."""
    held: dict[int, Path] = {}

    def simulate(iterations: int) -> Path:
        if iterations not in held:
            folder = tmp_path_factory.mktemp("simulated")
            run_file = folder / "run.toml"
            run_file.write_text(_run_text(iterations, 30), encoding="utf-8")
            done = processes.dpgt("simulate", run_file, "--out", folder / "out", "--test-keystream", KEY)
            assert done.returncode == 0, done.stderr
            held[iterations] = folder / "out"
        return held[iterations]

    return simulate
