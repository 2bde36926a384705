"""Prints how long each kind of loss takes to be named, beside its bound (make bench; root)."""

from __future__ import annotations

import pytest

from tests.bench import detection

pytestmark = [pytest.mark.bench, pytest.mark.needs("cut")]


def test_every_loss_is_named_within_its_bound(monkeypatch):
    monkeypatch.setattr("sys.argv", ["detection"])
    assert detection.main() == 0
