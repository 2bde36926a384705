"""A run and a node as frozen values.  Parsing is in ``run`` and ``node``, writing in ``emit``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from dpgt_node.privacy.mechanisms import DEFAULT

Samples = int | Literal["full"]
Matrix = tuple[tuple[float, ...], ...]
Scalar = str | int | float | bool


@dataclass(frozen=True, slots=True)
class Algorithm:
    """``iterations`` is K: rounds k = 0..K."""

    iterations: int
    method: str = "dpgt"
    mechanism: str = DEFAULT.name


@dataclass(frozen=True, slots=True)
class SchemeS1:
    """alpha_K = a1/(K+1)^p_alpha, beta_K = a2/(K+1)^p_beta, gamma_K = a3/(K+1)^p_gamma, m_K = floor(a4 K^p_m) + 1."""

    a1: float
    a2: float
    a3: float
    a4: float
    p_alpha: float
    p_beta: float
    p_gamma: float
    p_m: float
    samples: Samples | None = None
    kind: Literal["S1"] = "S1"


@dataclass(frozen=True, slots=True)
class SchemeS2:
    """Constant alpha, beta, gamma; m_K = floor(p_m^K) + 1."""

    alpha: float
    beta: float
    gamma: float
    p_m: float
    samples: Samples | None = None
    kind: Literal["S2"] = "S2"


Scheme = SchemeS1 | SchemeS2


@dataclass(frozen=True, slots=True)
class NoiseStream:
    """Laplace scales of one stream, one value per agent in ``graph.agents`` order.

    ``constant``: sigma_k = value.  ``exponent``: S1 sigma_k = (k+1)^value, S2 sigma_k = value^K.
    """

    kind: Literal["constant", "exponent"]
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Noise:
    """``multiplier`` scales every sigma; 0 switches the noise off (then zeta and eta may be None)."""

    zeta: NoiseStream | None
    eta: NoiseStream | None
    law: Literal["laplace", "gaussian"] = "laplace"
    multiplier: float = 1.0


@dataclass(frozen=True, slots=True)
class Graph:
    """R[i][j] > 0: agent i receives x̆ from j.  C[i][j] > 0: agent i receives y̆ from j.  Row i-1 is agents[i-1]."""

    agents: tuple[str, ...]
    R: Matrix
    C: Matrix


@dataclass(frozen=True, slots=True)
class Data:
    """``dataset``: digits | npz:PATH | quadratic | zeros | pl-sine | pl-linear | later ones.

    ``params`` holds the further keys of [data] that belong to the data set or the partition
    (``dimension``, ``rows``, ``start``, ...), validated by name for that data set.
    """

    dataset: str
    features: str = "raw"
    normalise: Literal["none", "l1", "l2"] = "none"
    partition: str = "iid"
    seed: int = 0
    params: Mapping[str, Scalar] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Model:
    """``init_seed`` None: the model's own default start (softmax: zero; torch models: that of seed 0).

    ``bias``, of softmax: 0 no bias; s: bias times s.  ``norm``, ``precision`` and ``memory_mb``, of torch models: the
    last one bounds what clipping holds at a time, in MiB.
    """

    name: str = "softmax"
    init_seed: int | None = None
    bias: float = 1.0
    norm: Literal["batch", "group"] = "batch"
    precision: Literal["float32", "float64", "bfloat16"] = "float32"
    memory_mb: int = 512


@dataclass(frozen=True, slots=True)
class Privacy:
    """At most one of: clip_l1 (C = 2 clip_l1), clip_l2, C (declared, not enforced)."""

    clip_l1: float | None = None
    clip_l2: float | None = None
    C: float | None = None
    delta: float = 1e-5

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

    every: int = 10
    metrics: Literal["study", "local"] = "local"
    samples: int | None = None


@dataclass(frozen=True, slots=True)
class Runtime:
    """How the run is carried; nothing here changes the mathematics except the wire dtype."""

    wire_dtype: Literal["auto", "float64", "float32"] = "auto"
    round_timeout_s: float = 60.0
    register_timeout_s: float = 300.0
    on_agent_loss: Literal["wait", "stop"] = "wait"
    barrier_every: int = 1
    channel: Literal["mtls", "plain"] = "mtls"


@dataclass(frozen=True, slots=True)
class Adversary:
    """What a study of adversaries records; nothing without it.

    ``semi_honest``: agents, in the order of the graph, each of which writes the transcript of what it legitimately
    sees.  ``truth``: every agent writes its private values as study files.
    """

    semi_honest: tuple[str, ...] = ()
    truth: bool = False


@dataclass(frozen=True, slots=True)
class RunConfig:
    """A whole RUN.toml, resolved: names, per-agent tuples and matrices instead of shorthands.

    ``base`` is the folder of the run file, for relative data paths; it is no part of the run's identity.
    """

    name: str
    algorithm: Algorithm
    scheme: Scheme
    noise: Noise
    graph: Graph
    data: Data
    model: Model = Model()
    privacy: Privacy = Privacy()
    evaluate: Evaluation = Evaluation()
    runtime: Runtime = Runtime()
    adversary: Adversary = Adversary()
    base: Path | None = field(default=None, compare=False, repr=False)

    @property
    def n(self) -> int:
        """Number of agents."""
        return len(self.graph.agents)

    @property
    def K(self) -> int:
        """Last round; there are K+1 rounds k = 0..K."""
        return self.algorithm.iterations


@dataclass(frozen=True, slots=True)
class NodeTls:
    """``insecure`` True: no TLS at all; else the three PEM files and the pinned coordinator identity."""

    insecure: bool
    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    coordinator_id: str = "dpgt:coordinator"


@dataclass(frozen=True, slots=True)
class Policy:
    """The data owner's limits over all runs of a data set; None is no limit (warned about).

    ``accountant``: whose epsilon is capped; None: the smallest of the sound ones.  ``noise_min``: the smallest scale
    of any charged release.
    """

    epsilon_max: float | None = None
    delta_max: float | None = None
    accountant: str | None = None
    mechanisms: tuple[str, ...] | None = None
    noise_min: float | None = None


DATA_ID = "default"
"""Data-set id of a node that names none."""


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """A whole NODE.toml.  Addresses are ``HOST:PORT``; relative paths were resolved against the file's folder.

    ``shard`` counts from 1, as in agent-1: the i-th part of the partition.  Without ``shard`` and ``data_path`` the
    agent takes the part of its own row.  ``data_id`` names the data set a privacy budget belongs to: what runs cost
    adds up over all runs of one id in one state directory.  ``disk_check``: refuse to start where the free space is
    less than the run is predicted to need.
    """

    name: str
    run: Path
    listen: str
    advertise: str | None
    coordinator: str
    state_dir: Path
    tls: NodeTls
    shard: int | None = None
    data_path: Path | None = None
    durability: Literal["process", "power"] = "process"
    policy: Policy = Policy()
    data_id: str = DATA_ID
    disk_check: bool = True
