"""Active roles: what a role's string means, what is refused, and that an honest run file stays the one that it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpgt_node.config import canonical_json, parse_run, run_sha256, to_toml
from dpgt_node.config.roles import NOBODY, Role, parse_role
from dpgt_node.errors import ConfigError
from tests.runtime.cluster import RUN

PLAIN = RUN.format(K=3)


def test_roles_are_read_and_written_and_are_part_of_the_runs_identity() -> None:
    text = PLAIN + '[adversary.active]\nagent-3 = "poison   scale=-1 from=2 until=9"\n'
    text += 'agent-1 = "trap; delay ms=5 stream=Y to=agent-2"\n'
    run = parse_run(text, "run.toml", Path("/"))
    assert parse_run(to_toml(run), "again", Path("/")) == run
    assert run.adversary.active.of("agent-3") == (Role("poison", "Y", scale=-1.0, first=2, last=9),)
    assert run.adversary.active.of("agent-1") == (Role("trap", "X"), Role("delay", "Y", ms=5.0, to=("agent-2",)))
    assert run.adversary.active.of("agent-2") == ()
    plain = parse_run(PLAIN, "run.toml", Path("/"))
    assert plain.adversary.active == NOBODY and NOBODY.warnings() == () and "active" not in canonical_json(plain)
    assert run_sha256(run) != run_sha256(plain)
    said = "ACTIVE ADVERSARIES: agent-3 = poison scale=-1 from=2 until=9, agent-1 = trap; delay "
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
        ('agent-9 = "poison"', "is no agent of this run"),
        ('agent-3 = "equivocate to=agent-8"', "is no agent of this run"),
    ],
)
def test_what_is_no_role_is_named(role: str, word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        parse_run(f"{PLAIN}[adversary.active]\n{role}\n", "run.toml", Path("/"))
