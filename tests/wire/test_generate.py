"""The committed protobuf code is what the .proto files give, and a stale file would be found."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from dpgt_node.wire import generate


def test_generated_code_is_up_to_date() -> None:
    assert generate.stale() == []
    assert generate.main(["--check"]) == 0


@pytest.mark.parametrize("damage", ["changed", "missing", "extra"])
def test_stale_code_is_found(
    tmp_path: Path, damage: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tmp_path / "gen"
    shutil.copytree(generate.GEN, copy, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(generate, "GEN", copy)
    monkeypatch.setattr(generate, "stale", lambda: real(copy))
    assert generate.main(["--check"]) == 0
    victim = copy / "dpgt" / "v1" / "agent_pb2.pyi"
    match damage:
        case "changed":
            victim.write_text(victim.read_text() + "\n")
        case "missing":
            victim.unlink()
        case "extra":
            victim = victim.with_name("old_pb2.py")
            victim.write_text("")
    assert generate.main(["--check"]) == 1
    assert str(victim) in capsys.readouterr().out


real = generate.stale


def test_usage() -> None:
    assert generate.main(["--chek"]) == 2


def test_every_field_says_its_unit_or_range() -> None:
    """One comment a field, in the .proto files, where operators of other implementations look."""
    field = re.compile(r"^ +(?:optional |repeated )?[\w.<>, ]+ (\w+) = \d+;(.*)$")
    for path in sorted((generate.ROOT / "proto" / "dpgt" / "v1").glob("*.proto")):
        above = ""
        for line in path.read_text().splitlines():
            match = field.match(line)
            if match and not line.strip().startswith("//"):
                comment = match.group(2).strip() or above
                assert comment.startswith("//"), f"{path.name}: {line}"
            above = line.strip()
