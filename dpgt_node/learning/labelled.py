"""The oracle of an agent with a data set: what it holds of which data, as features, under which model.

The toys, which are formulas, need nothing of this.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dpgt_node.algo.methods import rule_of
from dpgt_node.algo.schedule import Schedule
from dpgt_node.config.data import resolved_dataset
from dpgt_node.config.model import RunConfig
from dpgt_node.errors import ConfigError
from dpgt_node.learning.common import Oracle, spaced
from dpgt_node.learning.data.digest import shard_sha256
from dpgt_node.learning.data.frozen import frozen
from dpgt_node.learning.data.pictures.folders import Pictures
from dpgt_node.learning.data.pictures.sets import IMAGE_SETS
from dpgt_node.learning.data.shards import (
    Division,
    blocks,
    data_is_here,
    division,
    largest_square_norm,
    own_file,
    run_dataset,
    shards,
)
from dpgt_node.learning.nets.clipping import Clip
from dpgt_node.learning.nets.models import SoftmaxOracle
from dpgt_node.learning.tables import check_tables

if TYPE_CHECKING:
    from dpgt_node.learning.data.arrays import Dataset
    from dpgt_node.learning.torch_oracle import TorchOracle


def built(
    run: RunConfig, shard: int, data_root: Path | None, own: tuple[Path | None, Path | None], device: str
) -> tuple[Oracle, Dataset, Division | None]:
    """The oracle of 0-based agent ``shard``, the data set it was made of, and how that is divided; None: it is all the
    agent's.  ``own``: its own file or folder, and a table of test samples beside it.  Raises ConfigError.
    """
    data_path, data_test = own
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


def digest_of(data: Dataset, divided: Division | None, shard: int) -> bytes:
    """``digest.shard_sha256`` of the samples of 0-based agent ``shard``."""
    return shard_sha256(data, None if divided is None else blocks(data, divided)[shard])


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


def prepare(run: RunConfig, data_root: Path | None) -> None:
    """See :func:`dpgt_node.learning.oracle.prepare_shared`."""
    if ":" not in run.data.features:
        data = run_dataset(run, data_root)
        if run.model.name == "softmax" or _transformed(run):
            shards(data, run.data.features, run.data.normalise, division(run), _cache(data_root))


def problem(run: RunConfig, data_root: Path | None) -> str | None:
    """See :func:`dpgt_node.learning.oracle.data_problem`."""
    known = resolved_dataset(run) in IMAGE_SETS or "classes" in run.data.params
    if known and not data_is_here(run, data_root):
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


def smoothness(run: RunConfig, data_root: Path | None) -> float | None:
    """L1 of :func:`dpgt_node.learning.oracle.constants`."""
    unbounded = ":" in run.data.features and run.data.normalise != "l2"  # not worth a pass over everybody's samples
    if run.model.name != "softmax" or unbounded:
        return None
    return 0.5 * (largest_square_norm(run, run_dataset(run, data_root)) + run.model.bias * run.model.bias)
