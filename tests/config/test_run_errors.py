"""Every bad input, one row: what is changed, the key that is named, and words of the message."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest

from dpgt_node.config import parse_document
from dpgt_node.errors import ConfigError
from tests.config.cases import DELETE, GOOD, S1, problems

INF, NAN = float("inf"), float("nan")
TOY = {"dataset": "quadratic", "dimension": 2}
TABLE = {"dataset": "csv:x", "label": "y"}
ONCE = {"algorithm.mechanism": "noise-once"}
SUMS = {**ONCE, "scheme.first": "class-sums", "privacy": {"clip_l1": 1}}
CANCEL = {**ONCE, "noise.law": "gaussian", "noise.cancel": 2, "noise.scale_eta": 0.1}
LINEAR = {"dataset": "pl-linear"}

BAD = [
    # sections and keys
    ({"typo": 1}, "typo", "unknown key"),
    ({"nmae": "x"}, "nmae", 'did you mean "name"?'),
    ({"grahp": {}}, "grahp", 'did you mean "graph"?'),
    ({"algorithm.iteratoins": 3}, "algorithm.iteratoins", 'did you mean "iterations"?'),
    ({"noise.Scale_zeta": 3.0}, "noise.Scale_zeta", 'did you mean "scale_zeta"?'),
    ({"adversary": {"tap": True}}, "adversary.tap", "unknown key"),
    ({"adversary": True}, "adversary", "must be a section"),
    ({"adversary.semi_honest": 3}, "adversary.semi_honest", "must be the name of an agent, not 3"),
    ({"adversary.semi_honest": "agent-4"}, "adversary.semi_honest", '"agent-4" is no agent of this run; did you mean'),
    ({"adversary.semi_honest": ["agent-1", 2]}, "adversary.semi_honest[1]", "must be the name of an agent, not 2"),
    ({"adversary.semi_honest": ["agent-1", "b"]}, "adversary.semi_honest[1]", '"b" is no agent of this run'),
    ({"adversary.semi_honest": ["agent-1"] * 2}, "adversary.semi_honest[1]", "is there twice"),
    ({"adversary.truth": 1}, "adversary.truth", "must be true or false"),
    ({"adversary.truth": True}, "adversary.truth", 'refused unless evaluate.metrics = "study"'),
    ({"adversary.truth": True, "evaluate.metrics": "local"}, "adversary.truth", 'unless evaluate.metrics = "study"'),
    ({"algorithm": DELETE}, "algorithm", "section [algorithm] is missing"),
    ({"scheme": DELETE}, "scheme", "section [scheme] is missing"),
    ({"noise": DELETE}, "noise", "section [noise] is missing"),
    ({"graph": DELETE}, "graph", "section [graph] is missing"),
    ({"data": DELETE}, "data", "section [data] is missing"),
    ({"algorithm": 3}, "algorithm", "must be a section [algorithm], not 3"),
    ({"runtime": [{}]}, "runtime", "must be a section"),
    ({"": 1}, '""', "unknown key"),
    ({"a\nb": 1}, '"a\\nb"', "unknown key"),
    # name
    ({"name": 3}, "name", "must be a string, not 3"),
    ({"name": " "}, "name", "printable"),
    ({"name": "a\x1b[31m"}, "name", "printable"),
    ({"name": "x" * 101}, "name", "at most 100"),
    # algorithm
    ({"algorithm.iterations": DELETE}, "algorithm.iterations", "is missing"),
    ({"algorithm.iterations": -1}, "algorithm.iterations", "must be >= 0, not -1"),
    ({"algorithm.iterations": 10.0}, "algorithm.iterations", "must be an integer, not 10.0"),
    ({"algorithm.iterations": True}, "algorithm.iterations", "must be an integer, not true"),
    ({"algorithm.iterations": "10"}, "algorithm.iterations", 'must be an integer, not "10"'),
    ({"runtime.wire_dtype": "float32", "noise.scale_eta": 1e34}, "noise.scale_eta", "makes noise leave float32"),
    ({"robust.rule": "trim", "robust.outliers": 1}, "robust.rule", "trimmed-mean"),
    ({"robust.rule": "self-clip", "robust.outliers": 0}, "robust.outliers", "must be >= 1"),
    ({"robust.tracker": "norm-clip", "robust.tracker_radius": 0}, "robust.tracker_radius", "must be > 0"),
    ({"robust.rule": "clipped-gossip"}, "robust.radius", "is missing"),
    ({"algorithm.iterations": 10**7 + 1}, "algorithm.iterations", "must be <= 10000000"),
    ({"algorithm.iterations": 10**30}, "algorithm.iterations", "beyond 10^18"),
    ({"algorithm.iterations": datetime.date(2024, 1, 1)}, "algorithm.iterations", "must be an integer, not a date"),
    ({"algorithm.method": "dgpt"}, "algorithm.method", 'did you mean "dpgt"?'),
    (
        {"algorithm.method": "s-ab", "algorithm.mechanism": "noise-once"},
        "algorithm.mechanism",
        'method "s-ab" has paper, not noise-once',
    ),
    (
        {"algorithm.method": "atc-dsgd", "algorithm.mechanism": "paper"},
        "algorithm.mechanism",
        'method "atc-dsgd" has noise-once, not paper',
    ),
    ({"algorithm.mechanism": 1}, "algorithm.mechanism", 'must be one of "paper", "published-point", '),
    # releases apart from rounds
    ({"scheme.release_every": 4}, "scheme.release_every", 'mechanism "paper" sends private state in every round'),
    ({"scheme.releases": [0]}, "scheme.releases", "noise-once has rounds that release nothing"),
    ({"scheme.settle": 1, "algorithm.mechanism": "public-state"}, "scheme.settle", "needs noise and is charged"),
    ({"scheme.release_every": 0}, "scheme.release_every", "must be >= 1, not 0"),
    ({"scheme.settle": -1}, "scheme.settle", "must be >= 0, not -1"),
    ({**ONCE, "scheme.settle": 11}, "scheme.settle", "there are 11 rounds, so at most 10 may settle"),
    ({**ONCE, "scheme.releases": [0, 11]}, "scheme.releases", "holds round 11, but the last round is 10"),
    ({**ONCE, "scheme.releases": [0, 9], "scheme.settle": 2}, "scheme.releases", "round 9, but rounds 9..10 settle"),
    ({**ONCE, "scheme.releases": [1, 2]}, "scheme.releases", "must begin with round 0, not 1"),
    ({**ONCE, "scheme.releases": [0, 3, 3]}, "scheme.releases", "must ascend: 3 comes after 3"),
    ({**ONCE, "scheme.releases": []}, "scheme.releases", "must be a list of 1 to 10^6 rounds"),
    ({**ONCE, "scheme.releases": 3}, "scheme.releases", "must be a list of 1 to 10^6 rounds"),
    ({**ONCE, "scheme.releases": [0, -1]}, "scheme.releases[1]", "must be >= 0, not -1"),
    ({**ONCE, "scheme.releases": [0, 1.5]}, "scheme.releases[1]", "must be an integer, not 1.5"),
    ({**ONCE, "scheme.releases": [0], "scheme.release_every": 2}, "scheme.releases", "not both"),
    ({"scheme.release_every": 1.5}, "scheme.release_every", "must be an integer, not 1.5"),
    ({"scheme.release_every": True}, "scheme.release_every", "must be an integer, not true"),
    ({"scheme.settle": "all"}, "scheme.settle", 'must be an integer, not "all"'),
    ({"scheme.settle": 0.5}, "scheme.settle", "must be an integer, not 0.5"),
    ({"scheme.releases": "all"}, "scheme.releases", "must be a list of 1 to 10^6 rounds"),
    ({"scheme.releases": [0, "a"]}, "scheme.releases[1]", 'must be an integer, not "a"'),
    ({"noise.by_release": [1, "a"]}, "noise.by_release[1]", "must be a number"),
    ({"noise.by_release": "a"}, "noise.by_release", "must be a list of 1 to 10^6 numbers"),
    ({"privacy.by_release": []}, "privacy.by_release", "must be a list of 1 to 10^6 numbers"),
    ({"privacy.by_release": 3}, "privacy.by_release", "must be a list of 1 to 10^6 numbers"),
    ({"privacy.by_release": "a"}, "privacy.by_release", "must be a list of 1 to 10^6 numbers"),
    ({"scheme.first": 3}, "scheme.first", 'must be one of "gradient", "class-sums"'),
    ({"noise.by_release": []}, "noise.by_release", "must be a list of 1 to 10^6 numbers"),
    ({"noise.by_release": 2.0}, "noise.by_release", "must be a list of 1 to 10^6 numbers"),
    ({"noise.by_release": [1, 0]}, "noise.by_release[1]", "must be > 0"),
    ({**ONCE, "noise.by_release": [1, 1e300]}, "noise.scale_eta", "makes a noise scale leave 1e-290 .. 1e290"),
    ({"privacy": {"clip_l1": 1, "by_release": [2]}}, "privacy.by_release", "holds several gradients"),
    ({**ONCE, "privacy": {"by_release": [2]}}, "privacy.by_release", "multiplies a clip: set clip_l1 or clip_l2"),
    ({"noise.decay": 0}, "noise.decay", "must be >= 1e-06"),
    ({**ONCE, "noise": {"scale_eta": 1e-288, "decay": 1e6}}, "noise.scale_eta", "makes a noise scale leave"),
    ({"privacy": {"clip_l1": 1, "decay": 2}}, "privacy.decay", "holds several gradients"),
    ({**ONCE, "privacy": {"C": 1, "decay": 2}}, "privacy.decay", "multiplies a clip: set clip_l1 or clip_l2"),
    ({**ONCE, "privacy": {"C": 1, "by_release": [2]}}, "privacy.by_release", "multiplies a clip"),
    ({**SUMS, "algorithm.mechanism": "public-state"}, "scheme.first", "noise-once has"),
    ({**SUMS, "privacy": {"C": 1}}, "scheme.first", "need clip_l1 or clip_l2"),
    ({**SUMS, "data": TOY}, "scheme.first", '"quadratic" has no classes'),
    ({**SUMS, "model.name": "mlp"}, "scheme.first", '"mlp" has other parameters'),
    ({**SUMS, "data": {"dataset": "npz:x", "classes": 2}}, "scheme.first", "are not bounded, so no clip fits them"),
    ({**SUMS, "data": TABLE}, "scheme.first", "set normalise, or take features of a fixed norm"),
    ({**SUMS, "data.features": "net:frozen"}, "scheme.first", 'features "net:frozen" of "digits" are not bounded'),
    ({"scheme.first": "class_sums"}, "scheme.first", 'did you mean "class-sums"?'),
    ({**ONCE, "scheme.first_scale": 0.5}, "scheme.first_scale", 'is no parameter of "gradient"'),
    ({**SUMS, "scheme.first_scale": 0}, "scheme.first_scale", "must be > 0"),
    # noise that cancels
    ({"noise.cancel": 0}, "noise.cancel", "must be >= 1, not 0"),
    ({"noise.cancel": 1.5}, "noise.cancel", "must be an integer, not 1.5"),
    ({**CANCEL, "noise.mask_graph": [[1, 2], [0, 3]]}, "noise.mask_graph[1]", "must be two agent numbers"),
    ({**CANCEL, "noise.mask_graph": [[1, 2], 3]}, "noise.mask_graph[1]", "must be two agent numbers"),
    ({**CANCEL, "noise.mask_graph": "rign"}, "noise.mask_graph", 'did you mean "ring"?'),
    ({**CANCEL, "noise.mask_graph": []}, "noise.mask_graph", 'must be "complete", "ring" or a list of pairs'),
    # scheme
    ({"scheme.kind": DELETE}, "scheme.kind", "is missing"),
    ({"scheme.kind": "S3"}, "scheme.kind", 'must be one of "S1", "S2"'),
    ({"scheme.kind": ["S1"]}, "scheme.kind", "not a list of 1"),
    ({"scheme.alpha": DELETE}, "scheme.alpha", "is missing"),
    ({"scheme.alpha": 0.0}, "scheme.alpha", "must be > 0"),
    ({"scheme.beta": -0.1}, "scheme.beta", "must be > 0, not -0.1"),
    ({"scheme.gamma": NAN}, "scheme.gamma", "must be finite, not nan"),
    ({"scheme.gamma": 10**400}, "scheme.gamma", "is too large"),
    ({"scheme.p_m": INF}, "scheme.p_m", "must be finite, not inf"),
    ({"scheme.p_m": 0}, "scheme.p_m", "must be > 0"),
    ({"scheme.p_m": 1e5, "algorithm.iterations": 10}, "scheme.p_m", "m_K larger than 2^53"),
    ({"scheme.a1": 1.0}, "scheme.a1", "is a key of scheme S1, not of S2"),
    ({"scheme": {**S1, "gamma": 1.0}}, "scheme.gamma", "is a key of scheme S2, not of S1"),
    *(({"scheme": {**S1, key: None}}, f"scheme.{key}", "must be a number") for key in S1 if key != "kind"),
    *(({"scheme": {**S1, key: 0}}, f"scheme.{key}", "must be > 0") for key in ("a1", "a2", "a3", "a4")),
    ({"scheme": {**S1, "p_m": -1}}, "scheme.p_m", "must be >= 0"),
    ({"scheme": {**S1, "p_m": 1e3}}, "scheme.p_m", "m_K larger than 2^53"),
    ({"scheme": {**S1, "p_beta": -1e9}}, "scheme.p_beta", "range of float64"),
    ({"scheme.samples": 0}, "scheme.samples", "must be >= 1, not 0"),
    ({"scheme.samples": 5.0}, "scheme.samples", "must be an integer, not 5.0"),
    ({"scheme.samples": "all"}, "scheme.samples", 'an integer >= 1 or "full"'),
    ({"scheme.samples": "full", "data": TOY}, "scheme.samples", "it has no samples"),
    # noise
    ({"noise.scale_zeta": DELETE}, "noise.scale_zeta", "give scale_zeta or p_zeta"),
    ({"noise.scale_eta": DELETE}, "noise.scale_eta", "give scale_eta or p_eta"),
    ({"noise.p_zeta": 0.9}, "noise.p_zeta", "give scale_zeta or p_zeta, not both"),
    ({"noise.p_eta": 0.9}, "noise.p_eta", "not both"),
    ({"noise.scale_zeta": 0.0}, "noise.scale_zeta", "must be > 0"),
    ({"noise.scale_zeta": INF}, "noise.scale_zeta", "must be finite"),
    ({"noise.scale_zeta": True}, "noise.scale_zeta", "must be a number, not true"),
    ({"noise.scale_eta": [0.1, 0.2]}, "noise.scale_eta", "has 2 values for 3 agents"),
    ({"noise.scale_eta": [0.1, -0.2, 0.1]}, "noise.scale_eta[1]", "must be > 0"),
    ({"noise.scale_eta": [0.1, "x", 0.1]}, "noise.scale_eta[1]", 'must be a number, not "x"'),
    ({"noise": {"multiplier": 0, "scale_zeta": -1.0}}, "noise.scale_zeta", "must be >= 0"),
    ({"noise": {"p_zeta": -0.5, "scale_eta": 1}}, "noise.p_zeta", "must be > 0 under scheme S2"),
    ({"noise": {"p_zeta": 1e-300, "scale_eta": 1}}, "noise.p_zeta", "noise scale"),
    ({"noise": {"p_zeta": 1, "p_eta": 1e9}, "scheme": S1}, "noise.p_eta", "noise scale"),
    ({"noise.scale_zeta": 1e-320}, "noise.scale_zeta", "leave 1e-290 .. 1e290"),
    ({"noise.scale_zeta": 1e308}, "noise.scale_zeta", "leave 1e-290 .. 1e290"),
    ({"noise.scale_eta": [0.1, 1e291, 0.1]}, "noise.scale_eta", "1e+291 (multiplier 1.0) makes"),
    ({"noise": {"p_zeta": 1, "scale_eta": 1e-200, "multiplier": 1e-100}}, "noise.scale_eta", "multiplier 1e-100"),
    ({"noise": {"p_zeta": 2, "scale_eta": 1, "multiplier": 1e289}}, "noise.p_zeta", "leave 1e-290"),
    (
        {"noise": {"p_zeta": -300, "scale_eta": 1}, "scheme": S1},
        "noise.p_zeta",
        "leave 1e-290",
    ),
    ({"noise": {"p_zeta": 300, "scale_eta": 1}, "scheme": S1}, "noise.p_zeta", "leave 1e-290"),
    ({"noise.law": "cauchy"}, "noise.law", 'must be one of "laplace", "gaussian"'),
    ({"noise.multiplier": -1.0}, "noise.multiplier", "must be >= 0"),
    ({"noise.multiplier": NAN}, "noise.multiplier", "must be finite"),
    # graph
    ({"graph.agents": DELETE}, "graph.agents", "is missing"),
    ({"graph.agents": 0}, "graph.agents", "must be 1 to 10000 agents"),
    ({"graph.agents": 10_001}, "graph.agents", "must be 1 to 10000 agents"),
    ({"graph.agents": True}, "graph.agents", "a number of agents or a list of names, not true"),
    ({"graph.agents": 3.0}, "graph.agents", "a number of agents or a list of names, not 3.0"),
    ({"graph.agents": []}, "graph.agents", "1 to 10000 names"),
    ({"graph.agents": ["a", "b", 3]}, "graph.agents[2]", "must be a name"),
    ({"graph.agents": ["a", "b", "-c"]}, "graph.agents[2]", "is not a name"),
    ({"graph.agents": ["a", "b", "c d"]}, "graph.agents[2]", "is not a name"),
    ({"graph.agents": ["a", "b", "c\n"]}, "graph.agents[2]", "is not a name"),
    ({"graph.agents": ["a", "b", "c" * 64]}, "graph.agents[2]", "is not a name"),
    ({"graph.agents": ["a", "b", "../x"]}, "graph.agents[2]", "is not a name"),
    ({"graph.agents": ["a", "b", "A"]}, "graph.agents[2]", "an agent name twice"),
    ({"graph.R": DELETE}, "graph.R", "is missing"),
    ({"graph.C": DELETE}, "graph.C", "is missing"),
    ({"graph.R": 3}, "graph.R", "must be a list of rows"),
    ({"graph.R": [[0, 1], [1, 0]]}, "graph.R", "has 2 rows for 3 agents"),
    ({"graph.C": [[0, 0, 1], [1, 0], [0, 1, 0]]}, "graph.C[1]", "has 2 entries; the matrix must be 3 x 3"),
    ({"graph.C": [[0, 0, 1], 7, [0, 1, 0]]}, "graph.C[1]", "must be a row of numbers"),
    ({"graph.R": [[0, 0, -1], [1, 0, 0], [0, 1, 0]]}, "graph.R[0][2]", "must be >= 0, not -1"),
    ({"graph.R": [[0, 0, NAN], [1, 0, 0], [0, 1, 0]]}, "graph.R[0][2]", "must be finite"),
    ({"graph.R": [[0, 0, INF], [1, 0, 0], [0, 1, 0]]}, "graph.R[0][2]", "must be finite"),
    ({"graph.R": [[0, 0, True], [1, 0, 0], [0, 1, 0]]}, "graph.R[0][2]", "must be a number, not true"),
    # data
    ({"data.dataset": DELETE}, "data.dataset", "is missing"),
    ({"data.dataset": 3}, "data.dataset", "must be a string"),
    ({"data.dataset": "digit"}, "data.dataset", 'did you mean "digits"?'),
    ({"data.dataset": "minst"}, "data.dataset", 'did you mean "mnist"?'),
    ({"data.dataset": "csv:x.csv"}, "data.label", "is missing"),
    ({"data.dataset": "csv:", "data.label": "y"}, "data.dataset", "needs a path"),
    (
        {"data.dataset": "csv:x", "data.label": "y", "data.test": "t", "data.test_fraction": 0.1},
        "data.test_fraction",
        "not both",
    ),
    ({"data": {**TABLE, "test_fraction": 1.0}}, "data.test_fraction", "must be < 1"),
    ({"data.dataset": "npz:x.npz", "data.label": "y"}, "data.label", '"npz:x.npz" (it is one of'),
    ({"data.dataset": "npz:x.npz", "data.classes": 0}, "data.classes", "must be >= 1"),
    ({"data.dataset": "npz:x.npz", "data.classes": []}, "data.classes", "must hold 1 to 65,536 names, not 0"),
    ({"data.dataset": "npz:x.npz", "data.classes": ["a", "b", "a"]}, "data.classes", '"a" is there twice'),
    ({"data.dataset": "npz:x.npz", "data.classes": ["a", 2]}, "data.classes[1]", "must be a string"),
    ({"data.dataset": "npz:x.npz", "data.classes": "ab"}, "data.classes", "must be an integer"),
    ({"data.dataset": "my-module:make"}, "data.dataset", "is not a data set"),
    ({"data.dataset": "npz:"}, "data.dataset", "needs a path"),
    ({"data.features": "my-module:make"}, "data.features", "must be one of"),
    ({"data.features": "rw"}, "data.features", 'did you mean "raw"?'),
    ({"data.normalise": "max"}, "data.normalise", "must be one of"),
    ({"data.partition": "dirichlet"}, "data.alpha", "is missing"),
    ({"data.partition": "dirichlet", "data.alpha": 0.0}, "data.alpha", "must be > 0"),
    ({"data.alpha": 0.1}, "data.alpha", 'no parameter of partition "iid" (it is one of "dirichlet")'),
    ({"data.partition": "shards", "data.num_shards_per_partition": 0}, "data.num_shards_per_partition", "must be >= 1"),
    ({"data.partition": "by-label", "data.class_assignment_mode": "x"}, "data.class_assignment_mode", "must be one of"),
    ({"data.partition": "by-labels"}, "data.partition", 'did you mean "by-label"?'),
    ({"data.partition": "idd"}, "data.partition", 'did you mean "iid"?'),
    ({"data.seed": -1}, "data.seed", "must be >= 0"),
    ({"data.seed": 1.0}, "data.seed", "must be an integer"),
    ({"data.seed": 2**53 + 1}, "data.seed", "must be <="),
    ({"data.dimension": 3}, "data.dimension", 'is no parameter of "digits" (it is one of "quadratic")'),
    ({"data": {"dataset": "quadratic"}}, "data.dimension", "is missing"),
    ({"data": {"dataset": "zeros"}}, "data.dimension", "is missing"),
    ({"data": {**TOY, "dimension": 0}}, "data.dimension", "must be >= 1"),
    ({"data": {**TOY, "dimension": 2.0}}, "data.dimension", "must be an integer"),
    ({"data": {**TOY, "dimension": 10**9 + 1}}, "data.dimension", "must be <="),
    ({"data": {**TOY, "start": 1.0}}, "data.start", 'no parameter of "quadratic" (it is one of "pl-sine")'),
    ({"data": {**TOY, "partition": "iid"}}, "data.partition", "has no samples"),
    ({"data": {**TOY, "features": "raw"}}, "data.features", "has no samples"),
    ({"data": {**TOY, "alpha": 0.1}}, "data.alpha", "has no samples"),
    ({"data": {"dataset": "pl-sine", "dimension": 1}}, "data.dimension", 'no parameter of "pl-sine"'),
    ({"data": {"dataset": "pl-sine", "start": INF}}, "data.start", "must be finite"),
    ({"data": {**LINEAR, "rows": 4}}, "data.rows", "must be >= dimension = 5"),
    ({"data": {**LINEAR, "dimension": 0}}, "data.dimension", "must be >= 1"),
    ({"data": {**LINEAR, "dimension": 10_000, "rows": 10**8}}, "data.rows", "rows * dimension"),
    # model
    ({"model.name": "resnet"}, "model.name", 'did you mean "resnet18"?'),
    ({"model.precision": "float32"}, "model.precision", 'is no parameter of "softmax"'),
    ({"model.name": "lenet", "model.bias": 1.0}, "model.bias", 'is no parameter of "lenet"'),
    ({"model.name": "lenet", "model.precision": "float16"}, "model.precision", "must be one of"),
    ({"model.name": "lenet", "model.memory_mb": 0}, "model.memory_mb", "must be >= 1"),
    ({"model.name": "sotfmax"}, "model.name", 'did you mean "softmax"?'),
    ({"model.init_seed": -1}, "model.init_seed", "must be >= 0"),
    ({"model.init_seed": "x"}, "model.init_seed", "must be an integer"),
    ({"model.bias": -1}, "model.bias", "must be >= 0"),
    ({"model.norm": "layer"}, "model.norm", "must be one of"),
    ({"data": TOY, "model.name": "softmax"}, "model.name", '"quadratic" has no model'),
    # privacy
    ({"privacy": {"clip_l1": 1, "C": 1}}, "privacy", "at most one of clip_l1, clip_l2, C, not clip_l1 and C"),
    ({"privacy": {"clip_l1": 1, "clip_l2": 1}}, "privacy", "at most one of"),
    ({"privacy.clip_l1": 0}, "privacy.clip_l1", "must be > 0"),
    ({"privacy.clip_l1": 9e-101}, "privacy.clip_l1", "must be >= 1e-100, not 9e-101: norms are sums of squares"),
    ({"privacy.clip_l2": 1e-200}, "privacy.clip_l2", "must be >= 1e-100, not 1e-200: norms are sums of squares"),
    ({"privacy.C": 1e-320}, "privacy.C", "squares of much smaller numbers are 0"),
    ({"privacy.clip_l2": INF}, "privacy.clip_l2", "must be finite"),
    ({"privacy.C": -1}, "privacy.C", "must be > 0"),
    ({"privacy.delta": 0.0}, "privacy.delta", "must be > 0"),
    ({"privacy.delta": 1}, "privacy.delta", "must be < 1"),
    # evaluate
    ({"evaluate.every": 0}, "evaluate.every", "must be >= 1"),
    ({"evaluate.metrics": "none"}, "evaluate.metrics", 'must be one of "study", "local"'),
    ({"evaluate.samples": 0}, "evaluate.samples", "must be >= 1"),
    # runtime
    ({"runtime.wire_dtype": "float16"}, "runtime.wire_dtype", 'must be one of "auto", "float64", "float32"'),
    ({"runtime.round_timeout": 0}, "runtime.round_timeout", "must be > 0"),
    ({"runtime.round_timeout": INF}, "runtime.round_timeout", "must be finite"),
    ({"runtime.register_timeout": -5}, "runtime.register_timeout", "must be > 0"),
    ({"runtime.register_timeout": 1e8}, "runtime.register_timeout", "must be <="),
    ({"runtime.round_timeout_s": 5}, "runtime.round_timeout_s", 'did you mean "round_timeout"?'),
    ({"runtime.on_agent_loss": "crash"}, "runtime.on_agent_loss", 'must be one of "wait", "stop"'),
    ({"runtime.barrier_every": 0}, "runtime.barrier_every", "must be >= 1"),
    ({"runtime.channel": "tls"}, "runtime.channel", 'must be one of "mtls", "plain"'),
]


@pytest.mark.parametrize(("changes", "key", "words"), BAD, ids=[f"{key}: {words}" for _, key, words in BAD])
def test_one_problem_is_reported_once(changes, key, words):
    found = problems(changes)
    assert [k for k, _ in found] == [key], found
    assert words in found[0][1]
    assert "\n" not in found[0][1]


def test_the_unspoiled_run_is_good():
    assert problems({}) == []


def test_all_problems_at_once():
    changes = {
        "nmae": 1,
        "algorithm.iterations": -1,
        "algorithm.method": "dgpt",
        "graph.agents": ["a", "A", "b"],
        "graph.R": [[0, 0, -1], [1, 0], [0, NAN, 0]],
        "scheme.alpha": DELETE,
        "scheme.a1": 1,
        "scheme.samples": 0,
        "noise.scale_eta": [1, 2],
        "noise.law": "cauchy",
        "data.seed": 0.5,
        "model.bias": "1",
        "privacy": {"clip_l1": 1, "clip_l2": -1, "delta": 2},
        "evaluate.every": 0,
        "runtime": {"channel": "tls", "round_timeout": 0, "register_timeout": NAN},
    }
    expected = """nmae algorithm.iterations algorithm.method graph.agents[1] graph.R[0][2] graph.R[1] graph.R[2][1]
        scheme.alpha scheme.a1 scheme.samples noise.scale_eta noise.law data.seed model.bias privacy privacy.clip_l2
        privacy.delta evaluate.every runtime.channel runtime.round_timeout runtime.register_timeout"""
    assert sorted(key for key, _ in problems(changes)) == sorted(expected.split())


def test_the_text_of_the_error_has_one_line_a_problem():
    with pytest.raises(ConfigError) as caught:
        parse_document({**GOOD, "x": 1, "y": 2}, "run.toml", Path())
    assert str(caught.value) == "run.toml: x: unknown key\nrun.toml: y: unknown key"


def test_missing_keys_come_together():
    empty = {key: {} for key in ("algorithm", "scheme", "noise", "graph", "data")}
    keys = [key for key, _ in problems(empty)]
    assert keys == [
        "algorithm.iterations",
        "graph.agents",
        "graph.R",
        "graph.C",
        "scheme.kind",
        "noise.scale_zeta",
        "noise.scale_eta",
        "data.dataset",
    ]


def test_an_empty_file_names_the_five_sections():
    with pytest.raises(ConfigError) as caught:
        parse_document({}, "run.toml", Path())
    assert [p.key for p in caught.value.problems] == ["algorithm", "graph", "scheme", "noise", "data"]


def test_many_bad_entries_are_counted_not_listed():
    found = problems({"graph.R": [[-1, -1, -1], [-1, -1, -1], [-1, -1, -1]]})
    assert len(found) == 6
    assert found[-1] == ("graph.R", "has 4 more bad entries")


def test_agents_and_matrices_are_checked_together():
    found = problems({"graph.agents": ["a", "a", "!"], "graph.R": [[0]], "graph.C": {"generator": "rnig"}})
    assert [key for key, _ in found] == ["graph.agents[1]", "graph.agents[2]", "graph.R", "graph.C.generator"]


def test_rows_that_are_right_are_not_blamed_for_rows_that_lack() -> None:
    assert problems({"graph.R": [[0, 1, 0], [1]]}) == [
        ("graph.R", "has 2 rows for 3 agents"),
        ("graph.R[1]", "has 1 entries; the matrix must be 3 x 3"),
    ]


def test_an_unknown_generator_hides_no_other_mistake() -> None:
    found = problems({"graph.R": {"generator": "Ring", "wieght": 2, "chord": [1, 2]}})
    assert [key for key, _ in found] == ["graph.R.generator", "graph.R.wieght"] and '"weight"' in found[1][1]


@pytest.mark.parametrize(
    ("changes", "why"), [({}, "it is p^K, and K = "), ({"scheme": S1}, "it is (k+1)^p in round k, up to ")]
)
def test_a_scale_that_rounds_take_out_of_range_says_so(changes, why):
    noise = {"p_zeta": 1e5, "scale_eta": 1}
    ((_, message),) = problems({"noise": noise, "algorithm.iterations": 200, **changes})
    assert f"makes a noise scale leave 1e-290 .. 1e290: {why}200" in message
