"""A run as frozen values, and every key of RUN.toml with them: ``declare.keys`` says how.

A new key of an ordinary table is one field here.  In a run file it needs ``later=True`` or the default None, so that
runs without it keep their hash.
"""

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Annotated, Any, Literal

from dpgt_node.config.declare.keys import AtMostOne, Key, When
from dpgt_node.config.declare.kinds import Choice, Integer, Number, Text
from dpgt_node.config.graphs.matrices import Matrix as Matrix
from dpgt_node.config.graphs.matrices import MatrixForm
from dpgt_node.config.methods import METHOD_KEYS
from dpgt_node.config.mixing.robust import PLAIN, Robust
from dpgt_node.config.own_kinds import (
    NORM_BOUND,
    Agents,
    Dataset,
    Names,
    PerAgent,
)
from dpgt_node.config.parameters import DATASET_KEYS, PARTITION_KEYS
from dpgt_node.config.privacy.cancelling import CANCEL, MASK_GRAPH, Pairs
from dpgt_node.config.privacy.releases import PerRelease
from dpgt_node.config.privacy.traffic import OPEN, Traffic
from dpgt_node.config.roles import NOBODY, ActiveRoles, Roles
from dpgt_node.config.schemes import Samples as Samples
from dpgt_node.config.schemes import Scheme as Scheme
from dpgt_node.config.schemes import SchemeS1 as SchemeS1
from dpgt_node.config.schemes import SchemeS2 as SchemeS2
from dpgt_node.config.vocabulary import (
    FEATURES,
    LAWS,
    LAWS_PLANNED,
    MAX_ITERATIONS,
    MAX_TIMEOUT_S,
    MECHANISMS,
    METHODS,
    MODELS,
    PARTITIONS,
    TOYS,
)
from dpgt_node.privacy.laws.registry import DEFAULT as DEFAULT_LAW
from dpgt_node.privacy.mechanisms import DEFAULT
from dpgt_node.types import NoiseLaw
from dpgt_node.values import dataclass

DECAY = Number(at_least=1e-6, at_most=1e6)
Scalar = str | int | float | bool
Parameter = Any
"""Of a data set or a partition: a :data:`Scalar`, or a tuple of names.  The declaration of its key says which."""


@dataclass(frozen=True, slots=True)
class Algorithm:
    """``iterations`` is K: rounds k = 0..K."""

    iterations: Annotated[int, Key("K: rounds k = 0..K, result x_{K+1}", Integer(0, MAX_ITERATIONS))]
    method: Annotated[str, Key("the recursion that agents carry out", METHODS)] = "dpgt"
    mechanism: Annotated[
        str,
        Key(
            "what is noised, and what is released of it; a method other than dpgt has its own default",
            MECHANISMS,
        ),
    ] = DEFAULT.name


@dataclass(frozen=True, slots=True)
class NoiseStream:
    """Laplace scales of one stream, one value per agent in ``graph.agents`` order.

    ``constant``: sigma_k = value.  ``exponent``: S1 sigma_k = (k+1)^value, S2 sigma_k = value^K.
    """

    kind: Literal["constant", "exponent"]
    values: tuple[float, ...]


_SCALE, _EXPONENT = PerAgent(Number(at_least=0.0)), PerAgent(Number())


@dataclass(frozen=True, slots=True)
class Noise:
    """``multiplier`` scales every sigma; 0 switches the noise off (then zeta and eta may be None)."""

    zeta: Annotated[
        NoiseStream | None,
        Key("constant scale of the noise in x; > 0 where it is drawn", _SCALE, "scale_zeta", default=None),
        Key("instead of scale_zeta: sigma_k = (k+1)^p under S1, p^K under S2", _EXPONENT, "p_zeta", default=None),
    ]
    eta: Annotated[
        NoiseStream | None,
        Key('the same in y, or under "noise-once" on the gradient', _SCALE, "scale_eta", default=None),
        Key("instead of scale_eta: sigma_k = (k+1)^p under S1, p^K under S2", _EXPONENT, "p_eta", default=None),
    ]
    law: Annotated[
        NoiseLaw,
        Key(
            "of all noise; a scale is b of Laplace (variance 2 b^2) or the standard deviation",
            Choice(LAWS, LAWS_PLANNED),
        ),
    ] = DEFAULT_LAW.name
    multiplier: Annotated[
        float,
        Key(
            "times every scale; 0.0 switches the noise off, needs no scales, and makes every epsilon infinite",
            Number(at_least=0.0),
        ),
    ] = 1.0
    by_release: Annotated[
        tuple[float, ...] | None,
        Key("times every scale, a number a release; the last one holds for all further releases", PerRelease()),
    ] = None
    decay: Annotated[
        float | None,
        Key("every scale times decay^(-k/K) in round k: 2.0 halves it by the end", DECAY, absent="1.0"),
    ] = None
    cancel: Annotated[int | None, CANCEL] = None
    mask_graph: Annotated[str | Pairs | None, MASK_GRAPH] = None


@dataclass(frozen=True, slots=True)
class Graph:
    """R[i][j] > 0: agent i receives x̆ from j.  C[i][j] > 0: agent i receives y̆ from j.  Row i-1 is agents[i-1]."""

    agents: Annotated[
        tuple[str, ...],
        Key(
            "5 means agent-1 .. agent-5; a name is 1 to 63 letters, digits, '.', '_', '-'; case does not count",
            Agents(),
        ),
    ]
    R: Annotated[Matrix, Key("R[i][j] > 0: agent i receives x from agent j; weights >= 0", MatrixForm())]
    C: Annotated[Matrix, Key("C[i][j] > 0: agent i receives y from agent j; weights >= 0", MatrixForm())]


_SAMPLED = When("dataset", TOYS, holds=False, text="not for toys")


@dataclass(frozen=True, slots=True)
class Data:
    """``dataset``: digits | npz:PATH | quadratic | zeros | pl-sine | pl-linear | later ones.

    ``params`` holds the further keys of [data] that belong to the data set or the partition
    (``dimension``, ``rows``, ``start``, ...), validated by name for that data set.
    """

    dataset: Annotated[str, Key("where the samples come from; a path is relative to the run file", Dataset())]
    features: Annotated[
        str,
        Key(
            "of one sample at a time, learnt from nobody's data",
            FEATURES,
            only=_SAMPLED,
        ),
    ] = "raw"
    normalise: Annotated[
        Literal["none", "l1", "l2", "sphere"],
        Key(
            "each sample's features divided by their own norm; sphere: sqrt(p)/4 is appended to the p features, then "
            "l2, so that their size is not lost",
            only=_SAMPLED,
        ),
    ] = "none"
    partition: Annotated[str, Key("who gets which samples", PARTITIONS, only=_SAMPLED)] = "iid"
    seed: Annotated[int, Key("of the partition; of A and d of pl-linear")] = 0
    params: Annotated[Mapping[str, Parameter], DATASET_KEYS, PARTITION_KEYS] = field(default_factory=dict)


_TORCH = When("name", ("softmax",), holds=False, text="torch models only")


@dataclass(frozen=True, slots=True)
class Model:
    """``init_seed`` None: the model's own default start (softmax: zero; torch models: that of seed 0).

    ``bias``, of softmax: 0 no bias; s: bias times s.  ``norm``, ``precision`` and ``memory_mb``, of torch models: the
    last one bounds what clipping holds at a time, in MiB.  ``temperature``, of softmax: see ``learning.temperature``.
    """

    name: Annotated[str, Key("what is trained", MODELS)] = "softmax"
    init_seed: Annotated[
        int | None,
        Key(
            "random initial values, the same at every agent",
            Integer(),
            absent="softmax starts at zero, the others at those of seed 0",
        ),
    ] = None
    bias: Annotated[
        float,
        Key(
            "0: no bias; s: the bias times s",
            Number(at_least=0.0),
            only=When("name", ("softmax",), text="softmax only"),
        ),
    ] = 1.0
    norm: Annotated[Literal["batch", "group"], Key("of models that have such layers")] = "batch"
    precision: Annotated[
        Literal["float32", "float64", "bfloat16"],
        Key(
            "bfloat16: parameters stay float32, the passes are cast; sums over samples are float64 always", only=_TORCH
        ),
    ] = "float32"
    memory_mb: Annotated[
        int,
        Key("what clipping holds at a time, besides the gradient itself", Integer(1, 1 << 20), only=_TORCH, unit="MiB"),
    ] = 512
    temperature: Annotated[
        float | None,
        Key(
            "the exported model divides its logits by it; training knows nothing of it. `dpgt plan` takes it from "
            "stand-in data: no epsilon covers one that was chosen on private rows",
            Number(above=0.0),
            only=When("name", ("softmax",), text="softmax only"),
            absent="1",
        ),
    ] = None


@dataclass(frozen=True, slots=True)
class Privacy:
    """At most one of: clip_l1 (C = 2 clip_l1), clip_l2, C (declared, not enforced)."""

    clip_l1: Annotated[
        float | None,
        Key("each sample's gradient is clipped to this L1 norm; C = 2 clip_l1", NORM_BOUND),
        AtMostOne(("clip_l1", "clip_l2", "C")),
    ] = None
    clip_l2: Annotated[float | None, Key("each sample's gradient is clipped to this L2 norm", NORM_BOUND)] = None
    C: Annotated[float | None, Key("the paper's constant, declared and not enforced", NORM_BOUND)] = None
    delta: Annotated[float, Key("of every (epsilon, delta)", Number(above=0.0, below=1.0))] = 1e-5
    by_release: Annotated[
        tuple[float, ...] | None,
        Key(
            "times the clip, a number a release; the last one holds for all further releases; noise-once only",
            PerRelease(),
        ),
    ] = None

    decay: Annotated[
        float | None,
        Key("the clip times decay^(-k/K) in round k; noise-once only", DECAY, absent="1.0"),
    ] = None

    @property
    def adjacency(self) -> float | None:
        """The constant C of Definition 3 in L1: 2 clip_l1, or the declared C, or None."""
        if self.clip_l1 is not None:
            return 2.0 * self.clip_l1
        return self.C

    @property
    def enforced(self) -> bool:
        """Whether C is enforced by clipping every per-sample gradient."""
        return self.clip_l1 is not None or self.clip_l2 is not None


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Metrics rows 0, every, 2 every, ..., K+1.  ``samples``: of so many samples of each set; None: all."""

    every: Annotated[int, Key("metrics at k = 0, every, 2 every, ..., K+1", Integer(1, 10**9))] = 10
    metrics: Annotated[
        Literal["study", "local"],
        Key("study: the coordinator receives every x, outside the privacy guarantee"),
    ] = "local"
    samples: Annotated[
        int | None,
        Key(
            "so many of the agent's samples and of the test set, evenly spaced, always the same ones",
            Integer(1),
            absent="all",
        ),
    ] = None


_TIMEOUT = Number(above=0.0, at_most=MAX_TIMEOUT_S)


@dataclass(frozen=True, slots=True)
class Runtime:
    """How the run is carried; nothing here changes the mathematics except the wire dtype."""

    wire_dtype: Annotated[
        Literal["auto", "float64", "float32"], Key("auto: float64 below d = 100,000, float32 above")
    ] = "auto"
    round_timeout_s: Annotated[float, Key("without progress", _TIMEOUT, "round_timeout", unit="seconds")] = 60.0
    register_timeout_s: Annotated[
        float, Key("for all agents to register", _TIMEOUT, "register_timeout", unit="seconds")
    ] = 300.0
    on_agent_loss: Annotated[Literal["wait", "stop"], Key("wait for an agent that is gone, or stop the run")] = "wait"
    barrier_every: Annotated[int, Key("rounds that the barrier may let through at once", Integer(1, 1_000_000))] = 1
    channel: Annotated[
        Literal["mtls", "plain"], Key("between hosts: TLS with certificates of both sides, or nothing")
    ] = "mtls"
    on_forgery: Annotated[
        Literal["stop", "continue"],
        Key("stop the run where agents disagree on what one of them sent, or name it and go on", later=True),
    ] = "stop"


@dataclass(frozen=True, slots=True)
class Adversary:
    """What a study of adversaries records; nothing without it.

    ``semi_honest``: agents, in the order of the graph, each of which writes the transcript of what it legitimately
    sees.  ``active``: agents that attack the run.  ``truth``: every agent writes its private values as study files.
    """

    semi_honest: Annotated[
        tuple[str, ...],
        Key(
            "each of them writes state_dir/transcript: every released vector that it received, and its own",
            Names(),
            absent="nobody",
        ),
    ] = ()
    active: Annotated[
        Roles,
        Key(
            "agents that do not follow the protocol, for studies: poison, trap, imprint, replay, equivocate, withhold, "
            "delay or repeat, with options, and several of them with semicolons between",
            ActiveRoles(),
            later=True,
            absent="nobody",
        ),
    ] = NOBODY
    truth: Annotated[
        bool,
        Key('every agent writes its private values to state_dir/truth; refused unless evaluate.metrics = "study"'),
    ] = False


@dataclass(frozen=True, slots=True)
class RunConfig:
    """A whole RUN.toml, resolved: names, per-agent tuples and matrices instead of shorthands.

    ``method_options`` is the table [method] as the file gives it; the method itself says what it means.
    ``base`` is the folder of the run file, for relative data paths; it is no part of the run's identity.
    """

    name: Annotated[str, Key("appears in results", Text(100), default="run")]
    algorithm: Annotated[Algorithm, Key("what is computed")]
    scheme: Annotated[Scheme, Key("step sizes and batch sizes, constant through a run")]
    noise: Annotated[
        Noise,
        Key(
            "scales times multiplier must lie within 1e-290 .. 1e290 in every round. "
            "A mechanism that sends x as it is needs no zeta key and ignores it"
        ),
    ]
    graph: Annotated[Graph, Key("who sends to whom")]
    data: Annotated[Data, Key("samples and who holds them. Toys (quadratic, zeros, pl-sine, pl-linear) have none")]
    model: Annotated[
        Model, Key("what is trained", only=When("data.dataset", TOYS, holds=False, text="not for toys"))
    ] = Model()
    privacy: Annotated[
        Privacy,
        Key("what bounds a gradient. Without a clip and C every epsilon is null"),
    ] = Privacy()
    evaluate: Annotated[Evaluation, Key("which metrics are taken, and when")] = Evaluation()
    runtime: Annotated[Runtime, Key("how the run is carried out")] = Runtime()
    adversary: Annotated[
        Adversary,
        Key("for studies of what others can learn. Without it nothing is recorded and nothing is slower", later=True),
    ] = Adversary()
    robust: Annotated[
        Robust,
        Key(
            "how agents bound what one of their in-neighbours can do to them. Without it they mix as the method says",
            later=True,
        ),
    ] = PLAIN
    traffic: Annotated[
        Traffic,
        Key(
            "what sizes, times and numbers of messages hide from those who see only these. No bit of a result changes; "
            "simulate ignores it",
            later=True,
        ),
    ] = OPEN
    method_options: Annotated[Mapping[str, Scalar | tuple[Scalar, ...]], METHOD_KEYS] = field(default_factory=dict)
    base: Path | None = field(default=None, compare=False, repr=False)

    @property
    def n(self) -> int:
        return len(self.graph.agents)

    @property
    def K(self) -> int:
        """Last round; there are K+1 rounds k = 0..K."""
        return self.algorithm.iterations
