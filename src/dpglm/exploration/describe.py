"""describe: look at a private table on one budget."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from numpy.typing import ArrayLike

from dpglm._validation import check_one_of
from dpglm.data.groups.limited import LimitedGroups, public_size
from dpglm.data.spec import GroupBound
from dpglm.exploration.description import Description
from dpglm.exploration.design import Pair
from dpglm.exploration.planning import DescriptionPlan, plan_description
from dpglm.exploration.rows import open_table
from dpglm.ledger.ledger import PrivacyLedger
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.budget import PrivacyBudget, stated_budget
from dpglm.privacy.noise import NoiseSource
from dpglm.tables.schema import Schema

__all__ = ["describe"]


def describe(
    table: Any,
    schema: Schema | Mapping[str, Any],
    *,
    epsilon: float = 1.0,
    delta: float | Literal["auto"] = "auto",
    budget: PrivacyBudget | None = None,
    adjacency: str = "zero_out",
    n_rows: int | None = None,
    columns: Sequence[str] | None = None,
    two_way: Iterable[Pair] = (),
    correlations: Iterable[Pair] | bool = (),
    by: str | None = None,
    bins: Mapping[str, Any] | None = None,
    groups: Any = None,
    max_rows_per_group: int | None = None,
    n_groups: int | None = None,
    where: ArrayLike | None = None,
    level: float = 0.95,
    ledger: PrivacyLedger | str | os.PathLike[str] | None = None,
    random_state: int | NoiseSource | None = None,
) -> Description:
    """Describe a private table: one release, one certificate, one entry in the ledger.

    Parameters
    ----------
    table : mapping, DataFrame, ParquetRows, Dask DataFrame or path-like
        Columns by name (a dict of arrays, pandas, polars), the target's among them; or a CSV or
        Parquet file, or a folder of Parquet files, which are read by blocks.
    schema : Schema or mapping
        The public facts about the columns, or their JSON form.
    epsilon : float, default=1.0
        Privacy budget epsilon, above 0.
    delta : float or "auto", default="auto"
        Privacy budget delta, in (0, 1); "auto" as for estimators
        (``dpglm.privacy.default_delta``).
    budget : PrivacyBudget, optional
        Replaces ``epsilon`` and ``delta``.
    adjacency : {"zero_out", "add_remove", "replace_one"}, default="zero_out"
        Neighbouring relation, see ``dpglm.privacy.Adjacency``.
    n_rows : int, optional
        Public number of rows; needed for "add_remove" only, where a rough figure will do.
    columns : sequence of str, optional
        Columns to describe; by default all of the schema, the target last.
    two_way : iterable of (str, str), optional
        Pairs of columns whose joint counts are wanted.
    correlations : iterable of (str, str), or bool, optional
        Pairs of columns (numeric, or of two categories) whose correlation is wanted; True: all
        pairs of numeric columns and a target of two classes.
    by : str, optional
        Column of categories, by whose levels everything is described, at the price of one
        description (a row is in one group).
    bins : mapping from str to int or sequence of float, optional
        Of numeric columns, how many bins there are at most, or their edges (values outside are
        counted as such). By default edges are round numbers between the schema's bounds, as many as
        the noise allows.
    groups : array_like of shape (n,) or str, optional
        Whose each row is, or the name of the column that says it (not for Dask): then all rows of a
        group are protected together.
    max_rows_per_group : int, optional
        How many rows of a group are used at most; of groups with more, so many are drawn at random.
        Needed with ``groups``: noise is made for so many rows.
    n_groups : int, optional
        Public number of groups; needed for "add_remove" only.
    where : array_like of bool of shape (n,), optional
        Which rows count, by a private condition; all others add nothing, and their cells are not
        looked at. How many count stays private, and is estimated. For rows in memory.
    level : float, default=0.95
        Level of intervals, in (0, 1).
    ledger : PrivacyLedger or path-like, optional
        Ledger of the data set, which is charged before anything is released.
    random_state : int or NoiseSource, optional
        None: noise from the operating system. An integer makes the description reproducible and
        NOT private, and ``privacy_`` says so.

    Returns
    -------
    Description

    Raises
    ------
    ValueError
        If an argument or a cell of the table is wrong; nothing is released or spent then.
    LedgerError
        If the ledger refuses; nothing is released or spent then.

    Notes
    -----
    What is released: for every column the counts of its levels or bins, with missing values and
    such that the schema does not list; for numeric ones counts in parts of the bins (for quantiles)
    and sums of values and squares; tables of two columns, and sums of products. Weights between
    them make the variance of what is shown least (``docs/exploration.md``).

    Privacy: one Gaussian release under ``adjacency``. A row is in one cell of each table, so that
    its weighted contributions to all tables together have an L2 norm of at most 1, and those of a
    group with k rows one of at most k. What ``Description`` computes from it costs nothing more.

    References
    ----------
    Hay, Rastogi, Miklau and Suciu, "Boosting the accuracy of differentially private histograms
    through consistency", VLDB 2010 (least squares on a tree of counts).

    Examples
    --------
    >>> import dpglm
    >>> from dpglm.datasets import load_adult
    >>> adult = load_adult()
    >>> table = {**adult.data, "income": adult.target}
    >>> seen = dpglm.describe(table, adult.schema, epsilon=0.5, columns=["age", "sex", "income"])
    >>> bool(abs(seen["age"].mean.estimate - 38.6) < 0.5)
    True
    >>> seen["sex"].labels
    ('Female', 'Male', 'not listed', 'missing')
    """
    if not isinstance(schema, Schema):
        schema = Schema.from_dict(schema)
    relation = Adjacency(check_one_of("adjacency", adjacency, tuple(Adjacency)))

    def planned(rows: int, bound: GroupBound | None = None) -> DescriptionPlan:
        n_units = rows if bound is None else bound.n_groups
        return plan_description(
            schema,
            rows,
            stated_budget(epsilon, delta, budget, n_units),
            adjacency=adjacency,
            columns=columns,
            two_way=two_way,
            correlations=correlations,
            by=by,
            bins=bins,
            level=level,
            groups=bound,
            chosen=where is not None,
        )

    # Wrong arguments are found out before rows are read.
    draft = planned(1 if n_rows is None else n_rows)
    rows = open_table(table, draft.design.encoder.names)
    ids = None if groups is None else rows.group_ids(groups)
    limited = LimitedGroups.of(ids, max_rows_per_group, rows.n_rows)
    size = public_size(limited, rows.n_rows, relation, given=n_rows, given_groups=n_groups)
    return planned(*size).run(
        rows, groups=ids, where=where, ledger=ledger, random_state=random_state
    )
