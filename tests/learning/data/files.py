"""Small data files in the exact formats of the real ones."""

from __future__ import annotations

import gzip
import pickle
import struct
from pathlib import Path

import numpy as np
from PIL import Image

IDX = (("train-images-idx3-ubyte", "train-labels-idx1-ubyte"), ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"))


def idx(array: np.ndarray) -> bytes:
    return (
        bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape) + array.astype(np.uint8).tobytes()
    )


def write_idx(folder: Path, train: int = 30, test: int = 10, packed: bool = False, seed: int = 0) -> list[np.ndarray]:
    """MNIST's four files; returns x_train, y_train, x_test, y_test."""
    folder.mkdir(parents=True, exist_ok=True)
    rng, made = np.random.default_rng(seed), []
    for (images, labels), n in zip(IDX, (train, test), strict=True):
        x, y = rng.integers(256, size=(n, 28, 28)), np.arange(n) % 10
        for name, array in ((images, x), (labels, y)):
            raw = idx(array)
            (folder / (name + ".gz" * packed)).write_bytes(gzip.compress(raw) if packed else raw)
        made += [x, y]
    return made


def cifar_batches(seed: int = 0, rows: int = 6) -> dict[str, tuple[np.ndarray, list[int]]]:
    rng = np.random.default_rng(seed)
    names = [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]
    return {
        name: (rng.integers(256, size=(rows, 3072)).astype(np.uint8), rng.integers(10, size=rows).tolist())
        for name in names
    }


def write_cifar_python(root: Path, batches: dict[str, tuple[np.ndarray, list[int]]]) -> None:
    """As the published files: protocol 2, keys of bytes."""
    folder = root / "cifar-10-batches-py"
    folder.mkdir(parents=True)
    for name, (x, y) in batches.items():
        held = {b"batch_label": b"a batch", b"labels": y, b"data": x, b"filenames": [b"x.png"] * len(y)}
        (folder / name).write_bytes(pickle.dumps(held, protocol=2))


def write_cifar_binary(root: Path, batches: dict[str, tuple[np.ndarray, list[int]]]) -> None:
    folder = root / "cifar-10-batches-bin"
    folder.mkdir(parents=True)
    for name, (x, y) in batches.items():
        (folder / f"{name}.bin").write_bytes(np.column_stack([np.array(y, np.uint8), x]).tobytes())


def write_pictures(root: Path, mode: str = "L", each: int = 4, side: int = 6) -> None:
    """ROOT/train/{cat,dog}/N.png and ROOT/test/...: a cat's brightness is 10 + its number, a dog's 200 + its."""
    for part, number in (("train", each), ("test", 2)):
        for base, name in ((10, "cat"), (200, "dog")):
            folder = root / part / name
            folder.mkdir(parents=True)
            for i in range(number):
                colour = base + i if mode == "L" else (base + i, 1, 2)
                Image.new(mode, (side, side + 1), colour).save(folder / f"{i}.png")
