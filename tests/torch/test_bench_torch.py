"""The measurements that need torch, in their smallest size."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.bench.smallest import bench, spreads
from tests.e2e import processes

pytestmark = pytest.mark.torch


def test_clipping_is_exact_and_keeps_to_its_memory() -> None:
    found = bench("clipping", "--model", "lenet", "--samples", 4, "--memory", 128, "--repeat", 1)
    assert found["failed"] == []
    assert [row["clip"] for row in found["rows"] if "clip" in row] == ["L2", "L1"]
    assert len(spreads(found)) == 3


def test_scale_with_a_torch_model() -> None:
    small = ("--agents", 3, "--rounds", 3, "--samples", 4, "--dataset", "digits", "--model", "mlp")
    assert bench("scale", *small)["failed"] == []


def test_rounds_beside_gloo() -> None:
    found = bench("rounds", "--agents", 2, "--rounds", 20, "--repeat", 1, "--gloo")
    (row,) = (row for row in found["rows"] if row["table"] == "launch beside gloo, over all pairs")
    assert row["ratio"]["median"] == row["launch"]["median"] / row["gloo"]["median"] > 0.0


def test_inversion_keeps_what_it_did(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    data = tmp_path / "pictures.npz"
    np.savez(data, x_test=rng.random((9, 784)), y_test=rng.integers(10, size=9))
    options = (data, "--out", tmp_path / "out", "--pictures", 1, "--steps", 2)
    np.savez(tmp_path / "few.npz", x_test=rng.random((8, 784)), y_test=rng.integers(10, size=8))
    done = processes.dpgt("bench", "inversion", tmp_path / "few.npz", *options[1:])
    assert done.returncode == 2 and "8 test pictures; 9 are needed" in done.stderr
    first = bench("inversion", *options)
    assert {row["what"] for row in first["rows"]} == {"one", "batch"}
    assert bench("inversion", *options)["rows"] == first["rows"]
