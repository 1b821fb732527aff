"""Tables that are shipped with the package: Adult, and California housing."""

from __future__ import annotations

import csv
import gzip
import io
import json
from importlib import resources
from typing import Any

import numpy as np

from dpglm._validation import check_bool
from dpglm.datasets.dataset import Columns, Dataset, split_by_index

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
        description="""\
48842 persons of the 1994 Current Population Survey of the US Census Bureau, 14 columns (6 numeric,
8 categorical); the task is to tell whether a person's income is above 50000 dollars a year. All
rows are kept, in UCI's order; an unknown value is its own category, '?'.""",
        source="""\
Becker, B. and Kohavi, R. (1996). Adult. UCI Machine Learning Repository.
https://doi.org/10.24432/C5XW20""",
        licence="Creative Commons Attribution 4.0 International (CC BY 4.0)",
    )


def load_california_housing(as_frame: bool = False) -> Dataset[Any]:
    """Load California housing: 20640 rows, 8 numeric columns, a real target.

    Parameters
    ----------
    as_frame : bool
        Return the features as a pandas DataFrame instead of an array.

    Returns
    -------
    Dataset
        `data` has shape (20640, 8), float64, with the columns of scikit-learn's
        ``fetch_california_housing``; `target` is float64, in units of 100000 dollars, and ends at
        5.00001 (the census's top code); `train` and `test` come from `split_by_index`.

    Raises
    ------
    ImportError
        If `as_frame` is set and pandas is not installed.

    References
    ----------
    Pace, R. K. and Barry, R. (1997). Sparse spatial autoregressions. Statistics and Probability
    Letters 33, 291-297.
    """
    check_bool("as_frame", as_frame)
    schema = read_schema("california_housing.schema.json")
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
        name="california_housing",
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
        description="""\
20640 block groups of California in the 1990 US census, 8 numeric columns; the task is to predict
the median house value, in units of 100000 dollars. Rows are in the order of the publication.""",
        source="""\
Pace, R. K. and Barry, R. (1997). Sparse spatial autoregressions. Statistics and Probability
Letters 33, 291-297; posted by the authors on StatLib as `houses`. Columns as derived by
scikit-learn's fetch_california_housing.""",
        licence="""\
Figures of the 1990 US census, a work of the US government (no copyright, 17 USC 105), selected by
Pace and Barry, who posted them on StatLib for public use without stating terms.""",
    )


# Reading the package's own data files with the core install only.


def read_csv(name: str) -> Columns:
    """Read a gzip-compressed CSV file of the package, every value as text."""
    packed = resources.files("dpglm.datasets").joinpath("files", name).read_bytes()
    header, *rows = csv.reader(io.StringIO(gzip.decompress(packed).decode("utf-8")))
    values = zip(*rows, strict=True)
    return {
        column: np.array(texts, dtype=np.str_) for column, texts in zip(header, values, strict=True)
    }


def read_schema(name: str) -> dict[str, Any]:
    """Read a JSON schema of the package."""
    text = resources.files("dpglm.datasets").joinpath("files", name).read_text(encoding="utf-8")
    schema: dict[str, Any] = json.loads(text)
    return schema


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
