"""Carries runs out: one after another in this process, or on Dask (``dask.distributed``), here or at an address.

Workers get text and give back bytes; this process alone writes.  So a worker needs nothing of the folder, and a run is
there whole or not at all, once.  What a lost worker was doing is done again by another one.  A run that fails is tried
once more when all others are done.

Dask itself carries functions and results as pickles: whoever can reach its scheduler can run code on its workers.
Local workers listen on loopback alone; a scheduler at an address must be one that is trusted.
"""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import logging
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing import resource_tracker
from typing import TYPE_CHECKING, Any

from dpgt_node import __version__
from dpgt_node.errors import ConfigError, DpgtError, ExitCode
from dpgt_node.experiments.families.runs.job import Files
from dpgt_node.values import dataclass

if TYPE_CHECKING:
    from distributed import Client

CONNECT_S = 5.0
"""So long may a scheduler take to answer."""
RETRIES = 1
"""A failed run is tried once more."""
Work = Callable[..., Files]


class SchedulerLost(DpgtError):
    """The scheduler went away in the middle."""

    exit_code = ExitCode.PEER_LOST


@dataclass(frozen=True, slots=True)
class Task:
    """``work(*arguments)`` makes the files of ``name``."""

    name: str
    arguments: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Done:
    """One attempt of a run: ``files``, or the ``error`` in one line.  ``last``: it will not be tried again."""

    name: str
    files: Files | None
    error: str = ""
    last: bool = True


class Pool:
    """Where runs are carried out; ``client`` None: in this process.  ``words``: for messages."""

    def __init__(self, client: Client | None, words: str) -> None:
        self._client, self.words = client, words

    def map(self, work: Work, tasks: Sequence[Task]) -> Iterator[Done]:
        """Every task, in the order in which they end; those that failed again at the end.  Raises SchedulerLost."""
        again: list[Task] = []
        by_name = {task.name: task for task in tasks}
        for attempt in range(RETRIES + 1):
            last, now = attempt == RETRIES, list(by_name.values()) if attempt == 0 else again
            again = []
            for name, files, error in self._once(work, now):
                if files is None and not last:
                    again.append(by_name[name])
                yield Done(name, files, error, last or files is not None)

    def _once(self, work: Work, tasks: Sequence[Task]) -> Iterator[tuple[str, Files | None, str]]:
        if self._client is not None:
            yield from _on_dask(self._client, work, tasks)
            return
        for task in tasks:
            try:
                files, error = work(*task.arguments), ""
            except Exception as caught:  # whatever a run dies of, the others go on
                files, error = None, _line(caught)
            yield task.name, files, error


@contextlib.contextmanager
def pool(processes: int | None, scheduler: str | None) -> Iterator[Pool]:
    """Workers: those of ``scheduler`` (``tcp://HOST:PORT``), or so many processes here; one: this process.

    ``processes`` None: as many as there are cores, or one where Dask is not installed.

    ConfigError, before anything runs: Dask is not installed, the scheduler does not answer, or has no worker that can
    do the work.
    """
    has_dask, cores = importlib.util.find_spec("distributed") is not None, os.cpu_count() or 1
    if scheduler is None and processes is None and cores > 1 and not has_dask:
        yield Pool(None, "in this process (more need Dask: pip install 'dpgt-node[cluster]')")
        return
    processes = processes or cores
    if scheduler is None and processes == 1:
        yield Pool(None, "in this process")
        return
    if not has_dask:
        message = "needs Dask: pip install 'dpgt-node[cluster]', or --processes 1"
        raise ConfigError.one("command line", "--processes" if scheduler is None else "--scheduler", message)
    with _local(processes) if scheduler is None else _remote(scheduler) as found:
        yield found


@contextlib.contextmanager
def _local(processes: int) -> Iterator[Pool]:
    with _dask():
        from distributed import Client, LocalCluster

        with contextlib.ExitStack() as stack:
            with _uninterrupted():
                cluster = LocalCluster(
                    n_workers=processes,
                    threads_per_worker=1,
                    processes=True,
                    host="127.0.0.1",
                    dashboard_address="127.0.0.1:0",
                    memory_limit=0,
                    silence_logs=logging.CRITICAL,
                )
                client = stack.enter_context(Client(stack.enter_context(cluster)))
            yield Pool(client, f"{processes} processes of this machine")


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """Threads and processes that begin here never get SIGINT, nor do those that they begin.

    A terminal sends Ctrl-C to the workers, too. They would die with a traceback each; ending them is up to us.
    """
    resource_tracker.ensure_running()  # its start would let SIGINT through again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def _remote(scheduler: str) -> Iterator[Pool]:
    with _dask():
        from distributed import Client

        try:
            client = Client(scheduler, timeout=CONNECT_S)
        except ValueError as error:
            message = f'"{scheduler}" is no address of a scheduler: tcp://HOST:PORT'
            raise ConfigError.one("command line", "--scheduler", message) from error
        except (OSError, TimeoutError) as error:
            message = f"nothing answers at {scheduler} ({type(error).__name__})"
            raise ConfigError.one("command line", "--scheduler", message) from error
        with client:
            yield Pool(client, _examined(client, scheduler))


_LOGGERS = ("distributed", "distributed.client", "tornado")
_SETTINGS: Mapping[str, object] = {
    "logging": dict.fromkeys(_LOGGERS, "critical"),  # of worker processes
    "distributed.scheduler.worker-saturation": 1.0,  # a worker holds the run it works on and no other
    "distributed.scheduler.allowed-failures": 3,
    "distributed.comm.timeouts.connect": f"{CONNECT_S}s",
}


def _examined(client: Client, scheduler: str) -> str:
    """Who is at the address, in words.  ConfigError: nobody, or somebody with another version of this package."""
    workers = client.scheduler_info(n_workers=-1)["workers"]
    if not workers:
        message = f"the scheduler at {scheduler} has no workers: start some (dask worker {scheduler})"
        raise ConfigError.one("command line", "--scheduler", message)
    found = client.run(_version, on_error="return")
    other = sorted({f"{where}: {text}" for where, text in found.items() if text != __version__})
    if other:
        message = f"every worker needs dpgt-node {__version__}, as here; {'; '.join(map(str, other[:3]))}"
        raise ConfigError.one("command line", "--scheduler", message)
    return f"{len(workers)} workers of {scheduler}"


def _version() -> str:
    return __version__


def _on_dask(client: Client, work: Work, tasks: Sequence[Task]) -> Iterator[tuple[str, Files | None, str]]:
    """A worker gets a run when its last one is here: results that wait on a worker would be lost with it."""
    from distributed import as_completed

    waiting, started, queue = iter(tasks), dict[Any, str](), as_completed()

    def start(most: int) -> None:
        for task in itertools.islice(waiting, most):
            key = f"{task.name}-{os.urandom(4).hex()}"  # a later attempt is another computation
            future = client.submit(work, *task.arguments, key=key, pure=False)
            started[future] = task.name
            queue.add(future)

    try:
        start(_places(client))
        for future in queue:
            status = future.status
            if status not in ("finished", "error"):
                raise SchedulerLost("the scheduler went away; go on with the same command")
            files, error = (future.result(), "") if status == "finished" else (None, _line(future.exception()))
            name = started.pop(future)
            future.release()
            start(max(0, _places(client) - len(started)))
            yield name, files, error
    except BaseException:
        with contextlib.suppress(Exception):
            client.cancel(list(started), force=True)
        raise


def _places(client: Client) -> int:
    """Runs that the workers can carry out at once; workers may come and go."""
    return max(1, sum(int(threads) for threads in client.nthreads().values()))


def _line(error: BaseException | None) -> str:
    """For a list of failures."""
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0]}" if text else type(error).__name__


@contextlib.contextmanager
def _dask() -> Iterator[None]:
    """Dask under our settings.  What it logs about lost connections and workers is said by our own messages."""
    import dask.config
    import distributed  # noqa: F401  # first: it sets its loggers up, and its defaults under ours, as it loads

    loggers = [logging.getLogger(name) for name in _LOGGERS]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        with dask.config.set(_SETTINGS):
            yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)


@dataclass(slots=True)
class Clock:
    """How long the rest will take, from what was done since the start.  ``now_s``: monotonic."""

    total: int
    begun_s: float
    done: int = 0

    @classmethod
    def start(cls, total: int) -> Clock:
        """Now."""
        return cls(total, time.monotonic())

    def left_s(self, now_s: float) -> float | None:
        """Seconds; None before the first run is done."""
        if self.done == 0:
            return None
        return (now_s - self.begun_s) / self.done * (self.total - self.done)
