"""SchemaEncoder: a scikit-learn transformer that encodes rows by a public schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self, final

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils import Tags

from dpglm._all_or_nothing import all_or_nothing
from dpglm.tables.schema import Reference, Schema, Table
from dpglm.tables.units import LinearUnits

__all__ = ["SchemaEncoder", "stated_schema"]


@final
class SchemaEncoder(TransformerMixin, BaseEstimator):
    """Encode a table's rows as a public schema says: it learns nothing from data.

    Numeric columns are clipped to the schema's bounds and scaled to [-1, 1]; categorical columns
    become one feature in {0, 1} for each category, or for each but the reference.

    Parameters
    ----------
    schema : Schema or mapping
        The public facts, or their JSON form.
    dtype : {"float64", "float32"}, default="float64"
        Type of the encoded rows.
    drop : "first" or mapping from str to value, optional
        Reference categories, which get no feature: by column (``{"region": "north"}``), or each
        column's first, beside those that the schema names. The other categories' features are
        centred, so that rows are shorter: of two categories, the one feature is -1/2 for the
        reference and 1/2 for the other.
    formula : str, optional
        Which features the columns become, as in ``"ill ~ age + C(sex)"``, instead of the schema's
        own formula, if it has one (extra ``formula``; see docs/formulas.md). Without an intercept
        in it, tell the estimator ``fit_intercept=False``, as ``dpglm.from_formula`` does.

    Attributes
    ----------
    schema_ : Schema
        The schema in use, with the reference categories and the formula.
    dtype_ : str
        The type in use.
    row_norm_ : float
        Public bound on the L2 norm of every encoded row, for an estimator's ``row_norm``.
    n_features_in_ : int
        Number of columns that are used.
    feature_names_in_ : ndarray of str
        Their names.

    Notes
    -----
    Coefficients of the encoded features are per half range of a numeric column; ``units`` maps
    them, and their covariance matrix, to the units of the table. Reports of a pipeline that begins
    with this step do so themselves.

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
    >>> SchemaEncoder(adult.schema, drop={"sex": "Male"}).units().names[-1]
    'native-country=? vs mean'
    """

    def __init__(
        self,
        schema: Schema | Mapping[str, Any],
        dtype: str = "float64",
        drop: Reference = None,
        formula: str | None = None,
    ) -> None:
        self.schema = schema
        self.dtype = dtype
        self.drop = drop
        self.formula = formula

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
        schema = stated_schema(self)
        schema.check_columns(X)
        self.schema_ = schema
        self.dtype_ = self.dtype
        self.row_norm_ = schema.row_norm
        self.n_features_in_ = len(schema.column_names)
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
        name = schema.target.name
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
        return vars(self).get("schema_") or stated_schema(self)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        tags.no_validation = True
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return True


def stated_schema(encoder: SchemaEncoder) -> Schema:
    """Return the schema that an encoder's parameters state, whether it is fitted or not."""
    given = encoder.schema
    schema = given if isinstance(given, Schema) else Schema.from_dict(given)
    return schema.with_reference(encoder.drop).with_formula(encoder.formula)
