"""SchemaEncoder: a scikit-learn transformer that encodes rows by a public schema."""

from __future__ import annotations

from typing import final

from dpglm.preprocessing.table_encoder import GivenSchema, TableEncoder, as_schema
from dpglm.tables.schema import Reference, Schema

__all__ = ["SchemaEncoder"]


@final
class SchemaEncoder(TableEncoder):
    """Encode a table's rows as a public schema says: it learns nothing from data.

    Numeric columns are clipped to the schema's bounds and scaled to [-1, 1]; categorical columns
    become one feature in {0, 1} for each category, or for each but the reference.

    Parameters
    ----------
    schema : Schema, mapping or path-like
        The public facts, their JSON form, or the file that holds it.
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
        in it, tell the estimator ``fit_intercept=False``, as ``dpglm.from_formula`` does. Other
        columns are centred: an estimator with ``fit_intercept=False`` has the intercept that their
        centres make in the table's units, unless the formula is one such as ``"0 + ."``.

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
