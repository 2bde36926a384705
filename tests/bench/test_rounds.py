"""Prints rounds per second of launch beside the bare ring (make bench)."""

from __future__ import annotations

import pytest

from tests.bench import rounds

pytestmark = pytest.mark.bench


def test_rounds_per_second(monkeypatch):
    monkeypatch.setattr("sys.argv", ["rounds", "--rounds", "1000", "--repeat", "2"])
    rounds.main()
