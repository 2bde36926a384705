"""A frozen function of the operator's own as features: ``features = "module:function"``.

The function is called with p, the numbers of a sample, and returns a ``torch.nn.Module`` or a function of arrays that
maps (m, p) to (m, q).  The privacy of a run rests on this: a sample's features are its own.  So the function never gets
more than one of an agent's samples at a time, m = 1, whatever it could do with more.  What it keeps in itself could
still carry one sample to the next.  So each sample is looked at twice, in opposite orders, with every other one between
the two looks, and bits that differ are refused; random and extreme rows, nobody's, are tried so before.  A function
that hides from this on purpose can: it is the operator's own code.  Whether it is independent of the agents' data is
the operator's to know, too.

What it gives is computed once for the same code, weights and samples, and kept in a folder of this host, readable by
its owner alone: the least recently used goes when there is more than ``CACHE_BYTES``.
"""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import logging
import os
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from dpgt_node.durable import replacing
from dpgt_node.errors import ConfigError
from dpgt_node.learning.data.arrays import Reals
from dpgt_node.learning.nets.torch_models import torch
from dpgt_node.learning.plugins import plugin
from dpgt_node.types import F64

log = logging.getLogger(__name__)
CACHE_BYTES = 4 << 30
_KEY = "data.features"
_PROBE = 8
_EXTREMES = (0.0, 1.0, -1.0, 255.0, -1e3, 1e6, 1e-6)
"""Rows of such numbers stand between the two looks at random ones."""
_CLOSE = 1e-4
"""Of the largest feature: float32 sums in another order stay far below, another sample's influence seldom does."""


class Frozen:
    """``size``: q.  ``identity``: SHA-256 (hex) of its code and weights, the same on every host that has the same.

    Call it with rows (m, p); float64 (m, q), each row computed by itself.  ConfigError: it fails, or gives no finite
    numbers.
    """

    def __init__(self, name: str, p: int) -> None:
        self._name = name
        function = plugin(name, _KEY)
        try:
            made = function(p)
        except (Exception, SystemExit) as error:  # an operator's own code may fail in any way
            raise self._bad(f"failed: {type(error).__name__}: {error}") from error
        digest = hashlib.sha256(_source(function))
        if not callable(made):
            raise self._bad(f"must return a torch.nn.Module or a function of arrays, not {type(made).__name__}")
        self._apply: Callable[[F64], Any] = self._module(made, digest) if hasattr(made, "state_dict") else made
        self.identity = digest.hexdigest()
        probe = np.random.default_rng(0).random((_PROBE, p))
        found = self._features(probe)
        self.size: int = found.shape[1]
        alone = self._check(probe, found)
        digest.update(alone.tobytes())  # what source and weights do not show: files it read, another processor
        self._content = digest.digest()

    def __call__(self, rows: F64) -> F64:
        found = np.empty((len(rows), self.size))
        for i, row in enumerate(rows):
            found[i] = self._one(row, 1.0)
        return found

    def of(self, stored: Reals, divisor: float) -> F64:
        """Features of the samples ``stored / divisor``, each looked at twice.

        ConfigError: the second look, in the reverse order, gives other bits.  That and no more depends on the samples.
        """
        found = np.empty((len(stored), self.size))
        for i, row in enumerate(stored):
            found[i] = self._one(row, divisor)
        self._look_again(stored, divisor, found)
        return found

    def key(self, stored: Reals, divisor: float) -> str:
        """SHA-256 (hex) of what the features of ``stored / divisor`` are a function of."""
        data = np.ascontiguousarray(stored)
        digest = hashlib.sha256(self._content + f"{data.dtype.str} {data.shape} {divisor!r}".encode())
        digest.update(data.data.cast("B") if data.size else b"")
        return digest.hexdigest()

    def _one(self, row: Reals, divisor: float) -> F64:
        """Of one sample, (q,)."""
        found: F64 = self._features(row[None] / np.float64(divisor))[0]
        if found.size != self.size:
            raise self._bad(f"gave {found.size} numbers for a sample, and {self.size} before")
        return found

    def _look_again(self, stored: Reals, divisor: float, found: F64) -> None:
        for i in reversed(range(len(stored))):
            if self._one(stored[i], divisor).tobytes() != found[i].tobytes():
                raise self._bad("remembers the samples that it saw: a sample's features must be its own")

    def _features(self, rows: F64) -> F64:
        try:
            found = np.asarray(self._apply(rows))
        except (Exception, SystemExit) as error:  # sys.exit in there is no end of ours
            raise self._bad(f"failed on {len(rows)} samples: {type(error).__name__}: {error}") from error
        if found.dtype.kind not in "fiu" or found.ndim < 1 or len(found) != len(rows) or not found.size:
            raise self._bad(
                f"gave {found.dtype} of shape {found.shape} for {rows.shape}: (m, q) real numbers are asked"
            )
        found = found.reshape(len(rows), -1).astype(np.float64)
        if not np.isfinite(found).all():
            raise self._bad("gave numbers that are not finite")
        return found

    def _check(self, probe: F64, found: F64) -> F64:
        """The features of the rows of ``probe``, one by one; ``found``: of all of them by one call."""
        if not np.array_equal(self._features(probe), found):
            raise self._bad("gives other features at a second look: it must not be random, nor change with use")
        alone = self(probe)
        if np.abs(alone - found).max() > _CLOSE * np.abs(found).max():
            # It would be called with one sample at a time, but it was hardly meant so.
            raise self._bad("lets the samples of a batch see each other: a sample's features must be its own")
        for number in _EXTREMES:
            # What it makes of such a row is its own affair.
            with contextlib.suppress(ConfigError), np.errstate(all="ignore"):
                self._one(np.full(probe.shape[1], number), 1.0)
        self._look_again(probe, 1.0, alone)
        return alone

    def _module(self, module: Any, digest: Any) -> Callable[[F64], Any]:
        lib = torch()
        module = module.eval().requires_grad_(False)
        dtype = next((p.dtype for p in module.parameters() if p.is_floating_point()), lib.float32)
        for name, value in module.state_dict().items():
            digest.update(f"{name} {value.dtype} {tuple(value.shape)}\n".encode())
            digest.update(value.detach().cpu().contiguous().reshape(-1).view(lib.uint8).numpy().tobytes())

        def apply(rows: F64) -> Any:
            with lib.no_grad():
                return module(lib.from_numpy(np.array(rows)).to(dtype)).double().cpu().numpy()

        return apply

    def _bad(self, message: str) -> ConfigError:
        return ConfigError.one("run file", _KEY, f"{self._name!r} {message}")


@lru_cache(maxsize=2)
def frozen(name: str, p: int) -> Frozen:
    """The plug-in ``name`` for samples of ``p`` numbers.  ConfigError: it cannot be used."""
    return Frozen(name, p)


def cached(function: Frozen, stored: Reals, divisor: float, folder: Path | None) -> F64:
    """Features of the samples ``stored / divisor``, float64 (m, q).

    ``folder`` None, or one that cannot be written: they are computed every time.
    """
    path = None if folder is None else folder / f"{function.key(stored, divisor)}.npy"
    if path is not None:
        with contextlib.suppress(OSError, ValueError, EOFError):
            held: F64 = np.load(path, allow_pickle=False)
            if held.shape == (len(stored), function.size) and held.dtype == np.float64 and np.isfinite(held).all():
                os.utime(path)
                return held
    found = function.of(stored, divisor)
    if path is not None:
        try:
            _keep(path, found)
        except OSError as error:
            log.warning("%s: features are not kept for the next start: %s", path.parent, error.strerror or error)
    return found


def _keep(path: Path, features: F64) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with replacing(path, "process", mode=0o600) as file:
        np.save(file, features, allow_pickle=False)
    held = sorted((other.stat().st_mtime, other.stat().st_size, other) for other in path.parent.glob("*.npy"))
    total = sum(size for _, size, _ in held)
    for _, size, other in held[:-1]:
        if total <= CACHE_BYTES:
            break
        other.unlink(missing_ok=True)
        total -= size


def _source(function: Callable[..., Any]) -> bytes:
    """The file that the function is defined in; b"" where there is none."""
    try:
        file = inspect.getsourcefile(function)
        return b"" if file is None else Path(file).read_bytes()
    except (OSError, TypeError):
        return b""
