"""The stochastic first-order oracle of one agent: sampled, clipped gradients and metrics (Assumption 2).

An oracle is a pure function of the run file, the shard and its data: the same ``(x, batch)`` gives the same bits in
every process on one machine (one BLAS thread).  What reads data sets is imported where there is one.
"""

from __future__ import annotations

from pathlib import Path

from dpgt_node.config.model import RunConfig
from dpgt_node.errors import ConfigError
from dpgt_node.learning.common import Oracle
from dpgt_node.learning.toys import TOYS, build_toy, toy_constants


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
    if (toy := _toy(run, shard, data_path, device)) is not None:
        return toy
    from dpgt_node.learning import labelled

    return labelled.built(run, shard, data_root, (data_path, data_test), device)[0]


def oracle_and_digest(
    run: RunConfig,
    shard: int,
    *,
    data_root: Path | None = None,
    data_path: Path | None = None,
    data_test: Path | None = None,
) -> tuple[Oracle, bytes]:
    """:func:`build_oracle`, and ``digest.shard_sha256`` of the agent's samples; empty where there are none."""
    if (toy := _toy(run, shard, data_path, "cpu")) is not None:
        return toy, b""
    from dpgt_node.learning import labelled

    oracle, data, divided = labelled.built(run, shard, data_root, (data_path, data_test), "cpu")
    return oracle, labelled.digest_of(data, divided, shard)


def _toy(run: RunConfig, shard: int, data_path: Path | None, device: str) -> Oracle | None:
    """A formula; None: the run has a data set."""
    check_device(run, device)
    if run.data.dataset not in TOYS:
        return None
    if data_path is not None:
        message = f"{run.data.dataset!r} is a formula and has no data file"
        raise ConfigError.one("node file", "data.path", message)
    return build_toy(run, shard)


def prepare_shared(run: RunConfig, data_root: Path | None = None) -> None:
    """Read and compute once what the agents of ``run`` share in a process, and in those forked from it: the division
    of the data set, and the features of the test set.  Raises ConfigError.
    """
    if run.data.dataset not in TOYS:
        from dpgt_node.learning import labelled

        labelled.prepare(run, data_root)


def data_absent(run: RunConfig) -> bool:
    """Whether [data] names a file that is not here, and that each agent cannot have for itself."""
    from dpgt_node.learning.data.shards import absent_files

    return "classes" not in run.data.params and bool(absent_files(run))


def data_problem(run: RunConfig, data_root: Path | None = None) -> str | None:
    """Why ``launch`` and ``simulate`` would not take the data here; None: they would, or each agent may have its own.

    The classes of a known picture set need no copy of it, as those that the run file states need no file.  Every
    picture that an agent would use is decoded once.
    """
    if run.data.dataset in TOYS:
        return None
    from dpgt_node.learning import labelled

    return labelled.problem(run, data_root)


def sample_counts(run: RunConfig, data_root: Path | None = None) -> tuple[int | None, ...]:
    """D of every agent as this machine's copy of the data gives it; None for toys.  Raises ConfigError."""
    if run.data.dataset in TOYS:
        return (None,) * run.n
    from dpgt_node.learning.data.shards import blocks, division, run_dataset

    return tuple(len(own) for own in blocks(run_dataset(run, data_root), division(run)))


def odd_about_data(
    run: RunConfig, data_root: Path | None = None, data_path: Path | None = None, data_test: Path | None = None
) -> tuple[str, ...]:
    """What looks odd about the data set, or an agent's own, one line each; () for toys and for data that are elsewhere.

    PRIVATE.  Raises ConfigError.
    """
    if run.data.dataset in TOYS:
        return ()
    from dpgt_node.learning.data.shards import data_is_here, oddities

    if data_path is None and not data_is_here(run, data_root):
        return ()
    return oddities(run, data_root, data_path, data_test)


def constants(run: RunConfig, data_root: Path | None = None) -> tuple[float, float | None] | None:
    """(L1, mu) of Assumptions 2(i) and 3, for F = (1/n) sum_i f_i; mu None where it is not known.

    Softmax: the Hessian of one sample is (diag(p) - p p') (x) (phi, s)(phi, s)', so L1 = max_j ||(phi_j, s)||^2 / 2,
    and no mu is known.  None for ``zeros``, torch models and frozen modules.  Raises ConfigError for unusable data.
    """
    if run.data.dataset in TOYS:
        return toy_constants(run)
    from dpgt_node.learning import labelled

    found = labelled.smoothness(run, data_root)
    return None if found is None else (found, None)
