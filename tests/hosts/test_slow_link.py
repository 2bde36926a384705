"""Vectors of 5.6 MB over links of 1 Mbit/s: nobody is taken for dead, and no vector begins anew."""

from __future__ import annotations

import pytest

from tests.hosts.slow_link import measure

pytestmark = [pytest.mark.hosts, pytest.mark.long, pytest.mark.needs("rate")]


def test_answers_wait_behind_a_vector_and_no_stream_is_cut() -> None:
    """Half a minute of bytes may be ahead of an answer to a ping, and of one to new settings of HTTP/2."""
    figures = measure(2, 3, 1.0, 0.0, 1_400_000, everybody=True, timeout_s=60.0)
    assert set(figures["exit_codes"].values()) == {0} and figures["rounds"] == 2
    assert figures["streams_broken"] == 0 and figures["ever_unconnected"] == []
