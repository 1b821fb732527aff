"""The release of second moments of a private table."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, final

from numpy.typing import ArrayLike

from dpglm._validation import check_one_of
from dpglm.certificate.execution import PartInput, StudyPart, stated_protection
from dpglm.data.protection import Protection
from dpglm.data.spec import DataSpec
from dpglm.exploration.design import open_table, run_on_table
from dpglm.ledger.ledger import PrivacyLedger
from dpglm.moments.basis import MomentBasis, basis_of
from dpglm.moments.moments import Moments, basis_facts
from dpglm.preprocessing.encoders import as_schema
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.budget import PrivacyBudget, stated_budget
from dpglm.privacy.noise import NoiseSource
from dpglm.solvers.base import Plan
from dpglm.solvers.composite.moments import plan_moments
from dpglm.tables.schema import Schema

# Share of the rows that count less by default: at most this, and at most this over the root of
# their number. Skewed residuals bias estimates in proportion to it, so the bias remains below the
# sampling error.
_LONG_ROWS, _LONG_OVER_ROOT = 0.01, 1.0


@final
@dataclass(frozen=True)
class MomentsPart(StudyPart):
    """A release of second moments, with the options of ``release_moments``."""

    basis: MomentBasis
    weighting: Literal["auto", "none"]

    def plan(self, protection: Protection) -> Plan:
        data = DataSpec(
            protection.n_rows,
            self.basis.width,
            row_norm=self.basis.row_norm,
            intercept=1.0,
            groups=protection.groups,
        )
        return plan_moments(
            data,
            protection.budget,
            protection.adjacency,
            self.basis.blocks,
            self._long_rows(protection.n_rows),
        )

    def _long_rows(self, n_rows: int) -> float:
        most = min(_LONG_ROWS, _LONG_OVER_ROOT / math.sqrt(n_rows))
        return most if self.weighting == "auto" else 0.0

    def noise_to_sampling(self, protection: Protection) -> float:
        plan = self.plan(protection)
        return plan.coefficient_noise**2 * protection.n_rows

    def title(self, plan: Plan) -> str:
        return f"second moments of {plan.data.n_rows} rows, {len(self.basis.columns)} columns"

    def precision(self, plan: Plan) -> tuple[tuple[str, float], ...]:
        return (("correlation", 2.0 * plan.coefficient_noise),)

    def run(self, plan: Plan, given: PartInput) -> Moments:
        basis = self.basis
        solution, certificate = run_on_table(
            plan, given, basis, basis.schema, "Moments", basis_facts(basis)
        )
        return Moments(basis, solution.w, certificate)


def release_moments(
    table: Any,
    schema: Schema | Mapping[str, Any],
    *,
    epsilon: float = 1.0,
    delta: float | Literal["auto"] = "auto",
    budget: PrivacyBudget | None = None,
    adjacency: str = "zero_out",
    n_rows: int | None = None,
    columns: Sequence[str] | None = None,
    terms: Sequence[str] = (),
    weighting: Literal["auto", "none"] = "auto",
    groups: Any = None,
    max_rows_per_group: int | None = None,
    n_groups: int | None = None,
    where: ArrayLike | None = None,
    ledger: PrivacyLedger | str | os.PathLike[str] | None = None,
    random_state: int | NoiseSource | None = None,
) -> Moments:
    """Release the second moments of a private table: all that linear models need.

    Parameters
    ----------
    table : mapping, DataFrame, ParquetRows, Dask DataFrame or path-like
        Columns by name, including the target; see ``describe``.
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
        Columns of the schema, the target included; by default all.
    terms : sequence of str, default=()
        Further terms of formulas, such as ``"bs(age, df=6)"``, ``"np.log(income)"`` or
        ``"age:C(sex)"``. Models may use any linear combination of columns and terms.
    weighting : {"auto", "none"}, default="auto"
        "auto": rows that are long in all columns together count less, at most about 1 % and
        ``1 / sqrt(n_rows)`` of them, which takes several times less noise. "none": all rows count
        fully.
    groups : array_like of shape (n,) or str, optional
        Person (group) id of each row, or the name of its column (not for Dask).
    max_rows_per_group : int, optional
        Maximum rows per group; required with ``groups``.
    n_groups : int, optional
        Public number of groups; required for "add_remove" only.
    where : array_like of bool of shape (n,), optional
        Private condition: only rows with True count.
    ledger : PrivacyLedger or path-like, optional
        Ledger of the data set, which is charged before anything is released.
    random_state : int or NoiseSource, optional
        None: noise from the operating system. With an integer the release is reproducible and NOT
        private, and ``privacy_`` states this.

    Returns
    -------
    Moments

    Raises
    ------
    ValueError
        If an argument or a cell of the table is invalid; nothing is spent then.
    LedgerError
        If the ledger refuses the charge; nothing is spent then.
    ImportError
        If formulaic is not installed.

    Notes
    -----
    Privacy: Gaussian releases under ``adjacency``: sums of the encoded columns and of their
    squares, first moments, counts of rows by length, and second moments of standardised rows of
    bounded length. Models, tests and searches are post-processing.

    Examples
    --------
    >>> import dpglm
    >>> from dpglm.datasets import load_adult
    >>> adult = load_adult()
    >>> table = {**adult.data, "income": adult.target}
    >>> moments = dpglm.release_moments(
    ...     table, adult.schema, columns=["age", "sex", "hours-per-week", "income"], random_state=0
    ... )
    >>> model = moments.regress("`hours-per-week` ~ age + sex")
    >>> model.inference_.names
    ('intercept', 'age', 'sex[T.Male]')
    """
    # Invalid arguments are found before rows are read.
    check_one_of("adjacency", adjacency, tuple(Adjacency))
    check_one_of("weighting", weighting, ("auto", "none"))
    part = MomentsPart(basis_of(as_schema(schema), columns, terms), weighting)
    stated_budget(epsilon, delta, budget, 1)
    rows = open_table(table, part.basis.names, part.basis.schema.read_file)
    ids = None if groups is None else rows.group_ids(groups)
    protection = stated_protection(
        rows.n_rows,
        ids,
        epsilon=epsilon,
        delta=delta,
        budget=budget,
        adjacency=adjacency,
        public_rows=n_rows,
        max_rows_per_group=max_rows_per_group,
        n_groups=n_groups,
    )
    given = PartInput((rows,), ids, where, ledger, random_state)
    return part.run(part.plan(protection), given)
