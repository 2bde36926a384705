"""``dpgt experiment``: what it says, and what it refuses before anything runs."""

from __future__ import annotations

import json

import pytest

TINY = ("--dataset", "digits", "--iterations", 3, "--seeds", 1, "--processes", 1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("fig9", "--out", "o"), "no family is called fig9: fig2"),
        (("fig3",), "--out: is missing"),
        (("fig3", "o"), "o: give the folder as --out DIR"),
        (("fig3", "--out", "o", "--scheduler", "tcp://a:1", "--processes", 2), "--scheduler has its own workers"),
        (("fig3", "--out", "o", "--dataset", "digitz", "--processes", 1), "data.dataset"),
        (("fig3", "--out", "o", "--dataset", "digits", "--model", "soft", "--processes", 1), "model.name"),
        (("fig2", "--out", "o", "--dataset", "digits", "--iterations", 30, "--processes", 1), "dpgt-paper-S1-p0.1-K30"),
        (("fig3", "--out", "o", "--dataset", "digits", "--device", "cuda", "--processes", 1), "cuda computes torch"),
        (("status", "nowhere"), "nowhere holds no experiment"),
        (("status",), "of which folder? dpgt experiment status DIR"),
        (("fig3", "--out", "o", "--dataset", "npz:a.npz"), "--dataset: cannot read a.npz: No such file"),
        (("fig3", "--out", "o", "--dataset", "csv:a.csv"), "--dataset: a table needs more keys than its path"),
        (("fig4", "--out", "o", "--method", "dpgt", "--budget", 8), "--method, --budget: only ours has it"),
    ],
)
def test_bad_input_is_a_message_before_anything_runs(dpgt, tmp_path, arguments, message):
    code, _, err = dpgt("experiment", *arguments)
    assert code == 2 and message in err
    assert not (tmp_path / "o" / "runs").exists()


def test_a_family_its_status_and_its_end(dpgt, tmp_path):
    code, out, _ = dpgt("experiment", "fig3", "--out", "o", *TINY)
    assert code == 0
    assert "9 runs to do" in out and "9/9" in out and "ETA" in out and "Page: o/index.html" in out
    assert (tmp_path / "o" / "index.html").exists()
    assert dpgt("experiment", "status", "o")[1].splitlines() == ["fig3: 9 of 9 runs"]
    told = json.loads(dpgt("experiment", "status", "o", "--format", "json")[1])
    assert told == {"families": {"fig3": {"done": 9, "of": 9}}, "missing": [], "failed": {}, "not_shown": 0}
    assert "runs to do" not in dpgt("experiment", "fig3", "--out", "o", *TINY)[1]
    other = dpgt("experiment", "fig3", "--out", "o", *TINY, "--iterations", 2)[1]  # the last of an option counts
    assert "more runs are in this folder and not on its page" in " ".join(other.split())
    page = (tmp_path / "o" / "index.html").read_text()
    assert "Shown are the settings that were asked for last: digits; softmax; K = 2; 1 seed." in page
    assert "asked for last: digits; softmax; K = 2; 1 seed." in (tmp_path / "o" / "CLAIMS.md").read_text()
    assert "more runs are in this folder" in page and "more runs are" in dpgt("experiment", "status", "o")[1]


def test_what_is_not_shown_is_named(dpgt, tmp_path):
    """A curve that is refused, and a method that has no epsilon."""
    tiny = ("--dataset", "digits", "--seeds", 1, "--processes", 1)
    code, out, _ = dpgt("experiment", "fig4", "--out", "o", "--iterations", 20, *tiny)
    assert code == 0 and "Not shown: fig4: S1, p = 0.1: refused: scheme.a1: " in out
    share = (
        "--method",
        "gt-saga",
        "--method",
        "central",
        "--budget",
        1,
        "--agents",
        5,
        "--partition",
        "iid",
        "--epsilon",
        1,
    )
    code, out, _ = dpgt("experiment", "ours", "--out", "p", "--iterations", 3, *share, *tiny)
    assert code == 0 and "Not shown: ours: gt-saga: draws no noise, so it has no epsilon" in out
    assert "2 runs to do\n" in out and "1 run to do now: the best of each cell, for every seed" in out
    assert (
        "central | 3 | 2 | " in (claims := (tmp_path / "p" / "CLAIMS.md").read_text()) and "| all its data |" in claims
    )


def test_a_failed_run_ends_in_exit_code_1(dpgt, monkeypatch):
    from dpgt_node.experiments.families import conduct

    def broken(*arguments):
        raise OSError("the disk is full")

    monkeypatch.setattr(conduct, "carry_out", broken)
    code, out, err = dpgt("experiment", "fig3", "--out", "o", *TINY)
    assert code == 1 and "9 runs failed twice" in err and "OSError: the disk is full" in err
    assert out.count("to be tried once more") == 9 and "and 4 more: dpgt experiment status o" in err
    assert dpgt("experiment", "status", "o")[1].count("failed: ") == 9


def test_an_interrupted_command_leaves_a_page_of_what_there_is(dpgt, tmp_path, monkeypatch):
    from dpgt_node.experiments.families import conduct

    real, done = conduct.carry_out, []

    def interrupted(*arguments):
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(arguments)
        return real(*arguments)

    monkeypatch.setattr(conduct, "carry_out", interrupted)
    code, _, err = dpgt("experiment", "fig3", "--out", "o", *TINY)
    said = ["dpgt experiment: interrupted", "dpgt experiment: go on with the same command and --out o"]
    assert code == 5 and err.splitlines() == said
    assert "7 of its 9 runs are not there" in (tmp_path / "o" / "index.html").read_text()
    assert dpgt("experiment", "status", "o")[1].splitlines() == ["fig3: 2 of 9 runs"]
