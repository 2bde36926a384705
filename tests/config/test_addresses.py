"""HOST:PORT as people write it, and text files of other editors."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpgt_node.cli.pki.shared import with_port
from dpgt_node.config import demo_toml, load_run, parse_address, parse_run
from dpgt_node.errors import ConfigError


@pytest.mark.parametrize(
    "text", ["http://host:1", "https://host:7700", "dns:///h:1", "h:1/", "h:1/path", "u@h:1", "grpc://[::1]:7"]
)
def test_an_address_is_no_url(text: str) -> None:
    with pytest.raises(ValueError, match="must be HOST:PORT: no scheme, no path"):
        parse_address(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("h:1?x", "nothing else"),
        ("h:1#x", "nothing else"),
        ("h: 1", "the port must be 0 to 65535"),
        (" h:1", "not a host name"),
        ("h:1:2", "with one port"),
        ("h:+1", "the port must be 0 to 65535"),
        ("h:", "the port must be 0 to 65535"),
        ("::1:7700", r"in brackets, \[ADDRESS\]:PORT"),
        ("[2001:db8::1%eth0]:1", "only a link-local address"),
        ("[::1%lo]:1", "only a link-local address"),
        ("[fe80::1%a b]:1", "only a link-local address"),
        ("[fe80::1]:1", r"needs its interface, \[ADDRESS%INTERFACE\]:PORT"),
        ("fe80::1%eth0:1", r"in brackets, \[ADDRESS\]:PORT"),
    ],
)
def test_advice_is_about_the_mistake(text: str, words: str) -> None:
    """Advice about IPv6 is for what looks like IPv6."""
    with pytest.raises(ValueError, match=words):
        parse_address(text)
    if "::" not in text:
        assert with_port(text, 7701) == text, "a mistake is shown as it was written"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
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


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (" = ", "\u00a0= ", r"at line 1, column 5\); column 5 of that line holds U\+00A0 \(NO-BREAK SPACE\)"),
        ("name", "na\u00adme", r"U\+00AD \(SOFT HYPHEN\): type it anew"),
        ("[algorithm]", "\u200b[algorithm]", r"U\+200B \(ZERO WIDTH SPACE\)"),
        ("[algorithm]", "\0[algorithm]", r"U\+0000 \(a control character\)"),
        ('"digits"', "\u201cdigits\u201d", r"U\+201C \(LEFT DOUBLE QUOTATION MARK\)"),
        ("iterations = ", "iterations = \u2212", r"U\+2212 \(MINUS SIGN\)"),
        ("name", "<<<<<<< HEAD\nname", "a merge was not finished there"),
        ("name", "```toml\nname", "belongs to a page"),
        ("iterations = ", "iterations = True #", "true and false are written small"),
        ("iterations = ", "iterations = 0,5 #", "a decimal point is a point"),
        ('"digits"', '"npz:C:\\data.npz"', "write a path with / or in single quotes"),
        ("iterations = ", "iterations : ", "have = between them"),
    ],
)
def test_a_broken_line_says_what_cannot_be_seen(old: str, new: str, words: str, tmp_path: Path) -> None:
    text = demo_toml()
    text = text[text.index("name =") :].replace(old, new, 1)
    with pytest.raises(ConfigError, match=words):
        parse_run(text, "run.toml", tmp_path)
