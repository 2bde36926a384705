from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from dpgt_node.config import model
from dpgt_node.errors import ConfigError
from dpgt_node.learning.data import datasets
from dpgt_node.learning.data.datasets import load_dataset
from dpgt_node.learning.data.pictures.folders import load_folder, measure, measure_files
from dpgt_node.learning.data.pictures.sets import load_cifar10, load_idx
from dpgt_node.learning.oracle import build_oracle, sample_counts
from tests.learning.cases import run
from tests.learning.data.files import (
    cifar_batches,
    idx,
    write_cifar_binary,
    write_cifar_python,
    write_idx,
    write_pictures,
)


@pytest.mark.parametrize("packed", [False, True], ids=["raw", "gz"])
@pytest.mark.parametrize(("name", "folder"), [("mnist", "MNIST/raw"), ("fashion-mnist", "FashionMNIST/raw")])
def test_idx_files_as_torchvision_lays_them_out(tmp_path, name, folder, packed):
    x_train, y_train, x_test, y_test = write_idx(tmp_path / folder, packed=packed)
    datasets._images.cache_clear()
    data = load_dataset(name, tmp_path)
    np.testing.assert_array_equal(data.real_train(), x_train.reshape(30, 784) / 255)
    np.testing.assert_array_equal(data.real_test(slice(2, 4)), x_test.reshape(10, 784)[2:4] / 255)
    np.testing.assert_array_equal(data.y_train, y_train)
    np.testing.assert_array_equal(data.y_test, y_test)
    assert (data.classes, data.image) == (10, (1, 28, 28))


def test_a_raw_file_is_mapped_not_read(tmp_path):
    write_idx(tmp_path / "MNIST/raw")
    base = load_idx("mnist", tmp_path).x_train.base
    while base is not None and not isinstance(base, np.memmap):
        base = base.base
    assert isinstance(base, np.memmap)


SPOILT = {
    "torn": ("train-images-idx3-ubyte", lambda raw: raw[:-1], "is torn or foreign"),
    "longer": ("train-images-idx3-ubyte", lambda raw: raw + b"x", "is torn or foreign"),
    "other magic": ("train-images-idx3-ubyte", lambda raw: b"\x00\x00\x0d\x03" + raw[4:], "is no IDX file"),
    "short head": ("t10k-labels-idx1-ubyte", lambda raw: raw[:5], "is no IDX file"),
    "empty": ("t10k-labels-idx1-ubyte", lambda raw: b"", "is no IDX file"),
    "label 10": ("train-labels-idx1-ubyte", lambda raw: raw[:-1] + b"\x0a", "has label 10"),
    "fewer labels": ("train-labels-idx1-ubyte", lambda raw: idx(np.zeros(29)), "holds 30 pictures, .* has 29 labels"),
    "other size": ("t10k-images-idx3-ubyte", lambda raw: idx(np.zeros((10, 27, 28))), "test pictures of"),
    "gone": ("t10k-labels-idx1-ubyte", None, "is missing, and so is its .gz"),
    "huge claim": ("train-images-idx3-ubyte", lambda raw: raw[:4] + b"\xff" * 12, "is torn or foreign"),
}


@pytest.mark.parametrize("case", SPOILT)
def test_spoilt_idx_files_are_named(tmp_path, case):
    name, spoil, message = SPOILT[case]
    write_idx(tmp_path / "MNIST/raw")
    path = tmp_path / "MNIST/raw" / name
    if spoil is None:
        path.unlink()
    else:
        path.write_bytes(spoil(path.read_bytes()))
    with pytest.raises(ConfigError, match=message) as caught:
        load_idx("mnist", tmp_path)
    assert "idx" in str(caught.value)


def test_a_torn_gz_is_named(tmp_path):
    write_idx(tmp_path / "MNIST/raw", packed=True)
    path = tmp_path / "MNIST/raw/train-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(ConfigError, match="cannot be read"):
        load_idx("mnist", tmp_path)


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist", "cifar10"])
def test_missing_sets_say_how_to_get_them(tmp_path, name):
    datasets._images.cache_clear()
    with pytest.raises(ConfigError, match=f"dpgt data fetch {name}"):
        load_dataset(name, tmp_path)
    with pytest.raises(ConfigError, match=f"dpgt data fetch {name}"):
        load_dataset(name)


def test_half_a_cifar10_says_what_to_do_and_an_empty_folder_is_passed_over(tmp_path):
    write_cifar_python(tmp_path / "half", cifar_batches())
    (tmp_path / "half/cifar-10-batches-py/data_batch_4").unlink()
    with pytest.raises(ConfigError, match=r"data_batch_4: is missing: run `dpgt data fetch cifar10`"):
        load_cifar10(tmp_path / "half")
    (tmp_path / "bin/cifar-10-batches-py").mkdir(parents=True)
    with pytest.raises(ConfigError, match=r"dpgt data fetch cifar10"):
        load_cifar10(tmp_path / "bin")
    write_cifar_binary(tmp_path / "bin", cifar_batches())
    assert len(load_cifar10(tmp_path / "bin").y_train) == 30


def test_both_versions_of_cifar10_hold_the_same(tmp_path):
    batches = cifar_batches()
    write_cifar_python(tmp_path / "py", batches)
    write_cifar_binary(tmp_path / "bin", batches)
    python, binary = load_cifar10(tmp_path / "py"), load_cifar10(tmp_path / "bin")
    expected = np.concatenate([x for name, (x, _) in batches.items() if name != "test_batch"]) / 255
    for data in (python, binary):
        np.testing.assert_array_equal(data.real_train(), expected)
        np.testing.assert_array_equal(data.real_test(), batches["test_batch"][0] / 255)
        assert data.y_test.tolist() == batches["test_batch"][1]
        assert (data.classes, data.image) == (10, (3, 32, 32))


class Evil:
    def __reduce__(self):
        import os

        return os.system, ("touch harmed",)


@pytest.mark.parametrize("what", ["call", "object array", "not a dict", "torn", "labels", "label 11", "shape"])
def test_hostile_and_torn_pickles_are_refused_and_run_nothing(tmp_path, monkeypatch, what):
    monkeypatch.chdir(tmp_path)
    write_cifar_python(tmp_path, cifar_batches())
    path = tmp_path / "cifar-10-batches-py/data_batch_3"
    good = pickle.loads(path.read_bytes())
    bad = {
        "call": pickle.dumps({b"data": Evil(), b"labels": []}),
        "object array": pickle.dumps({b"data": np.array([Evil()], dtype=object), b"labels": [1]}, protocol=2),
        "not a dict": pickle.dumps([1, 2]),
        "torn": path.read_bytes()[:-100],
        "labels": pickle.dumps(good | {b"labels": ["x"] * 6}),
        "label 11": pickle.dumps(good | {b"labels": [11] * 6}, protocol=2),
        "shape": pickle.dumps(good | {b"data": good[b"data"][:, :3]}, protocol=2),
    }[what]
    path.write_bytes(bad)
    with pytest.raises(ConfigError, match="data_batch_3"):
        load_cifar10(tmp_path)
    assert not (tmp_path / "harmed").exists()


def test_a_torn_binary_batch_is_named(tmp_path):
    write_cifar_binary(tmp_path, cifar_batches())
    path = tmp_path / "cifar-10-batches-bin/data_batch_2.bin"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ConfigError, match=r"data_batch_2.bin.* is torn"):
        load_cifar10(tmp_path)


@pytest.mark.parametrize(("mode", "channels"), [("L", 1), ("RGB", 3)])
def test_folders_of_classes(tmp_path, mode, channels):
    write_pictures(tmp_path, mode)
    data = load_folder(tmp_path)
    assert data.image == (channels, 7, 6) and data.classes == 2
    assert data.y_train.tolist() == [0] * 4 + [1] * 4 and data.y_test.tolist() == [0, 0, 1, 1]
    red = data.real_train(np.array([5, 0]))[:, 0] * 255
    np.testing.assert_allclose(red, [201, 10])
    assert channels == 1 or data.real_train()[0, -1] * 255 == pytest.approx(2), "channels first"


def test_deep_pictures_keep_their_upper_byte_and_deeper_ones_are_refused(tmp_path):
    write_pictures(tmp_path)
    deep = (np.arange(42).reshape(7, 6) * 1500).astype(np.uint16)
    Image.fromarray(deep).save(tmp_path / "train/cat/0.png")
    np.testing.assert_array_equal(load_folder(tmp_path).x_train[np.array([0])][0], (deep >> 8).ravel())
    assert load_folder(tmp_path).image == (1, 7, 6)
    Image.new("RGB", (6, 7)).save(tmp_path / "train/dog/0.png")
    np.testing.assert_array_equal(load_folder(tmp_path).x_train[np.array([0])][0], np.tile((deep >> 8).ravel(), 3))
    Image.fromarray(deep.astype(np.float32)).save(tmp_path / "train/cat/0.tif")
    with pytest.raises(ConfigError, match=r"0\.tif.* has 32 bits a pixel"):
        load_folder(tmp_path).real_train()


def test_a_folder_without_parts_is_all_training(tmp_path):
    write_pictures(tmp_path / "x")
    data = load_folder(tmp_path / "x/train")
    assert data.x_train.shape == (8, 42) and len(data.y_test) == 0


def test_a_folder_without_parts_keeps_a_test_share_where_one_is_stated(tmp_path):
    write_pictures(tmp_path / "x", each=5)
    flat, whole = tmp_path / "x/train", load_folder(tmp_path / "x/train")
    data = load_dataset(f"folder:{flat}", params={"test_fraction": 0.3})
    order = np.random.default_rng(0).permutation(10)
    np.testing.assert_array_equal(data.x_train[:], whole.x_train[:][order[:7]])
    np.testing.assert_array_equal(data.x_test[:], whole.x_train[:][order[7:]])
    assert data.y_test.tolist() == whole.y_train[order[7:]].tolist()
    own = run(f"folder:{tmp_path}/absent", samples=1, classes=("cat", "dog"), own_test_fraction=0.3)
    assert (build_oracle(own, 0, data_path=flat).samples, build_oracle(own, 0, data_path=flat).tested) == (7, 3)
    parts = load_dataset(f"folder:{tmp_path / 'x'}", params={"test_fraction": 0.3})
    assert (len(parts.y_train), len(parts.y_test)) == (10, 4), "a test part of its own stays whole"


def test_pictures_of_another_size_are_all_named_without_decoding_one(tmp_path):
    write_pictures(tmp_path, each=9)
    measure(load_folder(tmp_path))
    for i in range(1, 8):
        Image.new("L", (5, 5)).save(tmp_path / f"train/dog/{i}.png")
    whole = (tmp_path / "train/cat/3.png").read_bytes()
    (tmp_path / "train/cat/3.png").write_bytes(whole[:60])  # its head alone
    with pytest.raises(ConfigError) as caught:
        measure(load_folder(tmp_path))
    lines = str(caught.value).splitlines()
    assert [f"dog/{i}.png: is 5 x 5 pixels, 15 of 22 pictures are 6 x 7" in lines[i - 1] for i in range(1, 6)] == [
        True
    ] * 5
    assert lines[4].endswith("(and 2 more pictures like these)") and len(lines) == 5


def test_what_a_server_hid_a_pipe_and_a_picture_without_bound_are_no_pictures(tmp_path):
    write_pictures(tmp_path)
    for hidden in ("@eaDir", ".thumbnails"):
        (tmp_path / "train/cat" / hidden).mkdir()
        Image.new("L", (6, 7)).save(tmp_path / "train/cat" / hidden / "0.png")
    assert load_folder(tmp_path).y_train.tolist() == [0] * 4 + [1] * 4
    Image.new("1", (4097, 4097)).save(tmp_path / "large.png")
    os.mkfifo(tmp_path / "pipe.png")
    for name, words in (("large", "has more than 16777216 pixels"), ("pipe", "is neither a file nor a link to one")):
        with pytest.raises(ConfigError, match=words):
            measure_files([tmp_path / f"{name}.png"])


@pytest.mark.parametrize("what", ["size", "garbage", "nothing", "no class", "no folder", "no train"])
def test_bad_picture_folders(tmp_path, what):
    if what not in ("nothing", "no class", "no folder"):
        write_pictures(tmp_path)
    if what == "size":
        Image.new("L", (6, 6)).save(tmp_path / "train/dog/0.png")
    elif what == "garbage":
        (tmp_path / "train/cat/1.png").write_bytes(b"\x89PNG nonsense")
    elif what == "no train":
        shutil.rmtree(tmp_path / "train")
    elif what == "nothing":
        (tmp_path / "train/cat").mkdir(parents=True)
    message = {
        "size": "bring all to one size",
        "garbage": "1.png.*is no readable picture",
        "nothing": "holds no picture",
        "no class": "has no folder of a class",
        "no folder": "is no folder",
        "no train": "has a folder test and none named train",
    }[what]
    with pytest.raises(ConfigError, match=message):
        load_folder(tmp_path / "absent" if what == "no folder" else tmp_path).real_train()


def test_an_agent_reads_only_its_own_pictures(tmp_path, monkeypatch):
    write_pictures(tmp_path)
    config = run(f"folder:{tmp_path}", partition="contiguous", samples=1)
    assert sample_counts(config) == (3, 3, 2)
    for own in (tmp_path / "train").rglob("*.png"):
        if own.parent.name == "dog":
            own.write_bytes(b"spoilt: nobody reads it here")
    datasets._folder.cache_clear()
    with pytest.raises(ConfigError, match="no readable picture"):
        build_oracle(config, 2)
    # The first picture of every class tells the mode, and agent 1 holds cats only.
    Image.new("L", (6, 7), 200).save(tmp_path / "train/dog/0.png")
    datasets._folder.cache_clear()
    assert build_oracle(config, 0).samples == 3


def renamed(tmp_path, name, dog):
    write_pictures(tmp_path / name)
    for part in ("train", "test"):
        (tmp_path / name / part / "dog").rename(tmp_path / name / part / dog)
    return tmp_path / name


def test_class_folders_are_numbered_as_the_run_file_names_them(tmp_path):
    names = ("horse", "dog", "cat")
    made = run(f"folder:{tmp_path / 'absent'}", samples=1, classes=names)
    oracles = [build_oracle(made, i, data_path=renamed(tmp_path, dog, dog)) for i, dog in enumerate(names[:2])]
    assert [set(oracle._y) for oracle in oracles] == [{0, 2}, {1, 2}]
    assert {oracle.dimension for oracle in oracles} == {3 * 43}
    assert len({oracle.shape_sha256 for oracle in oracles}) == 1
    with pytest.raises(ConfigError, match=r"has a folder 'hiv', and data.classes names horse, dog, cat"):
        build_oracle(made, 0, data_path=renamed(tmp_path, "hiv", "hiv"))
    counted = run(f"folder:{tmp_path / 'hiv'}", samples=1, classes=1)
    with pytest.raises(ConfigError, match=r"has a folder 'hiv', and data.classes is 1"):
        build_oracle(counted, 0)


def test_a_folder_of_an_agent_s_own_needs_names(tmp_path):
    folder = renamed(tmp_path, "own", "hiv")
    for classes, message in ({}, "else its labels decide"), ({"classes": 2}, "must be a list of names"):
        with pytest.raises(ConfigError, match=message):
            build_oracle(run(f"folder:{tmp_path / 'absent'}", samples=1, **classes), 0, data_path=folder)


def test_no_hash_that_leaves_can_be_used_to_guess_the_names_of_folders(tmp_path):
    """What an agent says when it registers is the same for all names: trying words finds nothing."""
    said = []
    for name in ("hiv", "flu"):
        oracle = build_oracle(run(f"folder:{renamed(tmp_path, name, name)}", samples=1), 0)
        said.append((oracle.shape_sha256, oracle.dimension, oracle.samples))
    assert said[0] == said[1]


def test_training_on_mnist_files(tmp_path):
    write_idx(tmp_path / "MNIST/raw", train=40)
    datasets._images.cache_clear()
    config = run("mnist", samples=4, privacy=model.Privacy(clip_l2=1.0))
    oracle = build_oracle(config, 1, data_root=tmp_path)
    assert oracle.dimension == 7850 and oracle.samples == 13
    gradient = oracle.gradient(oracle.initial(), np.arange(4))
    assert np.isfinite(gradient).all() and np.linalg.norm(gradient) > 0


def test_pictures_do_not_import_torch(tmp_path):
    write_idx(tmp_path / "MNIST/raw")
    code = (
        "import sys, pathlib; from dpgt_node.learning.data.datasets import load_dataset;"
        f"load_dataset('mnist', pathlib.Path({str(tmp_path)!r})).real_train();"
        "sys.exit(any(m in sys.modules for m in ('torch', 'torchvision', 'PIL', 'pyarrow', 'sklearn')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
