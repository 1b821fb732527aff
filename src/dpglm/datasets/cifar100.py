"""CIFAR-100 as features of a pretrained network, read from the user's file."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dpglm.datasets.dataset import Dataset

__all__ = ["load_cifar100_features"]

_ARRAYS = ("x_train", "y_train", "x_test", "y_test")
_N_CLASSES = 100


def load_cifar100_features(path: str | os.PathLike[str]) -> Dataset[NDArray[np.float32]]:
    """Load features of CIFAR-100 that a network trained on other, public images gave.

    Parameters
    ----------
    path : path-like
        NumPy archive (``numpy.savez``) with the arrays ``x_train`` of shape (n_train, d) and
        ``x_test`` of shape (n_test, d), finite, and ``y_train`` of shape (n_train,) and ``y_test``
        of shape (n_test,), whole numbers from 0 to 99.

    Returns
    -------
    Dataset
        `data` has shape (n_train + n_test, d), float32; `target` holds the classes as int64. The
        schema declares no bounds: scale rows to one length before a private fit.

    Raises
    ------
    FileNotFoundError
        If the file is absent; the message says what it must hold.
    ValueError
        If an array is missing or is not what it must be.

    Notes
    -----
    Privacy: features cost none if the network has never seen the private images.

    References
    ----------
    Krizhevsky, A. (2009). Learning multiple layers of features from tiny images.
    """
    file = Path(path)
    if not file.is_file():
        raise FileNotFoundError(
            f"path must name a NumPy archive with the arrays {', '.join(_ARRAYS)}, got {file}"
        )
    with np.load(file, allow_pickle=False) as archive:
        missing = [name for name in _ARRAYS if name not in archive]
        if missing:
            raise ValueError(f"{file} must have the arrays {', '.join(_ARRAYS)}; lacks {missing}")
        x_train, y_train, x_test, y_test = (archive[name] for name in _ARRAYS)
    for name, X, y in (("train", x_train, y_train), ("test", x_test, y_test)):
        if X.ndim != 2 or y.shape != X.shape[:1] or X.shape[1] != x_train.shape[1]:
            raise ValueError(f"{file}: x_{name} {X.shape} and y_{name} {y.shape} do not fit")
        if not np.issubdtype(X.dtype, np.floating) or not np.isfinite(X).all():
            raise ValueError(f"{file}: x_{name} must hold finite floating-point numbers")
        if not np.issubdtype(y.dtype, np.integer) or np.any((y < 0) | (y >= _N_CLASSES)):
            raise ValueError(f"{file}: y_{name} must hold whole numbers from 0 to 99")
    names = tuple(f"feature_{number}" for number in range(x_train.shape[1]))
    n_train, n_rows = len(y_train), len(y_train) + len(y_test)
    return Dataset(
        name="cifar100_features",
        data=np.concatenate([x_train, x_test]).astype(np.float32),
        target=np.concatenate([y_train, y_test]).astype(np.int64),
        feature_names=names,
        target_name="class",
        schema={},
        train=np.arange(n_train),
        test=np.arange(n_train, n_rows),
        description="Features of 60000 colour images of 100 classes, by a pretrained network.",
        source="Krizhevsky, A. (2009). Learning multiple layers of features from tiny images.",
        licence="not part of this package; see the terms of the copy that you have",
    )
