"""What a coordinator keeps of a run: metrics, the copies of x_final in study runs, the summary."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from dpgt_node.algo.graph import Topology
from dpgt_node.algo.schedule import Schedule
from dpgt_node.config import RunConfig
from dpgt_node.durable import save_npy
from dpgt_node.errors import ExitCode, PeerError
from dpgt_node.learning.common import Metrics
from dpgt_node.protocol import messages as m
from dpgt_node.protocol.coordinator import barrier as co
from dpgt_node.protocol.pace import Took
from dpgt_node.protocol.types import Payload
from dpgt_node.record.phases import PhaseStore
from dpgt_node.record.recorder import AgentResult, RunRecorder
from dpgt_node.record.summary import Summary
from dpgt_node.runtime.coordinator.outdir import OutDir
from dpgt_node.wire import services
from dpgt_node.wire.codec import Gate, Reassembler


class Results:
    """The outputs of ``run`` under ``out``, from the first round on; before it, every report is refused.

    ``failed`` hears of an output that cannot be written.  ``took``: what an agent's rounds took.
    """

    def __init__(
        self,
        run: RunConfig,
        out: OutDir,
        *,
        keystream: str | None,
        failed: Callable[[OSError], None],
        took: Callable[[str], Took],
    ) -> None:
        self._run = run
        self._out = out
        self._keystream = keystream
        self._failed = failed
        self._took = took
        self._phases: PhaseStore | None = None
        self._topology = Topology.from_config(run.graph)
        self._schedule = Schedule.from_config(run)
        self._names = run.graph.agents
        self._preparing: asyncio.Task[None] | None = None
        self._round0_s = 0.0
        self._first_k = 0
        self._dimension = 0
        self.study = run.evaluate.metrics == "study"
        self.recorder: RunRecorder | None = None

    def begin(self, registers: Sequence[m.Register], k: int) -> None:
        """Every agent is here and the run is in round ``k``.  OSError, ConfigError: the folder cannot be written."""
        self._round0_s = time.monotonic()
        self._first_k = k
        self._dimension = registers[0].dimension
        self.recorder = RunRecorder(
            self._out.path,
            self._run,
            self._topology,
            self._schedule,
            [register.samples for register in registers],
            dimension=self._dimension,
            keystream=self._keystream,
        )
        self._phases = PhaseStore(self._out.path)
        self._preparing = asyncio.create_task(self._prepare(self.recorder))
        for name in self._names:
            self.local_row(name, 0)

    async def _prepare(self, recorder: RunRecorder) -> None:
        await asyncio.to_thread(recorder.prepare)
        try:
            recorder.prepared()
        except OSError as error:
            self._failed(error)

    def close(self, conclude: co.Conclude, k: int, go_through: int) -> Summary | None:
        """Write the summary and the report of a run that ended in round ``k``; None when it never began."""
        if self.recorder is None:
            return None
        if self._phases is not None:
            self._phases.close()
        finals = None
        if self.study and conclude.exit_code is ExitCode.DONE:
            finals = {n: np.load(self._final_path(n), mmap_mode="r", allow_pickle=False) for n in self._names}
        return self.recorder.close(
            self._out.run_id.hex(),
            conclude.status,
            k,
            self._wall_s(),
            finals,
            made=k - self._first_k,
            released_through=go_through,  # whoever was allowed to may have released it
        )

    def _wall_s(self) -> float:
        return time.monotonic() - self._round0_s

    def evaluated(self, name: str, report: m.MetricsReport) -> None:
        """An agent's metrics; in local runs they stay where they are."""
        if self.recorder is None or not self.study or report.k > self._run.K + 1:
            return
        metrics = Metrics(report.loss_train, report.accuracy_train, report.accuracy_test, report.grad_norm)
        self.recorder.evaluated(name, report.k, metrics, self._wall_s())
        self._note_phases(name, report.k)

    def local_row(self, name: str, k: int) -> None:
        """In local runs metrics stay with the agents: the coordinator's rows hold what the schedule alone says."""
        if self.study or self.recorder is None:
            return
        self.recorder.evaluated(name, k, None, self._wall_s())
        self._note_phases(name, k)

    def _note_phases(self, name: str, k: int) -> None:
        assert self._phases is not None
        took = self._took(name)
        self._phases.note(name, k, took.rounds, took.total_us)

    def flush(self) -> None:
        """Let readers of phases.csv see what is there.  OSError: it cannot be written."""
        if self._phases is not None:
            self._phases.flush()

    def finished(self, name: str, report: m.FinishedReport) -> None:
        """The last report of an agent that is done with every round.  PeerError when it cannot be."""
        if self.recorder is None:
            raise PeerError(f"{name} reports a result of an unfinished run", grpc_status="INVALID_ARGUMENT")
        if self.study:
            if not self._final_path(name).exists():  # perhaps uploaded to an earlier start of this process
                raise PeerError(f"{name} finished without uploading its x_final", grpc_status="FAILED_PRECONDITION")
            self.evaluated(name, report.metrics)
        self.recorder.finished(name, AgentResult(report.releases, report.bytes_sent))

    async def upload(
        self, name: str, stream: services.ServerStream[bytes, m.UploadReply], heard: Callable[[], None]
    ) -> None:
        """Private states of agent ``name`` in a study run, for the consensus error and the copies of x_final.

        Each is acknowledged once it is kept: x_final is durable then.  ``heard``: called for every frame.
        """
        if not self.study or name not in self._names:
            raise PeerError("this run takes no private states", grpc_status="PERMISSION_DENIED")
        if self.recorder is None:
            raise PeerError("the coordinator still gathers its agents", grpc_status="FAILED_PRECONDITION")
        last = self._run.K + 1
        gate = Gate(
            run_id=self._out.run_id,
            sender=name,
            streams=frozenset({"X"}),
            dtype="float64",
            dimension=self._dimension,
            window=lambda _: (0, last),
            study=True,
        )
        reassembler = Reassembler(gate)
        count = 0
        while (frame := await stream.read()) is not None:
            heard()
            payloads = reassembler.feed(frame)
            for payload in payloads:
                try:
                    await self._take_state(name, payload)
                except OSError as error:
                    self._failed(error)
                    raise PeerError("the coordinator cannot write", grpc_status="UNAVAILABLE") from error  # Stop comes
            if payloads:
                count += len(payloads)
                await stream.write(m.UploadReply(count))
        if (broken := reassembler.finish()) is not None:
            raise PeerError(f"the upload of {name} broke off: {broken}", grpc_status="DATA_LOSS")

    async def _take_state(self, name: str, payload: Payload) -> None:
        assert self.recorder is not None
        x = payload.array()
        if payload.k == self._run.K + 1:
            await asyncio.to_thread(save_npy, self._final_path(name), x)
        self.recorder.state(name, payload.k, x)

    def _final_path(self, name: str) -> Path:
        return self._out.path / "agents" / name / "x_final.npy"
