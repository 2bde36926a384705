"""Tiers of tests, and what holds for all of them.

* unmarked: one process, no network beyond loopback.
* ``e2e``: real daemon processes.  Under ``pytest -n 2 --dist worksteal`` (make test) they come first and all on one
  worker, so that two clusters rarely share the two cores.  The other worker begins with the second half of the rest,
  and takes from what is left to the first.  A file stays on one worker, which sets up its fixtures once.  Groups
  (loadgroup) would cost a minute: their scheduler counts all finished tests anew after every test.
* ``hosts``: network namespaces; root only, so only on request (make hosts; tests/hosts/conftest.py).  Those that are
  ``long`` too are left out by make hosts SHARE=1, which continuous integration runs.
* ``long``: on request.
* ``fast``: the optional packages numba and uvloop; on request (make fast installs them).
* ``browser``: headless Chromium; on request (make browser).
* ``shown``: the shell blocks of the pages; on request (make shown).
* ``deploy``: what deploy/ says is carried out: the image's steps in a bare Debian, the units under a systemd of their
  own (root, debootstrap); the schemas of compose and Kubernetes need only a package each.  On request (make
  deploy-check; SHARE=1 is the schemas).
* ``torch``: the optional packages torch and torchvision; on request (make torch installs them).

A test that cannot run on a machine is in a tier that is not asked for there; there is no skip.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Iterator

import hypothesis
import psutil
import pytest

# Before numpy is first imported: the daemons compute with one BLAS thread, and bit-identity is only promised for that.
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"

# Where nothing may write bytecode, as in many containers, every process that a test starts compiles the whole package
# anew, a quarter of a short launch, and every worker rewrites the assertions of every test anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

import dpgt_node.cli  # noqa: E402, F401  # before gRPC is first used: clusters in this process are the daemons' gRPC

# Hypothesis would fail an example that takes 0.2 s, which on a loaded machine says nothing.
hypothesis.settings.register_profile("dpgt", deadline=None)
hypothesis.settings.load_profile("dpgt")

# Processes that tests start are asked to end by signals.  What this process was told to ignore, as by nohup or by a
# shell that put it into the background, they would ignore too.  A handler keeps it ignored here and ends with exec.
for _number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, lambda *_: None)

PROCESS_TIERS = ("e2e", "hosts", "deploy", "shown")
PR_SET_CHILD_SUBREAPER = 36
EXIT_GRACE_S = 10.0


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):  # of pytest-xdist; a run in one process keeps the order of files
        items.sort(key=lambda item: item.get_closest_marker("e2e") is None)


@pytest.fixture(autouse=True)
def _no_process_left_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """Whatever a test with real processes started is gone when it ends, grandchildren and daemons included."""
    if not any(request.node.get_closest_marker(tier) for tier in PROCESS_TIERS):
        yield
        return
    with children_reaped() as left:
        yield
    assert not left, "processes left behind (now killed):\n" + "\n".join(left)


class children_reaped:
    """Context manager: a list that at the end holds the command lines of new descendants that did not exit.

    Orphans are adopted by this process (child subreaper) while the context is open, so that a grandchild whose parent
    died first is found too.
    """

    def __enter__(self) -> list[str]:
        self._left: list[str] = []
        _set_subreaper(True)
        self._before = {p.pid for p in psutil.Process().children(recursive=True)}
        return self._left

    def __exit__(self, *_: object) -> None:
        try:
            new = [p for p in psutil.Process().children(recursive=True) if p.pid not in self._before]
            _, alive = psutil.wait_procs(new, timeout=EXIT_GRACE_S)
            for process in alive:
                try:
                    self._left.append(f"{process.pid}: {' '.join(process.cmdline()) or process.name()}")
                    process.kill()
                except psutil.NoSuchProcess:
                    continue
            psutil.wait_procs(alive, timeout=EXIT_GRACE_S)
        finally:
            _set_subreaper(False)


def _set_subreaper(on: bool) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, int(on), 0, 0, 0)
