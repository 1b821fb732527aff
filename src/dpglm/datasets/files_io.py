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
