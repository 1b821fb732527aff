"""Plan and run descriptions of private tables."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, final

from numpy.typing import ArrayLike

from dpglm._calls import checked
from dpglm._validation import check_real
from dpglm._words import plain_number
from dpglm.certificate.certificate import PublicFact, schema_facts
from dpglm.certificate.execution import (
    Expected,
    PartInput,
    PartPlan,
    Stated,
    StudyPart,
    proportion_ratio,
)
from dpglm.data.rows import DataSpec, GroupBound, Protection
from dpglm.data.split import EXPLORATION
from dpglm.exploration.description import Description
from dpglm.exploration.design import (
    COUNTS,
    NUMBERS,
    PARTS,
    PRODUCTS,
    Design,
    Pair,
    design_of,
    release,
    run_on_table,
)
from dpglm.ledger.ledger import PrivacyLedger
from dpglm.preprocessing.encoders import as_schema
from dpglm.privacy.accounting.calibrate import calibrate
from dpglm.privacy.budget import Adjacency, PrivacyBudget
from dpglm.privacy.noise import NoiseSource
from dpglm.solvers.base import Plan
from dpglm.solvers.composite.tabulation import Tabulation
from dpglm.tables.described import counted_columns
from dpglm.tables.schema import Schema
from dpglm.tabulate import normal_quantile

_FEWEST, _MOST = 4, 20
# For a normal density with a sixth of the range as standard deviation, see ``_bins``.
_BEND = 1.26
# Variance of the uniform distribution on [-1, 1].
_UNIFORM = 1.0 / 3.0
# A typical category or bin holds a tenth of the rows.
_TYPICAL = 0.1
_QUANTITIES = {
    COUNTS: "share of rows",
    PARTS: "rank of a quantile",
    NUMBERS: "mean",
    PRODUCTS: "correlation",
}


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
@dataclass(frozen=True)
class DescriptionPart(StudyPart):
    """A description of a table, with the options of ``describe``."""

    schema: Schema
    columns: Sequence[str] | None = None
    two_way: Iterable[Pair] = ()
    correlations: Iterable[Pair] | bool = ()
    by: str | None = None
    bins: Mapping[str, Any] | None = None
    level: float = 0.95

    def __post_init__(self) -> None:
        check_real("level", self.level, above=0.0, below=1.0)
        for name in ("two_way", "correlations"):
            # An iterator can be read once only.
            if isinstance(given := getattr(self, name), Iterator):
                object.__setattr__(self, name, tuple(given))
        self.of_bins(_MOST)

    def of_bins(self, most: int) -> Design:
        """Return the tables with at most this many bins in each column."""
        columns = self.columns
        if self.by is not None and columns is not None and not isinstance(columns, str):
            # Every table is by the levels of this column.
            columns = list(dict.fromkeys([*columns, self.by]))
        encoder = counted_columns(self.schema, columns, self.bins, most)
        return design_of(encoder, self.two_way, self.correlations, self.by)

    def _with_noise(
        self, protection: Protection, noise_multiplier: float
    ) -> tuple[Design, Tabulation]:
        """Return the tables and their method; the noise of many bins decides their number."""
        draft = self.of_bins(_MOST)
        noise = _tabulation(draft, protection, noise_multiplier).coefficient_noise
        design = self.of_bins(_bins(draft, noise, protection.n_rows))
        return design, _tabulation(design, protection, noise_multiplier)

    def design(self, plan: Plan) -> Design:
        """Return the tables of a plan."""
        assert isinstance(plan.method, Tabulation)
        return self._with_noise(plan.protection, plan.method.noise_multiplier)[0]

    def plan(self, protection: Protection) -> Plan:
        draft = _tabulation(self.of_bins(_MOST), protection, 1.0)
        multiplier = calibrate(
            lambda scale: dataclasses.replace(draft, noise_multiplier=scale).event,
            protection.budget,
            protection.adjacency,
        )
        _, method = self._with_noise(protection, multiplier)
        return Plan(method.data, protection.budget, protection.adjacency, method)

    def noise_to_sampling(self, protection: Protection) -> float:
        design, method = self._with_noise(protection, 1.0 / protection.budget.gdp_mu())
        noise, n_rows = method.coefficient_noise, protection.n_rows
        ratios = [
            proportion_ratio(
                math.sqrt(design.variance(noise, COUNTS, *names)) / n_rows, n_rows, _TYPICAL
            )
            for names in design.counted
        ]
        return math.fsum(ratios) / len(ratios)

    def title(self, plan: Plan) -> str:
        n_columns = len(self.of_bins(_MOST).described)
        return f"a description of {plan.data.n_rows} rows, {n_columns} columns"

    def precision(self, plan: Plan) -> tuple[Precision, ...]:
        design, n_rows = self.design(plan), plan.data.n_rows
        z, noise = normal_quantile(self.level), plan.coefficient_noise
        found = []
        for kind, *columns in design.cells:
            half = z * math.sqrt(design.variance(noise, kind, *columns)) / n_rows
            quantity = _QUANTITIES.get(kind)
            if kind == PARTS:
                # The rank of the median adds up half of the cells.
                n_cells = design.encoder[columns[0]].n_cells
                own = math.sqrt(design.variance(noise, COUNTS, *columns))
                half = z * own * math.sqrt(n_cells / 4.0) / n_rows
            if kind == NUMBERS:
                half *= design.encoder[columns[0]].half_range
            if kind == PRODUCTS:
                half /= _UNIFORM
            if quantity is not None:
                found.append(Precision(tuple(columns), quantity, half))
        return tuple(found)

    def lines(self, plan: Plan) -> Iterable[str]:
        for one in self.precision(plan):
            name = " x ".join(one.columns) or f"levels of {self.by}"
            yield f"{name}: {one.quantity} ± {plain_number(one.half_width, 2)}"

    def expected(self, plan: Plan) -> tuple[Expected, ...]:
        widest: dict[str, float] = {}
        for one in self.precision(plan):
            if one.quantity != "mean":  # Means have different units.
                widest[one.quantity] = max(widest.get(one.quantity, 0.0), one.half_width)
        return tuple(
            Expected(EXPLORATION, quantity, f"± {plain_number(width, 2)} at most")
            for quantity, width in widest.items()
        )

    def run(self, plan: Plan, given: PartInput) -> Description:
        design = self.design(plan)
        tables = [" x ".join(names) or str(design.by) for names in design.counted]
        facts = (*schema_facts(self.schema), PublicFact("tables", tables, "declared"))
        made = run_on_table(plan, given, design.encoder, self.schema, "Description", facts)
        return Description(self, *made)


@checked
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
) -> PartPlan:
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

    Returns
    -------
    PartPlan
        It can be printed; ``run`` executes it on a table.

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
    protection = Protection(Adjacency(adjacency), budget, n_rows, groups)
    part = DescriptionPart(as_schema(schema), columns, two_way, correlations, by, bins, level)
    return PartPlan(part, part.plan(protection))


def _tabulation(design: Design, protection: Protection, noise_multiplier: float) -> Tabulation:
    """Return the release of all tables with this noise."""
    n_rows, encoder = protection.n_rows, design.encoder
    data = DataSpec(n_rows, encoder.width, row_norm=encoder.row_norm, groups=protection.groups)
    tables = tuple(design.cells.values())
    return Tabulation(data, protection.adjacency, tables, noise_multiplier)


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
    # Invalid arguments are found before rows are read.
    part = DescriptionPart(as_schema(schema), columns, two_way, correlations, by, bins, level)
    stated = Stated(epsilon, delta, budget, adjacency, n_rows, max_rows_per_group, n_groups)
    encoder = part.of_bins(_MOST).encoder
    found: Description = release(
        part, encoder, part.schema, table, stated, groups, where, ledger, random_state
    )
    return found
