"""Logarithms of class probabilities, exact where the probabilities themselves underflow."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_expit, log_softmax

__all__ = ["class_log_probabilities", "log_class_shares"]


def class_log_probabilities(z: ArrayLike) -> NDArray[np.float64]:
    """Turn scores into log probabilities: logistic for two classes, softmax for more.

    Parameters
    ----------
    z : array_like of float, shape (n,) or (n, K)
        Scores.

    Returns
    -------
    ndarray of float64, shape (n, 2) or (n, K)

    Examples
    --------
    >>> class_log_probabilities([800.0])
    array([[-800.,   -0.]])
    """
    z = np.asarray(z, dtype=np.float64)
    if z.ndim == 2:
        return np.asarray(log_softmax(z, axis=1))
    return np.column_stack([log_expit(-z), log_expit(z)])


def log_class_shares(z: ArrayLike) -> NDArray[np.float64]:
    """Turn logistic scores of each class against the rest into logarithms of ``class_shares``.

    Parameters
    ----------
    z : array_like of float, shape (n, K)
        Scores.

    Returns
    -------
    ndarray of float64, shape (n, K)

    Examples
    --------
    >>> log_class_shares([[-800.0, -900.0]])
    array([[   0., -100.]])
    """
    return np.asarray(log_softmax(log_expit(np.asarray(z, dtype=np.float64)), axis=1))
