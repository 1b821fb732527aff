"""Adult (census income), shipped with the package: the embedded example of a private data set."""

from __future__ import annotations

from typing import Any, Literal, overload

import numpy as np

from dpglm._validation import check_bool
from dpglm.datasets.dataset import Columns, Dataset, read_csv, read_schema, to_frame

__all__ = ["load_adult"]

# The file holds UCI's adult.data (its training part), then adult.test, each in UCI's order.
_N_TRAIN = 32561

_DESCRIPTION = """\
48842 persons of the 1994 Current Population Survey of the US Census Bureau, 14 columns (6 numeric,
8 categorical); the task is to tell whether a person's income is above 50000 dollars a year. All
rows are kept, in UCI's order; an unknown value is its own category, '?'."""

_SOURCE = """\
Becker, B. and Kohavi, R. (1996). Adult. UCI Machine Learning Repository.
https://doi.org/10.24432/C5XW20"""

_LICENCE = "Creative Commons Attribution 4.0 International (CC BY 4.0)"


@overload
def load_adult(as_frame: Literal[False] = ...) -> Dataset[Columns]: ...
@overload
def load_adult(as_frame: Literal[True]) -> Dataset[Any]: ...
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

    Examples
    --------
    >>> adult = load_adult()
    >>> adult.data["age"][:3].tolist(), adult.data["workclass"][:2].tolist()
    ([39, 50, 38], ['State-gov', 'Self-emp-not-inc'])
    >>> adult.schema["columns"]["hours-per-week"]
    {'type': 'numeric', 'low': 1, 'high': 99}
    """
    check_bool("as_frame", as_frame)
    schema = read_schema("adult.schema.json")
    table = read_csv("adult.csv.gz")
    target = table.pop(schema["target"]["name"])
    columns: Columns = {
        name: values.astype(np.int64) if schema["columns"][name]["type"] == "numeric" else values
        for name, values in table.items()
    }
    return Dataset(
        name="adult",
        data=to_frame(columns, "load_adult") if as_frame else columns,
        target=target,
        feature_names=tuple(columns),
        target_name=schema["target"]["name"],
        schema=schema,
        train=np.arange(_N_TRAIN),
        test=np.arange(_N_TRAIN, len(target)),
        description=_DESCRIPTION,
        source=_SOURCE,
        licence=_LICENCE,
    )
