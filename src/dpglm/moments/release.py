"""The release of second moments of a private table."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, final

from numpy.typing import ArrayLike

from dpglm._validation import check_one_of
from dpglm.certificate.execution import PartInput, Stated, StudyPart
from dpglm.data.rows import DataSpec, Protection
from dpglm.exploration.design import release, run_on_table
from dpglm.ledger.ledger import PrivacyLedger
from dpglm.moments.basis import MomentBasis, basis_of
from dpglm.moments.moments import Moments, basis_facts
from dpglm.preprocessing.encoders import as_schema
from dpglm.privacy.budget import PrivacyBudget
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
        long_rows = min(_LONG_ROWS, _LONG_OVER_ROOT / math.sqrt(protection.n_rows))
        return plan_moments(
            data,
            protection.budget,
            protection.adjacency,
            self.basis.blocks,
            long_rows if self.weighting == "auto" else 0.0,
        )

    def noise_to_sampling(self, protection: Protection) -> float:
        return self.plan(protection).coefficient_noise ** 2 * protection.n_rows

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
    columns : sequence of str, optional
        Columns of the schema, the target included; by default all.
    terms : sequence of str, default=()
        Further terms of formulas, such as ``"bs(age, df=6)"``, ``"np.log(income)"`` or
        ``"age:C(sex)"``. Models may use any linear combination of columns and terms.
    weighting : {"auto", "none"}, default="auto"
        "auto": rows that are long in all columns together count less, at most about 1 % and
        ``1 / sqrt(n_rows)`` of them, which takes several times less noise. "none": all rows count
        fully.
    epsilon, delta, budget, adjacency, n_rows, groups, max_rows_per_group, n_groups, where
        See ``describe``.
    ledger, random_state
        See ``describe``.

    Raises
    ------
    LedgerError
        If the ledger refuses the charge; nothing is spent then.

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
    check_one_of("weighting", weighting, ("auto", "none"))
    part = MomentsPart(basis_of(as_schema(schema), columns, terms), weighting)
    stated = Stated(epsilon, delta, budget, adjacency, n_rows, max_rows_per_group, n_groups)
    basis = part.basis
    found: Moments = release(
        part, basis, basis.schema, table, stated, groups, where, ledger, random_state
    )
    return found
