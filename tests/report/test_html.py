"""report.html: structure, offline, escaping, and every shape of run it must survive."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from collections.abc import ItemsView
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from dpgt_node.algo.graph import Topology
from dpgt_node.algo.methods import METHODS
from dpgt_node.config import to_toml
from dpgt_node.config.model import Data, Evaluation, Graph, Noise, Privacy, RunConfig
from dpgt_node.errors import ConfigError
from dpgt_node.privacy.accountants.lemma5 import LEMMA5
from dpgt_node.privacy.accountants.responses.variation import VARIATION
from dpgt_node.record.costs import Epsilon
from dpgt_node.record.metrics import MetricsRow, MetricsStore
from dpgt_node.record.phases import PhaseRow
from dpgt_node.record.summary import PrivacySummary, Summary, write_summary
from dpgt_node.report import rendering, text
from dpgt_node.report.html import build_report, render, summary_so_far
from dpgt_node.report.plots import Curves, draw_graph
from tests.report.page import Page, reaches_out
from tests.report.synthetic import digits_run, rows_of, summary_of


def page_of(run: RunConfig, rows: list[MetricsRow], summary: Summary | None = None, run_text: str = "") -> Page:
    return Page(render(run, run_text, rows, summary or summary_of(run, rows)))


@pytest.fixture(scope="module")
def demo() -> Page:
    run = digits_run()
    return page_of(run, rows_of(run), run_text=to_toml(run))


def folder(tmp_path: Path, run: RunConfig, rows: list[MetricsRow], *, finished: bool = True) -> Path:
    (tmp_path / "run.toml").write_text(to_toml(run))
    with MetricsStore(tmp_path) as store:
        store.append(rows)
    if finished:
        write_summary(tmp_path, summary_of(run, rows))
    return tmp_path


def test_structure(demo: Page) -> None:
    assert demo.source.startswith("<!doctype html>\n")
    assert demo.of("h2") == ["Curves", "Graphs", "Privacy", "Agents", "Run file"]
    assert demo.of("h1") == ["digits "] and "finished" in demo.of("span")
    titles = demo.of("h3")
    assert titles[:5] == ["Test accuracy", "Consensus error", "Epsilon so far", "Training loss", "Gradient norm"]
    assert demo.tags.count("svg") == 7 and demo.tags.count("tr") == 6 + 7
    assert LEMMA5.label in demo.words() and text.WHY_CONDITIONAL in demo.words() and text.STUDY in demo.words()
    assert "C = 80 in L1 (Definition 3)" in demo.words() and "enforced: every per-sample gradient" in demo.words()
    assert "dpgt_node 0.1.0 · grpcio 1.85.0" in demo.words()
    assert to_toml(digits_run()).strip() in demo.words()


def test_worst_agent_is_highlighted(demo: Page) -> None:
    (row,) = re.findall(r'<tr class="worst">.*?</tr>', demo.source)
    assert "agent-5" in row and "worst</span>" in row
    assert "agent-5 (worst at the end)" in demo.of("li")
    assert "test accuracy of the worst agent, agent-5; median" in demo.words()


def test_headline_numbers(demo: Page) -> None:
    values = re.findall(r'<dd class="value">([^<]*)</dd>', demo.source)
    assert values == ["87.4\u00a0%", "epsilon 53,995: no protection", "nobody tried", "201 rounds"]
    kinds = re.findall(r'<dl class="tile([^"]*)">', demo.source)
    assert kinds == ["", " bad", "", ""], "the epsilon is red, not the accuracy"
    assert demo.source.index('class="tiles"') < demo.source.index('<p class="warning"')


@pytest.mark.parametrize(
    ("change", "value", "kind", "why"),
    [
        ({"gdp": 0.9}, "epsilon 0.9: strong protection", " good", "at most 2.5\u00a0% of samples are found out"),
        ({"gdp": 8.75}, "epsilon 8.75: weak protection", "", "at 1 % false alarms, at most 100.0\u00a0% of samples"),
        ({"gdp": 20.0}, "epsilon 20: no protection", " bad", "less than one false alarm in 10,000; Gaussian"),
    ],
)
def test_the_first_screen_says_what_an_epsilon_is_worth(
    change: dict[str, float], value: str, kind: str, why: str
) -> None:
    run, rows, summary = private()
    agents = tuple(replace(agent, epsilon=Epsilon(**change)) for agent in summary.agents)
    page = page_of(run, rows, replace(summary, agents=agents))
    assert f'<dl class="tile{kind}">\n<dt>What it cost in privacy</dt>\n<dd class="value">{value}</dd>' in page.source
    assert why in page.words()


def test_a_run_that_learnt_nothing_says_so_in_its_outcome() -> None:
    run, rows, summary = private()
    agents = tuple(replace(agent, accuracy_test=0.11) for agent in summary.agents)
    page = page_of(run, rows, replace(summary, agents=agents))
    assert '<span class="badge">finished; no better than guessing</span>' in page.source
    assert '<dl class="tile bad">\n<dt>What was learnt</dt>' in page.source and "guessing 10.0\u00a0%" in page.words()


def test_where_a_round_s_time_went_is_drawn_as_it_is_counted() -> None:
    """Two rows of one agent and one of another, of a run of five: the rest said nothing."""
    run = digits_run()
    rows = [
        PhaseRow("agent-1", 10, 10, (0.1, 0.02, 0.0, 0.0, 0.0, 0.0)),
        PhaseRow("agent-1", 20, 10, (0.3, 0.02, 0.0, 0.0, 0.0, 0.0)),
        PhaseRow("agent-3", 20, 40, (0.2, 2.0, 0.04, 0.04, 0.04, 0.0)),
        PhaseRow("somebody", 20, 1, (9.0,) * 6),
    ]
    page = Page(render(run, "", [], summary_of(run, rows_of(run)), phases=rows))
    drawn = re.search(r'<div class="stacked".*?</div>', page.source)
    assert drawn is not None
    widths = [float(width) for width in re.findall(r"width:([\d.]+)%", drawn[0])]
    means = [(20 + 5) / 2, (2 + 50) / 2, 0.5, 0.5, 0.5, 0.0]  # ms a round of agent-1 and agent-3
    assert widths == [pytest.approx(100 * mean / sum(means), abs=0.006) for mean in means]
    assert (
        "A round took 40 ms on average, over the 20 to 40 of 201 rounds that phases.csv tells of. agent-1 works "
        "longest, mostly at compute: 20 ms or 91% of its round."
    ) in page.words()
    whole = [PhaseRow(name, 201, 201, (0.1,) * 6) for name in run.graph.agents]
    told = Page(render(run, "", [], summary_of(run, rows_of(run)), phases=whole)).words()
    assert " on average. agent-1 works longest" in told and "tells of" not in told
    table = page.source.partition("Time by phase of a round")[2].partition("</table>")[0]
    cells = [re.sub(r"<[^>]*>", "|", row) for row in re.findall(r"<tr><td>.*?</tr>", table)]
    assert [re.split(r"\|+", row)[1:-1] for row in cells][:2] == [
        ["compute", "12 ms", "31%", "agent-1", "20 ms"],
        ["barrier", "26 ms", "65%", "agent-3", "50 ms"],
    ]
    assert "Time by phase" not in page_of(run, rows_of(run)).source


def test_a_resumed_run_says_what_its_last_start_did() -> None:
    run = digits_run()
    rows = rows_of(run)
    page = page_of(run, rows, replace(summary_of(run, rows), seconds=2.0, rounds_per_second=10.0))
    assert "(the last 20 of them, since it was resumed, in 2 s, 10 rounds/s)" in page.words()
    told = replace(summary_of(run, rows), seconds=2.0, rounds_per_second=12.0, rounds_timed=24)
    assert text.pace(told) == "(the last 24 of them, since it was resumed, in 2 s, 12 rounds/s)"
    assert text.pace(replace(told, rounds_timed=told.rounds)).startswith("in 2 s")


def test_the_table_says_whose_bytes_are_not_all() -> None:
    run = digits_run()
    rows = rows_of(run)
    again = page_of(run, rows, replace(summary_of(run, rows), restarts={"agent-2": 1, "coordinator": 1}))
    cells, size = re.findall(r"<td[^>]*>((?:≥\s)?[\d.]+\sMB)</td>", again.source), text.size(2_093_616)
    assert sorted(cells) == [size] * 4 + [f"≥\xa0{size}"] and text.SENT_IN_PART in again.words()
    assert text.SENT_IN_PART not in page_of(run, rows).words()


def test_both_schemes_use_the_same_drawings(demo: Page) -> None:
    assert "@media (prefers-color-scheme: dark)" in demo.source and "color-scheme: light dark" in demo.source
    drawn = "".join(re.findall(r"<svg.*?</svg>", demo.source, re.DOTALL))
    assert not re.search(r"#[0-9a-f]{6}\b", drawn), "a colour of matplotlib's that no scheme can change"
    used = set(re.findall(r"var\((--\w+)\)", drawn))
    defined = set(re.findall(r"(--[\w-]+):", demo.source))
    assert used <= defined and {"--ink", "--muted", "--worst", "--accent", "--sans"} <= used


def test_curves_say_whose_they_are(demo: Page) -> None:
    assert {f"agent-{i}" for i in range(1, 6)} <= set(demo.of("title"))
    assert "agent-1, root" in demo.of("title")


def test_ids_are_unique_and_references_resolve(demo: Page) -> None:
    ids = [value for _, name, value in demo.attributes if name == "id"]
    assert len(ids) == len(set(ids)) > 5
    references = [value[1:] for _, name, value in demo.attributes if name == "href"]
    references += [value[5:-1] for _, name, value in demo.attributes if name == "clip-path"]
    assert references and set(references) == set(ids)


def test_opens_offline(demo: Page) -> None:
    assert reaches_out(demo) == []


@pytest.mark.parametrize(
    "planted",
    [
        "<script>1</script>",
        '<img src="a.png">',
        '<link rel="stylesheet" href="b.css">',
        '<p style="background: url(c.png)">x</p>',
        '<a href="https://d.example/">x</a>',
        '<p onclick="e()">x</p>',
        "<style>@import 'f.css';</style>",
    ],
)
def test_offline_checker_finds_what_is_planted(demo: Page, planted: str) -> None:
    assert reaches_out(Page(demo.source.replace("</main>", planted + "</main>"))) != []


HOSTILE = [
    "<script>alert(1)</script>",
    "</title></style><img src=x onerror=alert(2)>",
    '" onmouseover="alert(3)',
    "$\\frac{a}{b$ &amp; {brace} %s",
    "a'b\x07\u202e\u00e9]]>--><!--",
]


def hostile_page() -> Page:
    run = replace(digits_run(names=HOSTILE), name="<h1>run & 'run'</h1>")
    run = replace(run, data=Data("npz:<b>.npz"), algorithm=replace(run.algorithm, method="<i>"))
    rows = rows_of(run)
    summary = summary_of(run, rows)
    summary = replace(
        summary,
        status="<em>",
        run_id="<u>",
        mechanism="<s>",
        versions={"<q>": "<code>"},
        privacy=replace(summary.privacy, adjacency="<ins>", law="<del>"),
    )
    return page_of(run, rows, summary, run_text="[x]\nkey = '</pre><script>alert(4)</script>'\n<sup> = 1")


def is_contained(page: Page, like: Page) -> bool:
    """No tag, attribute name or loaded thing that the harmless page does not have, and every hostile name as text."""
    kinds = {(tag, name) for tag, name, _ in page.attributes} <= {(tag, name) for tag, name, _ in like.attributes}
    return (
        set(page.tags) == set(like.tags)
        and kinds
        and not reaches_out(page)
        and all(name in page.words() for name in HOSTILE)
    )


def test_everything_is_escaped(demo: Page) -> None:
    page = hostile_page()
    assert is_contained(page, demo)
    for literal in ("<h1>run & 'run'</h1>", "npz:<b>.npz", "<i>", "<em>", "<u>", "<s>", "<q> <code>", "<ins>", "<del>"):
        assert literal in page.words()
    assert "key = '</pre><script>alert(4)</script>'" in page.words()
    assert page.tags.count("svg") == 7


def test_escaping_checker_notices_a_page_without_escaping(demo: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendering, "environment", partial(rendering.environment, autoescape=False))
    try:
        contained = is_contained(hostile_page(), demo)
    except AssertionError:  # tags no longer nest
        contained = False
    assert not contained


def test_equal_inputs_give_equal_bytes(tmp_path: Path) -> None:
    run = digits_run()
    out = folder(tmp_path, run, rows_of(run))
    path = build_report(out)
    first = path.read_bytes()
    assert path == out / "report.html" and build_report(out).read_bytes() == first
    assert sorted(p.name for p in out.iterdir()) == ["metrics.csv", "report.html", "run.toml", "summary.json"]


def test_unfinished_run_with_one_row(tmp_path: Path) -> None:
    run = digits_run()
    page = Page(build_report(folder(tmp_path, run, rows_of(run, until=0), finished=False)).read_text())
    assert "unfinished" in page.of("span") and "0 rounds" in page.of("dd")
    assert "versions: not recorded yet" in page.words() and page.tags.count("svg") == 7


def test_run_that_has_not_begun(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text(to_toml(digits_run()))
    page = Page(build_report(tmp_path).read_text())
    assert "No rounds yet." in page.words() and page.tags.count("svg") == 2


def test_summary_so_far_is_the_last_rows() -> None:
    run = digits_run()
    rows = rows_of(run, until=40)
    so_far = summary_so_far(run, rows[:-1])
    assert (so_far.status, so_far.rounds, so_far.seconds) == ("unfinished", 30, 0.48)
    assert so_far.consensus_error == rows[-2].consensus_error
    assert [agent.accuracy_test for agent in so_far.agents[:4]] == [row.accuracy_test for row in rows[-5:-1]]
    assert so_far.agents[4].epsilon["lemma5"] == rows[-6].epsilon["lemma5"] and so_far.agents[4].releases is None


def test_the_pace_of_a_resumed_run_is_that_of_its_last_start() -> None:
    """Rounds 0 to 110 took 1.32 s; from 120 on the clock began again and a round took 0.05 s."""
    run = digits_run()
    again = [row if row.k <= 110 else replace(row, wall_seconds=0.05 * (row.k - 115)) for row in rows_of(run)]
    so_far = summary_so_far(run, again)
    assert so_far.seconds == pytest.approx(4.3) and so_far.rounds_per_second == pytest.approx(20.0)
    assert text.pace(so_far) == "(the last 86 of them, since it was resumed, in 4.3 s, 20 rounds/s)"
    assert text.was_resumed(so_far) and not text.was_resumed(summary_so_far(run, rows_of(run)))
    first = summary_so_far(run, [row for row in again if row.k <= 120])
    assert first.rounds_per_second is None and text.pace(first) == "", "one row after the start says nothing of a pace"


def test_toy_without_accuracy_or_C(tmp_path: Path) -> None:
    run = digits_run(n=3)
    graph = Graph(run.graph.agents, ((0.5, 0.0, 0.0), (1.5, 0.0, 0.3), (0.0, 1.0, 0.0)),
                  ((1.0, 1.0, 0.0), (0.0, 0.0, 1.0), (0.0, 0.0, 0.2)))  # fmt: skip
    run = replace(run, graph=graph, data=Data("quadratic", params={"dimension": 10}), privacy=Privacy(),
                  evaluate=Evaluation(metrics="local"))  # fmt: skip
    page = Page(build_report(folder(tmp_path, run, rows_of(run, accuracy=False, lemma5=None))).read_text())
    assert "Test accuracy" not in page.of("h3") and "Training loss" in page.of("h3")
    assert "training loss of the worst agent, agent-" in page.words()
    assert "no C: every epsilon is null" in page.words() and "No bound on gradients is known" in page.words()
    assert text.STUDY not in page.words() and text.WHY_CONDITIONAL not in page.words()
    assert "root of both: agent-1" in page.of("li") and "Line width grows with the weight" in page.words()


def test_noise_off(tmp_path: Path) -> None:
    run = digits_run(multiplier=0.0)
    run = replace(run, noise=Noise(None, None, multiplier=0.0))
    page = Page(build_report(folder(tmp_path, run, rows_of(run, lemma5=math.inf))).read_text())
    assert "epsilon infinite: no protection" in page.of("dd") and page.of("dd").count("The noise is off.") == 2
    assert text.NOISE_OFF in page.of("p") and page.tags.count("svg") == 6


@pytest.mark.parametrize("name", [name for name, method in METHODS.items() if not method.noisy] + ["dpgt"])
@pytest.mark.parametrize("clip", [None, 40.0])
def test_a_run_without_noise_speaks_of_no_accountant(name: str, clip: float | None) -> None:
    run = replace(digits_run(multiplier=0.0), privacy=Privacy(clip_l1=clip))
    run = replace(run, algorithm=replace(run.algorithm, method=name))
    rows = rows_of(run, lemma5=None if clip is None else math.inf)
    words = page_of(run, rows).words().partition("Run file")[0]
    for word in ("ccountant", "Lemma", "djacen", "delta", "conditional", "C is known", "Scale on", "Epsilon so far"):
        assert word not in words, word
    assert "epsilon infinite: no protection" in words and "training loss" in words
    assert ("mechanism" in words) == (name == "dpgt"), "the mechanism says where noise goes"


def test_a_quantiser_and_coins_are_no_law_of_the_run_file() -> None:
    for method, mechanism, law in (
        ("ternary-dsgd", "quantised-state", "a random quantiser"),
        ("quantised-binomial-sgd", "coded-coins", "counts of coins"),
    ):
        run = digits_run()
        run = replace(run, algorithm=replace(run.algorithm, method=method, mechanism=mechanism))
        name = VARIATION.name if method == "ternary-dsgd" else "binomial"
        rows = [replace(row, epsilon=Epsilon(**{name: 0.25})) for row in rows_of(run, lemma5=None)]
        page = page_of(run, rows)
        assert law in page.of("dd") and "laplace" not in page.of("dd") and "Scale on x (zeta)" not in page.of("dt")
        assert "both streams" not in page.words(), "one vector a round is released"
        assert ("Epsilon so far" in page.of("h3")) == (name == "binomial") == ("local differential" in page.words())
        assert ("Delta so far" in page.of("h3")) == (name != "binomial") == ("delta covers all" in page.words())


def test_local_run_without_any_metric() -> None:
    run = replace(digits_run(), evaluate=Evaluation(metrics="local"))
    rows = [
        MetricsRow(name, k, float(k), epsilon=Epsilon(lemma5=2.0 * k)) for k in (0, 10) for name in run.graph.agents
    ]
    page = page_of(run, rows)
    assert page.of("h3")[:1] == ["Epsilon so far"] and 'class="worst"' not in page.source


def test_declared_C_other_mechanism_and_test_keystream() -> None:
    run = replace(digits_run(), privacy=Privacy(C=2.0))
    run = replace(run, algorithm=replace(run.algorithm, mechanism="noise-once"))
    rows = rows_of(run, lemma5=None)
    page = page_of(run, rows, replace(summary_of(run, rows), keystream="test"))
    assert "declared, not enforced" in page.words() and text.TEST_KEYSTREAM in page.of("p")
    assert "No accountant has a value." in page.words() and "No sound accountant has a value." in page.words()


def test_an_epsilon_on_a_declared_C_is_called_declared() -> None:
    run, rows, summary = private()
    run = replace(run, privacy=Privacy(C=2.0))
    page = page_of(run, rows, replace(summary, privacy=PrivacySummary.of(run)))
    assert "the tightest accountant; it rests on a declared C, which nothing enforces" in page.words()
    assert "tightest sound" not in page.words()


def private(n: int = 5) -> tuple[RunConfig, list[MetricsRow], Summary]:
    """noise-once with Gaussian noise: two accountants speak, four say why not, the paper is compared."""
    run = digits_run(n=n)
    run = replace(run, algorithm=replace(run.algorithm, mechanism="noise-once"))
    run = replace(run, noise=replace(run.noise, law="gaussian"), privacy=Privacy(clip_l2=1.0))
    rows = [replace(row, epsilon=Epsilon(zcdp=0.05 * row.k, gdp=0.04 * row.k)) for row in rows_of(run, lemma5=None)]
    summary = summary_of(run, rows)
    agents = tuple(
        replace(agent, epsilon=Epsilon(zcdp=10.25 + i / 8, gdp=8.25 + i / 8), paper_lemma5=51_000.0 + i)
        for i, agent in enumerate(summary.agents)
    )
    reasons = {name: f"no value because of {name}" for name in ("lemma5", "corrected", "tight", "amplified")}
    return run, rows, replace(summary, agents=agents, headline="gdp", reasons=reasons)


def table_of(page: Page) -> list[list[str]]:
    """The cells of the table of accountants, a row each."""
    source = page.source.split("What every accountant says")[1].split("</table>")[0]
    return [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in re.findall(r"<tr[^>]*>(.*?)</tr>", source)]


def test_every_accountant_has_a_row_and_the_paper_is_compared() -> None:
    page = page_of(*private())
    assert table_of(page) == [
        ["accountant", *(f"agent-{i}" for i in range(1, 6))],
        ["Lemma 5 (paper; conditional)", "no value: no value because of lemma5"],
        ["Lemma 4 corrected (pure)", "no value: no value because of corrected"],
        ["tight (pure)", "no value: no value because of tight"],
        ["tight, amplified by sampling (pure)", "no value: no value because of amplified"],
        [
            "zero-concentrated (delta = 1e-05)",
            *(f"{value} (none)" for value in ("10.25", "10.38", "10.5", "10.62", "10.75")),
        ],
        ["Gaussian (delta = 1e-05)", *(f"{value} (weak)" for value in ("8.25", "8.375", "8.5", "8.625", "8.75"))],
        [
            "The paper mechanism at the same scale, K, m and C (Laplace noise, C = 2 taken in L1): Lemma 5 (paper; "
            "conditional)",
            *(f"51,00{i} (none)" for i in range(5)),
        ],
    ]
    assert page.source.count('<tr class="shown">') == 1 and 'class="shown"><td>Gaussian' in page.source
    assert "The row in bold is the tightest sound accountant." in page.words()
    assert "rests on a declared C" not in page.words()
    assert "at most 2 in L2; enforced: every per-sample gradient is clipped." in page.words()
    assert text.WHY_CONDITIONAL not in page.words() and "none: x is sent as it is" in page.of("dd")


def test_the_headline_is_the_tightest_sound_accountant() -> None:
    page = page_of(*private())
    (tile,) = re.findall(r"<dt>What it cost in privacy</dt>.*?</dl>", page.source, re.DOTALL)
    assert ">epsilon 8.75: weak protection<" in tile and "; Gaussian (delta = 1e-05)" in tile
    asides = re.findall(r"<h3>Epsilon so far</h3><span>([^<]*)</span>", page.source)
    assert asides == ["Gaussian (delta = 1e-05)", "zero-concentrated (delta = 1e-05)"]
    assert "epsilon (gdp, delta 1e-05)" in page.of("th") and "epsilon (zcdp, delta 1e-05)" in page.of("th")


def test_of_many_agents_the_largest_is_named() -> None:
    table = table_of(page_of(*private(n=20)))
    assert table[0] == ["accountant", "largest", "of", "median"]
    assert table[6] == ["Gaussian (delta = 1e-05)", "10.62 (none)", "agent-20", "9.438 (none)"]
    assert table[7][1:] == ["51,019 (none)", "agent-20", "51,010 (none)"]


def test_reasons_are_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    run, rows, summary = private()
    summary = replace(summary, reasons={**summary.reasons, "tight": "<script>alert(5)</script>"})
    assert "no value: <script>alert(5)</script>" in page_of(run, rows, summary).words()
    assert "script" not in page_of(run, rows, summary).tags
    monkeypatch.setattr(rendering, "environment", partial(rendering.environment, autoescape=False))
    assert "script" in page_of(run, rows, summary).tags


def test_hundred_agents(tmp_path: Path) -> None:
    run = digits_run(n=100)
    path = build_report(folder(tmp_path, run, rows_of(run)))
    page = Page(path.read_text())
    assert path.stat().st_size < 1_000_000 and reaches_out(page) == []
    assert "range of all 100 agents" in page.of("li") and "Worst first." in page.words()
    assert page.tags.count("tr") == 101 + 7 and "root of both: all 100 agents" in page.of("li")
    assert re.findall(r"<tr[^>]*>", page.source.split("<h2>Agents")[1])[1] == '<tr class="worst">'
    assert '<details class="card">' in page.source, "a run file of hundreds of lines starts closed"


def test_of_a_long_list_in_the_run_file_the_first_items_are_shown() -> None:
    run = digits_run()
    edges = [f"    [{i}, {i % 7 + 1}, 0.5]," for i in range(1, 302)]
    written = "\n".join(["name = 1", "[graph]", "agents = [", "    1,", "]", "R = [", *edges, "]", "[data]", "a = 1"])
    page = page_of(run, rows_of(run), run_text=written)
    shown = re.sub("<[^>]+>", "", page.source.split("<pre>")[1].split("</pre>")[0])
    assert shown.split("\n") == [*written.split("\n")[:6], *edges[:12], "    … and 289 more", "]", "[data]", "a = 1"]
    assert "310 lines; long lists are cut short here" in page.words()
    assert '<details class="card">' in page.source, "it is as long as it is, however much of it is shown"
    keys = page_of(run, rows_of(run), run_text="\n".join(f"k{i} = 1" for i in range(300)))
    assert "cut short" not in keys.words() and "k299" in keys.words()


def test_of_hundreds_of_agents_no_edge_is_an_arrow_of_its_own() -> None:
    drawn = draw_graph(Topology.from_config(digits_run(n=201).graph), "R")
    assert "Graph of R: 201 agents" in drawn and len(drawn) < 200_000


def test_a_chart_goes_through_its_points_once() -> None:
    seen = 0

    class Counted(dict[float, float]):
        def items(self) -> ItemsView[float, float]:
            nonlocal seen
            seen += 1
            return super().items()

    curves = Curves("a", "A", "log", {"one": Counted({0.0: 1.0, 1.0: 1e6})})
    assert curves.drawable() and curves.drawable() and curves.logarithmic
    assert "<svg" in curves.draw() and seen == 1


def test_one_agent() -> None:
    run = digits_run(names=["only"])
    page = page_of(run, rows_of(run))
    assert '<tr class="worst"' not in page.source and "the worst agent, only; median" in page.words()


@pytest.mark.parametrize(("name", "content"), [("run.toml", "nonsense ="), ("summary.json", "{")])
def test_files_that_cannot_be_read_are_named(tmp_path: Path, name: str, content: str) -> None:
    run = digits_run()
    out = folder(tmp_path, run, rows_of(run, until=0))
    (out / name).write_text(content)
    with pytest.raises(ConfigError, match=re.escape(name)):
        build_report(out)
    assert not (out / "report.html").exists()


def test_drawing_libraries_are_imported_only_to_draw(tmp_path: Path) -> None:
    run = digits_run()
    out = folder(tmp_path, run, rows_of(run, until=20))
    code = (
        "import sys; from pathlib import Path\n"
        "from dpgt_node.record import metrics, summary, tensorboard\n"
        "from dpgt_node.report import html, plots, svg, text\n"
        "heavy = {'matplotlib', 'networkx', 'tensorboard', 'torch', 'jinja2', 'grpc', 'rich', 'click'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
        f"html.build_report(Path({str(out)!r}))\n"
        "assert 'matplotlib' in sys.modules and 'matplotlib.pyplot' not in sys.modules\n"
    )
    root = Path(__file__).parents[2]
    subprocess.run([sys.executable, "-c", code], check=True, cwd=root)
