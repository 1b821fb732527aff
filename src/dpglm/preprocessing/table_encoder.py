"""TableEncoder: what transformers that encode rows by a public schema share."""

from __future__ import annotations

import abc
import os
from collections.abc import Mapping
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils import Tags

from dpglm._all_or_nothing import all_or_nothing
from dpglm._validation import in_one_line
from dpglm.tables.named import by_name
from dpglm.tables.schema import Schema, Table
from dpglm.tables.units import LinearUnits

__all__ = ["GivenSchema", "TableEncoder", "as_schema", "stated_schema"]

GivenSchema: TypeAlias = Schema | Mapping[str, Any] | str | os.PathLike[str]
"""A schema, its JSON form, or the file that holds this."""


class TableEncoder(TransformerMixin, BaseEstimator, abc.ABC):
    """Encodes a table's rows, each by itself, as its parameters and a public schema say.

    Final subclasses say which features the columns of the schema become.
    """

    dtype: str

    @abc.abstractmethod
    def stated_schema(self) -> Schema:
        """Return the schema that the parameters state, whether or not the encoder is fitted.

        Returns
        -------
        Schema
        """

    @all_or_nothing
    def fit(self, X: Table, y: object = None) -> Self:
        """Check that the table has the schema's columns.

        Parameters
        ----------
        X : mapping, DataFrame or ndarray of shape (n, n_columns)
            Columns by name (a dict of arrays, pandas, polars), possibly with others, which are
            not used; or an array in the schema's column order.
        y : object
            Not used.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If the schema is wrong or a column is missing.
        """
        schema = self.stated_schema()
        schema.check_columns(X)
        self.schema_ = schema
        self.dtype_ = self.dtype
        self.row_norm_ = schema.row_norm
        self.n_features_in_ = len(schema.column_names)
        self.feature_names_in_ = np.array(schema.column_names, dtype=object)
        return self

    def transform(self, X: Table) -> Any:
        """Encode rows, each by itself.

        Parameters
        ----------
        X : mapping, DataFrame or ndarray of shape (n, n_columns)
            As for ``fit``.

        Returns
        -------
        ndarray of shape (n, n_features_out), or what ``set_output`` asks for
            A sparse array for an additive encoding of more than 2000 features.

        Raises
        ------
        ValueError
            If a column is missing or a cell does not match the schema; the message names the
            column, the row (counted from 1) and the cure.
        """
        schema, dtype = self._schema(), vars(self).get("dtype_", self.dtype)
        return schema.encode_sparse(X, dtype) if schema.is_wide else schema.encode(X, dtype)

    def target(self, X: Table) -> NDArray[Any]:
        """Return the targets in a table, as the schema spells or bounds them.

        Parameters
        ----------
        X : mapping or DataFrame
            With the schema's target column.

        Returns
        -------
        ndarray of shape (n,)

        Raises
        ------
        ValueError
            If the column is missing or a cell does not match the schema.
        """
        schema = self._schema()
        name, X = schema.target.name, by_name(X)
        if isinstance(X, np.ndarray) or name not in X:
            raise ValueError(f"y must be given, or X must have the target's column, {name!r}")
        return schema.encode_target(X[name])

    def get_feature_names_out(self, input_features: object = None) -> NDArray[Any]:
        """Name the encoded features.

        Parameters
        ----------
        input_features : object
            Not used: the schema has the names.

        Returns
        -------
        ndarray of str
            ``column`` for a numeric column, ``column=category`` for each category of another,
            its reference left out.
        """
        return np.array(self._schema().feature_names, dtype=object)

    def units(self) -> LinearUnits:
        """Return the map from coefficients of encoded features to effects in the table's units.

        Returns
        -------
        LinearUnits
            Its ``coefficients`` and ``covariance`` take and return the intercept last. An effect
            is per unit of a numeric column, or the difference of a category from the reference
            (from the mean of the column's categories where there is none), as ``names`` says.

        Examples
        --------
        >>> from dpglm.preprocessing import SchemaEncoder
        >>> encoder = SchemaEncoder(
        ...     {
        ...         "columns": {
        ...             "age": {"type": "numeric", "low": 16, "high": 90},
        ...             "sex": {"type": "categorical", "categories": ["female", "male"]},
        ...         },
        ...         "target": {"name": "ill", "type": "binary", "classes": [0, 1]},
        ...         "provenance": "the questionnaire",
        ...     },
        ...     drop="first",
        ... )
        >>> units = encoder.units()
        >>> units.names
        ('age', 'sex=male vs female')
        >>> units.coefficients([0.37, 1.0, 2.0]).tolist()
        [0.01, 1.0, 0.97]
        """
        return self._schema().units

    def _schema(self) -> Schema:
        """Return the schema of ``fit``, or before it the one that was given."""
        return vars(self).get("schema_") or self.stated_schema()

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        tags.no_validation = True
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return True


def stated_schema(encoder: TableEncoder) -> Schema:
    """Return the schema that an encoder's parameters state, whether it is fitted or not."""
    return encoder.stated_schema()


def as_schema(given: GivenSchema) -> Schema:
    """Return a schema that was given as one, as its JSON form, or as the file that holds this."""
    if isinstance(given, Schema):
        return given
    if isinstance(given, str | os.PathLike):
        return Schema.from_json(given)
    if not isinstance(given, Mapping):
        raise ValueError(
            f"schema must be a Schema, its JSON form or a path, got {in_one_line(given)}"
        )
    return Schema.from_dict(given)
