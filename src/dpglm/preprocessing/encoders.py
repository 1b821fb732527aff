"""Transformers that encode the rows of a table by a public schema."""

from __future__ import annotations

import abc
import os
from collections.abc import Mapping, Sequence
from typing import Any, Self, TypeAlias, final

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils import Tags

from dpglm._calls import all_or_nothing
from dpglm._validation import in_one_line
from dpglm.tables.additive import Additive, pairs_of_columns
from dpglm.tables.encoding import LinearUnits
from dpglm.tables.named import by_name
from dpglm.tables.schema import Reference, Schema, Table

GivenSchema: TypeAlias = Schema | Mapping[str, Any] | str | os.PathLike[str]
"""A schema, its JSON form, or the file that holds this."""


class TableEncoder(TransformerMixin, BaseEstimator, abc.ABC):
    """Encodes each row of a table by itself, by a public schema; final subclasses below."""

    dtype: str

    @abc.abstractmethod
    def stated_schema(self) -> Schema:
        """Return the schema that the parameters state, whether or not the encoder is fitted."""

    @all_or_nothing
    def fit(self, X: Table, y: object = None) -> Self:
        """Check that the table has the schema's columns, or raise ValueError.

        Parameters
        ----------
        X : mapping, DataFrame or ndarray of shape (n, n_columns)
            Columns by name (a dict of arrays, pandas, polars, pyarrow); others are ignored. An
            array has the schema's columns in order.
        y : object
            Not used.
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
            See ``fit``.

        Returns
        -------
        ndarray of shape (n, n_features_out), or the container of ``set_output``
            A sparse array for an additive encoding of more than 2000 features.

        Raises
        ------
        ValueError
            If a column is missing or a cell does not match the schema; the message names the
            column, the row (counted from 1) and the remedy.
        """
        schema, dtype = self._schema(), vars(self).get("dtype_", self.dtype)
        return schema.encode_sparse(X, dtype) if schema.is_wide else schema.encode(X, dtype)

    def target(self, X: Table) -> NDArray[Any]:
        """Return the targets in the schema's spelling or bounds, from a table with that column."""
        schema = self._schema()
        name, X = schema.target.name, by_name(X)
        if isinstance(X, np.ndarray) or name not in X:
            raise ValueError(f"y must be given, or X must have the target's column, {name!r}")
        return schema.encode_target(X[name])

    def get_feature_names_out(self, input_features: object = None) -> NDArray[Any]:
        """Name the encoded features: ``column`` of a number, ``column=category`` of a level.

        Reference categories are left out. ``input_features`` is not used.
        """
        return np.array(self._schema().feature_names, dtype=object)

    def units(self) -> LinearUnits:
        """Return the map from coefficients of encoded features to effects in the table's units.

        The intercept is last. An effect is per unit of a numeric column, or the difference of a
        category from the reference (from the mean of all categories without one); see ``names``.

        Examples
        --------
        >>> from dpglm.preprocessing import SchemaEncoder
        >>> columns = {
        ...     "age": {"type": "numeric", "low": 16, "high": 90},
        ...     "sex": {"type": "categorical", "categories": ["female", "male"]},
        ... }
        >>> schema = {"columns": columns, "provenance": "the questionnaire"}
        >>> units = SchemaEncoder(schema, drop="first").units()
        >>> units.names
        ('age', 'sex=male vs female')
        >>> units.coefficients([0.37, 1.0, 2.0]).tolist()
        [0.01, 1.0, 0.97]
        """
        return self._schema().units

    def _schema(self) -> Schema:
        """Return the schema of ``fit``, or before it that of the parameters."""
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


def as_schema(given: GivenSchema) -> Schema:
    """Return a schema that is given as such, by its JSON form, or by its file."""
    if isinstance(given, Schema):
        return given
    if isinstance(given, str | os.PathLike):
        return Schema.from_json(given)
    if not isinstance(given, Mapping):
        raise ValueError(
            f"schema must be a Schema, its JSON form or a path, got {in_one_line(given)}"
        )
    return Schema.from_dict(given)


@final
class SchemaEncoder(TableEncoder):
    """Encode a table's rows by a public schema, without learning from data.

    Numeric columns are clipped to the schema's bounds and scaled to [-1, 1]; categorical columns
    become one feature in {0, 1} for each category except the reference.

    Parameters
    ----------
    schema : Schema, mapping or path-like
        The public facts, their JSON form, or its file.
    dtype : {"float64", "float32"}, default="float64"
        Type of the encoded rows.
    drop : "first" or mapping from str to value, optional
        Reference categories, which get no feature: by column (``{"region": "north"}``), or the
        first of each column without a reference in the schema. Features of the other categories
        are centred, which reduces the row norm: two categories become -1/2 (reference) and 1/2.
    formula : str, optional
        Formula of the features, such as ``"ill ~ age + C(sex)"``, in place of the schema's (extra
        ``formula``). For a formula without an intercept, such as ``"0 + ."``, give the estimator
        ``fit_intercept=False``, as ``dpglm.from_formula`` does. With any other formula, columns are
        centred, and an estimator with ``fit_intercept=False`` has an intercept in the table's
        units.

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
    them, and their covariance matrix, to the units of the table, as reports of pipelines do.

    Privacy: each row is encoded by itself from public facts, so nothing is spent, and neighbouring
    tables become neighbouring matrices. A transformer that learns from data (``StandardScaler``,
    ``SimpleImputer``) next to it would not be private.

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
        schema: GivenSchema,
        dtype: str = "float64",
        drop: Reference = None,
        formula: str | None = None,
    ) -> None:
        self.schema = schema
        self.dtype = dtype
        self.drop = drop
        self.formula = formula

    def stated_schema(self) -> Schema:
        dropped = as_schema(self.schema).with_reference(self.drop, "drop")
        return dropped.with_formula(self.formula)


@final
class SplineEncoder(TableEncoder):
    """Encode a table so that a linear model of the features is additive in the columns.

    Each numeric column becomes a curve, linear between public knots. Categorical columns and
    missing numbers become levels, and pairs of columns surfaces. The encoder learns nothing from
    data. A term of any resolution adds at most 1 to the squared norm of a row, as a column of
    ``SchemaEncoder`` does.

    Parameters
    ----------
    schema : Schema, mapping or path-like
        The public facts, their JSON form, or its file; without a formula. A numeric column may
        have ``"scale": "log"``, with more knots near the lower bound, or its own ``"knots"``; a
        categorical one may be ``"ordered": true``, with correlated effects of neighbouring levels.
    interactions : sequence of (str, str), default=()
        Pairs of columns with a joint effect.
    segments : int, default=6
        Number of equal segments of numeric columns without knots, 1 (a straight line) to 1000.
    smoothness : float, default=1.0
        Prior correlation length of a curve, as a share of the range, 0 to 1e6. Larger values favour
        coarse shapes; the set of possible curves stays the same.
    pair_segments : int, default=4
        Segments of columns in interactions.
    log_segments : int, optional
        As ``segments``, for columns of ``"scale": "log"``; default: the same.
    dtype : {"float64", "float32"}, default="float64"
        Type of the encoded rows.

    Attributes
    ----------
    schema_ : Schema
        The schema in use; ``schema_.additive_encoding.terms`` are the terms.
    row_norm_ : float
        Public bound on the L2 norm of every encoded row, for an estimator's ``row_norm``.
    dtype_, n_features_in_, feature_names_in_
        As in ``SchemaEncoder``.

    Notes
    -----
    The result is sparse with more than 2000 features: columns of more than 200 categories have a
    feature for each category.

    Privacy: each row is encoded by itself from public facts, so nothing is spent, and neighbouring
    tables become neighbouring matrices.

    References
    ----------
    Eilers and Marx, "Flexible smoothing with B-splines and penalties", Statistical Science 11
    (1996).

    Examples
    --------
    >>> from dpglm.datasets import load_adult
    >>> adult = load_adult()
    >>> encoder = SplineEncoder(adult.schema, interactions=[("age", "sex")]).fit(adult.data)
    >>> encoder.transform(adult.data).shape
    (48842, 134)
    >>> encoder.row_norm_ <= 15**0.5
    True
    >>> [term.name for term in encoder.schema_.additive_encoding.terms][-2:]
    ['native-country', 'age x sex']
    """

    def __init__(
        self,
        schema: GivenSchema,
        interactions: Sequence[tuple[str, str]] = (),
        segments: int = 6,
        smoothness: float = 1.0,
        pair_segments: int = 4,
        log_segments: int | None = None,
        dtype: str = "float64",
    ) -> None:
        self.schema = schema
        self.interactions = interactions
        self.segments = segments
        self.smoothness = smoothness
        self.pair_segments = pair_segments
        self.log_segments = log_segments
        self.dtype = dtype

    def stated_schema(self) -> Schema:
        pairs = pairs_of_columns(self.interactions)
        settings = Additive(
            self.segments, self.smoothness, pairs, self.pair_segments, self.log_segments
        )
        return as_schema(self.schema).with_additive(settings)
