"""SchemaEncoder: a scikit-learn transformer that encodes rows by a public schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self, final

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils import Tags

from dpglm._all_or_nothing import all_or_nothing
from dpglm.tables.schema import Schema, Table

__all__ = ["SchemaEncoder", "parsed_schema"]


@final
class SchemaEncoder(TransformerMixin, BaseEstimator):
    """Encode a table's rows as a public schema says: it learns nothing from data.

    Numeric columns are clipped to the schema's bounds and scaled to [-1, 1]; categorical columns
    become one feature in {0, 1} for each category.

    Parameters
    ----------
    schema : Schema or mapping
        The public facts, or their JSON form.
    dtype : {"float64", "float32"}, default="float64"
        Type of the encoded rows.

    Attributes
    ----------
    schema_ : Schema
        The schema in use.
    dtype_ : str
        The type in use.
    row_norm_ : float
        Public bound on the L2 norm of every encoded row, for an estimator's ``row_norm``.
    n_features_in_ : int
        Number of columns that the schema describes.
    feature_names_in_ : ndarray of str
        Their names.

    Notes
    -----
    Privacy: each row is encoded by itself from public facts, so nothing is spent, and neighbouring
    tables become neighbouring matrices. Do not put a transformer that learns from data
    (``StandardScaler``, ``SimpleImputer``) beside it: what it learns is not private.

    Examples
    --------
    >>> from dpglm.datasets import load_adult
    >>> adult = load_adult()
    >>> encoder = SchemaEncoder(adult.schema).fit(adult.data)
    >>> encoder.transform(adult.data).shape
    (48842, 108)
    >>> encoder.get_feature_names_out()[:2].tolist()
    ['age', 'workclass=Private']
    >>> round(encoder.row_norm_, 4)
    3.7417
    """

    def __init__(self, schema: Schema | Mapping[str, Any], dtype: str = "float64") -> None:
        self.schema = schema
        self.dtype = dtype

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
        schema = parsed_schema(self.schema)
        schema.check_columns(X)
        self.schema_ = schema
        self.dtype_ = self.dtype
        self.row_norm_ = schema.row_norm
        self.n_features_in_ = len(schema.columns)
        self.feature_names_in_ = np.array(schema.column_names, dtype=object)
        return self

    def transform(self, X: Table) -> NDArray[np.floating[Any]]:
        """Encode rows, each by itself.

        Parameters
        ----------
        X : mapping, DataFrame or ndarray of shape (n, n_columns)
            As for ``fit``.

        Returns
        -------
        ndarray of shape (n, n_features_out), or what ``set_output`` asks for

        Raises
        ------
        ValueError
            If a column is missing or a cell does not match the schema; the message names the
            column, the row (counted from 1) and the cure.
        """
        return self._schema().encode(X, vars(self).get("dtype_", self.dtype))

    def get_feature_names_out(self, input_features: object = None) -> NDArray[Any]:
        """Name the encoded features.

        Parameters
        ----------
        input_features : object
            Not used: the schema has the names.

        Returns
        -------
        ndarray of str
            ``column`` for a numeric column, ``column=category`` for each category of another.
        """
        return np.array(self._schema().feature_names, dtype=object)

    def _schema(self) -> Schema:
        """Return the schema of ``fit``, or before it the one that was given."""
        return vars(self).get("schema_") or parsed_schema(self.schema)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        tags.no_validation = True
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return True


def parsed_schema(schema: Schema | Mapping[str, Any]) -> Schema:
    """Return a schema, given as such or as its JSON form."""
    return schema if isinstance(schema, Schema) else Schema.from_dict(schema)
