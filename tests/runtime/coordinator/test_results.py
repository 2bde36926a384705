"""Private states that reach a coordinator in a study run: what it says that it took, and when."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpgt_node.errors import ExitCode, PeerError
from dpgt_node.protocol import messages as m
from dpgt_node.protocol.pace import Took
from dpgt_node.runtime.coordinator import results
from dpgt_node.runtime.coordinator.outdir import OutDir
from dpgt_node.runtime.coordinator.results import Results
from dpgt_node.wire import codec, services
from tests.runtime.cluster import LIMIT_S, cluster, make_run
from tests.runtime.coordinator.test_coordinator import FULL, NAMES, concluded, register, started, study
from tests.wire.vectors import LARGE


class Frames:
    """An upload's call at its server: ``frames`` come, and then it ends."""

    def __init__(self, frames: list[bytes]) -> None:
        self.frames, self.replies = iter(frames), list[int]()

    async def read(self) -> bytes | None:
        return next(self.frames, None)

    async def write(self, reply: m.UploadReply) -> None:
        self.replies.append(reply.vectors)


async def test_an_upload_that_ends_in_the_midst_of_a_state_is_an_error_and_every_frame_is_heard(tmp_path: Path) -> None:
    run, heard, failed = make_run(), list[int](), list[OSError]()
    out = OutDir(tmp_path, bytes(16), resumed=False)
    kept = Results(run, out, keystream=None, failed=failed.append, took=lambda _: Took())
    with pytest.raises(PeerError, match="still gathers its agents") as caught:
        await kept.upload("agent-1", Frames([]), lambda: None)  # type: ignore[arg-type]
    assert caught.value.grpc_status == "FAILED_PRECONDITION", "an agent tries again"
    kept.begin([register(run, name, dimension=LARGE) for name in NAMES], 0)
    frames = [
        frame
        for k in range(2)
        for frame in codec.encode_vectors(bytes(16), "agent-1", [codec.study_payload(k, np.ones(LARGE))], study=True)
    ]
    stream: Any = Frames(frames[:-1])
    with pytest.raises(PeerError, match="the upload of agent-1 broke off") as caught:
        await kept.upload("agent-1", stream, lambda: heard.append(len(stream.replies)))
    assert caught.value.grpc_status == "DATA_LOSS" and stream.replies == [1] and not failed
    assert heard == [0] * (len(frames) // 2) + [1] * (len(frames) // 2 - 1)
    assert kept._preparing is not None and kept.recorder is not None
    await kept._preparing
    kept.recorder.__exit__(PeerError, caught.value, None)


async def test_a_final_state_that_is_not_durable_is_not_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise FULL

    monkeypatch.setattr(results, "save_npy", full)
    async with cluster(tmp_path) as c:
        hands = await started(c)
        call = services.upload(hands[0].channel, "agent-1")
        for frame in study(c, "agent-1", 31, np.ones(3)):
            await call.write(frame)
        async with asyncio.timeout(LIMIT_S):
            with pytest.raises(PeerError, match="cannot write"):
                await call.read()
        for hand in hands:
            await hand.close()
        assert (await concluded(c)).exit_code is ExitCode.CONFIG
