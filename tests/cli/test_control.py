"""What ``dpgt status`` prints."""

from __future__ import annotations

import math
from dataclasses import replace

from dpgt_node.cli.control import _show
from dpgt_node.wire.messages import AgentStatus, StatusReply

AGENTS = (AgentStatus("agent-1", True, 7, 0.25, 0.9, 7.5), AgentStatus("agent-2", False, -1, None, None, math.inf))
REPLY = StatusReply("running", 6, 200, bytes(16), "digits", 81.25, AGENTS, 1e-3, "", "gdp", 1e-5, "replace-one")


def test_text_names_accountant_delta_and_adjacency() -> None:
    assert _show(REPLY) == (
        "digits: running, k = 6 of 200, 81.2 rounds/s\n"
        "  adjacent data sets: replace-one\n"
        "  agent-1: connected, k = 7, seen 0.2 s ago, epsilon (gdp, delta 1e-05) 7.5 so far\n"
        "  agent-2: NOT connected, k = -1, never seen, epsilon (gdp, delta 1e-05) infinite so far"
    )
    conditional = _show(replace(REPLY, accountant="lemma5", delta=None))
    assert conditional.count("epsilon (Lemma 5; conditional) ") == 2
    assert "epsilon" not in _show(replace(REPLY, accountant=None, reason="paused"))
