"""Plan and run descriptions of private tables."""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, final

from numpy.typing import ArrayLike

from dpglm._validation import check_count, check_one_of, check_real
from dpglm._words import card, plain_number
from dpglm.certificate.execution import execute
from dpglm.certificate.statement import PublicFact, schema_facts, size_facts
from dpglm.data.groups import LimitedGroups, public_size
from dpglm.data.rows import Rows
from dpglm.data.spec import DataSpec, GroupBound
from dpglm.data.split import EXPLORATION
from dpglm.exploration.description import Description
from dpglm.exploration.design import (
    COUNTS,
    NUMBERS,
    PARTS,
    PRODUCTS,
    Design,
    Pair,
    TableRows,
    design_of,
    open_table,
)
from dpglm.ledger.ledger import PrivacyLedger
from dpglm.privacy.accounting.calibrate import calibrate
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.budget import PrivacyBudget, stated_budget
from dpglm.privacy.noise import NoiseSource
from dpglm.solvers.base import Plan
from dpglm.solvers.composite.tabulation import Tabulation, plan_tabulation
from dpglm.tables.described import CellEncoder, counted_columns
from dpglm.tables.schema import Schema
from dpglm.tabulate.numbers import normal_quantile

_NAME = "Description"
_FEWEST, _MOST = 4, 20
# For a normal density with a sixth of the range as standard deviation, see ``_bins``.
_BEND = 1.26
# Variance of the uniform distribution on [-1, 1].
_UNIFORM = 1.0 / 3.0


@final
@dataclass(frozen=True)
class Precision:
    """Expected precision of one kind of number.

    Parameters
    ----------
    columns : tuple of str
        Names of the columns; empty for the sizes of levels of ``by``.
    quantity : str
        ``"share of rows"``, ``"rank of a quantile"`` (as a share of rows), ``"mean"`` (in the units
        of the column) or ``"correlation"``.
    half_width : float
        Expected half width of its interval for the table, with privacy noise only.
    """

    columns: tuple[str, ...]
    quantity: str
    half_width: float


@final
@dataclass(frozen=True, eq=False, repr=False)
class DescriptionPlan:
    """The planned release of a description.

    Parameters
    ----------
    schema : Schema
        Public facts about the table.
    design : Design
        Tables of the description.
    plan : Plan
        The release.
    level : float
        Confidence level of intervals.
    chosen : bool, default=False
        Whether a private condition selects rows, so that their number is private.
    """

    schema: Schema
    design: Design
    plan: Plan
    level: float
    chosen: bool = False

    @property
    def noise_std(self) -> float:
        """Standard deviation of the noise in each cell, times its weight."""
        return self.plan.coefficient_noise

    @property
    def z(self) -> float:
        """Half width of an interval in standard deviations."""
        return normal_quantile(self.level)

    @functools.cached_property
    def _n_rows(self) -> int:
        return self.plan.data.n_rows

    def precision(self) -> tuple[Precision, ...]:
        """Return the expected precision of numbers, from public facts.

        Returns
        -------
        tuple of Precision
            For shares of rows in each table, the rank of each median, means and correlations (of
            uniformly distributed columns).
        """
        found = []
        for part in self.design.parts:
            kind, *columns = part.key
            std = math.sqrt(self.design.variance(self.noise_std, *part.key)) / self._n_rows
            half = self.z * std
            if kind == COUNTS:
                found.append(Precision(tuple(columns), "share of rows", half))
            if kind == PARTS:
                # The rank of the median adds up half of the cells.
                n_cells = self.design.encoder[columns[0]].n_cells
                own = math.sqrt(self.design.variance(self.noise_std, COUNTS, *columns))
                rank = self.z * own * math.sqrt(n_cells / 4.0) / self._n_rows
                found.append(Precision(tuple(columns), "rank of a quantile", rank))
            if kind == NUMBERS:
                unit = self.design.encoder[columns[0]].half_range
                found.append(Precision(tuple(columns), "mean", unit * half))
            if kind == PRODUCTS:
                found.append(Precision(tuple(columns), "correlation", half / _UNIFORM))
        return tuple(found)

    def _title(self) -> str:
        names = [one.name for one in self.design.described]
        return f"Plan of a description of {self._n_rows} rows, {len(names)} columns"

    def _lines(self) -> Iterable[str]:
        for one in self.precision():
            name = " x ".join(one.columns) or f"levels of {self.design.by}"
            yield f"{name}: {one.quantity} ± {plain_number(one.half_width, 2)}"

    def __repr__(self) -> str:
        return f"<{self._title()}>"

    def __str__(self) -> str:
        lines = [f"{self._title()}: {self.plan.budget!r}, {self.plan.adjacency.value}"]
        lines += [f"  {line}" for line in self._lines()]
        return "\n".join([*lines, *(f"  Caution: {one}" for one in self.plan.cautions())])

    def _repr_html_(self) -> str:
        facts = [("budget", self.plan.budget), ("relation", self.plan.adjacency.value)]
        expected = f"Half widths of intervals ({100.0 * self.level:g} %)"
        return card(
            self._title(),
            facts,
            warnings=self.plan.cautions(),
            sections=[(expected, list(self._lines()))],
        )

    def run(
        self,
        table: Any,
        *,
        groups: Any = None,
        where: ArrayLike | None = None,
        ledger: PrivacyLedger | str | os.PathLike[str] | None = None,
        random_state: int | NoiseSource | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> Description:
        """Execute the plan on a table.

        Parameters
        ----------
        table, groups, where, ledger, random_state
            See ``describe``.
        checkpoint : path-like, optional
            File for the release. Running the plan again with it returns the same description at no
            further cost.

        Returns
        -------
        Description

        Raises
        ------
        ValueError
            If the table or one of its cells is invalid; nothing is spent then.
        PlanMismatchError
            If the public number of rows is not the planned one; nothing is spent then.
        LedgerError
            If the ledger refuses the charge; nothing is spent then.
        """
        if self.chosen is not (where is not None):
            raise ValueError("where must be given for a plan with chosen=True, and only then")
        opened = open_table(table, self.design.encoder.names)
        ids = self._ids(opened, groups)

        def rows(noise: NoiseSource) -> Rows:
            return opened.prepared(self.design.encoder, self.plan.data, ids, noise, where)

        solution, certificate = execute(
            self.plan,
            rows,
            _NAME,
            EXPLORATION,
            self._facts(),
            ledger=ledger,
            random_state=random_state,
            checkpoint=checkpoint,
        )
        return Description(self, solution, certificate)

    def _ids(self, rows: TableRows, groups: Any) -> Any:
        """Return the group of each row, for a plan with groups, after checks."""
        data = self.plan.data
        if data.groups is None and groups is None:
            return None
        ids = None if groups is None else rows.group_ids(groups)
        LimitedGroups.planned(ids, data, self.plan.adjacency, rows.n_rows)
        return ids

    def _facts(self) -> tuple[PublicFact, ...]:
        tables = [" x ".join(part.key[1:]) for part in self.design.parts if part.key[0] == COUNTS]
        return (
            *size_facts(self.plan.data, self.plan.adjacency, chosen=self.chosen),
            *schema_facts(self.schema),
            PublicFact("tables", [one or str(self.design.by) for one in tables], "declared"),
        )


def plan_description(
    schema: Schema | Mapping[str, Any],
    n_rows: int,
    budget: PrivacyBudget,
    *,
    adjacency: str = "zero_out",
    columns: Sequence[str] | None = None,
    two_way: Iterable[Pair] = (),
    correlations: Iterable[Pair] | bool = (),
    by: str | None = None,
    bins: Mapping[str, Any] | None = None,
    level: float = 0.95,
    groups: GroupBound | None = None,
    chosen: bool = False,
) -> DescriptionPlan:
    """Plan a description from public facts.

    Parameters
    ----------
    schema : Schema or mapping
        Public facts about the table, or their JSON form.
    n_rows : int
        Public number of rows, at least 1.
    budget : PrivacyBudget
        ``GaussianDP``, ``ZeroConcentratedDP``, or ``ApproximateDP`` with a delta above 0.
    adjacency : {"zero_out", "add_remove", "replace_one"}, default="zero_out"
        Neighbouring relation.
    columns, two_way, correlations, by, bins, level
        See ``describe``.
    groups : GroupBound, optional
        Number of people (groups) that are protected with all of their rows, and the maximum rows
        per group.
    chosen : bool, default=False
        Whether a private condition selects rows (``where`` of ``run``), so that their number is
        private.

    Returns
    -------
    DescriptionPlan

    Raises
    ------
    ValueError
        If an argument is invalid.

    Notes
    -----
    Privacy: one Gaussian release. A row is in one cell of each table, so that its weighted
    contributions to all tables have an L2 norm of at most 1 (a change by ``replace_one`` at most
    2).

    Examples
    --------
    >>> from dpglm.datasets import load_adult
    >>> from dpglm.privacy import GaussianDP
    >>> adult = load_adult()
    >>> plan = plan_description(adult.schema, 48842, GaussianDP(0.1), columns=["age", "sex"])
    >>> for one in plan.precision():
    ...     print(one.columns, one.quantity, round(one.half_width, 4))
    ('age',) share of rows 0.0007
    ('age',) rank of a quantile 0.0015
    ('age',) mean 0.0354
    ('sex',) share of rows 0.001
    """
    if not isinstance(schema, Schema):
        schema = Schema.from_dict(schema)
    n_rows = check_count("n_rows", n_rows)
    relation = Adjacency(check_one_of("adjacency", adjacency, tuple(Adjacency)))
    level = check_real("level", level, above=0.0, below=1.0)
    if not isinstance(budget, PrivacyBudget):
        raise ValueError(f"budget must be a PrivacyBudget, got {budget!r}")

    data = functools.partial(_spec, n_rows=n_rows, groups=groups)
    draft = _designed(schema, columns, two_way, correlations, by, bins)
    # The noise of a draft with many bins decides their number.
    method = functools.partial(
        Tabulation, data(draft.encoder), relation, tuple(draft.cells.values())
    )
    noise = calibrate(lambda scale: method(scale).event, budget, relation)
    most_bins = _bins(draft, method(noise).coefficient_noise, n_rows)
    design = _designed(schema, columns, two_way, correlations, by, bins, most_bins)
    plan = plan_tabulation(data(design.encoder), budget, relation, tuple(design.cells.values()))
    return DescriptionPlan(schema, design, plan, level, chosen)


def check_description(schema: Schema, *, level: float, **options: Any) -> None:
    """Refuse options of a description that cannot be planned, whatever the budget."""
    check_real("level", level, above=0.0, below=1.0)
    _designed(schema, **options)


def _designed(
    schema: Schema,
    columns: Sequence[str] | None,
    two_way: Iterable[Pair],
    correlations: Iterable[Pair] | bool,
    by: str | None,
    bins: Mapping[str, Any] | None,
    most_bins: int = _MOST,
) -> Design:
    """Return the tables of a description with at most ``most_bins`` bins in each column."""
    if by is not None and columns is not None and not isinstance(columns, str):
        # Every table is by the levels of this column.
        columns = list(dict.fromkeys([*columns, by]))
    encoder = counted_columns(schema, columns, bins, most_bins)
    return design_of(encoder, two_way, correlations, by)


def _bins(draft: Design, noise: float, n_rows: int) -> int:
    """Return the maximum number of bins of a column, from public facts.

    Let t be the noise scale of the share of a bin, and R the integral of f'^2 for the density f on
    a range of length 1. K bins have an integrated squared error of K^2 t^2 and a squared bias of
    about R / (12 K^2) (Scott, "On optimal and data-based histograms", Biometrika 1979). The sum is
    minimal at K = (R / (12 t^2))^(1/4). For a normal density with a sixth of the range as standard
    deviation, R = 216 / (4 sqrt(pi)), and K = 1.26 / sqrt(t).
    """
    noises = [
        draft.variance(noise, COUNTS, column.name) for column in draft.described if column.n_bins
    ]
    if not noises:
        return _FEWEST
    t = math.sqrt(max(noises)) / n_rows
    return int(min(max(_BEND / math.sqrt(t), _FEWEST), _MOST))


def _spec(encoder: CellEncoder, *, n_rows: int, groups: GroupBound | None) -> DataSpec:
    """Return the public facts about encoded rows."""
    return DataSpec(n_rows, encoder.width, row_norm=encoder.row_norm, groups=groups)


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
    """Describe a private table with one release, one certificate and one ledger entry.

    Parameters
    ----------
    table : mapping, DataFrame, ParquetRows, Dask DataFrame or path-like
        Columns by name, including the target (a dict of arrays, pandas, polars); or a CSV or
        Parquet file, or a folder of Parquet files, which are read in blocks.
    schema : Schema or mapping
        Public facts about the columns, or their JSON form.
    epsilon : float, default=1.0
        Privacy budget epsilon, above 0.
    delta : float or "auto", default="auto"
        Privacy budget delta, in (0, 1); "auto" is ``dpglm.privacy.default_delta``.
    budget : PrivacyBudget, optional
        Replaces ``epsilon`` and ``delta``.
    adjacency : {"zero_out", "add_remove", "replace_one"}, default="zero_out"
        Neighbouring relation, see ``dpglm.privacy.Adjacency``.
    n_rows : int, optional
        Public number of rows, which may be approximate; required for "add_remove" only.
    columns : sequence of str, optional
        Columns to describe; by default all of the schema, with the target last.
    two_way : iterable of (str, str), optional
        Pairs of columns for two-way tables.
    correlations : iterable of (str, str), or bool, optional
        Pairs of columns for correlations: numeric columns, or columns with two categories. True:
        all pairs of numeric columns and a target of two classes.
    by : str, optional
        Column of categories. The rows of each category are described separately, for the cost of
        one description, because a row has one category.
    bins : mapping from str to int or sequence of float, optional
        Maximum number of bins of a numeric column, or their edges; values outside are counted
        separately. By default edges are round numbers between the bounds of the schema, and the
        noise determines their number.
    groups : array_like of shape (n,) or str, optional
        Person (group) id of each row, or the name of its column (not for Dask); all rows of a group
        are protected together.
    max_rows_per_group : int, optional
        Maximum rows per group; larger groups are subsampled. It is required with ``groups``, since
        it sets the noise scale.
    n_groups : int, optional
        Public number of groups; required for "add_remove" only.
    where : array_like of bool of shape (n,), optional
        Private condition: only rows with True count, and the cells of others are not read. The
        number of rows that count stays private, and is estimated. For rows in memory.
    level : float, default=0.95
        Confidence level of intervals, in (0, 1).
    ledger : PrivacyLedger or path-like, optional
        Ledger of the data set, which is charged before anything is released.
    random_state : int or NoiseSource, optional
        None: noise from the operating system. With an integer the description is reproducible and
        NOT private, and ``privacy_`` states this.

    Returns
    -------
    Description

    Raises
    ------
    ValueError
        If an argument or a cell of the table is invalid; nothing is spent then.
    LedgerError
        If the ledger refuses the charge; nothing is spent then.

    Notes
    -----
    The release contains counts of the categories or bins of each column, of its missing values and
    of values that the schema does not list. Numeric columns also have counts in parts of the bins
    (for quantiles) and sums of values and squares. Further tables are two-way tables and sums of
    products. Weights minimize the variance of the numbers shown.

    Privacy: one Gaussian release under ``adjacency``. A row is in one cell of each table, so that
    its weighted contributions to all tables have an L2 norm of at most 1, and those of a group with
    k rows at most k. The numbers of ``Description`` are post-processing.

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

    level = check_real("level", level, above=0.0, below=1.0)
    options: dict[str, Any] = {
        "columns": columns,
        # An iterator can be read once only.
        "two_way": list(two_way) if isinstance(two_way, Iterator) else two_way,
        "correlations": (
            list(correlations) if isinstance(correlations, Iterator) else correlations
        ),
        "by": by,
        "bins": bins,
    }
    # Invalid arguments are found before rows are read.
    names = _designed(schema, **options).encoder.names
    stated_budget(epsilon, delta, budget, 1)
    rows = open_table(table, names)
    ids = None if groups is None else rows.group_ids(groups)
    limited = LimitedGroups.of(ids, max_rows_per_group, rows.n_rows)
    n_rows, bound = public_size(limited, rows.n_rows, relation, given=n_rows, given_groups=n_groups)
    plan = plan_description(
        schema,
        n_rows,
        stated_budget(epsilon, delta, budget, n_rows if bound is None else bound.n_groups),
        adjacency=adjacency,
        level=level,
        groups=bound,
        chosen=where is not None,
        **options,
    )
    return plan.run(rows, groups=ids, where=where, ledger=ledger, random_state=random_state)
