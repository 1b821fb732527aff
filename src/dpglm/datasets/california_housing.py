"""California housing, shipped with the package: the embedded example of a regression."""

from __future__ import annotations

from typing import Any, Literal, overload

import numpy as np
from numpy.typing import NDArray

from dpglm._validation import check_bool
from dpglm.datasets.dataset import Columns, Dataset, read_csv, read_schema, split_by_index, to_frame

__all__ = ["load_california_housing"]

_DESCRIPTION = """\
20640 block groups of California in the 1990 US census, 8 numeric columns; the task is to predict
the median house value, in units of 100000 dollars. Rows are in the order of the publication."""

_SOURCE = """\
Pace, R. K. and Barry, R. (1997). Sparse spatial autoregressions. Statistics and Probability
Letters 33, 291-297; posted by the authors on StatLib as `houses`. Columns as derived by
scikit-learn's fetch_california_housing."""

_LICENCE = """\
Figures of the 1990 US census, a work of the US government (no copyright, 17 USC 105), selected by
Pace and Barry, who posted them on StatLib for public use without stating terms."""


@overload
def load_california_housing(
    as_frame: Literal[False] = ...,
) -> Dataset[NDArray[np.float64]]: ...
@overload
def load_california_housing(as_frame: Literal[True]) -> Dataset[Any]: ...
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

    Examples
    --------
    >>> housing = load_california_housing()
    >>> housing.data.shape, housing.target[:2].tolist()
    ((20640, 8), [4.526, 3.585])
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
        description=_DESCRIPTION,
        source=_SOURCE,
        licence=_LICENCE,
    )
