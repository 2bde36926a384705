"""metrics.csv: columns of the contract, exact round trip, continued and torn files."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpgt_node.errors import ConfigError
from dpgt_node.privacy.accountants.registry import ACCOUNTANTS
from dpgt_node.record.costs import Epsilon
from dpgt_node.record.metrics import COLUMNS, METRICS_FILE, MetricsRow, MetricsStore, MetricsTail, cut_rows

CONTRACT = (
    "agent,k,wall_seconds,loss_train,accuracy_train,accuracy_test,grad_norm,consensus_error,"
    "epsilon_lemma5,epsilon_corrected,epsilon_tight,epsilon_amplified,epsilon_zcdp,epsilon_gdp,"
    "epsilon_binomial,epsilon_same-point,epsilon_variation"
)
ROW = MetricsRow("agent-1", 0, 0.125, 2.302585092994046, None, 0.1, None, 0.0, Epsilon(lemma5=math.inf))


def write(out: Path, *rows: MetricsRow) -> None:
    with MetricsStore(out) as store:
        store.append(rows)


def test_columns_are_the_contract() -> None:
    assert ",".join(COLUMNS) == CONTRACT
    assert COLUMNS[8:] == tuple(f"epsilon_{name}" for name in ACCOUNTANTS)


def test_file_text_inf_and_empty(tmp_path: Path) -> None:
    write(tmp_path, ROW, replace(ROW, k=10, loss_train=math.nan))
    assert (tmp_path / "metrics.csv").read_text() == (
        f"{CONTRACT}\nagent-1,0,0.125,2.302585092994046,,0.1,,0.0,inf,,,,,,,,\nagent-1,10,0.125,,,0.1,,0.0,inf,,,,,,,,\n"
    )


@settings(max_examples=30, deadline=None)
@given(
    st.lists(
        st.builds(
            MetricsRow,
            st.text(st.characters(codec="utf-8", exclude_characters="\r\n\0")),
            st.integers(0, 10**6),
            *[st.none() | st.floats(allow_nan=False)] * 6,
            st.dictionaries(st.sampled_from(list(ACCOUNTANTS)), st.floats(allow_nan=False)).map(Epsilon.of),
        ),
        unique_by=lambda row: (row.agent, row.k),
    )
)
def test_round_trip(tmp_path_factory: pytest.TempPathFactory, rows: list[MetricsRow]) -> None:
    out = tmp_path_factory.mktemp("csv")
    write(out, *rows)
    assert MetricsStore.read(out) == tuple(rows)


def test_rows_are_visible_before_close(tmp_path: Path) -> None:
    store = MetricsStore(tmp_path)
    store.append([ROW])
    assert MetricsStore.read(tmp_path) == (ROW,)
    store.close()
    store.close()


def test_continued_run_appends_and_the_later_row_counts(tmp_path: Path) -> None:
    write(tmp_path, ROW, replace(ROW, k=10))
    again = replace(ROW, k=10, loss_train=1.0)
    write(tmp_path, again)
    assert MetricsStore.read(tmp_path) == (ROW, again)
    assert (tmp_path / "metrics.csv").read_text().count("agent,k,") == 1


def test_torn_last_line_is_cut(tmp_path: Path) -> None:
    write(tmp_path, ROW)
    path = tmp_path / "metrics.csv"
    whole = path.read_bytes()
    path.write_bytes(whole + b"agent-1,10,0.2")
    assert MetricsStore.read(tmp_path) == (ROW,)
    write(tmp_path, replace(ROW, k=10))
    assert MetricsStore.read(tmp_path) == (ROW, replace(ROW, k=10))
    path.write_bytes(b"agent,k")  # torn in the header
    write(tmp_path, ROW)
    assert path.read_bytes() == whole


def test_nothing_there(tmp_path: Path) -> None:
    assert MetricsStore.read(tmp_path) == ()


def test_other_columns_are_refused(tmp_path: Path) -> None:
    (tmp_path / "metrics.csv").write_text("agent,k,loss\na,0,1\n")
    with pytest.raises(ConfigError, match="other columns"):
        MetricsStore(tmp_path)


@pytest.mark.parametrize("line", ["agent-1,x,1.0,,,,,,,,,,,", "agent-1,0,one,,,,,,,,,,,", "agent-1"])
def test_bad_cell_names_file_and_line(tmp_path: Path, line: str) -> None:
    (tmp_path / "metrics.csv").write_text(f"{CONTRACT}\n{line}\n")
    with pytest.raises(ConfigError, match=r"metrics\.csv: line 2: is not a metrics row"):
        MetricsStore.read(tmp_path)


def test_columns_of_another_version_are_read_past(tmp_path: Path) -> None:
    """An older file lacks an accountant, a newer one has one more: what both know is read."""
    text = "agent,k,wall_seconds,epsilon_lemma5,epsilon_renyi\na,3,0.5,inf,7.0\n"
    (tmp_path / "metrics.csv").write_text(text)
    assert MetricsStore.read(tmp_path) == (MetricsRow("a", 3, 0.5, epsilon=Epsilon(lemma5=math.inf)),)


def test_a_file_of_another_version_goes_on_with_its_columns(tmp_path: Path) -> None:
    header = CONTRACT.replace("epsilon_tight", "epsilon_renyi")
    (tmp_path / "metrics.csv").write_text(f"{header}\n")
    row = replace(ROW, epsilon=Epsilon(lemma5=2.0, tight=3.0, gdp=4.0))
    write(tmp_path, row)
    assert (tmp_path / "metrics.csv").read_text().splitlines()[1].endswith(",2.0,,,,,4.0,,,")
    assert MetricsStore.read(tmp_path) == (replace(row, epsilon=Epsilon(lemma5=2.0, gdp=4.0)),)


def test_a_tail_has_every_whole_row_once_and_begins_again_after_a_cut(tmp_path: Path) -> None:
    tail, rows = MetricsTail(tmp_path), [replace(ROW, k=k) for k in range(5)]
    assert tail.more() == []
    write(tmp_path, *rows[:2])
    assert tail.more() == rows[:2] and tail.more() == []
    path = tmp_path / METRICS_FILE
    whole = path.read_bytes()
    write(tmp_path, *rows[2:])
    after = path.read_bytes()
    path.write_bytes(after[: len(whole) + 5])  # a row that is half written
    assert tail.more() == []
    path.write_bytes(after)
    assert tail.more() == rows[2:]
    cut_rows(tmp_path, 0)
    assert tail.more() == rows[:1]
    with path.open("a") as file:
        file.write("agent-1,x\n")
    with pytest.raises(ConfigError, match="not a metrics row"):
        tail.more()
