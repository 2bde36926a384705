"""``dpgt ledger --what-if``: the agent's own judgement of a run that nobody has begun."""

from __future__ import annotations

import contextlib
import json
import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpgt_node import cli
from dpgt_node.agent.noise import account_for
from dpgt_node.algo.graph import Topology
from dpgt_node.algo.schedule import Schedule
from dpgt_node.config import NodeConfig, NodeTls, Policy, RunConfig, load_run, node_to_toml, run_sha256
from dpgt_node.errors import RefusedError
from dpgt_node.learning.oracle import oracle_and_digest
from dpgt_node.privacy.accountants.registry import CONDITIONAL, SOUND
from dpgt_node.protocol.types import LedgerRow
from dpgt_node.runtime.agent import budget
from dpgt_node.runtime.agent.budget import Request, terms_of
from dpgt_node.runtime.store.ledger import SYSTEM
from dpgt_node.runtime.store.store import Store
from tests.oracles.composition import epsilon_of_mu, mu_of
from tests.runtime.store.histories import RUN
from tests.runtime.store.records import record

K, D, d = 7, 719, 650
Dpgt = Callable[..., tuple[int, str, list[str]]]


@pytest.fixture
def dpgt(capsys: pytest.CaptureFixture[str]) -> Dpgt:
    def run(*arguments: object) -> tuple[int, str, list[str]]:
        capsys.readouterr()
        code = cli.run(["ledger", *map(str, arguments)])
        captured = capsys.readouterr()
        return code, captured.out, captured.err.splitlines()

    return run


def run_file(folder: Path, number: int, **changes: object) -> Path:
    values = {"mechanism": "noise-once", "law": "gaussian", "C": "clip_l2 = 0.5", "delta": 1e-5, "K": K}
    path = folder / f"run{number}.toml"
    path.write_text(RUN.format(number=number, **{**values, **changes}))
    return path


def account(run: RunConfig) -> Any:
    return account_for(run, Topology.from_config(run.graph), Schedule.from_config(run), 0, D, d)


def release(
    store: Store, path: Path, run_id: bytes, through: int = K, data_id: str = "ward 7", shard: bytes = b""
) -> None:
    """Rounds 0..``through`` of the run, charged as its agent would."""
    run = load_run(path)
    costs = account(run)
    store.begin_run(
        run_id, run_sha256(run), "agent-1", terms_of(data_id, run, "agent-1", D, SYSTEM), shard_sha256=shard
    )
    for k in range(through + 1):
        made = record(k, 3)
        rows = [
            LedgerRow(k, r.stream, "noise-once", run.noise.law, 2.0, None, r.sha256, costs.cost_after(k, r.stream))
            for r in made.rows
            if r.stream in costs.charged_streams()
        ]
        store.commit_round(run_id, replace(made, rows=tuple(rows)))


def node_file(folder: Path, state: Path, **changes: Any) -> Path:
    made: dict[str, Any] = {
        "name": "agent-1",
        "run": folder / "run1.toml",
        "listen": "127.0.0.1:0",
        "advertise": None,
        "coordinator": "127.0.0.1:1",
        "state_dir": state,
        "tls": NodeTls(True),
        "data_id": "ward 7",
    }
    path = folder / "node.toml"
    path.write_text(node_to_toml(NodeConfig(**{**made, **changes})))
    return path


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """Two whole runs on one data set."""
    with contextlib.closing(Store(tmp_path / "state", "process")) as store:
        for number in (1, 2):
            release(store, run_file(tmp_path, number), bytes([number]) * 16)
    return tmp_path / "state"


def test_it_foretells_what_the_ledger_says_afterwards(state: Path, tmp_path: Path, dpgt: Dpgt) -> None:
    path = run_file(tmp_path, 3)
    code, out, _ = dpgt(state, "--what-if", path, "--format", "json")
    said = json.loads(out, parse_constant=lambda word: pytest.fail(f"JSON has no {word}"))
    one = account(load_run(path)).total("gdp")
    assert code == 0 and said["agent"] == "agent-1" and said["data_id"] == "ward 7" and said["begun"] is None
    assert (said["samples"], said["dimension"]) == (D, d) and len(said["earlier"]) == 2 and said["policy"] is None
    assert said["epsilon"]["gdp"] == one and said["rounds_that_fit"] == said["rounds"] == K + 1
    exact = epsilon_of_mu(math.sqrt(3) * mu_of(one, 1e-5), 3e-5)
    assert exact * (1 - 1e-9) <= said["after"]["epsilon"] <= exact * (1 + 1e-6) < 3 * one
    assert said["before"]["recipe"].startswith("gdp x2 composed: mu ")
    before = dpgt(state)[1]
    with contextlib.closing(Store(state, "process")) as store:
        release(store, path, bytes([3]) * 16)
    (ward,) = json.loads(dpgt(state, "--format", "json")[1])["data_sets"]
    assert ward["smallest_sound"]["any"] == said["after"] and dpgt(state)[1] != before


def test_the_samples_are_those_of_the_shard_that_the_node_file_names(state: Path, tmp_path: Path, dpgt: Dpgt) -> None:
    """1438 samples for three: the first has one more."""
    path, ring = run_file(tmp_path, 1), "[[0, 1, 0], [0, 0, 1], [1, 0, 0]]"
    path.write_text(path.read_text().replace("agents = 2", "agents = 3").replace("[[0, 1], [1, 0]]", ring))
    for shard, samples in ((None, 480), (1, 480), (2, 479)):
        node = node_file(tmp_path, state, shard=shard)
        said = json.loads(dpgt(state, "--what-if", path, "--node", node, "--format", "json")[1])
        assert said["samples"] == samples, shard


def test_it_says_what_the_agent_would_say(state: Path, tmp_path: Path, dpgt: Dpgt) -> None:
    path = run_file(tmp_path, 3)
    run, one = load_run(path), account(load_run(path)).total("gdp")
    for times, delta_max in ((1.5, None), (2.05, None), (2.2, 1e-5), (9.0, 1e-5), (0.1, 1e-5)):
        policy = Policy(times * one, delta_max)
        node = node_file(tmp_path, state, policy=policy)
        code, out, _ = dpgt(state, "--what-if", path, "--node", node, "--format", "json")
        said = json.loads(out)
        with contextlib.closing(Store(state, "process")) as store:
            charges = store.charges()
        try:
            Request(policy, "ward 7", run, account(run), D, charges, bytes(16)).obey()
            assert (code, said["allowed"], said["shortfall"]) == (0, True, None)
        except RefusedError as error:
            assert (code, said["allowed"]) == (1, False) and str(error).endswith(said["shortfall"])
            assert said["rounds_that_fit"] < K + 1 and said["more_like_it"] == 0
        if said["allowed"]:
            assert 0 <= said["remains"] <= policy.epsilon_max - said["after"]["epsilon"]


def test_how_many_more_fit(state: Path, tmp_path: Path, dpgt: Dpgt) -> None:
    path = run_file(tmp_path, 3)
    mu = mu_of(account(load_run(path)).total("gdp"), 1e-5)
    for many in (3, 4, 12):
        cap = epsilon_of_mu(math.sqrt(many) * mu, 1e-5) * (1 + 1e-6)
        node = node_file(tmp_path, state, policy=Policy(cap, 1e-5, "gdp"))
        code, out, _ = dpgt(state, "--what-if", path, "--node", node, "--format", "json")
        assert code == 0 and json.loads(out)["more_like_it"] == many - 3
    text = dpgt(state, "--what-if", path, "--node", node)[1]
    assert "fits          all 8 rounds" in text and "9 more runs like it would fit" in text
    free = node_file(tmp_path, state, policy=Policy(1e9, 1e-5))
    assert "; 1000 or more runs like it would fit" in dpgt(state, "--what-if", path, "--node", free)[1]


def test_a_run_that_was_begun_counts_once(state: Path, tmp_path: Path, dpgt: Dpgt) -> None:
    path = run_file(tmp_path, 3)
    fresh = json.loads(dpgt(state, "--what-if", path, "--format", "json")[1])
    with contextlib.closing(Store(state, "process")) as store:
        release(store, path, bytes([3]) * 16, through=2)
    begun = json.loads(dpgt(state, "--what-if", path, "--format", "json")[1])
    assert begun["begun"] == (bytes([3]) * 16).hex() and begun["goes_on"]["after"] == fresh["after"]
    assert begun["after"]["epsilon"] > fresh["after"]["epsilon"] and len(begun["earlier"]) == 3
    text = dpgt(state, "--what-if", path)[1]
    assert "rounds 0..2 are released" in text and "if the coordinator goes on with it, it counts once" in text
    assert "if the coordinator starts anew, what was released counts as another run" in text
    cap = (fresh["after"]["epsilon"] + begun["after"]["epsilon"]) / 2
    node = node_file(tmp_path, state, policy=Policy(cap))
    code, out, _ = dpgt(state, "--what-if", path, "--node", node, "--format", "json")
    said = json.loads(out)
    assert code == 1 and not said["allowed"] and said["goes_on"]["rounds_that_fit"] == K + 1 > said["rounds_that_fit"]
    other = node_file(tmp_path, state, policy=Policy(cap), data_id="ward 8")
    code, out, _ = dpgt(state, "--what-if", path, "--node", other)
    assert code == 0 and "of other data: with this [data] id it cannot go on" in out and "counts once" not in out


def test_a_finished_run_is_another_run_as_the_agent_judges_it(state: Path, tmp_path: Path, dpgt: Dpgt) -> None:
    path, run_id = run_file(tmp_path, 3), bytes([3]) * 16
    run, one = load_run(path), account(load_run(path)).total("gdp")
    fresh = json.loads(dpgt(state, "--what-if", path, "--format", "json")[1])
    with contextlib.closing(Store(state, "process")) as store:
        release(store, path, run_id)
        store.finish_run(run_id, np.zeros(3))
        charges = store.charges()
    policy = Policy(fresh["after"]["epsilon"] * 1.001)
    node = node_file(tmp_path, state, policy=policy)
    code, out, _ = dpgt(state, "--what-if", path, "--node", node)
    assert code == 1 and "counts once" not in out and "is finished here and counts as another run" in out
    assert "3 other runs" in out and account(run).total("gdp") == one
    with pytest.raises(RefusedError):
        Request(policy, "ward 7", run, account(run), D, charges, bytes(16)).obey()


def test_the_text_says_each_number_with_its_delta_and_recipe(state: Path, tmp_path: Path, dpgt: Dpgt) -> None:
    path = run_file(tmp_path, 3)
    code, out, err = dpgt(state, "--what-if", path)
    lines = out.splitlines()
    assert (code, err) == (0, [])
    assert lines[0] == f'if history 3 ran to round 7 as agent-1 on data set "ward 7" ({D} samples, d = {d}):'
    assert lines[1].startswith("  this run      epsilon ") and "delta 3e-05 (gdp composed: mu " in lines[1]
    assert lines[2].startswith("  2 other runs  epsilon ") and "delta 3e-05 (gdp x2 composed: mu " in lines[2]
    assert lines[3].startswith("  all together  epsilon ") and "delta 3e-05 (gdp x3 composed: mu " in lines[3]
    assert lines[4] == "  policy        none was given: --node NODE.toml asks the owner's" and len(lines) == 5
    node = node_file(tmp_path, state, policy=Policy(epsilon_max=0.01))
    code, out, _ = dpgt(state, "--what-if", path, "--node", node)
    assert code == 1 and "  fits          no round" in out and "epsilon_max = 0.01 covers no round" in out
    assert "caps nothing" in dpgt(state, "--what-if", path, "--node", node_file(tmp_path, state))[1]
    declared = run_file(tmp_path, 4, law="laplace", C="C = 0.01")
    code, out, _ = dpgt(state, "--what-if", declared, "--node", node_file(tmp_path, state, policy=Policy(8.0)))
    assert code == 1 and "C is declared, not enforced" in out and "  refused       C = 0.01 is declared" in out
    other = node_file(tmp_path, state, data_id="new")
    said = dpgt(state, "--what-if", path, "--node", other)[1]
    assert '"new"' in said and "  0 other runs  no cost" in said


def test_before_a_first_run_the_answer_is_that_of_an_empty_ledger(tmp_path: Path, dpgt: Dpgt) -> None:
    path, state = run_file(tmp_path, 3), tmp_path / "new"
    code, out, err = dpgt(state, "--what-if", path, "--agent", "agent-2", "--format", "json")
    said, one = json.loads(out), account(load_run(path)).total("gdp")
    assert (code, said["agent"], said["data_id"], said["earlier"]) == (0, "agent-2", "default", [])
    assert said["before"] is None and said["after"] == said["alone"] and said["after"]["epsilon"] == one
    assert "holds no ledger yet: this would be the first run" in err[0] and not state.exists()
    cap = node_file(tmp_path, state, policy=Policy(9 * one, 1e-4))
    code, out, _ = dpgt(state, "--what-if", path, "--node", cap)
    deltas = set(re.findall(r"delta ([\d.e-]+)", out))
    assert code == 0 and deltas == {"0.0001"}
    code, _, err = dpgt(state, "--what-if", path)
    assert code == 2 and "--agent: is needed, or --node NODE.toml: there is no ledger yet" in "".join(err)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--agent", "bob"], "--agent: this ledger knows 'agent-1', not 'bob'"),
        (["--data-id", "ward 8"], "--data-id: this ledger knows 'ward 7', not 'ward 8'"),
        (["--node", "{tmp}/none.toml"], "none.toml: cannot read"),
        (["--node", "{tmp}/elsewhere.toml"], "--node: the state_dir of"),
        (["--node", "{tmp}/node.toml", "--agent", "agent-2"], "--agent: --node says 'agent-1', not 'agent-2'"),
        (["--node", "{tmp}/node.toml", "--data-id", "x"], "--data-id: --node says 'ward 7', not 'x'"),
    ],
)
def test_what_does_not_fit_together_is_named(
    state: Path, tmp_path: Path, dpgt: Dpgt, options: list[str], message: str
) -> None:
    node_file(tmp_path, tmp_path / "elsewhere").rename(tmp_path / "elsewhere.toml")
    node_file(tmp_path, state)
    given = [option.format(tmp=tmp_path) for option in options]
    code, out, err = dpgt(state, "--what-if", run_file(tmp_path, 3), *given)
    assert (code, out) == (2, "") and message in "\n".join(err)


def test_what_cannot_be_asked_is_a_usage_error(state: Path, tmp_path: Path, dpgt: Dpgt) -> None:
    path = run_file(tmp_path, 3)
    for options in (["--node", "x"], ["--what-if", path, "--verify"], ["--what-if", path, "--format", "csv"]):
        assert dpgt(state, *options)[0] == 2
    code, _, err = dpgt(state, "--what-if", tmp_path / "none.toml")
    assert code == 2 and "none.toml: cannot read" in err[0]
    code, _, err = dpgt(tmp_path / "empty", "--what-if", path, "--head", "00" * 32)
    assert code == 2 and "no ledger here" in err[0]
    strangers = tmp_path / "strangers.toml"
    strangers.write_text(path.read_text().replace("agents = 2", 'agents = ["ann", "bob"]'))
    code, _, err = dpgt(state, "--what-if", strangers)
    assert code == 2 and "--agent: agent-1 is not in the run, whose agents are ann, bob" in err[0]
    with contextlib.closing(Store(state, "process")) as store:
        release(store, path, bytes([9]) * 16, data_id="other")
    code, _, err = dpgt(state, "--what-if", path)
    assert code == 2 and "--data-id: is needed: this ledger knows 'ward 7', 'other'" in err[0]


def test_a_mutant_that_forgets_earlier_runs_is_noticed(
    state: Path, tmp_path: Path, dpgt: Dpgt, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budget, "spent_on", lambda *_: [])
    with pytest.raises(AssertionError):
        test_it_foretells_what_the_ledger_says_afterwards(state, tmp_path, dpgt)


def test_a_conditional_value_is_never_called_pure_and_the_sound_one_stands_beside_it(
    state: Path, tmp_path: Path, dpgt: Dpgt
) -> None:
    path = run_file(tmp_path, 3, mechanism="published-point", law="laplace", C="clip_l1 = 0.5")
    costs = account(load_run(path))
    name = CONDITIONAL[0]
    for data_id, others in (("new", 0), ("ward 7", 2)):
        node = node_file(tmp_path, state, policy=Policy(1e9, accountant=name), data_id=data_id)
        said = json.loads(dpgt(state, "--what-if", path, "--node", node, "--format", "json")[1])
        assert said["after"]["conditional"] and said["after"]["strength"] == "none" and len(said["earlier"]) == others
        assert "conditional" not in said["sound"] and said["sound"]["epsilon"] >= min(
            cost for one in SOUND if (cost := costs.total(one)) is not None
        )
        text = dpgt(state, "--what-if", path, "--node", node)[1]
        (together,) = [line for line in text.splitlines() if line.startswith("  all together")]
        assert f"{name} (conditional)" in together and "pure" not in together
        assert "a cap on it is no guarantee" in text and "  soundly  " in text
        assert f'accountant = "{name}" is conditional: no proof stands behind its values' in text
    plain = node_file(tmp_path, state, policy=Policy(1e9), data_id="new")
    assert "conditional" not in dpgt(state, "--what-if", path, "--node", plain)[1]


def test_the_same_data_under_another_id_count_together(tmp_path: Path, dpgt: Dpgt) -> None:
    path, state = run_file(tmp_path, 3), tmp_path / "held"
    _, digest = oracle_and_digest(load_run(path), 0)
    with contextlib.closing(Store(state, "process")) as store:
        release(store, run_file(tmp_path, 1), bytes([1]) * 16, shard=digest)
        release(store, run_file(tmp_path, 2), bytes([2]) * 16, shard=b"other" * 6, data_id="ward 8")
    for data_id, also, others in (("new", ["ward 7"], 1), ("ward 8", ["ward 7"], 2), ("ward 7", [], 1)):
        node = node_file(tmp_path, state, policy=Policy(1e9), data_id=data_id)
        said = json.loads(dpgt(state, "--what-if", path, "--node", node, "--format", "json")[1])
        assert (said["also_known_as"], len(said["earlier"])) == (also, others)
        text = dpgt(state, "--what-if", path, "--node", node)[1]
        assert ('(also known as "ward 7"): the data are the same, bit for bit' in text) == bool(also)
