"""Reading the package's own data files with the core install only."""

from __future__ import annotations

import csv
import gzip
import io
import json
from importlib import resources
from typing import Any

import numpy as np

from dpglm.datasets.dataset import Columns

__all__ = ["read_csv", "read_schema", "to_frame"]


def read_csv(name: str) -> Columns:
    """Read a gzip-compressed CSV file of the package, every value as text.

    Parameters
    ----------
    name : str
        File name inside ``dpglm/datasets/files``.

    Returns
    -------
    dict of str to ndarray of str
        The columns in the order of the file.
    """
    packed = resources.files("dpglm.datasets").joinpath("files", name).read_bytes()
    header, *rows = csv.reader(io.StringIO(gzip.decompress(packed).decode("utf-8")))
    values = zip(*rows, strict=True)
    return {
        column: np.array(texts, dtype=np.str_) for column, texts in zip(header, values, strict=True)
    }


def read_schema(name: str) -> dict[str, Any]:
    """Read a JSON schema of the package.

    Parameters
    ----------
    name : str
        File name inside ``dpglm/datasets/files``.

    Returns
    -------
    dict
        The keys ``columns``, ``target`` and ``provenance``.
    """
    text = resources.files("dpglm.datasets").joinpath("files", name).read_text(encoding="utf-8")
    schema: dict[str, Any] = json.loads(text)
    return schema


def to_frame(columns: Columns, loader: str) -> Any:
    """Turn columns into a pandas DataFrame.

    Parameters
    ----------
    columns : dict of str to ndarray
        The columns.
    loader : str
        Name of the public function that was called, for the message.

    Returns
    -------
    pandas.DataFrame
        One column per entry, in the same order.

    Raises
    ------
    ImportError
        If pandas is not installed.
    """
    try:
        import pandas as pd
    except ImportError as error:
        raise ImportError(
            f"{loader}(as_frame=True) needs pandas, which is not installed: "
            "run `pip install pandas`, or leave as_frame=False"
        ) from error
    return pd.DataFrame(columns)
