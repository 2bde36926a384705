"""What waits for a slow coordinator is bounded, and x_final is never what goes."""

from __future__ import annotations

import logging
from contextlib import asynccontextmanager

import numpy as np
import pytest

from dpgt_node.runtime.agent import study
from dpgt_node.runtime.trust.channels import Opened


async def test_the_oldest_states_give_way_and_it_is_said_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    @asynccontextmanager
    async def nobody():  # type: ignore[no-untyped-def]
        raise AssertionError("never reached: the loop is not given a turn")
        yield

    def opened() -> Opened:
        return nobody()  # type: ignore[return-value]

    monkeypatch.setattr(study, "QUEUE_BYTES", 3 * 80)
    uploader = study.StudyUploader(opened, bytes(16), "agent-1", taken=lambda: None, failed=lambda _: None)
    with caplog.at_level(logging.WARNING):
        for k in (0, 10, 20, 31, 15):
            uploader.put(k, np.full(10, float(k)))
    assert sorted(uploader._waiting) == [15, 20, 31]
    uploader.put(31, np.ones(1000))  # alone above the bound: x_final still goes
    assert sorted(uploader._waiting) == [31]
    assert [r.message for r in caplog.records if "oldest are dropped" in r.message] == [
        "the coordinator takes study states more slowly than rounds are made: the oldest are dropped, from round 0 on, "
        "and metrics.csv has no consensus error for them"
    ]
    await uploader.cancel()
