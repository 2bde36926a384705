"""``dpgt report A B C --out``: dots against the data, who beats whom, what is refused and why."""

from __future__ import annotations

import json
import math
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from dpgt_node import cli
from dpgt_node.adversary.attack import Finding, Result
from dpgt_node.adversary.results import save
from dpgt_node.config import to_toml
from dpgt_node.config.model import Data, Evaluation, Privacy, RunConfig
from dpgt_node.errors import ConfigError
from dpgt_node.privacy.accountants.registry import EPSILONS
from dpgt_node.record.costs import Epsilon
from dpgt_node.record.metrics import MetricsStore
from dpgt_node.record.rivals import Rivals, write_rivals
from dpgt_node.record.summary import Summary, load_summary, write_summary
from dpgt_node.report.comparison.differences import differences
from dpgt_node.report.comparison.page import beaten_by, document, render
from dpgt_node.report.comparison.runs import Compared, load_runs
from tests.report.page import Page, reaches_out
from tests.report.synthetic import digits_run, rows_of, summary_of

HOSTILE = "<script>alert(1)</script>"


def run_folder(
    path: Path, epsilon: float | None, accuracy: float, run: RunConfig | None = None, auc: float | None = None
) -> Path:
    """A finished run whose worst agent has ``accuracy``, each other one 1 % more, at that epsilon (gdp)."""
    run = run or replace(digits_run(), privacy=Privacy(clip_l2=0.5))
    rows = rows_of(run)
    summary: Summary = summary_of(run, rows)
    agents = tuple(
        replace(agent, accuracy_test=accuracy + 0.01 * i, epsilon=Epsilon(gdp=epsilon))
        for i, agent in enumerate(summary.agents)
    )
    path.mkdir()
    (path / "run.toml").write_text(to_toml(run))
    write_summary(
        path,
        replace(summary, agents=agents, run_id=path.name.encode().hex(), headline=None if epsilon is None else "gdp"),
    )
    if auc is not None:
        finding = Finding("agent-1", "partly", {"auc": auc, "auc_low": auc - 0.05, "auc_high": auc + 0.05}, {})
        save(path / "adversary", [Result("membership", "s", (finding,), "a", "")])
    return path


def drawn(source: str, key: str) -> dict[str, tuple[float, float]]:
    """Where the dot of every run stands in a chart, in its own units, y upwards."""
    (chart,) = re.findall(rf'<svg [^>]*class="plot {key}".*?</svg>', source, re.DOTALL)
    found = re.findall(r'<title>([A-Z]): [^<]*</title>.*?<use [^>]*?\bx="([\d.]+)" y="([\d.]+)"', chart, re.DOTALL)
    return {letter: (float(x), -float(y)) for letter, x, y in found}


def test_dots_stand_where_the_numbers_say(tmp_path: Path) -> None:
    runs = load_runs(
        [
            run_folder(tmp_path / "a", 1.0, 0.6, auc=0.55),
            run_folder(tmp_path / "b", 8.0, 0.9, auc=0.75),
            run_folder(tmp_path / "c", 1000.0, 0.8),
            run_folder(tmp_path / "d", None, 0.95, auc=0.95),
        ]
    )
    source = render(runs)
    at = drawn(source, "cmpaccuracy")
    assert set(at) == set("ABCD")
    decade = (at["C"][0] - at["A"][0]) / 3
    assert at["B"][0] - at["A"][0] == pytest.approx(decade * math.log10(8), abs=0.1)
    assert at["D"][0] > at["C"][0], "no epsilon stands right of every epsilon"
    point = (at["B"][1] - at["A"][1]) / 0.3
    assert at["C"][1] - at["A"][1] == pytest.approx(0.2 * point, abs=0.1)
    assert at["D"][1] - at["A"][1] == pytest.approx(0.35 * point, abs=0.1)
    attack = drawn(source, "cmpattack0")
    assert set(attack) == set("ABD"), "c was not attacked"
    assert (attack["D"][1] - attack["A"][1]) / (attack["B"][1] - attack["A"][1]) == pytest.approx(2.0, abs=0.01)
    assert "infinite" in source


def test_the_page_says_who_is_best_beside_what_is_trivial(tmp_path: Path) -> None:
    folders = [run_folder(tmp_path / "a", 1.0, 0.6), run_folder(tmp_path / "b", 8.0, 0.9, auc=0.75)]
    folders.append(run_folder(tmp_path / f"c{HOSTILE}".replace("/", ""), 8.5, 0.7))
    write_rivals(folders[1], Rivals({f"agent-{i}": 0.8 for i in range(1, 6)}))
    page = Page(render(load_runs(folders)))
    values = [text for text in re.findall(r'<dd class="value">([^<]*)</dd>', page.source)]
    assert values == ["B: 90.0\u00a0%", "A: epsilon 1", "A, B", "something of B"]
    assert "worst agent; epsilon 8 (weak); alone 80.0\u00a0%, guessing 10.0\u00a0%" in page.words()
    assert "beaten in accuracy and epsilon: C by B" in page.words()
    assert "script" not in page.tags and reaches_out(page) == []
    assert "default-src 'none'; style-src 'unsafe-inline'" in page.source


def test_an_epsilon_that_protects_nothing_is_no_smaller_than_none(tmp_path: Path) -> None:
    a, b = load_runs([run_folder(tmp_path / "a", 400.0, 0.6), run_folder(tmp_path / "b", 5000.0, 0.7)])
    assert [one.letter for one in beaten_by(a, (a, b))] == ["B"] and beaten_by(b, (a, b)) == []


@pytest.mark.parametrize(
    ("points", "beaten"),
    [
        ([(1, 0.6), (3, 0.8), (8, 0.9)], ""),
        ([(1, 0.6), (3, 0.6), (8, 0.9)], "B"),
        ([(1, 0.6), (1, 0.6)], ""),
        ([(2, 0.5), (1, 0.6), (1, 0.7)], "AB"),
    ],
)
def test_who_is_beaten_by_hand(tmp_path: Path, points: list[tuple[float, float]], beaten: str) -> None:
    runs = load_runs([run_folder(tmp_path / str(i), *point) for i, point in enumerate(points)])
    assert "".join(one["letter"] for one in document(runs)["runs"] if one["beaten_by"]) == beaten


def test_what_differs_is_all_that_differs(tmp_path: Path) -> None:
    run = digits_run()
    other = replace(run, name="x", algorithm=replace(run.algorithm, iterations=7), privacy=Privacy(clip_l2=0.5))
    assert differences([run, run, other]) == {
        "algorithm.iterations": ["200", "200", "7"],
        "privacy.clip_l1": ["40", "40", "–"],
        "privacy.clip_l2": ["–", "–", "0.5"],
    }
    assert differences([run, replace(run, name="x")]) == {}
    assert differences([other, run, run])["algorithm.iterations"] == ["7", "200", "200"]


def test_what_cannot_be_compared_is_refused_with_every_reason(tmp_path: Path) -> None:
    run = replace(digits_run(), privacy=Privacy(clip_l2=0.5))
    a = run_folder(tmp_path / "a", 1.0, 0.6)
    other_data = run_folder(tmp_path / "mnist", 1.0, 0.6, replace(run, data=Data("mnist")))
    other_delta = run_folder(tmp_path / "delta", 1.0, 0.6, replace(run, privacy=Privacy(clip_l2=0.5, delta=1e-6)))
    fewer = run_folder(tmp_path / "few", 1.0, 0.6, replace(run, evaluate=Evaluation(metrics="study", samples=9)))
    unfinished = tmp_path / "unfinished"
    unfinished.mkdir()
    (unfinished / "run.toml").write_text(to_toml(run))
    with MetricsStore(unfinished) as store:
        store.append(rows_of(run, until=20))
    local = run_folder(tmp_path / "local", 1.0, 0.6, replace(run, evaluate=Evaluation(metrics="local")))
    summary = json.loads((local / "summary.json").read_text())
    for agent in summary["agents"]:
        agent["accuracy_test"] = None
    (local / "summary.json").write_text(json.dumps(summary))
    with pytest.raises(ConfigError) as found:
        load_runs([a, other_data, other_delta, fewer, unfinished, local, a])
    said = str(found.value).splitlines()
    for folder, why in (
        (other_data, "is judged on mnist, and"),
        (other_delta, "its epsilon is for delta 1e-06"),
        (fewer, "is judged by 9 test samples, and"),
        (unfinished, "has no summary.json: only runs that have ended can be compared"),
        (local, 'its agents keep their accuracy to themselves (metrics = "local")'),
        (a, "is given twice"),
    ):
        assert [line for line in said if line.startswith(f"{folder}: {why}")], (why, said)
    assert len(said) == 6
    with pytest.raises(ConfigError) as found:
        load_runs([unfinished, unfinished / "." / ".." / "unfinished"])
    assert str(found.value).count("has no summary.json") == 1 and "is given twice" in str(found.value)


def test_a_copied_run_a_study_beside_it_and_a_delta_alone_are_not_taken_for_more(tmp_path: Path) -> None:
    a, b = run_folder(tmp_path / "a", 1.0, 0.6), run_folder(tmp_path / "b", 2.0, 0.6)
    shutil.copytree(a, tmp_path / "copy")
    with pytest.raises(ConfigError, match="is the same run as"):
        load_runs([a, tmp_path / "copy"])
    finding = Finding("agent-1", "succeeds", {"auc": 0.99}, {})
    save(a / "adversary", [Result("membership, weaker noise", "s", (finding,), "a", "")])
    summary = load_summary(b)
    assert summary is not None
    only = tuple(replace(agent, epsilon=Epsilon(variation=0.25)) for agent in summary.agents)
    write_summary(b, replace(summary, agents=only, headline="variation"))
    first, second = load_runs([a, b])
    assert first.attacks == [] and (first.accountant, first.epsilon, first.delta) == ("gdp", 1.0, 1e-5)
    assert "variation" not in EPSILONS and (second.accountant, second.epsilon, second.delta) == (None, math.inf, None)


def test_one_table_at_two_places_is_one_table(tmp_path: Path) -> None:
    def of(name: str, content: str) -> RunConfig:
        (tmp_path / name).write_text(content)
        data = Data(f"csv:{tmp_path / name}", params={"label": "y", "test_fraction": 0.2})
        return replace(digits_run(), data=data, privacy=Privacy(clip_l2=0.5))

    a, b, c = of("a.csv", "x,y\n1,0\n"), of("b.csv", "x,y\n1,0\n"), of("c.csv", "x,y\n2,0\n")
    folders = [run_folder(tmp_path / name, 1.0, 0.6, run) for name, run in (("a", a), ("b", b), ("c", c))]
    assert [one.letter for one in load_runs(folders[:2])] == ["A", "B"]
    with pytest.raises(ConfigError, match=r"c\.csv, and .* different test samples"):
        load_runs([folders[0], folders[2]])


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = (str(run_folder(tmp_path / name, 1.0, 0.6)) for name in "ab")
    out = tmp_path / "pages" / "cmp.html"
    assert cli.run(["report", a, b]) == 2 and "--out" in capsys.readouterr().err
    assert cli.run(["report", a, "--out", str(out)]) == 2 and "is for several" in capsys.readouterr().err
    for _ in range(2):
        assert cli.run(["report", a, b, "--out", str(out)]) == 0 and capsys.readouterr().out == f"{out}\n"
    assert Page(out.read_text()).of("h1") == ["2 runs on digits"]
    assert cli.run(["report", a, b, "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["report"] is None and [one["epsilon"] for one in found["runs"]] == [1.0, 1.0]
    assert cli.run(["report", a, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"report": str(Path(a) / "report.html")}
    own = tmp_path / "notes.html"
    own.write_text("mine")
    assert cli.run(["report", a, b, "--out", str(own)]) == 2 and own.read_text() == "mine"


def test_letters_are_in_order_of_the_command(tmp_path: Path) -> None:
    runs: list[Compared] = load_runs([run_folder(tmp_path / name, 1.0, 0.5) for name in "zyx"])
    assert [(one.letter, one.folder.name) for one in runs] == [("A", "z"), ("B", "y"), ("C", "x")]
