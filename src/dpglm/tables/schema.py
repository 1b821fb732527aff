"""Schema: public facts about a table's columns, and the row-by-row encoding that they define."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias, TypeVar, final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from dpglm._calls import checked
from dpglm._codec import Form, decode, encode
from dpglm._json import check_writable, in_file, load
from dpglm._score import Score
from dpglm._validation import check_one_of, in_one_line
from dpglm.tables.additive import Additive, AdditiveEncoding
from dpglm.tables.cells import Entry, check_unique, composed
from dpglm.tables.columns import Column, PaidFor
from dpglm.tables.encoding import ColumnEncoding, Encoding, LinearUnits, Reader
from dpglm.tables.files import Dialect, read_table
from dpglm.tables.named import Table, check_names, named_columns, read_columns
from dpglm.tables.targets import (
    NoTarget,
    TargetColumn,
    read_entry,
    read_target,
    rebased,
    write_entries,
    write_target,
)

__all__ = ["HELP_KEY", "Reference", "Schema", "Table"]


Reference: TypeAlias = Mapping[str, Entry] | str | None
"""Reference categories: by column, or ``"first"``."""


T = TypeVar("T")
_REQUIRED = ("columns", "provenance")
_OPTIONAL = ("target", "formula", "additive", "csv")
HELP_KEY = "how to fill this in"
"""Key of the explanation in a template; its value is ignored."""
_SHOWN = 10
_MOST_DENSE = 2000


@checked
@final
@dataclass(frozen=True)
class Schema:
    """Public facts about the columns of a table, stated without looking at its rows.

    Parameters
    ----------
    columns : tuple of Column
        The feature columns, at least one, with different names.
    target : TargetColumn
        The target, or ``NoTarget()`` for a schema of features only.
    provenance : str
        Source of the facts; not empty.
    formula : str, optional
        Formula of the features, such as ``"ill ~ age + C(sex)"``; by default each column is
        encoded separately. Other columns are not used.
    additive : Additive, optional
        Settings of curves, levels and interactions of an additive model.
    csv : Dialect, optional
        Form of CSV files of such tables.

    Notes
    -----
    Privacy: each row is encoded by itself from the schema alone, so sensitivity and neighbouring
    relation do not change. Each column contributes a vector of norm at most 1, hence ``row_norm``.
    The author of a schema must ensure that it states public knowledge only.

    Examples
    --------
    >>> schema = Schema.from_dict(
    ...     {
    ...         "columns": {
    ...             "age": {"type": "numeric", "low": 0, "high": 100},
    ...             "smoker": {"type": "categorical", "categories": ["no", "yes"]},
    ...         },
    ...         "target": {"name": "ill", "type": "binary", "classes": [0, 1]},
    ...         "provenance": "the questionnaire",
    ...     }
    ... )
    >>> schema.feature_names
    ('age', 'smoker=no', 'smoker=yes')
    >>> schema.encode({"age": [75, 0], "smoker": ["yes", "no"]})
    array([[ 0.5,  0. ,  1. ],
           [-1. ,  1. ,  0. ]])
    >>> schema.encode_target(["1", "0"])
    array([1, 0])
    """

    columns: tuple[Column, ...]
    target: TargetColumn
    provenance: str
    formula: str | None = None
    additive: Additive | None = None
    csv: Dialect | None = None

    def __post_init__(self) -> None:
        # The same Unicode form for names and formula.
        if isinstance(self.formula, str):
            object.__setattr__(self, "formula", composed(self.formula))
        object.__setattr__(self, "columns", rebased(map(_composed, self.columns)))
        if self.has_target:
            object.__setattr__(self, "target", _composed(self.target))
        # Schemas are written after the budget was spent, so they must be writable.
        check_writable(self.to_dict())
        if not self.columns:
            raise ValueError('the schema\'s "columns" must name at least one column')
        names = [column.name for column in self.columns]
        if self.has_target:
            names.append(self.target.name)
        check_unique(names, "column")
        if self.formula is not None and self.additive is not None:
            raise ValueError(
                f"formula must be None for an additive model, got {self.formula!r}: list pairs of "
                "columns as interactions instead"
            )
        # This reads the formula, and raises its errors.
        check_unique(self.feature_names, "feature")
        if not self.provenance.strip():
            raise ValueError(
                'the schema\'s "provenance" is not filled in: name the source of the facts in a '
                "sentence or two (a law, a questionnaire, documentation; not the rows)"
            )

    @classmethod
    def from_dict(cls, mapping: object) -> Schema:
        """Read the JSON form.

        Parameters
        ----------
        mapping : mapping
            ``{"columns": {name: entry, ...}, "target": entry, "provenance": text}``, the target
            if there is one, and ``"formula": text`` or ``"additive": settings``. The fields of an
            entry are described in docs/schema.md. Fields that are null or empty, as in a template,
            are ignored.

        Returns
        -------
        Schema

        Raises
        ------
        ValueError
            If something is missing, unknown or wrong; the message lists every such column.
        """
        if not isinstance(mapping, Mapping):
            raise ValueError(f"a schema must be a JSON object, got {in_one_line(mapping)}")
        document = {key: entry for key, entry in mapping.items() if key != HELP_KEY}
        lacking = [key for key in _REQUIRED if key not in document]
        odd = [key for key in document if key not in (*_REQUIRED, *_OPTIONAL)]
        if lacking or odd:
            raise ValueError(
                f"a schema must have the keys {', '.join(_REQUIRED)} (optional: "
                f"{', '.join(_OPTIONAL)}); missing: {lacking}, unknown: {in_one_line(odd)}"
            )
        if not isinstance(document["columns"], Mapping):
            raise ValueError('the schema\'s "columns" must be an object: one entry for each column')
        if not isinstance(document["provenance"], str):
            raise ValueError('the schema\'s "provenance" must be text')
        problems: list[str] = []

        def collect(what: str, read: Callable[..., T], *arguments: Any) -> T | None:
            try:
                return read(*arguments)
            except ValueError as error:
                problems.append(f"\n  {what}: {error}")
                return None

        read = [
            collect(f"column {name!r}", read_entry, name, entry)
            for name, entry in document["columns"].items()
        ]
        target = collect("the target", read_target, document.get("target"))
        settings: list[Any] = [
            None if document.get(key) is None else collect(f'"{key}"', decode, kind, document[key])
            for key, kind in (("additive", Additive), ("csv", Dialect))
        ]
        if problems or target is None:
            more = f"\n  ... ({len(problems)} in all)" if len(problems) > _SHOWN else ""
            raise ValueError("the schema is not complete:" + "".join(problems[:_SHOWN]) + more)
        columns = tuple(column for found in read for column in found or ())
        return cls(columns, target, document["provenance"], document.get("formula"), *settings)

    @classmethod
    @checked
    def from_json(cls, path: str | os.PathLike[str]) -> Schema:
        """Read a JSON file.

        Parameters
        ----------
        path : path-like
            The file.

        Returns
        -------
        Schema

        Raises
        ------
        ValueError
            If the file does not contain a complete schema; the message names the file.
        OSError
            If the file cannot be read.
        """
        with in_file(path):
            return cls.from_dict(load(path))

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form, from which ``from_dict`` makes an equal schema."""
        entries: dict[str, Any] = {
            "columns": write_entries(self.columns),
            "target": write_target(self.target) if self.has_target else None,
            "provenance": self.provenance,
            "formula": self.formula,
            "additive": None if self.additive is None else encode(self.additive),
            "csv": None if self.csv is None else encode(self.csv),
        }
        return {key: entry for key, entry in entries.items() if entry is not None}

    @property
    def has_target(self) -> bool:
        """Whether the schema describes a target."""
        return not isinstance(self.target, NoTarget)

    @property
    def paid_bounds(self) -> dict[str, tuple[float, float, PaidFor]]:
        """Bounds of columns that were learned from private rows, with their cost."""
        targets = (self.target,) if self.has_target else ()
        found = ((one.name, one.paid_bounds) for one in (*self.columns, *targets))
        return {name: bounds for name, bounds in found if bounds is not None}

    @property
    def column_names(self) -> tuple[str, ...]:
        """Names of the used feature columns, in order."""
        plain = {one.name: one.source for one in self.columns}
        return tuple(dict.fromkeys(plain[name] for name in self.encoding.column_names))

    @functools.cached_property
    def plain_columns(self) -> tuple[Column, ...]:
        """The feature columns with cells that are numbers and categories, not dates."""
        return tuple(column.plain for column in self.columns)

    def _reader(self, table: Table) -> tuple[Reader, int]:
        """Return a reader of the cells of plain columns, and the number of rows."""
        cells, n_rows = read_columns(table, self.column_names)
        columns = {one.name: one for one in self.columns}

        def plain_cells(name: str) -> NDArray[Any]:
            column = columns[name]
            return np.asarray(column.plain_cells(cells(column.source)))

        return plain_cells, n_rows

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the encoded features, in order.

        ``column=category`` for each category except a reference; with a formula the names of its
        columns.
        """
        return self.encoding.feature_names

    @property
    def row_norm(self) -> float:
        """Bound on the L2 norm of every encoded row.

        At most the square root of the number of columns (with a formula, of terms). The indicators
        of n categories and a reference are centred and add 1 - 1/n to its square, or 1/4 for n = 1.
        """
        return self.encoding.row_norm

    @property
    def units(self) -> LinearUnits:
        """The map from coefficients of encoded features to effects in the table's own units.

        The effect of a numeric column is per unit; the effect of a category is its difference from
        the column's ``reference``, or from the mean of all categories without one. The intercept
        is the score with numeric columns at 0 and others at their reference or mean. ``names``
        are, for example, ``"age"``, ``"region=south vs north"`` and ``"job=clerk vs mean"``. With a
        formula, effects are named as in formulaic and statsmodels.
        """
        return self.encoding.units

    @functools.cached_property
    def encoding(self) -> Encoding:
        """The map from cells to features, with its terms, factors and prior scales."""
        if self.additive is not None:
            return self.additive_encoding
        if self.formula is None:
            return ColumnEncoding(self.plain_columns)
        from dpglm.tables.formula.design import read_formula

        return read_formula(
            self.formula, self.plain_columns, self.target.name if self.has_target else None
        )

    @functools.cached_property
    def additive_encoding(self) -> AdditiveEncoding:
        """The terms and features of an additive model.

        Raises
        ------
        ValueError
            If the schema has no ``additive`` settings.
        """
        if self.additive is None:
            raise ValueError("the schema must have additive settings: see with_additive")
        return AdditiveEncoding(self.plain_columns, self.additive)

    def with_additive(self, settings: Additive) -> Schema:
        """Return the schema with curves, levels and interactions for an additive model.

        Parameters
        ----------
        settings : Additive
            Resolution, smoothness and interactions.

        Returns
        -------
        Schema

        Raises
        ------
        ValueError
            If the schema has a formula, or an interaction names an unknown column.
        """
        return dataclasses.replace(self, additive=settings)

    def with_formula(self, formula: str | None) -> Schema:
        """Return the schema with a formula of the features.

        Parameters
        ----------
        formula : str or None
            In Wilkinson notation, such as ``"ill ~ age + C(sex)"``; None changes nothing.

        Returns
        -------
        Schema

        Raises
        ------
        ValueError
            If a term would learn from the rows or cannot be read; the message names it.
        ImportError
            If formulaic is not installed.

        Examples
        --------
        >>> columns = {
        ...     "age": {"type": "numeric", "low": 16, "high": 90},
        ...     "sex": {"type": "categorical", "categories": ["female", "male"]},
        ... }
        >>> schema = Schema.from_dict({"columns": columns, "provenance": "the questionnaire"})
        >>> schema.with_formula("~ age * C(sex)").feature_names
        ('age', 'C(sex)[T.male]', 'age:C(sex)[T.male]')
        """
        return self if formula is None else dataclasses.replace(self, formula=formula)

    def with_reference(self, reference: Reference, parameter: str = "reference") -> Schema:
        """Return the schema with reference categories for comparisons.

        Parameters
        ----------
        reference : "first", mapping from str to value, or None
            "first" takes the first category of each categorical column without a reference; a
            mapping gives categories by column; None changes nothing.
        parameter : str, default="reference"
            Its name in errors.

        Returns
        -------
        Schema

        Raises
        ------
        ValueError
            If a column is unknown or not categorical, or the value is not among its categories;
            the message names the column.
        """
        if isinstance(reference, str):
            check_one_of(parameter, reference, ("first",))
            columns = tuple(column.with_first_reference() for column in self.columns)
            return dataclasses.replace(self, columns=columns)
        chosen = {} if reference is None else reference
        if not isinstance(chosen, Mapping):
            raise ValueError(
                f"{parameter} must be 'first', a mapping from column to category, or None, got "
                f"{in_one_line(reference)}"
            )
        check_names(parameter, chosen, [column.name for column in self.columns])
        try:
            columns = tuple(
                column.with_reference(chosen[column.name]) if column.name in chosen else column
                for column in self.columns
            )
        except ValueError as error:
            raise ValueError(f"{parameter}: {error}") from None
        return dataclasses.replace(self, columns=columns)

    def encode(self, table: Table, dtype: str = "float64") -> NDArray[np.floating[Any]]:
        """Encode the feature columns, each row by itself.

        Parameters
        ----------
        table : mapping, DataFrame or ndarray
            Columns by name (a dict of arrays, pandas, polars, pyarrow), in any order; others are
            ignored. An array has shape (n, number of columns), in the schema's order.
        dtype : {"float64", "float32"}, default="float64"
            Type of the result.

        Returns
        -------
        ndarray of shape (n, len(feature_names))
            Numeric columns are clipped to their bounds and scaled to [-1, 1]. Categorical columns
            become 0 and 1, less a constant if there is a reference (-1/2 and 1/2 for two
            categories).

        Raises
        ------
        ValueError
            If a column is missing or a cell does not match the schema; the message names the
            column, the row (counted from 1) and the cure.
        """
        check_one_of("dtype", dtype, ("float64", "float32"))
        cells, n_rows = self._reader(table)
        encoded = np.zeros((n_rows, len(self.feature_names)), dtype=dtype)
        self.encoding.encode(cells, encoded)
        return encoded

    def encode_sparse(self, table: Table, dtype: str = "float64") -> sparse.csr_array:
        """Encode the feature columns as a sparse array.

        Parameters
        ----------
        table : mapping, DataFrame or ndarray
            See ``encode``.
        dtype : {"float64", "float32"}, default="float64"
            Type of the result.

        Returns
        -------
        csr_array of shape (n, len(feature_names))
            The values of ``encode``.

        Raises
        ------
        ValueError
            See ``encode``.
        """
        check_one_of("dtype", dtype, ("float64", "float32"))
        return self.encoding.encode_sparse(*self._reader(table), dtype)

    @property
    def is_wide(self) -> bool:
        """Whether features, of an additive model or pooled, are stored as a sparse array."""
        is_sparse = self.additive is not None or bool(self.encoding.large)
        return is_sparse and len(self.feature_names) > _MOST_DENSE

    @checked
    def read_file(
        self, path: str | os.PathLike[str], columns: Sequence[str], numbers: Sequence[str] = ()
    ) -> dict[str, Any]:
        """Read columns of a file, or of the address of a table, as cells.

        Parameters
        ----------
        path : path-like
            A CSV file in the form of ``csv``, a Parquet file, or an address.
        columns : sequence of str
            Names of the columns.
        numbers : sequence of str, optional
            Those of them that contain numbers, besides the columns of the schema.

        Returns
        -------
        dict
            Cells by name.

        Raises
        ------
        ValueError
            If a column is missing or the file cannot be read; the message names the file.
        """
        own = {one.source for one in self.columns if one.has_numbers}
        if self.has_target and self.target.n_classes is None:
            own.add(self.target.name)
        return read_table(path, columns, self.csv, own.union(numbers))

    def count(self, table: Table) -> int:
        """Return the number of rows of a table."""
        return read_columns(table, self.column_names)[1]

    def encode_target(self, values: ArrayLike) -> NDArray[Any]:
        """Return target values in the schema's spelling and bounds.

        Parameters
        ----------
        values : array_like of shape (n,)
            Cells of the target column.

        Returns
        -------
        ndarray of shape (n,)
            Classes, or numbers within the bounds.

        Raises
        ------
        ValueError
            If a cell does not match the schema; the message names the row and the cure.
        """
        return self.target.encode(values)

    def score(self, weights: NDArray[np.float64]) -> Score:
        """Return the encoded features times weights, as an expression of plain columns.

        Parameters
        ----------
        weights : ndarray of shape (len(feature_names),)
            Coefficients of the features.

        Returns
        -------
        Score
            For ``dpglm.export``.
        """
        if getattr(weights, "shape", None) != (len(self.feature_names),):
            raise ValueError(f"weights must have shape ({len(self.feature_names)},)")
        return self.encoding.score(np.asarray(weights, dtype=np.float64))

    def check_columns(self, table: Table) -> None:
        """Check that a table has every feature column.

        Parameters
        ----------
        table : mapping, DataFrame or ndarray
            See ``encode``.

        Raises
        ------
        ValueError
            If a column is missing; the message names it.
        """
        named_columns(table, self.column_names)


def _composed(column: Any) -> Any:
    """Return a column or target with its name in Unicode's NFC."""
    name = composed(column.name)
    return column if name == column.name else dataclasses.replace(column, name=name)


SchemaDocument: TypeAlias = Annotated[Schema, Form(Schema.to_dict, Schema.from_dict)]
"""A schema that files hold in its JSON form."""
