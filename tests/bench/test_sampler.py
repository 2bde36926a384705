"""Prints how fast privacy noise is drawn (make bench)."""

from __future__ import annotations

import pytest

from tests.bench import sampler

pytestmark = pytest.mark.bench


def test_sampler_speed(monkeypatch):
    monkeypatch.setattr("sys.argv", ["sampler", "--repeats", "5"])
    sampler.main()
