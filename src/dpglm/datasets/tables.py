"""The type of data sets, the public split of rows, and the tables that are shipped."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from typing import Any, Generic, TypeVar, final

import numpy as np
from numpy.typing import NDArray

from dpglm._calls import checked
from dpglm._validation import check_bool

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


# The file holds UCI's adult.data (its training part), then adult.test, each in UCI's order.
_N_TRAIN = 32561


def load_adult(as_frame: bool = False) -> Dataset[Any]:
    """Load Adult (census income): 48842 rows, 14 columns, two classes.

    Parameters
    ----------
    as_frame : bool
        Return the features as a pandas DataFrame instead of a dict of columns.

    Returns
    -------
    Dataset
        `data` holds integers (int64) in numeric columns and text in categorical ones; `target`
        holds ``"<=50K"`` or ``">50K"``; `train` and `test` are UCI's own parts (32561 and 16281
        rows); `schema` is written from the documentation, column by column.

    Raises
    ------
    ImportError
        If `as_frame` is set and pandas is not installed.

    References
    ----------
    Becker, B. and Kohavi, R. (1996). Adult. UCI Machine Learning Repository.
    https://doi.org/10.24432/C5XW20 (CC BY 4.0). The rows are unchanged; they are reordered and
    compressed as described in their licence file.
    """
    check_bool("as_frame", as_frame)
    schema = read_json("adult.schema.json")
    table = read_csv("adult.csv.gz")
    target = table.pop(schema["target"]["name"])
    columns: Columns = {
        name: values.astype(np.int64) if schema["columns"][name]["type"] == "numeric" else values
        for name, values in table.items()
    }
    return Dataset(
        data=to_frame(columns, "load_adult") if as_frame else columns,
        target=target,
        feature_names=tuple(columns),
        target_name=schema["target"]["name"],
        schema=schema,
        train=np.arange(_N_TRAIN),
        test=np.arange(_N_TRAIN, len(target)),
        **read_json("about.json")["adult"],
    )


def load_california_housing(as_frame: bool = False) -> Dataset[Any]:
    """Load California housing: 20640 rows, 8 numeric columns, a real target.

    Parameters
    ----------
    as_frame : bool
        Return the features as a pandas DataFrame instead of an array; errors are those of
        ``load_adult``.

    Returns
    -------
    Dataset
        `data` has shape (20640, 8), float64, with the columns of scikit-learn's
        ``fetch_california_housing``; `target` is float64, in units of 100000 dollars, and ends at
        5.00001 (the census's top code); `train` and `test` come from `split_by_index`.

    References
    ----------
    Pace, R. K. and Barry, R. (1997). Sparse spatial autoregressions. Statistics and Probability
    Letters 33, 291-297.
    """
    check_bool("as_frame", as_frame)
    schema = read_json("california_housing.schema.json")
    raw = {
        name: texts.astype(np.float64)
        for name, texts in read_csv("california_housing.csv.gz").items()
    }
    households = raw["households"]
    columns: Columns = {
        "MedInc": raw["median_income"],
        "HouseAge": raw["housing_median_age"],
        "AveRooms": raw["total_rooms"] / households,
        "AveBedrms": raw["total_bedrooms"] / households,
        "Population": raw["population"],
        "AveOccup": raw["population"] / households,
        "Latitude": raw["latitude"],
        "Longitude": raw["longitude"],
    }
    train, test = split_by_index(len(households))
    return Dataset(
        data=(
            to_frame(columns, "load_california_housing")
            if as_frame
            else np.column_stack(list(columns.values()))
        ),
        target=raw["median_house_value"] / 1e5,
        feature_names=tuple(columns),
        target_name=schema["target"]["name"],
        schema=schema,
        train=train,
        test=test,
        **read_json("about.json")["california_housing"],
    )


# Reading the package's own data files with the core install only.

_FILES = resources.files("dpglm.datasets") / "files"


def read_csv(name: str) -> Columns:
    """Read a gzip-compressed CSV file of the package, every value as text."""
    text = gzip.decompress((_FILES / name).read_bytes()).decode("utf-8")
    header, *rows = csv.reader(io.StringIO(text))
    values = zip(*rows, strict=True)
    return {
        column: np.array(texts, dtype=np.str_) for column, texts in zip(header, values, strict=True)
    }


def read_json(name: str) -> dict[str, Any]:
    """Read a JSON file of the package: a schema, or the texts about all data sets."""
    found: dict[str, Any] = json.loads((_FILES / name).read_text(encoding="utf-8"))
    return found


def to_frame(columns: Columns, loader: str) -> Any:
    """Turn columns into a pandas DataFrame."""
    try:
        import pandas as pd
    except ImportError as error:
        raise ImportError(
            f"{loader}(as_frame=True) needs pandas, which is not installed: "
            "run `pip install pandas`, or leave as_frame=False"
        ) from error
    return pd.DataFrame(columns)
