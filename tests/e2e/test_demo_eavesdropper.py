"""The demo's eavesdropper: nothing of mTLS but its traffic, every digit without noise, none with it."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from PIL import Image

from dpgt_node.adversary.results import load
from dpgt_node.agent.noise import account_for
from dpgt_node.algo.graph import Topology
from dpgt_node.algo.schedule import Schedule
from dpgt_node.cli.eavesdrop.demo import _in_the_clear, _outcome, _write_digits, one_sample
from dpgt_node.config import demo_toml, load_run, parse_run
from tests.cli.columns import too_long
from tests.e2e.processes import no_traceback, on_a_terminal

pytestmark = pytest.mark.e2e


def test_the_demo_shows_what_noise_and_tls_are_for(tmp_path: Path) -> None:
    out = tmp_path / "demo"
    code, shown = on_a_terminal("demo", "--iterations", 12, "--out", out)
    assert code == 0, shown
    no_traceback(shown)
    assert not too_long(shown)
    said = " ".join(re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown).split())
    report, eavesdropper = said.split(" What an eavesdropper has of it ")
    assert report.endswith(f"Report: {out / 'report.html'}") and eavesdropper.endswith("dpgt demo --private")
    tls, without, with_noise = re.split("five agents with one digit each|the same with noise", eavesdropper)
    assert "over mTLS: 0 payloads recovered; 7 links" in tls
    assert "5 of 5 digits recovered" in without and "5 of 5 labels right, cosine of gradients 1.00" in without
    assert " 0 of 5 digits recovered" in with_noise
    assert f"The digits, true and recovered: {out / 'eavesdropper.png'}" in with_noise
    assert "WARNING" not in eavesdropper
    summary = json.loads((out / "summary.json").read_text())
    assert summary["rounds"] == 13 and summary["headline"] == "corrected"

    results, skipped = load(out / "adversary")
    assert skipped == {} and [r.attack.split(",")[0] for r in results] == [
        "five digits on the wire", "traffic", "gradients", "labels", "inversion", "gradients", "labels", "inversion"
    ]  # fmt: skip
    true, clean, noisy = results[0].pictures.values()
    assert true.shape == clean.shape == noisy.shape == (5, 8, 8)
    assert np.abs(true - clean).max() < 1e-9 and np.abs(true - noisy).mean() > 0.1
    assert {f.verdict for f in results[4].findings} == {"succeeds"}
    assert {f.verdict for f in results[7].findings} <= {"fails", "partly"}
    assert Image.open(io.BytesIO((out / "eavesdropper.png").read_bytes())).size[0] > 300
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "<h2>Adversary</h2>" in page and "five digits on the wire" in page and "data:image/png;base64," in page
    places = [out / "eavesdrop" / name for name in ("without-noise", "with-noise")]
    clear = [json.loads((place / "summary.json").read_text()) for place in places]
    assert clear[0]["agents"][0]["epsilon"]["lemma5"] == "inf"
    assert clear[1]["agents"][0]["epsilon"]["lemma5"] == pytest.approx(
        # The same noise for one sample: what three rounds of the demo itself cost under the paper's accountant.
        three_rounds(out), rel=1e-9
    )  # fmt: skip


def three_rounds(out: Path) -> float:
    run = load_run(out / "run.toml")
    account = account_for(run, Topology.from_config(run.graph), Schedule.from_config(run), 0, 287, 650)
    cost = account.epsilon_after(2)["lemma5"]
    assert cost is not None
    return cost


def test_the_private_demos_noise_hides_the_digits_too(tmp_path: Path) -> None:
    run = parse_run(demo_toml(private=True), "demo", tmp_path)
    _write_digits(run, tmp_path / "digits.npz")
    for noise, expected in ((False, {"succeeds"}), (True, {"fails", "partly"})):
        *_, inversion = _in_the_clear(one_sample(run, tmp_path / "digits.npz", noise), tmp_path)
        assert {finding.verdict for finding in inversion.findings} <= expected
        assert len(inversion.pictures) == 10


def test_a_cosine_of_nothing_has_no_minus() -> None:
    one = SimpleNamespace(measured={"B_cosine": -0.001, "psnr_db": 5.0, "label_accuracy": 0.0}, verdict="fails")
    assert _outcome([cast(Any, SimpleNamespace(findings=[one]))]).endswith("cosine of gradients 0.00")
