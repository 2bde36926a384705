"""x_{i,K+1} of the run files under ``runs/``, as the command line leaves them under the test keystream.

Two kinds of runs.  EXACT: sums, products and square roots of float64 alone, the same bits on every CPU.  The others
also take logarithms, sines, exponentials or matrix products, whose last bit is the CPU's and its BLAS': their hashes
bind where PROBE says that this machine rounds like the one that recorded them; elsewhere a few values of each vector
do, to 1e-12 of the largest.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tests.golden import adapter

FOLDER = Path(__file__).parent
RUNS = FOLDER / "runs"
FINALS = FOLDER / "finals.txt"
MACHINE = ("pl-", "digits-", "pictures-")
"""Run files whose values depend on the machine's rounding."""
TOLERANCE = 1e-12
F64 = npt.NDArray[np.float64]


def exact(name: str) -> bool:
    """Whether every machine must come to the same bits."""
    return not name.startswith(MACHINE)


def names() -> list[str]:
    """All run files, without their suffix."""
    return sorted(path.stem for path in RUNS.glob("*.toml"))


def probe() -> str:
    """What this machine makes of the operations that are not the same on all."""
    grid = np.arange(1, 641, dtype=np.float64).reshape(10, 64) / 97.0
    tall = np.arange(1, 64 * 37 + 1, dtype=np.float64).reshape(37, 64) % 11.0 / 7.0
    wide = np.arange(1, 784 * 10 + 1, dtype=np.float64).reshape(10, 784) % 13.0 / 3.0
    products = (grid @ tall.T, (grid @ tall.T) @ tall, wide @ wide.T, grid[0] @ grid[1], np.linalg.norm(grid))
    curves = (np.exp(-grid), np.log(grid), np.sin(grid), np.cos(grid))
    return adapter.digest(*(np.asarray(part) for part in (*products, *curves)))


@dataclass(frozen=True, slots=True)
class Final:
    """One agent's result: the hash of its values, float64 little-endian, and some of them."""

    sha256: str
    values: tuple[float, ...]

    @classmethod
    def of(cls, x: F64) -> Final:
        """The size of the vector (largest magnitude), its sum, and five of its coordinates."""
        at = sorted({0, len(x) // 5, len(x) // 3, len(x) // 2, len(x) - 1})
        values = (float(np.abs(x).max()), float(x.sum()), *(float(x[i]) for i in at))
        return cls(hashlib.sha256(x.astype("<f8").tobytes()).hexdigest(), values)

    def near(self, other: Final, size: int) -> bool:
        """Whether the values are the same but for rounding; ``size``: d."""
        bound = TOLERANCE * max(self.values[0], 1e-300)
        bounds = [bound, size * bound] + [bound] * (len(self.values) - 2)
        return len(self.values) == len(other.values) and all(
            abs(a - b) <= limit for a, b, limit in zip(self.values, other.values, bounds, strict=True)
        )


Key = tuple[str, str]
Found = dict[Key, tuple[Final, int]]


def place(name: str, folder: Path) -> Path:
    """A copy of the run file in ``folder``, with the data it asks for beside it."""
    target = folder / f"{name}.toml"
    shutil.copyfile(RUNS / f"{name}.toml", target)
    if "pictures.npz" in target.read_text(encoding="utf-8"):
        _pictures(folder / "pictures.npz")
    return target


def _pictures(path: Path) -> None:
    """Bars on a ground of small numbers, 28 x 28, four classes by place and direction; integers over 256."""
    rows, columns = np.mgrid[0:28, 0:28]
    pictures, labels = [], []
    for i in range(72):
        label = i % 4
        ground = (rows * 7 + columns * 13 + i * 29) % 23
        across = rows if label % 2 else columns
        bar = np.abs(across - (8 if label < 2 else 19) - i % 3) < 3
        pictures.append(np.where(bar, 200 + (i * 5) % 50, ground).reshape(784) / 256.0)
        labels.append(label)
    x, y = np.array(pictures), np.array(labels)
    np.savez(path, x_train=x[:60], y_train=y[:60], x_test=x[60:], y_test=y[60:])


def simulated(name: str, folder: Path) -> Found:
    """Run one file by ``dpgt simulate``."""
    with contextlib.redirect_stdout(io.StringIO()):
        code = adapter.command("simulate", place(name, folder), "--out", folder / name, "--test-keystream", adapter.KEY)
    assert code == 0, f"{name}: exit code {code}"
    return found(name, folder / name)


def found(name: str, out: Path) -> Found:
    """The results in an output folder of ``simulate`` or ``launch``."""
    made: Found = {}
    for path in sorted(out.glob("agents/*/state/x_final.npy")):
        x = np.load(path)
        assert x.dtype == np.float64 and x.ndim == 1, "x is float64, whatever the wire's dtype"
        made[name, path.parts[-3]] = (Final.of(x), len(x))
    assert made, f"{name} left no result"
    return made


def write(everything: Found) -> str:
    """The file's text."""
    return "".join(line + "\n" for line in _lines(everything))


def _lines(everything: Found) -> Iterator[str]:
    yield "# run agent: d, SHA-256 of the values of x_final.npy (float64, little-endian); for runs whose last bits are"
    yield "# the machine's also max |x|, sum x and five coordinates.  python -m tests.golden --record writes this file."
    yield f"probe {probe()}"
    for (name, agent), (final, size) in sorted(everything.items()):
        values = "" if exact(name) else " " + " ".join(map(repr, final.values))
        yield f"{name} {agent}: {size} {final.sha256}{values}"


def read() -> tuple[str, Found]:
    """(probe of the machine that recorded, results) of ``finals.txt``."""
    lines = [line for line in FINALS.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    recorded: Found = {}
    for line in lines[1:]:
        key, _, rest = line.partition(": ")
        name, agent = key.split()
        size, sha256, *values = rest.split()
        recorded[name, agent] = (Final(sha256, tuple(map(float, values))), int(size))
    return lines[0].removeprefix("probe "), recorded


def differences(name: str, made: Found) -> list[str]:
    """What differs from the recorded results of run ``name``, one line each; empty: nothing."""
    recorded_by, recorded = read()
    bits = exact(name) or recorded_by == probe()
    expected = {key: value for key, value in recorded.items() if key[0] == name}
    lines = [f"{name}: recorded for {sorted(k[1] for k in expected)}, made for {sorted(k[1] for k in made)}"]
    if expected.keys() != made.keys():
        return lines
    lines = []
    for key, (final, size) in made.items():
        old, old_size = expected[key]
        same = old.sha256 == final.sha256 if bits else old.near(final, size)
        if old_size != size or not same:
            lines.append(f"{name} {key[1]}: recorded d={old_size} {old.sha256[:16]}, now d={size} {final.sha256[:16]}")
    return lines
