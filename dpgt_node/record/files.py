"""Writing result files so that a reader never sees half of one."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import numpy.typing as npt


def save_npy(path: Path, array: npt.NDArray[np.float64]) -> None:
    """Write ``array`` to ``path`` in NPY format under a temporary name, then rename it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("wb") as file:
            np.save(file, array, allow_pickle=False)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
