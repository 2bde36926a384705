from __future__ import annotations

import math
import re
from pathlib import Path
from types import ModuleType

import pytest

from dpgt_node.privacy import strength as module
from dpgt_node.privacy.accountants.registry import ACCOUNTANTS, APPROXIMATE, CONDITIONAL, PURE, SOUND
from dpgt_node.privacy.strength import delta_warning, hit_rate, strength, void

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "what-epsilon-means.md"
ORDER = ("strong", "moderate", "weak", "none")


def word(m: ModuleType, epsilon: float, delta: float = 0.0) -> str:
    found: str = m.strength(None, epsilon, delta, samples=None, enforced=True)
    return found


def table() -> dict[str, tuple[float, float, float]]:
    """word: (hits, false alarms, the epsilon that the page gives), from the page itself."""
    rows = re.findall(
        r"\| (\w+) \| (?:at most|below) ([\d.]+) % \| ([\d.]+) % \| (?:up to|below) ln ([\d,]+) = ([\d.]+)",
        PAGE.read_text(),
    )
    found = {}
    for name, hits, alarms, of, epsilon in rows:
        assert math.log(float(of.replace(",", ""))) == pytest.approx(float(epsilon), abs=0.005)
        found[name] = (float(hits) / 100, float(alarms) / 100, math.log(float(of.replace(",", ""))))
    return found


def disagreements(m: ModuleType) -> list[str]:
    """Where the word just inside or just outside a threshold of the page is not the one that the page says."""
    found, said = [], table()
    assert tuple(said) == ORDER[:3]
    for name, (hits, alarms, edge) in said.items():
        if hit_rate(edge, 0.0, alarms) != pytest.approx(hits, rel=1e-12):
            found.append(f"{name}: {edge} is not where the hit rate is {hits}")
        worse = ORDER[ORDER.index(name) + 1]
        if word(m, edge * (1 - 1e-12)) != name or word(m, edge * (1 + 1e-12)) != worse:
            found.append(f"{name} does not end at {edge}")
    for epsilon, name in ((0.0, "strong"), (1.0, "strong"), (3.0, "moderate"), (8.0, "weak"), (20.0, "none")):
        if word(m, epsilon) != name:
            found.append(f"{epsilon} is not {name}")
    if word(m, 1.0, 0.02) != "moderate" or word(m, 0.1, 0.6) != "weak":
        found.append("delta adds to the hits")
    return found


def test_the_words_are_those_of_the_page() -> None:
    assert disagreements(module) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("if hits <= 0.03", "if hits <= 0.5"),
        ("if hits <= 0.5", "if hits <= 0.03"),
        ("delta, 1e-4) >= 1.0", "delta, 1e-2) >= 1.0"),
        ('return "strong" if', 'return "moderate" if'),
        ('else "weak"', 'else "moderate"'),
        ("* false_alarms + delta", "* false_alarms"),
    ],
)
def test_a_word_that_is_off_by_a_class_is_noticed(old: str, new: str) -> None:
    source = Path(module.__file__).read_text()
    assert source.count(old) == 1
    mutant = ModuleType("mutant")
    exec(compile(source.replace(old, new), "mutant", "exec"), mutant.__dict__)
    assert disagreements(mutant) != []


def test_what_is_not_proven_gets_no_protecting_word() -> None:
    def of(
        name: str | None, epsilon: float | None = 0.1, delta: float = 1e-5, D: int | None = 100, on: bool = True
    ) -> str:
        return strength(name, epsilon, delta, samples=D, enforced=on)

    assert {of(name) for name in SOUND} == {"strong"}
    assert {of(name) for name in CONDITIONAL} == {"none"}
    for name in ACCOUNTANTS:
        assert of(name, math.inf) == of(name, None) == of(name, math.nan) == of(name, on=False) == "none"
    assert {of(name, delta=0.01) for name in APPROXIMATE} == {of(None, delta=0.01)} == {"none"}
    assert {of(name, delta=0.9) for name in PURE if name in SOUND} == {"strong"}


def test_a_delta_of_one_in_D_is_named() -> None:
    assert void(1e-3, 1000) and void(0.1, 10) and not void(0.0009, 1000) and not void(0.9, None)
    assert all(void(1 / D, D) for D in range(1, 5000)), "as a script computes it, one ulp below or not"
    said = delta_warning(0.9, 479)
    assert said is not None and "0.9" in said and "1/479" in said
    assert delta_warning(1e-5, 479) is None
