from __future__ import annotations

import warnings

import numpy as np
import pytest

from dpgt_node.privacy.laws import gaussian_sampler, grid, grid_sampler
from dpgt_node.privacy.laws import selftest as laws
from dpgt_node.privacy.laws.gaussian_sampler import GaussianSampler
from dpgt_node.privacy.laws.grid_sampler import GridLaplaceSampler
from dpgt_node.privacy.laws.registry import LAWS


@pytest.mark.parametrize("law", ["laplace", "gaussian"])
def test_this_machine_passes(law):
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # every daemon does it as it starts: it would be told on the terminal
        laws.self_test(law)


def test_samplers_of_the_laws():
    assert isinstance(LAWS["laplace"].sampler(None), GridLaplaceSampler)
    assert isinstance(LAWS["gaussian"].sampler(None), GaussianSampler)


def test_a_damaged_table_is_noticed(monkeypatch):
    direct = grid.TABLES.direct.copy()
    direct[100] = 9
    monkeypatch.setattr(grid, "TABLES", grid.Tables(direct, grid.TABLES.edges))
    with pytest.raises(RuntimeError, match="certificate"):
        laws.self_test("laplace")


def test_other_bits_are_noticed(monkeypatch):
    monkeypatch.setattr("dpgt_node.privacy.laws.grid_sampler._LOW40", 2**39 - 1)
    with pytest.raises(RuntimeError, match="other bits"):
        laws.self_test("laplace")
    monkeypatch.setattr(gaussian_sampler, "CELLS", 255)
    with pytest.raises(RuntimeError, match="other bits"):
        laws.self_test("gaussian")


@pytest.mark.parametrize("far", [False, True])
@pytest.mark.parametrize(("law", "sampler"), [("laplace", grid_sampler), ("gaussian", gaussian_sampler)])
def test_other_bits_of_a_compiled_loop_are_noticed(law, sampler, far, monkeypatch):
    """numpy alone draws what the known answers ask for: they hold values that the Laplace loop leaves to it."""
    loop = np.errstate(over="ignore")(sampler.kernel)
    monkeypatch.setattr(sampler, "kernel", loop)
    monkeypatch.setattr("dpgt_node.privacy.laws.compiled.machine_code", lambda of: of)
    laws.self_test(law, compiled=True)

    def off(*arguments):
        found = loop(*arguments)
        if (np.abs(arguments[0]) > 1e9).any() != far:
            return found
        arguments[-1].flat[7] += 1.0
        return found or far  # Laplace: as if it had drawn them

    monkeypatch.setattr(sampler, "kernel", off)
    laws.self_test(law)
    with pytest.raises(RuntimeError, match="other bits"):
        laws.self_test(law, compiled=True)


def test_an_inaccurate_library_is_noticed(monkeypatch):
    exact = gaussian_sampler._quantile
    # Too small a error to change these few known answers, too large to be trusted.
    monkeypatch.setattr(gaussian_sampler, "_quantile", lambda low: np.asarray(exact(low) * (1 + 2e-9)))
    with pytest.raises(RuntimeError, match="quantile"):
        laws.self_test("gaussian")
