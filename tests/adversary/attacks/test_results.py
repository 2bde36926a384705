"""Results come back as they were; files that are none are named."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from dpgt_node.adversary.attack import Finding, Result
from dpgt_node.adversary.results import ARRAYS_FILE, RESULTS_FILE, load, save, to_json
from dpgt_node.errors import ConfigError

RESULT = Result(
    "gradients",
    "all of it",
    (
        Finding(
            "agent-1",
            "succeeds",
            {"cosine": 1.0, "psnr_db": float("inf"), "rest": None},
            {"cosine": 0.5},
            "why",
            {"links": 7.0},
        ),
    ),
    "eavesdropper on every link (plain)",
    "1 of 4 vectors were not seen",
    {"true": np.ones((2, 3, 3))},
    {"a curve": (np.arange(3.0), np.array([1.0, np.nan, 2.0]))},
)


def test_they_come_back(tmp_path: Path) -> None:
    save(tmp_path / "new", [RESULT, RESULT], {"inversion": "needs torch"})
    (first, second), skipped = load(tmp_path / "new")
    assert skipped == {"inversion": "needs torch"} and first.findings == RESULT.findings
    assert (first.attack, first.summary, first.vantage, first.missing) == (
        RESULT.attack,
        RESULT.summary,
        RESULT.vantage,
        RESULT.missing,
    )
    np.testing.assert_array_equal(second.pictures["true"], RESULT.pictures["true"])
    np.testing.assert_array_equal(second.curves["a curve"][1], RESULT.curves["a curve"][1])


def test_json_holds_no_infinity(tmp_path: Path) -> None:
    text = save(tmp_path, [RESULT]).read_text()
    document = json.loads(text, parse_constant=lambda name: pytest.fail(name))
    assert document == to_json([RESULT])
    assert document["attacks"][0]["findings"][0]["measured"] == {"cosine": 1.0, "psnr_db": "inf", "rest": None}


@pytest.mark.parametrize("spoil", ["absent", "half", "other", "verdict", "arrays", "later"])
def test_what_are_no_results_is_named(tmp_path: Path, spoil: str) -> None:
    path = save(tmp_path, [RESULT])
    if spoil == "absent":
        path.unlink()
    elif spoil == "half":
        path.write_text(path.read_text()[:100])
    elif spoil == "other":
        path.write_text("[]")
    elif spoil == "later":
        path.write_text(path.read_text().replace('"version": 1', '"version": 2'))
    elif spoil == "verdict":
        path.write_text(path.read_text().replace("succeeds", "wins"))
    else:
        (tmp_path / ARRAYS_FILE).write_bytes(b"no arrays")
    with pytest.raises(ConfigError, match="holds no results"):
        load(tmp_path)
    assert RESULTS_FILE == "attacks.json"
