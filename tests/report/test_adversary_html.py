"""The adversary section of report.html: what attacks found, offline, escaped, and damage by name."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dpgt_node.adversary.attack import Finding, Result, Verdict
from dpgt_node.adversary.results import save
from dpgt_node.config import to_toml
from dpgt_node.errors import ConfigError
from dpgt_node.record.metrics import MetricsStore
from dpgt_node.record.summary import write_summary
from dpgt_node.report import privacy_html
from dpgt_node.report.adversary_html import ROWS_MAX
from dpgt_node.report.html import build_report
from tests.report.page import Page, reaches_out
from tests.report.synthetic import digits_run, rows_of, summary_of

HOSTILE = "<script>alert(1)</script>&\"'"


def results(pictures: int = 2) -> list[Result]:
    rng = np.random.default_rng(1)
    x = np.arange(5.0)
    return [
        Result(
            "gradients",
            "cosine 0.9987 (predicted 0.9991)",
            (
                Finding("agent-1", "succeeds", {"cosine": 0.9987, "rms": None}, {"cosine": 0.9991}, "round 3 missing"),
                Finding("agent-2", "fails", {"cosine": float("inf")}, {}),
            ),
            "eavesdropper on every link (plain)",
            "4 of 402 vectors were not seen",
            curves={
                "agent-1: cosine, measured": (x, x / 7),
                "agent-1: cosine, predicted": (x, x / 8),
                "agent-2: cosine, measured": (x, np.full(5, np.nan)),
            },
        ),
        Result(
            HOSTILE,
            HOSTILE,
            (Finding(HOSTILE, "clean", {HOSTILE: 1.0}, {}, HOSTILE, {HOSTILE: 7.125}),),
            HOSTILE,
            HOSTILE,
            pictures={f"{HOSTILE} {i}": rng.random((3, 8, 8)) for i in range(pictures)},
            curves={HOSTILE: (x, x)},
        ),
    ]


def page(folder: Path, found: list[Result] | None, skipped: dict[str, str] | None = None) -> Page:
    run = digits_run()
    rows = rows_of(run)
    (folder / "run.toml").write_text(to_toml(run))
    with MetricsStore(folder) as store:
        store.append(rows)
    write_summary(folder, summary_of(run, rows))
    if found is not None:
        save(folder / "adversary", found, skipped)
    return Page(build_report(folder).read_text(encoding="utf-8"))


def test_what_attacks_found_is_a_section_of_its_own(tmp_path: Path) -> None:
    shown = page(tmp_path, results(), {"membership": f"needs {HOSTILE}"})
    assert shown.of("h2") == ["Curves", "Graphs", "Privacy", "Adversary", "Agents", "Run file"]
    said = "proves nothing about the next one, and nothing is guaranteed."
    assert said in shown.words(), "Lemma 5 is no guarantee"
    assert shown.of("th").count("true") == 1 and "7.125" in shown.of("td"), "beside one attack alone"
    words = shown.words()
    for piece in (
        "Seen by eavesdropper on every link (plain); missing: 4 of 402 vectors were not seen.",
        "cosine 0.9987 (predicted 0.9991)",
        "agent-1: succeeds",
        "round 3 missing",
        "Not run: 1",
        f"membership: needs {HOSTILE}",
        f"{HOSTILE}: clean",
    ):
        assert piece in words, piece
    assert "0.9987" in shown.of("td") and "0.9991" in shown.of("td") and "inf" in shown.of("td")
    assert "script" not in shown.tags
    images = [value for tag, name, value in shown.attributes if (tag, name) == ("img", "src")]
    assert len(images) == 1 and images[0].startswith("data:image/png;base64,")
    assert [found for found in reaches_out(shown) if not found.startswith(("<img>", "img src=data:image/png"))] == []
    policies = [value for tag, name, value in shown.attributes if (tag, name) == ("meta", "content")]
    assert "default-src 'none'; style-src 'unsafe-inline'; img-src data:" in policies
    assert "adversary0c0" in shown.source and "adversary0c1" not in shown.source
    assert build_report(tmp_path).read_text() == shown.source, "equal inputs give equal bytes"


def test_a_run_that_nobody_attacked_has_no_such_section_and_loads_no_pictures(tmp_path: Path) -> None:
    shown = page(tmp_path, None)
    assert "Adversary" not in shown.of("h2") and "img-src" not in shown.source
    assert reaches_out(shown) == []


def test_what_does_not_fit_is_counted(tmp_path: Path) -> None:
    shown = page(tmp_path, results(ROWS_MAX + 3))
    assert "3 more rows of pictures are in attacks.npz." in shown.words()


@pytest.mark.parametrize("what", ["torn", "no list", "another verdict", "no arrays", "fewer arrays"])
def test_damage_is_named(tmp_path: Path, what: str) -> None:
    page(tmp_path, results())
    path = tmp_path / "adversary" / "attacks.json"
    document = json.loads(path.read_text())
    if what == "torn":
        path.write_text(path.read_text()[:50])
    elif what == "no list":
        path.write_text('{"attacks": 3, "skipped": {}}')
    elif what == "another verdict":
        del document["attacks"][0]["findings"][0]["verdict"]
        path.write_text(json.dumps(document))
    elif what == "no arrays":
        path.with_suffix(".npz").unlink()
    else:
        np.savez(path.with_suffix(".npz"), x=np.zeros(1))
    with pytest.raises(ConfigError, match=r"attacks\.(json|npz).*no results of attacks"):
        build_report(tmp_path)


def test_a_study_beside_the_run_is_not_counted_as_the_run(tmp_path: Path) -> None:
    """Attacks on other noise stand in the first screen with their setting, and never in its count."""

    def found(name: str, verdict: Verdict) -> Result:
        return Result(name, "s", (Finding("agent-1", verdict, {}, {}),), "a", "")

    shown = page(
        tmp_path,
        [
            found("gradients, without noise", "succeeds"),
            found("labels, without noise", "partly"),
            found("traffic, this run over mTLS", "fails"),
            found("labels, this run over mTLS", "not measured"),
        ],
    )
    assert "0 of 1 attacks succeed, 1 not measured" in shown.of("dd")
    assert "this run over mTLS 0 of 1; without noise 2 of 2: gradients, labels" in shown.of("dd")
    assert 'class="tile bad"><dt>What an eavesdropper' not in shown.source.replace("\n", "")


def test_what_shadow_runs_foretell_is_on_the_roc_s_own_chart_and_agents_come_after_all_together(tmp_path: Path) -> None:
    x, y = np.arange(6) / 5, np.array([0.0, 0.2, 0.6, 0.7, 0.9, 1.0])
    curves = {
        f"{who}: ROC{what}": (x, y)
        for who in ("agent-1", "agent-2", "")
        for what in ("", ", expected of simulated runs", ", the most that the guarantee allows")
    }
    shown = page(tmp_path, [Result("lira", "AUC", (Finding("agent-1", "fails", {}, {}),), "a", "", curves=curves)])
    titles = [title for title in shown.of("h3") if "ROC" in title]
    assert titles == ["lira: ROC", "lira: ROC at few false alarms", "agent-1: ROC", "agent-2: ROC"]
    assert shown.source.count("<title>expected</title>") == 3
    assert shown.source.index("Each agent by itself: 2 charts") < shown.source.index("agent-1: ROC</h3>")
    assert shown.of("li").count("expected of simulated runs") == 4


def test_the_drawn_roc_curve_is_the_data(tmp_path: Path) -> None:
    x, y = np.arange(6) / 5, np.array([0.0, 0.2, 0.6, 0.7, 0.9, 1.0])
    found = Finding("agent-1", "partly", {"auc": 0.68, "auc_low": 0.6, "auc_high": 0.75}, {"auc": 0.7})
    shown = page(tmp_path, [Result("membership", "AUC 0.68", (found,), "a", "", curves={"agent-1: ROC": (x, y)})])

    def drawn(title: str) -> np.ndarray:
        (path,) = re.findall(rf'<title>{title}</title><path [^>]*?\bd="([^"]*)"', shown.source)
        return np.array(re.findall(r"[ML] (-?[\d.]+) (-?[\d.]+)", path), dtype=float)

    start, end = drawn("guessing")[[0, -1]]
    points = (drawn("agent-1: ROC") - start) / (end - start)
    area = float(np.sum(np.diff(points[:, 0]) * points[1:, 1]))
    assert area == pytest.approx(y[1:].mean(), abs=0.01), "the area below the staircase is the AUC"
    for a, b in zip(x, y, strict=True):
        assert np.abs(points - (a, b)).max(axis=1).min() < 0.01, (a, b)
    assert "0.6 to 0.75" in shown.of("td") and "AUC: member or not" in shown.of("td")


def test_the_epsilon_above_is_the_guarantee_where_there_is_one() -> None:
    run = digits_run()
    for summary, known in (
        (replace(summary_of(run, ()), headline="gdp"), True),
        (replace(summary_of(run, ()), headline="gdp", keystream="test"), False),
        (replace(summary_of(run, ()), headline="variation"), False),
        (replace(summary_of(run, ()), headline=None), False),
    ):
        assert privacy_html.section(run, summary).guaranteed is known
    assert not privacy_html.section(digits_run(multiplier=0.0), replace(summary_of(run, ()), headline="gdp")).guaranteed
