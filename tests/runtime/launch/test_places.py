"""Where processes of a launch live: as a file between two of its own processes, and as arguments of a node."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpgt_node.cli.running.node import _dialled
from dpgt_node.errors import ConfigError
from dpgt_node.runtime.launch.places import Place, read_places, write_places

PLACES = {
    "coordinator": Place(listen="10.77.0.4:7000"),
    "a": Place("127.0.0.1:7100", "127.0.0.1:7000", {"b": "127.0.0.1:7201"}, ("nsenter", "--net=/proc/1/fd/7", "--")),
    "b": Place(),
}


def test_places_come_back_as_they_were(tmp_path: Path) -> None:
    write_places(tmp_path / "places.json", PLACES)
    assert read_places(tmp_path / "places.json") == PLACES


@pytest.mark.parametrize("text", [None, "", "[]", '{"a": 1}', '{"a": {"enter": []}, "b": {"host": 1}}', "\x00"])
def test_what_is_no_file_of_places_is_named(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "places.json").write_text(text)
    with pytest.raises(ConfigError, match=r"places\.json: cannot be used as places of processes"):
        read_places(tmp_path / "places.json")


def test_peers_are_dialled_where_the_command_line_says() -> None:
    assert _dialled(("b=127.0.0.1:1", "c=host:2"), ("a", "b", "c")) == {"b": "127.0.0.1:1", "c": "host:2"}


@pytest.mark.parametrize("given", [("d=127.0.0.1:1",), ("b",), ("b=",), ("b=1",), ("b=x:1", "b=y:2"), ("=x:1",)])
def test_what_is_no_peer_or_no_address_is_named(given: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match="command line: --dial: "):
        _dialled(given, ("a", "b", "c"))
