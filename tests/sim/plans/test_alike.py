"""How alike shards are, as it is stated."""

from __future__ import annotations

import numpy as np
import pytest

from dpgt_node.config.model import Data
from dpgt_node.errors import ConfigError
from dpgt_node.sim.plans.alike import Alike
from tests.learning.cases import run


@pytest.mark.parametrize(
    ("text", "words", "alike"),
    [("iid", "iid", True), ("by-label:2", "by-label (2)", False), ("dirichlet:0.1", "inner-dirichlet (0.1)", False)],
)
def test_what_may_be_stated(text, words, alike):
    found = Alike.stated(text)
    assert (found.words, found.all_alike) == (words, alike)


@pytest.mark.parametrize(
    "text",
    ["", "iid:2", "by-label", "by-label:0", "by-label:x", "dirichlet:0", "dirichlet:nan", "dirichlet:inf", "x:1"],
)
def test_anything_else_is_refused(text):
    with pytest.raises(ConfigError, match="--alike: must be iid, by-label:N"):
        Alike.stated(text)


def test_the_run_file_says_it_by_its_partition():
    made = run("digits", partition="by-label", num_classes_per_partition=3, class_assignment_mode="deterministic")
    assert Alike.of(made).words == "by-label (3)"
    assert Alike.of(run("digits", partition="contiguous")).all_alike, "the order of a file says nothing"
    assert Alike.of(run("digits")) == Alike("iid", {}, 0) and Data("digits").partition == "iid"


def test_mixtures_are_those_of_the_partition():
    two = Alike.stated("by-label:2").mixtures(10, (500, 100, 1000))
    assert [np.flatnonzero(counts).tolist() for counts in two] == [[0, 1], [2, 3], [4, 5]]
    assert [int(counts.sum()) for counts in two] == [500, 100, 1000]
    (even,) = Alike().mixtures(4, (400,))
    assert even.sum() == 400 and even.min() > 60
    skewed = Alike.stated("dirichlet:0.05").mixtures(10, (600,) * 20)
    assert np.mean([counts.max() / 600 for counts in skewed]) > 0.6


@pytest.mark.parametrize(
    ("kind", "params"),
    [
        ("dirichlet", {"alpha": 0.5, "min_partition_size": 900, "self_balancing": True}),
        ("inner-dirichlet", {"alpha": 0.5, "partition_size": 12_000}),
    ],
)
def test_sizes_of_the_agents_do_not_bind_stand_ins(kind, params):
    shards = Alike(kind, params).shards(np.random.default_rng(0).integers(10, size=300), 3)
    assert sum(map(len, shards)) == 300
