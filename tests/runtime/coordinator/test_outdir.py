"""The output folder: fresh, continued, or refused without a trace."""

from __future__ import annotations

import errno
import fcntl
import json
from dataclasses import replace
from pathlib import Path

import pytest

from dpgt_node.config import load_run, run_sha256, with_overrides
from dpgt_node.errors import ConfigError
from dpgt_node.runtime.coordinator import outdir
from tests.runtime.cluster import make_run

RUN = make_run()
OTHER = replace(RUN, scheme=replace(RUN.scheme, alpha=0.5))


def prepare(path: Path, keystream: str | None = None, run=RUN) -> outdir.OutDir:
    return outdir.prepare(path, run, source="command line", keystream=keystream)


def refusal(path: Path, keystream: str | None = None, run=RUN) -> str:
    before = sorted(path.rglob("*")) if path.is_dir() else None
    with pytest.raises(ConfigError) as caught:
        prepare(path, keystream, run)
    assert before is None or sorted(path.rglob("*")) == before, "a refused folder is left as it is"
    (problem,) = caught.value.problems
    return str(problem)


def test_a_fresh_folder_holds_a_durable_id_and_the_resolved_run(tmp_path: Path) -> None:
    out = prepare(tmp_path / "a" / "b")
    assert not out.resumed and len(out.run_id) == 16
    assert run_sha256(load_run(out.path / "run.toml")) == run_sha256(RUN)
    assert json.loads((out.path / "run_id.json").read_text())["run_id"] == out.run_id.hex()
    assert prepare(tmp_path / "c").run_id != out.run_id


def test_a_run_whose_file_nobody_could_read_again_is_refused_before_it_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outdir, "MAX_FILE_BYTES", 100)
    assert "graph: the run file with all weights" in refusal(tmp_path / "o")
    assert not (tmp_path / "o").exists()


def test_the_same_run_goes_on_under_its_id(tmp_path: Path) -> None:
    out = prepare(tmp_path / "o")
    again = prepare(tmp_path / "o")
    assert again.resumed and again.run_id == out.run_id
    (tmp_path / "o" / "summary.json").write_text("{ torn")
    with pytest.raises(ConfigError):
        prepare(tmp_path / "o")


def test_a_folder_begun_without_tls_names_the_option_that_did_it(tmp_path: Path) -> None:
    prepare(tmp_path / "o", run=with_overrides(RUN, channel="plain"))
    (tmp_path / "o" / "metrics.csv").write_text("")
    said = refusal(tmp_path / "o", run=with_overrides(RUN, channel="mtls"))
    assert 'runtime.channel: "mtls" here, "plain" there (--insecure makes it plain)' in said
    assert "--insecure" not in refusal(tmp_path / "o", run=with_overrides(OTHER, channel="plain"))


def test_anything_else_is_refused(tmp_path: Path) -> None:
    prepare(tmp_path / "o")
    for name in ("samples.json", "metrics.csv", "simulation.npz", "notes.txt"):  # a run that began, or somebody's own
        (tmp_path / "o" / name).write_text("")
        assert "holds another run" in refusal(tmp_path / "o", run=OTHER)
        (tmp_path / "o" / name).unlink()
    (tmp_path / "o" / "ledger_heads.bin").write_bytes(bytes(64) + b"\1")
    assert "holds another run" in refusal(tmp_path / "o", run=OTHER)
    (tmp_path / "n").mkdir()
    (tmp_path / "n" / "notes.txt").write_text("mine")
    assert "is not empty and holds no run" in refusal(tmp_path / "n")
    (tmp_path / "f").write_text("a file")
    assert "cannot be used" in refusal(tmp_path / "f")
    assert "cannot be used" in refusal(tmp_path / "f" / "below")


def test_a_run_that_never_began_holds_nothing(tmp_path: Path) -> None:
    """Refused before its first round: what is mended, or something else, may have the folder, under another id."""
    first = prepare(tmp_path / "o")
    outdir.keep_paused(first.path, True)
    outdir.write_address(first.path, "127.0.0.1:7", None)
    (first.path / "ledger_heads.bin").write_bytes(bytes(192))
    (first.path / "coordinator.log").write_text("who refused, and why")
    assert prepare(tmp_path / "o").run_id == first.run_id
    with outdir.hold(first, source="command line"):  # it still waits for its agents
        assert "in use by another coordinator" in refusal(tmp_path / "o", run=OTHER)
    second = prepare(tmp_path / "o", run=OTHER)
    assert not second.resumed and second.run_id != first.run_id and not outdir.is_paused(second.path)
    assert run_sha256(load_run(second.path / "run.toml")) == run_sha256(OTHER)
    assert sorted(path.name for path in second.path.iterdir()) == ["coordinator.log", "run.toml", "run_id.json"]
    with pytest.raises(ConfigError, match="taken by another run"):
        outdir.hold(first, source="command line")


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"run_id": 3}', '{"run_id": "xx", "run_sha256": "0"}'])
def test_a_damaged_identity_is_no_fresh_start(tmp_path: Path, text: str) -> None:
    """A second id would be a second set of releases."""
    out = prepare(tmp_path / "o")
    (out.path / "run_id.json").write_text(text)
    assert "cannot be used" in refusal(out.path)


@pytest.mark.parametrize(("first", "then"), [("test", None), (None, "test")])
def test_a_run_keeps_the_keystream_it_began_with(tmp_path: Path, first: str | None, then: str | None) -> None:
    prepare(tmp_path / "o", first)
    assert "--test-keystream" in refusal(tmp_path / "o", then)
    assert prepare(tmp_path / "o", first).resumed


def test_hold_keeps_a_second_coordinator_out_and_lets_go(tmp_path: Path) -> None:
    out = prepare(tmp_path / "o")
    with outdir.hold(out, source="command line"), pytest.raises(ConfigError, match="another coordinator"):
        outdir.hold(out, source="command line")
    outdir.hold(out, source="command line").close()
    with pytest.raises(ConfigError, match="taken by another run just now"):
        outdir.hold(replace(out, run_id=bytes(16)), source="command line")


def test_claim_keeps_a_second_launch_out_and_blames_a_bad_path_on_its_giver(tmp_path: Path) -> None:
    real, link = tmp_path / "o", tmp_path / "link"
    link.symlink_to(real)
    with outdir.claim(real):
        for path in (real, link, tmp_path / "." / "o" / ".." / "o"):
            with pytest.raises(ConfigError, match="in use by another run"), outdir.claim(path):
                pass
    with outdir.claim(link), pytest.raises(ConfigError, match="in use by another run"), outdir.claim(real):
        pass
    with (
        pytest.raises(ConfigError, match=r"--out: /dev/null/x cannot be used: Not a directory"),
        outdir.claim(Path("/dev/null/x")),
    ):
        pass


def test_the_current_folder_is_claimed_without_a_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "empty"
    folder.mkdir()
    monkeypatch.chdir(folder)
    with outdir.claim(Path(".")):
        assert list(folder.iterdir()) == [] and [path.name for path in tmp_path.iterdir()] == ["empty"]
        assert not prepare(Path(".")).resumed


def test_a_start_killed_between_id_and_run_file_is_mended(tmp_path: Path) -> None:
    out = prepare(tmp_path / "o")
    (out.path / "run.toml").unlink()
    assert prepare(out.path).run_id == out.run_id
    assert run_sha256(load_run(out.path / "run.toml")) == run_sha256(RUN)


def test_what_the_disk_refuses_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught, outdir.blamed(tmp_path):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert str(caught.value) == f"{tmp_path}: No space left on device: free some space, or choose another place"


def test_the_address_file_is_read_back(tmp_path: Path) -> None:
    assert outdir.read_address(tmp_path) is None
    outdir.write_address(tmp_path, "127.0.0.1:7", tmp_path / "tls")
    found = outdir.read_address(tmp_path)
    assert found is not None and found.address == "127.0.0.1:7" and found.tls == tmp_path / "tls"
    outdir.write_address(tmp_path, "[::1]:7", None)
    assert json.loads((tmp_path / "coordinator.json").read_text())["tls"] is None


@pytest.mark.parametrize("text", ["", "[]", '{"address": "a:1"}', '{"address": "a:1", "tls": null, "pid": "x"}'])
def test_a_damaged_address_file_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "coordinator.json").write_text(text)
    with pytest.raises(ConfigError, match=r"coordinator\.json"):
        outdir.read_address(tmp_path)


def test_who_only_looks_whether_a_coordinator_is_there_keeps_none_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = prepare(tmp_path)
    looks = (tmp_path / "run_id.json").open("rb")
    fcntl.flock(looks, fcntl.LOCK_SH)
    monkeypatch.setattr(outdir.time, "sleep", lambda _: looks.close())
    assert not outdir.in_use(tmp_path)
    with outdir.hold(out, source="command line"):
        assert looks.closed and outdir.in_use(tmp_path)
    assert not outdir.in_use(tmp_path) and not outdir.in_use(tmp_path / "nowhere")
