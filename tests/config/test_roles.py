"""Active roles: what a role's string means, what is refused, and that an honest run file stays the one that it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpgt_node.agent.roles import check_coordinates
from dpgt_node.algo.graph import Topology
from dpgt_node.algo.hard import hard_failures
from dpgt_node.algo.schedule import Schedule
from dpgt_node.config import canonical_json, parse_run, run_sha256, to_toml
from dpgt_node.config.roles import NOBODY, Role, parse_role
from dpgt_node.errors import ConfigError
from tests.runtime.cluster import RUN

PLAIN = RUN.format(K=3)


def test_roles_are_read_and_written_and_are_part_of_the_runs_identity() -> None:
    text = PLAIN + '[adversary.active]\nagent-3 = "poison   scale=-1 from=2 until=3"\n'
    text += 'agent-1 = "trap; delay ms=5 stream=Y to=agent-2"\n'
    run = parse_run(text, "run.toml", Path("/"))
    assert parse_run(to_toml(run), "again", Path("/")) == run
    assert run.adversary.active.of("agent-3") == (Role("poison", "Y", scale=-1.0, first=2, last=3),)
    assert run.adversary.active.of("agent-1") == (Role("trap", "X"), Role("delay", "Y", ms=5.0, to=("agent-2",)))
    assert run.adversary.active.of("agent-2") == ()
    plain = parse_run(PLAIN, "run.toml", Path("/"))
    assert plain.adversary.active == NOBODY and NOBODY.warnings() == () and "active" not in canonical_json(plain)
    assert run_sha256(run) != run_sha256(plain)
    said = "ACTIVE ADVERSARIES: agent-3 = poison scale=-1 from=2 until=3, agent-1 = trap; delay "
    assert run.adversary.active.warnings()[0].startswith(said)
    assert parse_role("equivocate stream=both value=2 to=a,b coordinates=1:3") == Role(
        "equivocate", None, 2.0, None, (1, 3), ("a", "b")
    )
    assert parse_role("replay lag=4").lag == 4 and parse_role("withhold").stream is None


@pytest.mark.parametrize(
    ("role", "word"),
    [
        ('agent-3 = "poisn"', "is no role; did you mean .poison"),
        ('agent-3 = ""', "is no role"),
        ("agent-3 = 3", "must be a role"),
        ('agent-3 = "poison to=agent-1"', "no option of poison"),
        ('agent-3 = "poison value=1 value=2"', "each once"),
        ('agent-3 = "poison value=1 scale=2"', "not both"),
        ('agent-3 = "poison value=inf"', "must be a finite number"),
        ('agent-3 = "poison from=9 until=3"', "is after"),
        ('agent-3 = "poison stream=Z"', "must be X, Y or both"),
        ('agent-3 = "trap coordinates=5:5"', "must be FIRST:END"),
        ('agent-3 = "replay lag=-1"', "must be an integer"),
        ('agent-3 = "delay"', "needs ms"),
        ('agent-3 = "delay ms=0"', "needs ms"),
        ('agent-3 = "trap;"', "is no role"),
        ('agent-3 = "trap; repeat to=agent-8"', "is no agent of this run"),
        ('agent-3 = "imprint"', "imprint needs model.name = .mlp"),
        ('agent-3 = "poison from=4"', "from=4 is after the last round, K = 3"),
        ('agent-3 = "replay lag=0"', "lag=0: must be at least 1"),
        ('agent-3 = "repeat lag=4"', "lag=4 is before round 0"),
        ('agent-3 = "replay lag=2 until=1"', "lag=2 is before round 0 even in its last round, 1"),
        ('agent-3 = "delay ms=200 to=agent-3"', "is the agent itself"),
        ('agent-3 = "poison; poison scale=2"', "two acts of poison overlap"),
        ('agent-3 = "replay lag=1; replay lag=2"', "two acts of replay overlap"),
        ('agent-9 = "poison"', "is no agent of this run"),
        ('agent-3 = "equivocate to=agent-8"', "is no agent of this run"),
    ],
)
def test_what_is_no_role_is_named(role: str, word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        parse_run(f"{PLAIN}[adversary.active]\n{role}\n", "run.toml", Path("/"))


@pytest.mark.parametrize(
    "role",
    [
        "poison until=1; poison scale=2 from=2",
        "poison coordinates=0:1; poison scale=2 coordinates=1:3",
        "poison; poison stream=X",
        "repeat lag=1; repeat lag=2",
        "delay ms=1 to=agent-1; delay ms=2 to=agent-2",
    ],
)
def test_acts_of_one_word_that_are_apart_are_taken(role: str) -> None:
    assert len(parse_run(f'{PLAIN}[adversary.active]\nagent-3 = "{role}"\n', "r", Path("/")).adversary.active) == 1


def test_receivers_that_get_nothing_are_refused() -> None:
    """Agent-1 sends x to agents 2, y to agent-3."""
    assert _hard("withhold to=agent-2,agent-3") == [] == _hard("delay ms=1 stream=Y")
    ((key, said),) = _hard("withhold stream=Y to=agent-2")
    assert key == "adversary.active.agent-1" and "receivers without it: 1, must be 0 (agent-2)" in said


def _hard(role: str) -> list[tuple[str, str]]:
    run = parse_run(f'{PLAIN}[adversary.active]\nagent-1 = "{role}"\n', "r", Path("/"))
    return list(hard_failures(run, Topology.from_config(run.graph), Schedule.from_config(run), (None,) * 3))


def test_coordinates_beyond_d_are_refused_where_d_is_known() -> None:
    run = parse_run(f'{PLAIN}[adversary.active]\nagent-1 = "poison coordinates=1:4"\n', "r", Path("/"))
    check_coordinates(run, 4)
    with pytest.raises(ConfigError, match="coordinates end at 4, d = 3"):
        check_coordinates(run, 3)
