"""One caller's calls are counted, whoever it is, and given back."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dpgt_node.errors import PeerError
from dpgt_node.runtime.trust.guard import MAX_CALLS_EACH, Guard
from dpgt_node.wire.services import Caller


def caller(name: str) -> Caller:
    made: Any = SimpleNamespace(
        identity=None, certificate_pem=None, address=f"ipv4:{name}:1", secure=False, agent_name=lambda: name
    )
    return cast(Caller, made)


async def test_a_caller_has_so_many_calls_at_a_time_and_others_have_theirs() -> None:
    guard = Guard(None)
    with contextlib.ExitStack() as calls:
        for _ in range(MAX_CALLS_EACH):
            calls.enter_context(guard(caller("a")))
        for _ in range(3):
            with pytest.raises(PeerError, match="more than 16 calls at a time") as caught, guard(caller("a")):
                raise AssertionError("it got in")
            assert caught.value.grpc_status == "RESOURCE_EXHAUSTED"
        with guard(caller("b")):
            pass
    with guard(caller("a")):
        pass
    assert not guard._calls, "nothing is kept of who has gone"
