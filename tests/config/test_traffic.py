"""[traffic]: what it takes, what it refuses, and that runs without it keep their hash."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dpgt_node.config import RunConfig, canonical_json, load_run, parse_run, run_sha256, to_toml, with_overrides
from dpgt_node.config.privacy.traffic import OPEN, Traffic
from dpgt_node.config.run import demo_toml
from dpgt_node.errors import ConfigError


def read(table: str, channel: str = "mtls") -> RunConfig:
    text = demo_toml().replace('channel = "mtls"', f'channel = "{channel}"')
    return parse_run(f"{text}\n[traffic]\n{table}", "run.toml", Path("/"))


def test_what_it_takes_comes_back_and_changes_the_hash() -> None:
    plain = parse_run(demo_toml(), "run.toml", Path("/"))
    assert plain.traffic == OPEN and not plain.traffic.on and "traffic" not in canonical_json(plain)
    assert run_sha256(read("")) == run_sha256(plain) == run_sha256(read('cover = "none"'))
    run = read('pad_to = 4096\ncover = "all-pairs"\ninterval_ms = 50')
    assert run.traffic == Traffic(4096, "all-pairs", 50.0) and run.traffic.alike and run.traffic.covered
    assert parse_run(to_toml(run), "run.toml", Path("/")) == run and run_sha256(run) != run_sha256(plain)
    assert read("interval_ms = 50").traffic.on and not read("interval_ms = 50").traffic.alike


@pytest.mark.parametrize(
    ("pad_to", "nbytes", "padded"),
    [(None, 7, 7), (64, 1, 64), (64, 64, 64), (64, 65, 128), ("power-of-two", 64, 64), ("power-of-two", 65, 128)],
)
def test_what_bytes_become(pad_to: int | str | None, nbytes: int, padded: int) -> None:
    assert Traffic(pad_to).padded(nbytes) == padded


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ("pad_to = 63", "traffic.pad_to: must be >= 64"),
        ('pad_to = "much"', 'traffic.pad_to: must be a number of bytes or "power-of-two", not "much"'),
        ('cover = "all"', 'traffic.cover: must be one of "none", "all-pairs"'),
        ("interval_ms = 0.5", "traffic.interval_ms: must be >= 1"),
        ("interval_ms = 4000", "traffic.interval_ms: must be at most 3000, a 20th of runtime.round_timeout"),
        ("hide = true", "traffic.hide: unknown key"),
    ],
)
def test_what_it_refuses(table: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(table)
    assert words in str(caught.value) and len(caught.value.problems) == 1


def test_a_channel_that_anybody_reads_hides_nothing() -> None:
    words = "padding, cover and ticks hide nothing on a channel that anybody can read"
    for table in ("pad_to = 64", 'cover = "all-pairs"', "interval_ms = 20"):
        with pytest.raises(ConfigError) as caught:
            read(table, "plain")
        assert f"traffic: {words}" in str(caught.value)
        with pytest.raises(ConfigError, match=words):
            with_overrides(read(table), channel="plain")
    assert with_overrides(replace(read(""), traffic=OPEN), channel="plain").runtime.channel == "plain"


def test_the_demo_hides_nothing() -> None:
    assert load_run(Path(__file__).parents[2] / "examples" / "demo.toml").traffic == OPEN
