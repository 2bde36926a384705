"""``dpgt export`` and ``dpgt evaluate``: what may be published, what it says, and what is refused."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow
import pytest
from PIL import Image
from pyarrow import parquet
from safetensors.numpy import load_file

from dpgt_node import cli, figures
from dpgt_node.agent.noise import account_for
from dpgt_node.algo.graph import Topology
from dpgt_node.algo.schedule import Schedule
from dpgt_node.cli.results.export import _data_set
from dpgt_node.config import load_run, model, run_sha256, to_toml
from dpgt_node.config.run import parse_document
from dpgt_node.errors import ConfigError
from dpgt_node.learning.data.datasets import load_dataset
from dpgt_node.learning.data.shards import run_dataset
from dpgt_node.learning.oracle import build_oracle
from dpgt_node.learning.published import judge
from dpgt_node.privacy.accountants.registry import ACCOUNTANTS
from dpgt_node.protocol.types import LedgerRow
from dpgt_node.record.released import LAST_FILE, SUM_FILE, read_sum
from dpgt_node.report.publishing.all_runs import all_runs, data_set, more_than_this_run
from dpgt_node.report.publishing.export import Party, Source, no_guarantee, verify
from dpgt_node.runtime.agent.budget import spent_on, terms_of
from dpgt_node.runtime.store.ledger import DECLARED, SYSTEM, TEST, Charge, Terms
from dpgt_node.runtime.store.store import Store
from tests.cli import documents
from tests.learning.cases import run
from tests.oracles.composition import epsilon_of_mu, mu_of
from tests.runtime.store.records import record

KEY = "00112233445566778899"


def made(mechanism: str = "noise-once", **changes: object) -> model.RunConfig:
    found = run("digits", K=12, privacy=model.Privacy(clip_l1=20.0), noise=5.0)
    return replace(found, algorithm=replace(found.algorithm, mechanism=mechanism), **changes)


def simulated(folder: Path, config: model.RunConfig, *options: str) -> Path:
    (folder / "run.toml").write_text(to_toml(config))
    out = folder / "out"
    assert cli.run(["simulate", str(folder / "run.toml"), "--out", str(out), *options]) == 0
    return out


def exported(out: Path, to: Path, *options: str) -> dict:
    assert cli.run(["export", str(out), "--out", str(to), *options]) == 0
    return json.loads((to / "privacy.json").read_text())


def logits(folder: Path, phi: np.ndarray) -> np.ndarray:
    held = load_file(folder / "model.safetensors")
    return phi @ held["weight"].T + held["bias"]


@pytest.mark.parametrize("bias", [0.0, 1.0, 0.3])
def test_the_model_is_the_agent_s_own(tmp_path, bias, capsys):
    config = made(model=model.Model(bias=bias))
    out = simulated(tmp_path, config)
    x = np.load(out / "agents/agent-2/state/x_final.npy")
    capsys.readouterr()
    data = exported(out, tmp_path / "e", "--agent", "agent-2", "--format", "json")
    said = json.loads(capsys.readouterr().out)
    assert said["privacy"] == data and set(said["files"]) == {path.name for path in (tmp_path / "e").iterdir()}
    assert data["release"]["as"] == "final" and data["guarantee"] is True and data["headline"] == "amplified"
    assert [agent["name"] for agent in data["agents"]] == ["agent-1", "agent-2", "agent-3"]
    oracle = build_oracle(config, 1)
    expected = oracle.evaluate(x)
    capsys.readouterr()
    assert cli.run(["evaluate", str(tmp_path / "e"), "--format", "json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["accuracy"] == expected.accuracy_test and said["samples"] == 359
    phi = np.asarray(oracle._x_test)
    np.testing.assert_allclose(logits(tmp_path / "e", phi).argmax(1), oracle._logits(x, phi).argmax(0))


@pytest.mark.parametrize("mechanism", ["paper", "published-point", "public-state", "noise-once"])
def test_average_and_last_are_of_what_was_released(tmp_path, mechanism):
    out = simulated(tmp_path, made(mechanism))
    state = out / "agents/agent-1/state"
    total, last = read_sum(state / SUM_FILE), np.load(state / LAST_FILE)
    for which, x, rounds in (("average", total.mean(), [6, 12]), ("last", last, [12, 12])):
        data = exported(out, tmp_path / which, "--as", which)
        assert data["release"]["rounds"] == rounds
        np.testing.assert_array_equal(load_file(tmp_path / which / "model.safetensors")["weight"].ravel(), x[:640])
    default = exported(out, tmp_path / "default")["release"]["as"]
    assert default == ("final" if mechanism in ("public-state", "noise-once") else "average")


@pytest.mark.parametrize("mechanism", ["paper", "published-point"])
def test_a_private_state_is_refused_with_what_to_do(tmp_path, mechanism, capsys):
    out = simulated(tmp_path, made(mechanism))
    capsys.readouterr()
    assert cli.run(["export", str(out), "--out", str(tmp_path / "e"), "--as", "final"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f'under "{mechanism}" depends on private data beyond what was released' in line and "--as average" in line
    assert not (tmp_path / "e").exists()


@pytest.mark.parametrize(
    ("config", "options", "why"),
    [
        (made(), ("--test-keystream", KEY), "test keystream"),
        (made(noise=model.Noise(None, None, multiplier=0.0)), (), "switched off"),
        (made(privacy=model.Privacy()), (), "no sound accountant"),
    ],
    ids=["test keystream", "no noise", "no clip"],
)
def test_where_nothing_is_promised_the_statement_says_so(tmp_path, config, options, why):
    config = replace(config, evaluate=model.Evaluation(metrics="study"))
    data = exported(simulated(tmp_path, config, *options), tmp_path / "e")
    assert data["guarantee"] is False and why in data["no_guarantee_because"]
    text = (tmp_path / "e/PRIVACY.md").read_text()
    assert f"**No guarantee: {data['no_guarantee_because']}.**" in text and "Differential privacy for" not in text
    assert any("received private states" in note for note in data["notes"])
    listed = {word for word in ("| agent |", *ACCOUNTANTS, "delta", "laplace", "epsilon", "clip") if word in text}
    assert not listed if why == "switched off" else {"| agent |", "lemma5", "gdp", "laplace"} <= listed


def test_a_claim_on_a_declared_C_begins_with_its_condition(tmp_path, capsys):
    out = simulated(tmp_path, made(privacy=model.Privacy(C=2.0)))
    exported(out, tmp_path / "e")
    claim = (tmp_path / "e/PRIVACY.md").read_text().split("\n\n")[1]
    assert claim.startswith("**Only if no gradient exceeds the declared C = 2: differential privacy for one replaced")
    said = capsys.readouterr().out
    assert claim.replace("**", "") in said and "**" not in said, "Markdown is for the file"


def test_the_statement_names_what_matters(tmp_path):
    out = simulated(tmp_path, made())
    data = exported(out, tmp_path / "e")
    text = (tmp_path / "e/PRIVACY.md").read_text()
    for part in (
        data["run"]["run_id"],
        data["run"]["run_sha256"],
        "noise-once",
        "13 releases (vectors charged) an agent in rounds 0..12 of 0..12",
        "delta 1e-05",
        "agent-3",
        "made to be as hard as the training samples of digits",
        *("replace-one", "enforced", figures.epsilon(data["agents"][0]["epsilon"]["tight"])),
    ):
        assert part in text
    assert set(data["files"]) == {"model.safetensors", "run.toml"}
    assert {p.name for p in (tmp_path / "e").iterdir()} == {*data["files"], "privacy.json", "PRIVACY.md"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{out}", "--out", "{tmp}/full"], "--out: {tmp}/full is not empty"),
        (["{out}", "--out", "{tmp}/e", "--agent", "bob"], "--agent: bob is not in the run, whose agents are agent-1"),
        (["{tmp}/full", "--out", "{tmp}/e"], "neither a run's output folder (no run.toml) nor an agent's state"),
        (["{tmp}/begun", "--out", "{tmp}/e"], "has no summary.json: the run has not ended"),
        (["{tmp}/torn", "--out", "{tmp}/e", "--as", "last"], "x_released.sum: torn"),
        (["{tmp}/bare", "--out", "{tmp}/e", "--as", "last"], "no x of agent-1 is here"),
    ],
)
def test_bad_exports_are_one_line(tmp_path, arguments, message, capsys):
    out = simulated(tmp_path, made("paper"))
    (tmp_path / "full").mkdir()
    (tmp_path / "full/x").write_text("")
    for name in ("begun", "torn", "bare"):
        shutil.copytree(out, tmp_path / name)
    (tmp_path / "begun/summary.json").unlink()
    torn = tmp_path / "torn/agents/agent-1/state" / SUM_FILE
    torn.write_bytes(torn.read_bytes()[:-8])
    shutil.rmtree(tmp_path / "bare/agents")
    capsys.readouterr()
    assert cli.run(["export", *(a.format(out=out, tmp=tmp_path) for a in arguments)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message.format(tmp=tmp_path) in line
    assert not list(tmp_path.glob(".e.*")) and not (tmp_path / "e").exists()


def test_bad_evaluations_are_one_line(tmp_path, capsys):
    out = simulated(tmp_path, made())
    exported(out, tmp_path / "e")
    rng = np.random.default_rng(0)
    for name, p, labels, tests in (("wide", 65, 10, 5), ("labels", 64, 12, 5)):
        x, y = rng.random((20, p)), np.arange(20) % labels
        np.savez(tmp_path / f"{name}.npz", x_train=x, y_train=y, x_test=x[:tests], y_test=y[11 : 11 + tests])
    cases = [
        ([str(out)], "holds no exported model"),
        ([str(tmp_path / "e"), "--data", f"npz:{tmp_path}/wide.npz"], "has 65 numbers a sample, the model takes 64"),
        ([str(tmp_path / "e"), "--data", f"npz:{tmp_path}/labels.npz"], "has label 11, the model 10 classes"),
        ([str(tmp_path / "e"), "--data", "npz:/nowhere.npz"], "line: --data: cannot read /nowhere.npz: No such"),
    ]
    (tmp_path / "broken").mkdir()
    for file in (tmp_path / "e").iterdir():
        (tmp_path / "broken" / file.name).write_bytes(
            file.read_bytes()[: 100 if file.suffix == ".safetensors" else None]
        )
    cases.append(([str(tmp_path / "broken")], "model.safetensors: does not match"))
    config = made()
    with pytest.raises(ConfigError, match=r"cannot be read as the model of its run\.toml"):
        judge(tmp_path / "broken", config, run_dataset(config), "test")
    for arguments, message in cases:
        capsys.readouterr()
        assert cli.run(["evaluate", *arguments]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert message in line


def test_tables_and_folders_of_one_s_own(tmp_path, capsys):
    out = simulated(tmp_path, made())
    exported(out, tmp_path / "e")
    data = load_dataset("digits")
    x, y = data.real_test(slice(0, 50)), data.y_test[:50]
    names = [*(f"p{i}" for i in range(64)), "digit"]
    np.savez(tmp_path / "t.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    np.savetxt(
        tmp_path / "t.csv", np.column_stack([x, y]), fmt="%.17g", delimiter=",", header=",".join(names), comments=""
    )
    parquet.write_table(pyarrow.table(dict(zip(names, np.column_stack([x, y]).T, strict=True))), tmp_path / "t.parquet")
    rng = np.random.default_rng(0)
    for label in ("0", "1"):
        folder = tmp_path / "pictures" / "test" / label
        folder.mkdir(parents=True)
        (tmp_path / "pictures" / "train" / label).mkdir(parents=True)
        for part in ("test", "train"):
            for i in range(3):
                pixels = rng.integers(256, size=(8, 8)).astype(np.uint8)
                Image.fromarray(pixels).save(tmp_path / "pictures" / part / label / f"{i}.png")

    def judged(*arguments: str) -> dict:
        capsys.readouterr()
        assert cli.run(["evaluate", str(tmp_path / "e"), "--format", "json", "--data", *arguments]) == 0
        return json.loads(capsys.readouterr().out)

    expected = judged(f"npz:{tmp_path}/t.npz")
    assert expected["samples"] == 50
    for kind in ("csv", "parquet"):
        for part in ("test", "train"):
            found = judged(f"{kind}:{tmp_path}/t.{kind}", "--label", "digit", "--part", part)
            assert (found["samples"], found["accuracy"]) == (50, expected["accuracy"])
            assert found["loss"] == pytest.approx(expected["loss"], rel=1e-12)
    for name in ("t.npz", "t.csv", "t.parquet"):  # plain paths, as predict takes them
        label = [] if name == "t.npz" else ["--label", "digit"]
        assert judged(str(tmp_path / name), *label)["accuracy"] == expected["accuracy"]
    assert judged(f"folder:{tmp_path}/pictures")["samples"] == judged(str(tmp_path / "pictures"))["samples"] == 6
    table = f"csv:{tmp_path}/t.csv"
    for arguments, message in (
        (["--data", table], f"--label: {table} is a table: name the column with the labels"),
        (["--data", table, "--label", "x"], "has no column 'x'"),
        (["--data", f"npz:{tmp_path}/t.npz", "--label", "digit"], "--label: names a column of a table"),
        (["--data", str(tmp_path / "t.txt")], "t.txt here; data are .csv"),
        (["--label", "digit"], "--label: names a column of a table"),
    ):
        assert cli.run(["evaluate", str(tmp_path / "e"), *arguments]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert message in line


def test_class_folders_are_known_by_their_names(tmp_path, capsys):
    """Other pictures may hold fewer classes, or one: their labels are those of the model, whatever their order here."""
    shades = {"ant": 10, "bee": 120, "cat": 250}
    for part in ("data/train", "data/test", "two/test", "one/test", "strange/test"):
        for name, shade in shades.items():
            here = {"one": ["cat"], "two": ["bee", "cat"], "strange": ["bee", "cow"]}.get(part.split("/")[0], [*shades])
            if name in here:
                (tmp_path / part / name).mkdir(parents=True)
                for i in range(4):
                    Image.new("L", (2, 2), shade).save(tmp_path / part / name / f"{i}.png")
    (tmp_path / "strange/test/cow").mkdir()
    for folder in ("two", "one", "strange"):
        shutil.copytree(tmp_path / folder / "test", tmp_path / folder / "train")
    config = made(data=model.Data(f"folder:{tmp_path}/data"), noise=run("digits", noise=0.0).noise)
    config = replace(
        config, scheme=replace(config.scheme, gamma=1.0, samples=1), algorithm=replace(config.algorithm, iterations=300)
    )
    exported(simulated(tmp_path, config), tmp_path / "e")

    def said(folder: str) -> tuple[int, str]:
        capsys.readouterr()
        code = cli.run(["evaluate", str(tmp_path / "e"), "--data", f"folder:{tmp_path}/{folder}"])
        return code, "".join(capsys.readouterr())

    whole = said("data")
    assert whole[0] == 0 and "accuracy 100.00 %" in whole[1]
    for folder, samples in (("two", 8), ("one", 4)):
        code, line = said(folder)
        assert code == 0 and f"{samples} samples" in line and "accuracy 100.00 %" in line
    code, line = said("strange")
    assert code == 2 and line.endswith("--data: has a class 'cow', the model's 3 classes are ant, bee, cat\n")


def test_a_model_of_a_table_knows_its_label(tmp_path, capsys):
    rng = np.random.default_rng(0)
    rows = np.column_stack([rng.standard_normal((60, 2)), np.arange(60) % 2])
    for name, kept in (("own", 60), ("other", 10)):
        np.savetxt(tmp_path / f"{name}.csv", rows[:kept], fmt="%.17g", delimiter=",", header="a,b,label", comments="")
    config = made(
        data=model.Data(f"csv:{tmp_path}/own.csv", params={"label": "label", "test_fraction": 0.2, "classes": 2})
    )
    exported(simulated(tmp_path, config), tmp_path / "e")
    capsys.readouterr()
    assert cli.run(["evaluate", str(tmp_path / "e")]) == 2
    assert "--data: is needed: the model does not say where its run's data lie" in capsys.readouterr().err
    other = tmp_path / "other.toml"
    other.write_text((tmp_path / "run.toml").read_text().replace("iterations = 12", "iterations = 13"))
    assert cli.run(["evaluate", str(tmp_path / "e"), "--run", str(other)]) == 2
    assert "other.toml is another run than that of" in capsys.readouterr().err
    assert cli.run(["evaluate", str(tmp_path / "e"), "--run", str(other), "--data", "digits"]) == 2
    own = ["--run", str(tmp_path / "run.toml")]
    for arguments, samples in ((own, 12), (["--data", f"csv:{tmp_path}/other.csv"], 10)):
        capsys.readouterr()
        assert cli.run(["evaluate", str(tmp_path / "e"), "--format", "json", *arguments]) == 0
        assert json.loads(capsys.readouterr().out)["samples"] == samples


@pytest.mark.parametrize("kind", ["csv", "npz", "folder"])
def test_nothing_published_says_where_anybody_s_data_lie(tmp_path, kind):
    secret = tmp_path / "ward-of-dr-jones"
    secret.mkdir()
    rng = np.random.default_rng(0)
    x, y, params = rng.standard_normal((60, 4)), np.arange(60) % 2, {}
    if kind == "csv":
        rows = np.column_stack([x, y])
        for name in ("hiv", "later"):
            np.savetxt(secret / name, rows, fmt="%.17g", delimiter=",", header="a,b,c,d,label", comments="")
        params = {"label": "label", "test": str(secret / "later"), "classes": 2}
    elif kind == "npz":
        np.savez(secret / "hiv", x_train=x, y_train=y, x_test=x[:4], y_test=y[:4])
        (secret / "hiv.npz").rename(secret / "hiv")
    else:
        for part in ("train", "test"):
            for label in ("0", "1"):
                (secret / "hiv" / part / label).mkdir(parents=True)
                for i in range(6):
                    Image.new("L", (2, 2), 40 * i).save(secret / "hiv" / part / label / f"{i}.png")
    config = made(data=model.Data(f"{kind}:{secret}/hiv", params=params))
    config = replace(config, scheme=replace(config.scheme, samples=1))
    out = simulated(tmp_path, config)
    data = exported(out, tmp_path / "e")
    for path in (tmp_path / "e").iterdir():
        held = path.read_bytes()
        assert not [word for word in ("ward-of-dr-jones", str(tmp_path), "hiv", "later") if word.encode() in held], path
    assert data["run"]["run_sha256"] == run_sha256(load_run(out / "run.toml"))
    published = load_run(tmp_path / "e/run.toml")
    assert published.data.dataset == f"{kind}:not-published"
    assert cli.run(["evaluate", str(tmp_path / "e"), "--run", str(tmp_path / "run.toml")]) == 0


def test_a_mutant_that_publishes_the_run_file_as_it_is_is_noticed(tmp_path, monkeypatch):
    monkeypatch.setattr("dpgt_node.cli.results.export.without_paths", lambda config: config)
    with pytest.raises(AssertionError, match="ward-of-dr-jones"):
        test_nothing_published_says_where_anybody_s_data_lie(tmp_path, "npz")


def test_a_mutant_that_forgets_the_other_runs_is_noticed(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "dpgt_node.runtime.agent.budget.spent_on", lambda data_id, charges: spent_on(data_id, charges)[-1:]
    )
    with pytest.raises(AssertionError):
        test_the_statement_says_what_all_runs_on_the_data_have_cost(tmp_path)


def owner(folder: Path, runs: int, name: str = "agent-1", data_id: str = "ward 7", spoil: str = "") -> Path:
    """The state directory of an owner after ``runs`` runs, the last of which is in ``folder``/run.toml."""
    config = made(noise=run("digits", noise=40.0).noise, privacy=model.Privacy(clip_l2=1.0))
    config = replace(config, noise=replace(config.noise, law="gaussian"))
    state = folder / "state"
    with contextlib.closing(Store(state, "process")) as store:
        for number in range(runs):
            last = replace(config, name=f"run {number}")
            account = account_for(last, Topology.from_config(last.graph), Schedule.from_config(last), 0, 479, 650)
            keystream = TEST if spoil == str(number) else SYSTEM
            run_id = bytes([number + 1]) * 16
            store.begin_run(run_id, run_sha256(last), name, terms_of(data_id, last, name, 479, keystream))
            for k in range(last.K + 1):
                made_up = record(k, 650)
                cost, y = account.cost_after(k, "Y"), made_up.rows[1]
                row = LedgerRow(k, "Y", "noise-once", "gaussian", 40.0, None, y.sha256, cost)
                store.commit_round(run_id, replace(made_up, rows=(row,)))
    (folder / "run.toml").write_text(to_toml(last))
    return state


def test_the_statement_says_what_all_runs_on_the_data_have_cost(tmp_path):
    """The run's own epsilon and the data set's, the other runs by their ids, and how it was added up."""
    state = owner(tmp_path, 3)
    data = exported(state, tmp_path / "e", "--run", str(tmp_path / "run.toml"), "--as", "last")
    own = data["agents"][0]["epsilon"]["gdp"]
    mu = mu_of(own, 1e-5)
    total = epsilon_of_mu(mu * 3**0.5, 3e-5)
    known = data["data_sets"]["agent-1"]
    assert known["epsilon"] == pytest.approx(total, rel=1e-6) and known["delta"] == 3e-5
    assert known["runs"] == [bytes([n]).hex() * 16 for n in (1, 2, 3)] and known["runs"][-1] == data["run"]["run_id"]
    text = (tmp_path / "e/PRIVACY.md").read_text()
    said = f"epsilon {figures.epsilon(known['epsilon'])} (strong), delta 3e-05 (gdp x3 composed: mu {3**0.5 * mu:.4g})"
    claim = text.split("\n\n")[1]
    assert f"epsilon {figures.epsilon(own)} (strong), delta 1e-05 (accountant gdp).**" in claim
    assert f"**That is this run alone. All runs on the data: of agent-1 {said}.**" in claim
    others = f"{'01' * 16}, {'02' * 16}"
    assert f'- agent-1, data set "ward 7": this run and 2 other runs ({others}): {said}.' in text
    assert "runs on the same data from another are not in it" in text
    verify(tmp_path / "e")
    (tmp_path / "one").mkdir()
    only, run_file = owner(tmp_path / "one", 1), str(tmp_path / "one/run.toml")
    alone = exported(only, tmp_path / "f", "--run", run_file, "--as", "last")
    text = (tmp_path / "f/PRIVACY.md").read_text()
    assert "this run and no other in its ledger: epsilon" in text and "this run alone" not in text
    assert alone["data_sets"]["agent-1"]["epsilon"] == own


def test_one_declared_run_makes_the_total_of_the_data_conditional():
    enforced = Terms("ward 7", 1e-5, "one sample replaced", 500)
    declared = replace(enforced, adjacency=enforced.adjacency + DECLARED, samples=400)
    elsewhere = replace(declared, data_id="ward 8", samples=3)

    def charge(number: int, terms: Terms) -> Charge:
        return Charge(bytes([number]) * 16, terms, "noise-once", "gaussian", 9, {"tight": 0.25})

    charges = [charge(1, enforced), charge(2, declared), charge(3, elsewhere)]
    known = _data_set("ward 7", charges)
    assert known.declared and known.samples == 500 and known.runs == ("01" * 16, "02" * 16)
    assert known.total.epsilon == 0.5
    said = all_runs({"run": {"run_id": "02" * 16}, "data_sets": {"agent-1": data_set(known)}})
    assert any("epsilon 0.5" in line and "only where every declared C holds" in line for line in said)
    assert not _data_set("ward 7", charges[:1]).declared


def test_one_agent_without_a_ledger_leaves_the_claim_open():
    """Where all ledgers say that there was no other run, nothing is added; one that is not here could know of more."""
    charge = Charge(bytes([2]) * 16, Terms("ward 7", 1e-5, "one sample replaced", 500), "paper", "laplace", 9, {})
    alone = data_set(_data_set("ward 7", [charge]))
    assert more_than_this_run({"data_sets": {"agent-1": alone}}) == ""
    said = more_than_this_run({"data_sets": {"agent-1": alone, "agent-2": None}})
    assert "other runs on the same data may have cost more" in said


def test_one_agent_with_an_infinite_epsilon_is_no_guarantee():
    """A finite one beside it protects its own samples alone."""

    def source(*costs: float) -> Source:
        parties = tuple(Party(f"agent-{i}", dict.fromkeys(ACCOUNTANTS) | {"tight": one}) for i, one in enumerate(costs))
        return Source("00" * 16, 12, None, parties, samples=479)

    assert no_guarantee(made(), source(0.5, 0.25)) is None
    assert no_guarantee(made(), source(0.5, math.inf)) == "every sound epsilon is infinite"


def test_a_run_without_an_epsilon_spoils_the_total_of_the_data(tmp_path):
    state = owner(tmp_path, 2, spoil="0")
    exported(state, tmp_path / "e", "--run", str(tmp_path / "run.toml"), "--as", "last")
    claim = (tmp_path / "e/PRIVACY.md").read_text().split("\n\n")[1]
    assert "Differential privacy for one replaced sample" in claim
    assert f"All runs on the data: of agent-1 no finite epsilon, because run {'01' * 6} has none.**" in claim


def test_where_no_ledger_is_at_hand_other_runs_are_not_denied(tmp_path):
    """A folder of simulate, or of a coordinator, knows of no other run."""
    data = exported(simulated(tmp_path, made()), tmp_path / "e")
    assert data["data_sets"] == {"agent-1": None, "agent-2": None, "agent-3": None}
    text = (tmp_path / "e/PRIVACY.md").read_text()
    assert "That is this run alone: other runs on the same data may have cost more." in text.split("\n\n")[1]
    assert "- agent-1, agent-2, agent-3: not known here, where no ledger of theirs is. There may be other runs" in text
    assert "`dpgt ledger STATE_DIR`" in text


def _flip(folder: Path) -> None:
    held = bytearray((folder / "model.safetensors").read_bytes())
    held[-1] ^= 1
    (folder / "model.safetensors").write_bytes(held)


def _replaced(name: str, old: str, new: str):
    def change(folder: Path) -> None:
        text = (folder / name).read_text()
        assert old in text
        (folder / name).write_text(text.replace(old, new))

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_flip, "model.safetensors: does not match the SHA-256 in PRIVACY.md"),
        (_replaced("privacy.json", '"C": 40', '"C": 41'), "privacy.json: does not match the SHA-256 in PRIVACY.md"),
        (
            _replaced("PRIVACY.md", "delta 1e-05", "delta 1e-09"),
            "PRIVACY.md: does not match the figures in privacy.json",
        ),
        (lambda folder: None, None),
        (_replaced("run.toml", "[data]", "[data] "), "run.toml: does not match the SHA-256 in PRIVACY.md"),
        (lambda folder: (folder / "privacy.json").unlink(), "privacy.json: cannot be read"),
        (lambda folder: (folder / "notes.txt").write_text("mine"), None),
    ],
    ids=["model", "privacy.json", "PRIVACY.md", "nothing", "run.toml", "absent", "a file besides"],
)
def test_an_export_that_was_changed_is_not_judged(tmp_path, change, message, capsys):
    exported(simulated(tmp_path, made()), tmp_path / "e")
    change(tmp_path / "e")
    capsys.readouterr()
    assert cli.run(["evaluate", str(tmp_path / "e")]) == (0 if message is None else 2)
    said = capsys.readouterr().err.splitlines()
    assert len(said) == (message is not None)
    assert message is None or message in said[0]


def test_exports_of_other_versions_are_judged_and_guarded(tmp_path):
    """Earlier ones name no hash of privacy.json; later ones may say the same in other words."""
    exported(simulated(tmp_path, made()), tmp_path / "e")
    folder = tmp_path / "e"
    text = (folder / "PRIVACY.md").read_text()
    earlier, _, rest = text.rpartition("privacy.json: SHA-256")
    assert rest.endswith("\n")
    (folder / "PRIVACY.md").write_text(earlier)
    verify(folder)
    held = (folder / "privacy.json").read_text()
    (folder / "privacy.json").write_text(held.replace('"rounds": [', '"rounds": [ '))
    verify(folder)  # its figures are the same
    data = json.loads(held)
    data["agents"][0]["epsilon"]["tight"] /= 2
    (folder / "privacy.json").write_text(json.dumps(data))
    with pytest.raises(ConfigError, match="does not match the figures"):
        verify(folder)
    data = json.loads(held)
    data["versions"]["dpgt_node"] = "99"
    (folder / "privacy.json").write_text(json.dumps(data))
    digest = hashlib.sha256((folder / "privacy.json").read_bytes()).hexdigest()
    (folder / "PRIVACY.md").write_text(f"Other words.\nprivacy.json: SHA-256 {digest}\n")
    verify(folder)
    _flip(folder)
    with pytest.raises(ConfigError, match=r"model\.safetensors: does not match"):
        verify(folder)


@pytest.mark.e2e
def test_agents_and_their_own_states_export_alike(tmp_path, capsys):
    (tmp_path / "run.toml").write_text(to_toml(made("published-point")))
    out = tmp_path / "out"
    assert cli.run(["launch", str(tmp_path / "run.toml"), "--out", str(out)]) == 0
    whole = exported(out, tmp_path / "a", "--agent", "agent-3")
    state = out / "agents/agent-3/state"
    own = exported(state, tmp_path / "b", "--run", str(out / "run.toml"))
    assert whole["release"] == own["release"] and whole["release"]["rounds"] == [6, 12]
    assert [agent["data_id"] for agent in whole["agents"]] == ["default"] * 3
    assert own["agents"] == whole["agents"][2:] and own["data_sets"]["agent-3"] == whole["data_sets"]["agent-3"]
    assert all(len(known["runs"]) == 1 for known in whole["data_sets"].values())
    other = tmp_path / "other.toml"
    other.write_text((out / "run.toml").read_text().replace("iterations = 12", "iterations = 13"))
    capsys.readouterr()
    assert cli.run(["export", str(state), "--run", str(other), "--out", str(tmp_path / "c")]) == 2
    assert "is another run (sha256" in capsys.readouterr().err
    keys = [tmp_path / "key", tmp_path / "other.key"]
    for number, key in enumerate(keys):
        key.write_bytes(bytes([65 + number]) * 32)
        key.chmod(0o600)
    for folder in (state, out):
        asked = ["export", str(folder), "--agent", "agent-3", "--out", str(tmp_path / f"signed-{folder.name}"), "--key"]
        assert cli.run([*asked, str(keys[0])]) == (1 if folder == state else 0)
        assert ("nobody signed this ledger" in capsys.readouterr().err) is (folder == state)
        assert cli.run(["ledger", str(state), "--key", str(keys[0]), "--sign"]) == 0
        assert cli.run([*asked, str(keys[1])]) == 1
        assert "signed with another key" in capsys.readouterr().err
    assert sorted(p.name for p in tmp_path.glob("signed-*")) == ["signed-out"]


def test_a_run_without_samples_publishes_its_x(tmp_path, capsys):
    config = parse_document(documents.quadratic(2, 4), "run.toml", tmp_path)
    out = simulated(tmp_path, config)
    data = exported(out, tmp_path / "e", "--as", "last")
    held = load_file(tmp_path / "e/model.safetensors")
    assert list(held) == ["x"] and data["model"]["parameters"] == held["x"].size
    assert "there is no model: the file holds x alone" in (tmp_path / "e/PRIVACY.md").read_text()
    capsys.readouterr()
    assert cli.run(["evaluate", str(tmp_path / "e")]) == 2
    assert "a formula without samples" in capsys.readouterr().err
    assert cli.run(["export", str(out), "--out", str(tmp_path / "f"), "--key", str(tmp_path / "key")]) == 2
    assert "--key: no ledger of agent-1 is in" in capsys.readouterr().err


def test_runs_on_the_same_data_under_another_id_stand_in_the_statement():
    charges = [
        Charge(
            bytes([i]) * 16, Terms(name, 1e-5, "replace-one", 9, SYSTEM, seal), "noise-once", "gaussian", 3, {"gdp": 1}
        )
        for i, (name, seal) in enumerate([("ward", "p"), ("renamed", "p"), ("other", "q")])
    ]
    known = data_set(_data_set("ward", charges))
    assert known["also_known_as"] == ("renamed",) and len(known["runs"]) == 2 and 1 < known["epsilon"] < 2
    text = "\n".join(all_runs({"run": {"run_id": known["runs"][0]}, "data_sets": {"agent-1": known}}))
    assert 'data set "ward" (also known as "renamed"): this run and 1 other run' in text
