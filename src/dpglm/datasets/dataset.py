"""The type of data sets, and the public rule that splits rows into training and test."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar, final

import numpy as np
from numpy.typing import NDArray

from dpglm._calls import checked

DataT = TypeVar("DataT")
Columns = dict[str, NDArray[Any]]
"""A table: arrays of one length by column name."""


@checked
@final
@dataclass(frozen=True, eq=False)
class Dataset(Generic[DataT]):
    """A data set with public facts about it.

    Parameters
    ----------
    name : str
        Short name.
    data : array of shape (n_rows, n_features), dict of columns, or pandas DataFrame
        The features, in the order of `feature_names`; each loader says which form it returns.
    target : ndarray of shape (n_rows,)
        Labels (in the vocabulary of ``schema["target"]``) or real values.
    feature_names : tuple of str
        Names of the features.
    target_name : str
        Name of the target.
    schema : dict
        Public facts in the form that `dpglm.tables.schema.Schema` reads: bounds or categories of
        every column, bounds or classes of the target, and their provenance.
    train, test : ndarray of int64, shape (n_train,) and (n_test,)
        Disjoint row numbers that together are all rows: the split that its publishers made where
        there is one, else `split_by_index`.
    description : str
        Meaning of the rows and the prediction task.
    source : str
        Source of the data, with the citation that its publishers request.
    licence : str
        Terms of use.

    Notes
    -----
    Privacy: bounds, categories and classes in `schema` were written down from documentation, so a
    private fit may use them freely. The split depends on row numbers only.

    Examples
    --------
    >>> from dpglm.datasets import load_adult
    >>> adult = load_adult()
    >>> adult
    Dataset(name='adult', n_rows=48842, n_features=14, target_name='income')
    >>> len(adult.train), len(adult.test)
    (32561, 16281)
    >>> adult.data["age"][adult.train].shape
    (32561,)
    """

    name: str
    data: DataT
    target: NDArray[Any]
    feature_names: tuple[str, ...]
    target_name: str
    schema: Mapping[str, Any]
    train: NDArray[np.int64]
    test: NDArray[np.int64]
    description: str
    source: str
    licence: str
    n_rows: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "n_rows", len(self.target))

    def __repr__(self) -> str:
        return (
            f"Dataset(name={self.name!r}, n_rows={self.n_rows}, "
            f"n_features={len(self.feature_names)}, target_name={self.target_name!r})"
        )


# floor(2**32 / golden ratio): multiples of it, modulo 2**32, spread evenly over the whole range, so
# every stretch of rows gives close to the asked fraction to the test part.
_MULTIPLIER = 2654435761
_MODULUS = 2**32


@checked
def split_by_index(
    n_rows: int, test_fraction: float = 0.2
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Split rows into training and test by a fixed public rule on their numbers.

    Row ``i`` belongs to the test part if ``(2654435761 * i) mod 2**32`` is less than
    ``test_fraction * 2**32``. Nothing is drawn at random: the same two numbers give the same split
    everywhere.

    Parameters
    ----------
    n_rows : int
        Number of rows, at least 2 and less than 2**32.
    test_fraction : float
        Share of the rows that go to the test part, strictly between 0 and 1.

    Returns
    -------
    train, test : ndarray of int64
        Ascending row numbers, disjoint, together ``0 .. n_rows - 1``; neither is empty.

    Raises
    ------
    ValueError
        If a parameter is out of range, or there are too few rows for both parts to have one.

    Notes
    -----
    Privacy: the rule looks at no value, so the split releases nothing.

    Examples
    --------
    >>> train, test = split_by_index(10, test_fraction=0.3)
    >>> train.tolist(), test.tolist()
    ([1, 3, 4, 6, 7, 8, 9], [0, 2, 5])
    """
    if not 2 <= n_rows < _MODULUS:
        raise ValueError(f"n_rows must be at least 2 and less than 2**32, got {n_rows!r}")
    if not 0 < test_fraction < 1:
        raise ValueError(f"test_fraction must be strictly between 0 and 1, got {test_fraction!r}")
    rows = np.arange(n_rows, dtype=np.int64)
    position = (rows.astype(np.uint64) * np.uint64(_MULTIPLIER)) % np.uint64(_MODULUS)
    in_test = position < test_fraction * _MODULUS
    train, test = rows[~in_test], rows[in_test]
    if len(train) == 0:
        raise ValueError(
            f"n_rows={n_rows} with test_fraction={test_fraction} leaves no row for training; "
            "give more rows or a smaller fraction"
        )
    return train, test
