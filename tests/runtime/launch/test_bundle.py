"""``dpgt doctor --bundle``: what an issue needs, and nothing of anybody's data, keys or paths."""

from __future__ import annotations

import io
import json
import logging
import zipfile
from pathlib import Path

import pytest
import tomli_w

from dpgt_node.cli import run as dpgt
from dpgt_node.errors import ExitCode
from dpgt_node.runtime.launch import bundle
from dpgt_node.runtime.trust.tls import CertificateAuthority
from tests.cli import documents

COLUMN, LABEL, VALUE, FOLDER, HOST = "zyklonhex", "Qwertzism", "71.1337", "geheimnisraum", "spital.zuerichberg"


def planted(folder: Path) -> tuple[Path, set[str]]:
    """An agent's host with something private in every file that there can be; NODE.toml, and what must not leave."""
    home = folder / FOLDER
    state, tls = home / "state", home / "tls"
    for made in (state, tls):
        made.mkdir(parents=True)
    CertificateAuthority.create().write_folder(tls, "dpgt:agent:agent-1", ["127.0.0.1"])
    (home / f"{COLUMN}.csv").write_text(f"{COLUMN},label\n{VALUE},{LABEL}\n")
    (tls / "keylog.txt").write_text("CLIENT_RANDOM " + "cafe" * 16)
    (state / "owner.key").write_text("feedface" * 8)
    (state / "truth.npz").write_bytes(VALUE.encode())
    run = documents.quadratic(2, 3)
    run["data"] = {
        "dataset": f"csv:{home}/{COLUMN}.csv", "label": "label", "classes": [LABEL, "and"], "columns": [COLUMN],
        "bounds": {COLUMN: [0.0, 71.1337]},
    }  # fmt: skip
    run["scheme"]["samples"] = 1
    (home / "run.toml").write_text(tomli_w.dumps(run))
    node = {
        "name": "agent-1", "run": "run.toml", "listen": f"{HOST}:7701", "coordinator": f"{HOST}:7700",
        "state_dir": "state", "data": {"path": f"{COLUMN}.csv"}, "policy": {"epsilon_max": 3.0},
        "tls": {"ca": "tls/ca.pem", "cert": "tls/cert.pem", "key": "tls/key.pem"},
    }  # fmt: skip
    (home / "NODE.toml").write_text(tomli_w.dumps(node))
    secrets = {COLUMN, LABEL, VALUE, FOLDER, HOST.split(".")[0], HOST.split(".")[1], "cafecafe", "feedface"}
    key = (tls / "key.pem").read_text().splitlines()[1]
    said = (
        "2026-01-02 03:04:05,678 INFO dpgt_node.runtime.agent.node: agent-1 listens on 10.1.2.3:7701, round 17 of 20\n"
        f"2026-01-02 03:04:05,679 INFO dpgt_node.progress: round 17, accuracy {VALUE}, {COLUMN} of {home}\n"
        f"2026-01-02 03:04:06,000 WARNING dpgt_node.check: {home}/{COLUMN}.csv: line 7: {COLUMN} = {VALUE} is outside\n"
        f"dpgt node: {COLUMN}.csv: label: '{LABEL}' is no class; value -{VALUE}e3 at {HOST}:7700 {'feedface' * 8}\n"
        f"print of a plug-in: {VALUE} {key} CLIENT_RANDOM {'cafe' * 16}\n"
        f'  File "/{FOLDER}/lib/dpgt_node/runtime/calls.py", line 12, in serve\n    {COLUMN} = "{LABEL}"\n'
        f'{{"time": "2026", "level": "INFO", "message": "{LABEL} {VALUE}"}}\n'
    )
    (home / "node.log").write_text(said)
    return home / "NODE.toml", secrets | {key[:24], "71.13", "10.1.2.3"}


def members(path: Path) -> dict[str, str]:
    with zipfile.ZipFile(io.BytesIO(path.read_bytes())) as file:
        return {name.removeprefix("dpgt-bundle/"): file.read(name).decode() for name in file.namelist()}


def leaked(path: Path, secrets: set[str]) -> set[str]:
    everything = "\n".join([*members(path), *members(path).values()]).lower()
    return {secret for secret in secrets if secret.lower() in everything}


@pytest.fixture(autouse=True)
def logging_as_it_was() -> object:
    yield
    logging.basicConfig(force=True)


def test_a_bundle_says_what_happened_and_gives_nothing_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    node, secrets = planted(tmp_path)
    out = tmp_path / "bundle.zip"
    assert dpgt(["doctor", str(node), "--bundle", str(out)]) in (ExitCode.DONE, ExitCode.CHECK_FAILED)
    assert "read it before you attach it" in capsys.readouterr().err
    assert leaked(out, secrets) == set()
    held = members(out)
    assert set(held) == {"README.txt", "versions.json", "checks.json", "node.json", "run.json", "logs/1.txt"}
    assert json.loads(held["versions.json"])["protocol"] >= 1
    run, config = json.loads(held["run.json"]), json.loads(held["node.json"])
    assert run["algorithm"]["iterations"] == 3 and run["scheme"]["kind"] == "S2" and run["graph"]["agents"] == 2
    assert config["policy"] == {"epsilon_max": 3.0} and config["data"] == {"path": bundle.HIDDEN}
    log = held["logs/1.txt"]
    assert "INFO dpgt_node.runtime.agent.node: agent-1 listens on" in log and "round 17 of 20" in log
    assert 'File "dpgt_node/runtime/calls.py", line 12, in serve' in log and "is outside" in log

    # The search finds each of them when the filter lets it through.
    monkeypatch.setattr(bundle.Filter, "_token", lambda _self, token, _numbers: token)
    monkeypatch.setattr(bundle, "configuration", lambda document, _: dict(document))
    other = tmp_path / "other.zip"
    dpgt(["doctor", str(node), "--bundle", str(other)])
    assert leaked(other, secrets) == secrets


def test_words_of_the_package_that_name_somebody_s_data_do_not_stay() -> None:
    passing = bundle.Filter(bundle.private_words({"data": {"classes": ["finished", "lost"], "columns": {"noise": 1}}}))
    assert passing.text("finished: the noise was lost", numbers=True) == "… the … was …"
    assert bundle.Filter().text("finished: the noise was lost", numbers=True) == "finished: the noise was lost"


def test_names_of_agents_are_somebody_s() -> None:
    passing = bundle.Filter(bundle.private_words({"graph": {"agents": ["owner", "agent-2"]}}))
    assert passing.text("owner waits for agent-2", numbers=True) == "… waits for agent-2"
    assert "V" not in bundle.vocabulary()
    assert passing.text("V is no class of k", numbers=True) == "… is no class of k", "a letter may be a label"
    files = {"data": {"dataset": "csv:/x/finished.csv", "path": "/y/lost.csv"}}
    assert bundle.Filter(bundle.private_words(files)).text("finished, lost", numbers=True) == "…, …"
    assert bundle.Filter(bundle.private_words(files)).text("Finished", numbers=True) == "…"


def test_a_file_that_cannot_be_read_makes_a_bundle_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out, log = tmp_path / f"{COLUMN}.toml", tmp_path / "a.zip", tmp_path / "more.log"
    path.write_text(tomli_w.dumps(documents.quadratic(2, 3) | {"noise": {"scale_zeta": -1.0, COLUMN: 1}}))
    log.write_text("x" * bundle.LOG_BYTES + f"\n{LABEL} ended\n")
    assert dpgt(["doctor", str(path), "--bundle", str(out), "--log", str(log)]) == ExitCode.CONFIG
    held = members(out)
    assert "noise.scale_zeta" in held["problem.txt"] and "unknown key" in held["problem.txt"]
    assert held["logs/1.txt"] == "… ended\n" and leaked(out, {COLUMN, LABEL}) == set()
    for arguments, said in (
        (["--bundle", str(out)], "is there already"),
        (["--bundle", str(tmp_path / "no" / "a.zip")], "cannot be written"),
        (["--log", str(log)], "goes with --bundle"),
    ):
        before = out.read_bytes()
        assert dpgt(["doctor", str(path), *arguments]) == ExitCode.CONFIG
        assert said in capsys.readouterr().err and out.read_bytes() == before


def test_every_word_of_the_filter_is_the_package_s() -> None:
    assert {"p_m", "S2", "clip_l1", "rounds"} <= bundle.vocabulary()
    assert not {COLUMN, LABEL.lower(), FOLDER} & bundle.vocabulary()
