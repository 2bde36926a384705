"""Who may take part: every refusal, in words, and whether it ends the run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dpgt_node.config import canonical_json
from dpgt_node.protocol import messages as m
from dpgt_node.protocol.coordinator.admission import Refusal, changed, disagrees, stranger, twin
from tests.runtime.cluster import make_run

RUN = make_run()
NAMES = RUN.graph.agents


def register(**changes: Any) -> m.Register:
    made = m.Register(
        name="agent-2",
        run_sha256="0" * 64,
        run_json=canonical_json(RUN),
        advertise="h:1",
        samples=7,
        dimension=3,
        shape_sha256="a" * 64,
        last_released_round=-1,
        last_done_round=-1,
        last_durable_round=-1,
        finished=False,
        run_id=b"",
        instance=b"i" * 16,
        package_version="1.0",
    )
    return replace(made, **changes)


def verdict(made: m.Register, *, caller: str = "agent-2", others: Any = ()) -> Refusal | None:
    text = canonical_json(RUN)
    return stranger(made, caller, NAMES) or disagrees(made, run_json=text, package_version="1.0", others=others)


def test_who_agrees_in_everything_is_admitted() -> None:
    assert verdict(register(), others=[register(name="agent-1"), register(name="agent-3", samples=None)]) is None


def test_who_comes_back_with_another_number_of_samples_is_refused_and_the_run_goes_on() -> None:
    assert changed(register(last_done_round=3), 7) is None
    found = changed(register(samples=None), 7)
    assert found is not None and (found.kind, found.ends_run) == ("data", False)
    assert found.reason.startswith(
        "agent-2 had D = 7 samples when the run began and has D = none now: a run goes on with the"
    )


OTHER = canonical_json(replace(RUN, scheme=replace(RUN.scheme, alpha=0.5)))
MANY = canonical_json(
    replace(
        RUN,
        name="x",
        scheme=replace(RUN.scheme, alpha=0.5, beta=0.5, gamma=0.5),
        runtime=replace(RUN.runtime, round_timeout_s=1.0, register_timeout_s=1.0, barrier_every=2),
    )
)


@pytest.mark.parametrize(
    ("made", "options", "kind", "ends_run", "words"),
    [
        (
            register(),
            {"caller": "agent-1"},
            "identity",
            False,
            "certificate is agent-1's, the registration says agent-2",
        ),
        (register(name="eve"), {"caller": "eve"}, "identity", False, "eve is not in the run, whose agents are agent-1"),
        (register(protocol_version=9), {}, "version", True, "9"),
        (register(package_version="2.0"), {}, "version", True, "dpgt-node 2.0 at agent-2, 1.0 at the coordinator"),
        (register(run_json=OTHER), {}, "run-hash", True, "the run file of agent-2 differs in scheme.alpha"),
        (register(run_json=MANY), {}, "run-hash", True, ", and 2 more"),
        (register(run_json="{"), {}, "run-hash", True, "agent-2"),
        (register(run_json="[]"), {}, "run-hash", True, "agent-2"),
        (
            register(dimension=4),
            {"others": [register(name="agent-1")]},
            "data",
            True,
            "of d = 4 parameters, agent-1 of 3",
        ),
        (register(shape_sha256="b" * 64), {"others": [register(name="agent-1")]}, "data", True, "shapes differ"),
    ],
)
def test_every_refusal(made: m.Register, options: dict[str, Any], kind: str, ends_run: bool, words: str) -> None:
    refusal = verdict(made, **options)
    assert refusal is not None
    assert (refusal.kind, refusal.ends_run) == (kind, ends_run) and words in refusal.reason
    assert "\n" not in refusal.reason


def test_values_of_a_run_file_are_for_its_agent_alone() -> None:
    """A path, a class name: what somebody wrote into the own copy is nobody else's."""
    other = replace(RUN, scheme=replace(RUN.scheme, alpha=0.5), name="ward-9")
    refusal = verdict(register(run_json=canonical_json(other)))
    assert refusal is not None and refusal.reason == "the run file of agent-2 differs in name, scheme.alpha"
    assert "scheme.alpha: 0.2 here, 0.5 there" in refusal.own and "ward-9" in refusal.own


def test_a_stranger_is_a_stranger_before_anything_else_is_looked_at() -> None:
    """Else somebody outside the run could end it with a wrong version or another run file."""
    bad = register(name="eve", protocol_version=9, package_version="0", run_json="{}")
    refusal = verdict(bad, caller="eve")
    assert refusal is not None and not refusal.ends_run
    assert not twin("agent-2").ends_run
