"""What ``dpgt check`` accepts starts, what it refuses does not, and no run file is a bug."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from tests.cli import documents, fuzzed

FINE = ("runs", "refused", "no TOML", "runs too long to try")


def test_check_and_a_run_agree_on_mistaken_run_files(tmp_path: Path) -> None:
    """A share of the hunt: ``python -m tests.cli.fuzzed COUNT SEED`` goes on."""
    bases = fuzzed.bases()
    found = [fuzzed.judge(fuzzed.mutated(random.Random(f"0/{i}"), bases), tmp_path) for i in range(48)]
    wrong = [f"{verdict}: {said}" for verdict, said in found if verdict not in FINE]
    assert not wrong, "\n".join(wrong)
    assert {"runs", "refused"} <= {verdict for verdict, _ in found}


EXTREMES = [
    ("quadratic", "scheme__gamma", 1e160),
    ("quadratic", "scheme__gamma", 1e308),
    ("quadratic", "scheme__gamma", 5e-324),
    ("quadratic", "scheme__alpha", 5e-324),
    ("quadratic", "scheme__beta", 1e-308),
    ("demo", "noise__p_zeta", 1e160),
    ("demo", "noise__p_eta", -1e300),
    ("demo", "model__bias", 1e300),
]


@pytest.mark.parametrize(("base", "key", "value"), EXTREMES)
def test_numbers_at_the_end_of_floating_point_are_no_bug(base: str, key: str, value: Any, tmp_path: Path) -> None:
    """Squares and ratios of such steps are no numbers, and were an exit code of 70."""
    document = documents.edited(fuzzed.bases()[base], {key: value})
    verdict, said = fuzzed.judge(document, tmp_path)
    assert verdict in FINE, f"{verdict}: {said}"


@pytest.mark.parametrize("mutant", ["yes", "no"])
def test_a_check_that_disagrees_is_noticed(mutant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = fuzzed.run
    says = {"yes": 0, "no": 1}[mutant]
    monkeypatch.setattr(fuzzed, "run", lambda *a: (says, "") if a[0] == "check" else real(*a))
    good = fuzzed.bases()["quadratic"]
    document = good if mutant == "no" else documents.edited(good, {"scheme__alpha": 1e9})
    assert fuzzed.judge(document, tmp_path)[0] == f"check says {says}, simulate {2 if mutant == 'yes' else 0}"
