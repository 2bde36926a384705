"""Hostile peers at a coordinator and three agents that are in the midst of a run; ``make fuzz`` does it in full."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from tests.fuzz.services import attack


@pytest.mark.e2e
@pytest.mark.parametrize("secure", [False, True], ids=["plain", "mtls"])
async def test_an_honest_run_goes_on_undisturbed(secure: bool, tmp_path: Path) -> None:
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)  # it says of every connection that broke that it did
    figures = await attack(tmp_path, 600, secure=secure, rounds=600, connections=200)
    print(figures.line())
    assert figures.sent["impostor"] > 4 and figures.sent.total() > 600
    assert figures.rounds[1] > figures.rounds[0]
