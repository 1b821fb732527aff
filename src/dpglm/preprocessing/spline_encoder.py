"""SplineEncoder: a scikit-learn transformer that makes curves of the columns of a schema."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from dpglm.preprocessing.table_encoder import GivenSchema, TableEncoder, as_schema
from dpglm.tables.additive.settings import Additive, pairs_of_columns
from dpglm.tables.schema import Schema

__all__ = ["SplineEncoder"]


@final
class SplineEncoder(TableEncoder):
    """Encode a table so that a linear model of the features is additive in the columns.

    Each numeric column becomes a curve, linear between public knots; each categorical one, and
    missing numbers where the schema allows them, levels; declared pairs of columns a surface. It
    learns nothing from data. A term adds at most 1 to the squared length of a row, as a column of
    ``SchemaEncoder`` does, however fine it is.

    Parameters
    ----------
    schema : Schema, mapping or path-like
        The public facts, their JSON form, or the file that holds it; without a formula. A numeric
        column may say ``"scale": "log"``, where values lie more densely near the lower bound, or
        list its own ``"knots"``; a categorical one may be ``"ordered": true``, so that neighbouring
        levels are correlated beforehand.
    interactions : sequence of (str, str), default=()
        Pairs of columns whose effect together is added to their own.
    segments : int, default=6
        Equal segments between the bounds of each numeric column that lists no knots, 1 (a straight
        line) to 1000.
    smoothness : float, default=1.0
        Distance, as a share of the range, over which a curve's values are correlated beforehand, 0
        to 1e6: what little a column says is spent on coarse shapes first. It changes no curve that
        the features can express.
    pair_segments : int, default=4
        As ``segments``, for the columns of interactions.
    dtype : {"float64", "float32"}, default="float64"
        Type of the encoded rows.

    Attributes
    ----------
    schema_ : Schema
        The schema in use; ``schema_.additive_encoding.terms`` are the terms.
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
    With more than 2000 features the result is sparse: columns of more than 200 categories have a
    feature for each.

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
        dtype: str = "float64",
    ) -> None:
        self.schema = schema
        self.interactions = interactions
        self.segments = segments
        self.smoothness = smoothness
        self.pair_segments = pair_segments
        self.dtype = dtype

    def stated_schema(self) -> Schema:
        pairs = pairs_of_columns(self.interactions)
        settings = Additive(self.segments, self.smoothness, pairs, self.pair_segments)
        return as_schema(self.schema).with_additive(settings)
