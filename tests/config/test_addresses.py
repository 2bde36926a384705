"""HOST:PORT as people write it, and text files of other editors."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpgt_node.config import demo_toml, load_run, parse_address, parse_run
from dpgt_node.errors import ConfigError


@pytest.mark.parametrize(
    "text", ["http://host:1", "https://host:7700", "dns:///h:1", "h:1/", "h:1/path", "u@h:1", "grpc://[::1]:7"]
)
def test_an_address_is_no_url(text: str) -> None:
    with pytest.raises(ValueError, match="must be HOST:PORT: no scheme, no path"):
        parse_address(text)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_any_editor_may_have_written_a_run_file(encoding: str, newline: str, tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_bytes(demo_toml().replace("\n", newline).encode(encoding))
    assert load_run(path) == parse_run(demo_toml(), "demo", tmp_path)


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16-le"])
def test_what_is_no_text_is_said(encoding: str, tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_bytes('name = "é"'.encode(encoding))
    with pytest.raises(ConfigError, match=r"run\.toml: (is not UTF-8 text|not valid TOML)"):
        load_run(path)
