"""What is drawn is what the numbers say."""

from __future__ import annotations

import csv
import math
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from dpgt_node.report.experiments import drawing
from dpgt_node.report.experiments.values import Line, Panel, Point


def line(label: str, values: list[float], *, beside: bool = False, spread: float = 0.0) -> Line:
    points = tuple(Point(float(k), v, v - spread, v + spread) for k, v in enumerate(values))
    return Line(label, points, beside=beside)


def panel(*lines: Line, **changes: str) -> Panel:
    return Panel("key", "a title", "k", "y", lines, "a caption", **changes)  # type: ignore[arg-type]


def test_drawn_points_are_the_points_of_the_table():
    given = panel(
        line("a", [0.1, 0.5, 0.7], spread=0.05), line("b", [0.2, math.inf, 0.4]), line("c", [0.3], beside=True)
    )
    rows = list(csv.DictReader(drawing.table(given).splitlines()))
    with drawing.style():
        figure = drawing.draw(given)
    drawn = {artist.get_gid(): artist for artist in figure.axes[0].lines if artist.get_gid()}
    for i, one in enumerate(given.lines):
        told = [(float(r["x"]), float(r["mean"])) for r in rows if r["line"] == one.label]
        finite = [pair for pair in told if math.isfinite(pair[1])]
        assert list(map(tuple, drawn[f"line-{i}"].get_xydata())) == finite
    (band,) = figure.axes[0].collections
    assert band.get_paths()[0].get_extents().ymin == pytest.approx(0.05)


def test_the_svg_has_every_line_where_the_numbers_put_it():
    given = panel(line("a", [1.0, 4.0, 2.0]), line("b", [3.0, 3.0, 3.0]))
    with drawing.style():
        text = drawing.svg(drawing.draw(given))
        assert text == drawing.svg(drawing.draw(given))
    found = {g.get("id"): g for g in ET.fromstring(text).iter("{http://www.w3.org/2000/svg}g")}
    places = {name: path_of(found[name]) for name in ("line-0", "line-1")}
    assert places["line-0"].shape == (3, 2)
    # SVG counts downwards; both lines share one scale, on which 3 lies two thirds of the way from 1 to 4.
    down = places["line-0"][:, 1]
    assert places["line-1"][0, 1] == pytest.approx(down[0] + (down[1] - down[0]) * 2 / 3, abs=0.01)


def path_of(group: ET.Element) -> np.ndarray:
    path = group.find("{http://www.w3.org/2000/svg}path")
    assert path is not None
    words = path.get("d", "").replace("M", " ").replace("L", " ").split()
    return np.array(words, dtype=float).reshape(-1, 2)


def test_a_logarithm_leaves_out_what_it_cannot_show():
    given = panel(line("a", [0.0, 10.0, 100.0]), y_scale="log")
    assert [p.mean for p in drawing.shown(given, given.lines[0])] == [10.0, 100.0]


def test_bounds_are_grey_and_curves_are_not():
    lines = [line("a", [1.0]), line("b", [1.0], beside=True), line("c", [1.0])]
    looks = [drawing.look(lines, i)[0] for i in range(3)]
    assert looks[1].startswith("#8b8f97") and len(set(looks)) == 3


def test_many_lines_differ_in_colour_or_dashes():
    lines = [line(str(i), [1.0]) for i in range(24)]
    assert len({drawing.look(lines, i) for i in range(24)}) == 24


def test_a_long_legend_leaves_room_for_the_axes(recwarn):
    lines = [line(f"a rather long name of a method in a form that has one, {i}", [0.1, 0.2]) for i in range(24)]
    with drawing.style():
        figure = drawing.draw(panel(*lines))
        drawing.svg(figure)
    assert not recwarn.list
    assert figure.axes[0].get_position().width * figure.get_figwidth() > 4.0


@pytest.mark.parametrize("values", [[1.0, 2.0, 3.0], [1e-9, 1.0, 1e6], [20.0, 7e4, 3e5]])
def test_numbers_on_a_logarithmic_axis_are_plain_and_do_not_crowd(values):
    given = panel(line("a", values), x_scale="log", y_scale="log")
    with drawing.style():
        figure = drawing.draw(given)
        text = drawing.svg(figure)
    assert "mathdefault" not in text
    low, high = figure.axes[0].get_ylim()
    shown = [tick for tick in figure.axes[0].yaxis.get_majorticklocs() if low <= tick <= high]
    assert 2 <= len(shown) <= 10
