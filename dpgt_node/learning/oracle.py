"""The stochastic first-order oracle of one agent: sampled, clipped gradients and metrics (Assumption 2).

An oracle is a pure function of the run file, the shard and its data: the same ``(x, batch)`` gives the same bits in
every process on one machine (one BLAS thread).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from dpgt_node.algo.methods import rule_of
from dpgt_node.algo.schedule import Schedule
from dpgt_node.config.data import resolved_dataset
from dpgt_node.config.model import RunConfig
from dpgt_node.errors import ConfigError
from dpgt_node.learning.common import Metrics, spaced
from dpgt_node.learning.data.digest import shard_sha256
from dpgt_node.learning.data.frozen import frozen
from dpgt_node.learning.data.pictures.folders import Pictures
from dpgt_node.learning.data.pictures.sets import IMAGE_SETS
from dpgt_node.learning.data.shards import (
    Division,
    absent_files,
    blocks,
    data_is_here,
    division,
    largest_square_norm,
    oddities,
    own_file,
    run_dataset,
    shards,
)
from dpgt_node.learning.nets.clipping import Clip
from dpgt_node.learning.nets.models import SoftmaxOracle
from dpgt_node.learning.tables import check_tables
from dpgt_node.learning.toys import TOYS, build_toy, toy_constants
from dpgt_node.privacy.laws.noise import ByteStream
from dpgt_node.types import F64, I64

if TYPE_CHECKING:
    from dpgt_node.learning.data.arrays import Dataset
    from dpgt_node.learning.torch_oracle import TorchOracle

__all__ = [
    "Metrics",
    "Oracle",
    "absent_files",
    "build_oracle",
    "check_device",
    "constants",
    "data_absent",
    "data_is_here",
    "data_problem",
    "odd_about_data",
    "oracle_and_digest",
    "own_dataset",
    "sample_counts",
]


class Oracle(Protocol):
    """What the agent asks of its data and model."""

    @property
    def dimension(self) -> int:
        """d, the number of parameters."""
        ...

    @property
    def samples(self) -> int | None:
        """D, the agent's own training samples; None when the objective has no finite data set."""
        ...

    @property
    def tested(self) -> int:
        """Samples of the test set; 0 where there is none."""
        ...

    @property
    def shape_sha256(self) -> str:
        """Hex hash of the parameters' names and shapes: agents that differ in it cannot mix their vectors."""
        ...

    @property
    def sample_size(self) -> int:
        """Numbers of one sample as the model takes it; 0 without a data set."""
        ...

    def initial(self) -> F64:
        """x_{i,0}, float64 (d,), independent of the data; may be read-only and shared."""
        ...

    def draw_batch(self, m: int, stream: ByteStream) -> I64:
        """A fresh batch of ``m`` samples, int64: ALL the randomness of one gradient, so that it can be replayed.

        Data sets: a uniformly distributed m-subset of range(D), 1 <= m <= D.  Stochastic toys: the m values of xi,
        their float64 bits read as int64.  Deterministic toys: empty.
        """
        ...

    def under(self, share: float) -> Oracle:
        """The same with ``share`` times the clip."""
        ...

    def gradient(self, x: F64, batch: I64) -> F64:
        """Mean over ``batch`` of the (clipped) per-sample gradients at ``x``: float64 (d,), divisor m.

        The result is never ``x`` itself; it may be read-only and shared between calls.
        """
        ...

    def evaluate(self, x: F64, samples: int | None = None) -> Metrics:
        """Metrics at ``x`` over the agent's samples and the test set, at most ``samples`` of each; None: all."""
        ...

    def inputs(self, batch: I64) -> F64:
        """The samples of ``batch`` as the model takes them, float64 (m, ...); (0,) without a data set.  PRIVATE."""
        ...

    def labels(self, batch: I64) -> I64:
        """Their labels, int64 (m,); (0,) without a data set.  PRIVATE."""
        ...


def check_device(run: RunConfig, device: str) -> None:
    """ConfigError unless ``device`` (cpu | cuda) is here and can compute the model of ``run``."""
    if device == "cpu":
        return
    if run.data.dataset in TOYS or run.model.name == "softmax":
        what = run.data.dataset if run.data.dataset in TOYS else run.model.name
        message = f"{device} computes torch models; '{what}' has a closed form and runs on the CPU: leave it out"
        raise ConfigError.one("command line", "--device", message)
    from dpgt_node.learning.nets.torch_models import torch
    from dpgt_node.learning.nets.torch_network import find_device

    find_device(torch(), device)


def build_oracle(
    run: RunConfig,
    shard: int,
    *,
    data_root: Path | None = None,
    data_path: Path | None = None,
    data_test: Path | None = None,
    device: str = "cpu",
) -> Oracle:
    """The oracle of 0-based agent ``shard``.  ``device``: cpu | cuda, the latter for torch models alone.

    ``data_path``: the agent's own file or folder; all of its training samples are the agent's, nothing is partitioned.
    ``data_test``: a table of test samples beside it.
    ``data_root``: the data folder (DPGT_DATA), for the picture sets that live there.  Raises ConfigError:
    data that cannot be used, m_K > D.
    """
    return _built(run, shard, data_root, (data_path, data_test), device)[0]


def oracle_and_digest(
    run: RunConfig,
    shard: int,
    *,
    data_root: Path | None = None,
    data_path: Path | None = None,
    data_test: Path | None = None,
) -> tuple[Oracle, bytes]:
    """:func:`build_oracle`, and ``digest.shard_sha256`` of the agent's samples; empty where there are none."""
    oracle, data, divided = _built(run, shard, data_root, (data_path, data_test), "cpu")
    if data is None:
        return oracle, b""
    return oracle, shard_sha256(data, None if divided is None else blocks(data, divided)[shard])


def _built(
    run: RunConfig, shard: int, data_root: Path | None, own: tuple[Path | None, Path | None], device: str
) -> tuple[Oracle, Dataset | None, Division | None]:
    check_device(run, device)
    data_path, data_test = own
    if run.data.dataset in TOYS:
        if data_path is not None:
            message = f"{run.data.dataset!r} is a formula and has no data file"
            raise ConfigError.one("node file", "data.path", message)
        return build_toy(run, shard), None, None
    if data_path is not None:
        data, divided = own_file(run, data_path, data_test), None
    else:
        data, divided = run_dataset(run, data_root), division(run)
    oracle: SoftmaxOracle | TorchOracle
    if run.model.name == "softmax":
        oracle = _softmax(run, shard, data, divided, data_root)
    else:
        oracle = _torch(run, shard, data, divided, data_root, device)
    m, D = Schedule.from_config(run).m_for(oracle.samples), oracle.samples
    if not 1 <= m <= D:
        name = run.graph.agents[shard]
        message = f"m_K = {m} samples per gradient, but {name} holds D = {D}: lower m_K (fewer iterations, or samples)"
        raise ConfigError.one("run file", "scheme.samples", message)
    if m == 1 and not isinstance(oracle, SoftmaxOracle) and oracle.batch_norm:
        message = 'm_K = 1: BatchNorm needs two samples a batch; raise it, or use model.norm = "group"'
        raise ConfigError.one("run file", "scheme.samples", message)
    if rule_of(run).keeps_table and not isinstance(oracle, SoftmaxOracle) and oracle.batch_norm:
        message = f'{run.algorithm.method} takes gradients of one sample, and BatchNorm has none: model.norm = "group"'
        raise ConfigError.one("run file", "algorithm.method", message)
    check_tables(run, (oracle,))
    return oracle, data, divided


def own_dataset(
    run: RunConfig,
    shard: int,
    *,
    data_root: Path | None = None,
    data_path: Path | None = None,
    data_test: Path | None = None,
) -> Dataset:
    """The samples of 0-based agent ``shard`` and the test set as its model takes them.  Raises ConfigError."""
    data, divided = (
        (run_dataset(run, data_root), division(run))
        if data_path is None
        else (own_file(run, data_path, data_test), None)
    )
    if run.model.name == "softmax" or _transformed(run):
        return _own(run, shard, data, divided, data_root)
    rows = slice(None) if divided is None else blocks(data, divided)[shard]
    return replace(data, x_train=np.asarray(data.x_train[rows]), y_train=data.y_train[rows])


def _transformed(run: RunConfig) -> bool:
    """Whether the model takes something else than the samples as they are stored."""
    return run.data.features != "raw" or run.data.normalise != "none"


def _own(run: RunConfig, shard: int, data: Dataset, divided: Division | None, data_root: Path | None) -> Dataset:
    """The agent's samples and the test set as features."""
    return shards(data, run.data.features, run.data.normalise, divided, _cache(data_root)).own(shard)


def _cache(data_root: Path | None) -> Path | None:
    return None if data_root is None else data_root / "features"


def _data_id(run: RunConfig, data: Dataset) -> str:
    """What agents compare of their features besides shapes: code and weights of a frozen module; "" of all others.

    Never a word of the data.  A hash of the names of folders could be guessed by whoever tries words.
    """
    return frozen(run.data.features, int(data.x_train.shape[1])).identity if ":" in run.data.features else ""


def _softmax(
    run: RunConfig, shard: int, data: Dataset, divided: Division | None, data_root: Path | None
) -> SoftmaxOracle:
    return SoftmaxOracle(
        _own(run, shard, data, divided, data_root),
        None,
        bias=run.model.bias,
        clip=Clip.from_config(run.privacy),
        init_seed=run.model.init_seed,
        features_id=_data_id(run, data),
    )


def _torch(
    run: RunConfig, shard: int, data: Dataset, divided: Division | None, data_root: Path | None, device: str
) -> TorchOracle:
    from dpgt_node.learning.torch_oracle import TorchOracle

    clip = Clip.from_config(run.privacy)
    if not _transformed(run):
        own = None if divided is None else blocks(data, divided)[shard]
        tests: object = data.x_test
        if isinstance(tests, Pictures):
            tests.verify(spaced(len(data.y_test), run.evaluate.samples))
        return TorchOracle(data, own, run.model, clip=clip, device=device, features_id=_data_id(run, data))
    own_features, features_id = _own(run, shard, data, divided, data_root), _data_id(run, data)
    return TorchOracle(own_features, None, run.model, clip=clip, device=device, features_id=features_id)


def prepare_shared(run: RunConfig, data_root: Path | None = None) -> None:
    """Read and compute once what the agents of ``run`` share in a process, and in those forked from it: the division
    of the data set, and the features of the test set.  Raises ConfigError.
    """
    if run.data.dataset not in TOYS and ":" not in run.data.features:
        data = run_dataset(run, data_root)
        if run.model.name == "softmax" or _transformed(run):
            shards(data, run.data.features, run.data.normalise, division(run), _cache(data_root))


def data_absent(run: RunConfig) -> bool:
    """Whether [data] names a file that is not here, and that each agent cannot have for itself."""
    return "classes" not in run.data.params and bool(absent_files(run))


def data_problem(run: RunConfig, data_root: Path | None = None) -> str | None:
    """Why ``launch`` and ``simulate`` would not take the data here; None: they would, or each agent may have its own.

    The classes of a known picture set need no copy of it, as those that the run file states need no file.  Every
    picture that an agent would use is decoded once.
    """
    known = resolved_dataset(run) in IMAGE_SETS or "classes" in run.data.params
    if run.data.dataset in TOYS or (known and not data_is_here(run, data_root)):
        return None
    try:
        data = run_dataset(run, data_root)
        pictures: object = data.x_train
        if isinstance(pictures, Pictures):
            for rows in blocks(data, division(run)):
                pictures.verify(rows)
    except ConfigError as error:
        return str(error)
    return None


def sample_counts(run: RunConfig, data_root: Path | None = None) -> tuple[int | None, ...]:
    """D of every agent as this machine's copy of the data gives it; None for toys.  Raises ConfigError."""
    if run.data.dataset in TOYS:
        return (None,) * run.n
    return tuple(len(own) for own in blocks(run_dataset(run, data_root), division(run)))


def odd_about_data(
    run: RunConfig, data_root: Path | None = None, data_path: Path | None = None, data_test: Path | None = None
) -> tuple[str, ...]:
    """What looks odd about the data set, or an agent's own, one line each; () for toys and for data that are elsewhere.

    PRIVATE.  Raises ConfigError.
    """
    if run.data.dataset in TOYS or (data_path is None and not data_is_here(run, data_root)):
        return ()
    return oddities(run, data_root, data_path, data_test)


def constants(run: RunConfig, data_root: Path | None = None) -> tuple[float, float | None] | None:
    """(L1, mu) of Assumptions 2(i) and 3, for F = (1/n) sum_i f_i; mu None where it is not known.

    Softmax: the Hessian of one sample is (diag(p) - p p') (x) (phi, s)(phi, s)', so L1 = max_j ||(phi_j, s)||^2 / 2,
    and no mu is known.  None for ``zeros``, torch models and frozen modules.  Raises ConfigError for unusable data.
    """
    if run.data.dataset in TOYS:
        return toy_constants(run)
    unbounded = ":" in run.data.features and run.data.normalise != "l2"  # not worth a pass over everybody's samples
    if run.model.name != "softmax" or unbounded:
        return None
    return 0.5 * (largest_square_norm(run, run_dataset(run, data_root)) + run.model.bias * run.model.bias), None
