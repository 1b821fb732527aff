"""The fixed benchmark splits: integer-coded tables read from a folder that the caller names."""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Codes",
    "Split",
    "acs_employment_codes",
    "load_acs_codes",
    "load_acs_employment",
    "load_adult_split",
    "load_cod_rna",
]

# Number of codes of each column: 32 bins for measurements, the categories of UCI's and the
# Census Bureau's documentation for the rest. Nominal columns become one indicator for each code,
# ordinal ones are mapped to [-1, 1].
_ADULT_CODES = {
    "age": 32,
    "workclass": 9,
    "fnlwgt": 32,
    "education": 16,
    "education-num": 16,
    "marital-status": 7,
    "occupation": 15,
    "relationship": 6,
    "race": 5,
    "sex": 2,
    "capital-gain": 32,
    "capital-loss": 32,
    "hours-per-week": 32,
    "native-country": 42,
}
_ADULT_NOMINAL = {
    "workclass",
    "marital-status",
    "occupation",
    "relationship",
    "race",
    "sex",
    "native-country",
}
_ACS_CODES = {
    "AGEP": 100,
    "SCHL": 25,
    "MAR": 5,
    "RELP": 18,
    "DIS": 2,
    "ESP": 9,
    "CIT": 5,
    "MIG": 3,
    "MIL": 5,
    "ANC": 4,
    "NATIVITY": 2,
    "DEAR": 2,
    "DEYE": 2,
    "DREM": 2,
    "SEX": 2,
    "RAC1P": 9,
}
_ACS_ORDINAL = {"AGEP", "SCHL", "RELP"}


@dataclass(frozen=True)
class Split:
    """A fixed split, encoded by public facts only, and the public norm of its rows."""

    X_train: NDArray[np.float32]
    y_train: NDArray[np.int64]
    X_test: NDArray[np.float32]
    y_test: NDArray[np.int64]
    row_norm: float


@dataclass(frozen=True)
class Codes:
    """The columns of a fixed split unchanged, integers, and the public facts about each."""

    train: dict[str, NDArray[np.int64]]
    test: dict[str, NDArray[np.int64]]
    columns: dict[str, dict[str, Any]]
    """Entries of a schema."""


def _read(path: Path) -> tuple[list[str], NDArray[np.int64]]:
    with gzip.open(path, "rt") as file:
        names = file.readline().strip().split(",")
        return names, np.loadtxt(file, delimiter=",", dtype=np.int64)


def _encode(
    names: list[str], table: NDArray[np.int64], codes: dict[str, int], nominal: set[str]
) -> NDArray[np.float32]:
    columns = []
    for name, count in codes.items():
        values = table[:, names.index(name)]
        if name in nominal:
            columns.append(np.eye(count)[values])
        else:
            columns.append((2.0 * values / (count - 1) - 1.0)[:, np.newaxis])
    return np.hstack(columns).astype(np.float32)


def _load(folder: Path, name: str, target: str, codes: dict[str, int], nominal: set[str]) -> Split:
    parts = []
    for part in ("train", "test"):
        names, table = _read(folder / f"{name}-{part}.csv.gz")
        parts.append(_encode(names, table, codes, nominal))
        parts.append((table[:, names.index(target)] > 0).astype(np.int64))
    return Split(*parts, row_norm=float(np.sqrt(len(codes))))


def load_adult_split(folder: Path) -> Split:
    """Adult, 47842 training and 1000 test rows; the target is an income above 50 000 dollars."""
    return _load(folder, "adult-ddssp", "income>50K", _ADULT_CODES, _ADULT_NOMINAL)


def load_acs_employment(folder: Path) -> Split:
    """ACS employment, 49000 training and 1000 test rows; the target is being employed."""
    nominal = set(_ACS_CODES) - _ACS_ORDINAL
    return _load(folder, "acs-employment", "ESR", _ACS_CODES, nominal)


def acs_employment_codes(
    folder: Path,
) -> tuple[dict[str, NDArray[np.int64]], dict[str, int]]:
    """Columns of ACS employment's training rows as codes, the target's too, and their numbers."""
    names, table = _read(folder / "acs-employment-train.csv.gz")
    counts = {**_ACS_CODES, "ESR": 2}
    return {name: table[:, names.index(name)] for name in counts}, counts


def load_acs_codes(folder: Path) -> Codes:
    """ACS employment as a table: ages and ranks as numbers, all else as categories."""
    columns: dict[str, dict[str, Any]] = {
        name: {"type": "numeric", "low": 0, "high": count - 1}
        if name in _ACS_ORDINAL
        else {"type": "categorical", "categories": list(range(count))}
        for name, count in _ACS_CODES.items()
    }
    parts = []
    for part in ("train", "test"):
        names, table = _read(folder / f"acs-employment-{part}.csv.gz")
        parts.append({name: table[:, names.index(name)] for name in columns})
    return Codes(*parts, columns=columns)


# Wide public bounds: an energy in tenths of kcal/mol, a length in bases, six base frequencies.
_COD_RNA_LOW = np.array([-2000.0, 0.0, *[0.0] * 6])
_COD_RNA_HIGH = np.array([500.0, 400.0, *[1.0] * 6])


def load_cod_rna(folder: Path) -> Split:
    """Cod-RNA, 47628 training and 11907 test rows drawn once; the target is being non-coding."""
    with gzip.open(folder / "cod-rna.csv.gz", "rt") as file:
        file.readline()
        table = np.loadtxt(file, delimiter=",")
    table = table[np.random.default_rng(0).permutation(len(table))]
    X = np.clip(table[:, 1:], _COD_RNA_LOW, _COD_RNA_HIGH)
    X = 2.0 * (X - _COD_RNA_LOW) / (_COD_RNA_HIGH - _COD_RNA_LOW) - 1.0
    y = (table[:, 0] > 0.0).astype(np.int64)
    n_train = len(table) * 4 // 5
    parts = (
        X[:n_train].astype(np.float32),
        y[:n_train],
        X[n_train:].astype(np.float32),
        y[n_train:],
    )
    return Split(*parts, row_norm=float(np.sqrt(X.shape[1])))
