"""Released second moments, and the models, tests and searches that follow from them."""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, final

import numpy as np
from numpy.typing import ArrayLike

from dpglm._calls import checked
from dpglm._codec import Format, Text, Vector
from dpglm._json import in_file, load
from dpglm._validation import Array, check_list, check_one_of, check_real
from dpglm._words import card, plain_number
from dpglm.certificate.certificate import Certificate, PublicFact, model_digest, schema_facts
from dpglm.certificate.execution import PartInput, Stated, StudyPart
from dpglm.data.rows import DataSpec, Protection
from dpglm.exploration.design import release, run_on_table
from dpglm.ledger.ledger import PrivacyLedger
from dpglm.ledger.store import write_json
from dpglm.moments.basis import MomentBasis, basis_of, parsed
from dpglm.moments.model import ColumnSpace, Model, MomentFit, Penalty
from dpglm.moments.regression import (
    Comparison,
    Correlation,
    PrincipalComponents,
    Selection,
    compared,
    components,
    correlation,
    selected,
    solve,
)
from dpglm.preprocessing.encoders import as_schema
from dpglm.privacy.budget import PrivacyBudget
from dpglm.privacy.noise import NoiseSource
from dpglm.solvers.base import Plan
from dpglm.solvers.composite.moments import ReleasedMoments, SecondMoments, plan_moments
from dpglm.tables.formula.design import read_formula
from dpglm.tables.schema import Schema, SchemaDocument

_TINY = 1e-300


@final
@dataclass(frozen=True)
class _Stored:
    """The content of a file of moments."""

    schema: SchemaDocument
    columns: tuple[Text, ...]
    terms: tuple[str, ...]
    values: Vector
    certificate: Certificate


@final
@dataclass(frozen=True, eq=False, repr=False)
class Moments:
    """Noisy second moments of the columns of a table; made by ``release_moments``.

    Parameters
    ----------
    basis : MomentBasis
        The released columns.
    values : ndarray
        The released values.
    privacy_ : dpglm.certificate.Certificate
        The guarantee, its assumptions, and the budget spent.

    Notes
    -----
    Every method computes from the released values, at no further privacy cost, and without the
    rows.

    Privacy: all values are computed from the release and public facts, and may be published.
    """

    basis: MomentBasis
    values: Array
    privacy_: Certificate

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns of the table."""
        return self.basis.columns

    @property
    def terms(self) -> tuple[str, ...]:
        """The further terms that were released."""
        return self.basis.terms

    @functools.cached_property
    def released(self) -> ReleasedMoments:
        """The released matrix, with the centers and scales of its columns."""
        method = self.privacy_.rebuild().method
        assert isinstance(method, SecondMoments)
        return method.moments(self.values)

    @functools.cached_property
    def _space(self) -> ColumnSpace:
        return ColumnSpace.of(self.basis, self.released)

    def regress(
        self, formula: str, *, penalty: Penalty = 0.0, design_effect: float = 1.0
    ) -> MomentFit:
        """Fit a linear model by least squares.

        Parameters
        ----------
        formula : str
            In Wilkinson notation, such as ``"wage ~ age + C(sex) + bs(education, df=4)"``. Any
            released number may be the target, or a category with two levels: its second level
            counts as 1 (a linear probability model). Every term must be a linear combination of
            released columns.
        penalty : float, "auto" or "terms", default=0.0
            A number is the ridge penalty on coefficients of standardised columns, like ``alpha`` of
            scikit-learn's ``Ridge``. "auto": one for all columns, by marginal likelihood. "terms":
            one for each term with several columns, so that levels are pooled and splines are
            smooth.
        design_effect : float, default=1.0
            Factor of the sampling variance, at least 1, for rows of a person that depend on each
            other; at most the maximum rows per person is needed.

        Notes
        -----
        Standard errors assume that the model is right and that the variance of residuals is the
        same in all rows. They include sampling error and privacy noise. Coefficients have a normal
        prior of 10 standard deviations of the target for one of their column, at most 2.5 for a
        category; where the moments carry no information, an interval is that of the prior.
        """
        target, design = parsed(formula, self.basis.described)
        effect = check_real("design_effect", design_effect, least=1.0)
        if penalty not in ("auto", "terms"):
            penalty = check_real("penalty", penalty, least=0.0)
        model = Model(self._space, formula, target, design)
        source = model.source(self.privacy_, self.weighting, penalty, effect, formula)
        return model.fit(model.solved(penalty, effect), self.privacy_, source, penalty)

    def two_stage(self, formula: str, instruments: str) -> MomentFit:
        """Fit a linear model by two-stage least squares.

        Parameters
        ----------
        formula : str
            The model, as for ``regress``.
        instruments : str
            Formula of the instruments, such as ``"~ distance + age"``, exogenous columns of the
            model included; at least as many columns as the model has.
        """
        target, design = parsed(formula, self.basis.described)
        left, right = formula.split("~")[0], instruments.split("~")[-1].strip()
        _, given = parsed(f"{left} ~ {right}", self.basis.described)
        model = Model(self._space, formula, target, design)
        Z = model.columns_of(given)
        if Z.shape[1] < model.L.shape[1]:
            raise ValueError(
                f"instruments must have at least {model.L.shape[1]} columns with the intercept, as "
                f"the model has, got {Z.shape[1]}"
            )
        found = solve(self._space.moments, model.L, model.target, model.prior(), instruments=Z)
        how = f"{formula}; instruments ~ {right}"
        source = model.source(self.privacy_, self.weighting, 0.0, 1.0, how)
        return model.fit(found, self.privacy_, source, 0.0)

    def compare(self, smaller: str, larger: str) -> Comparison:
        """Test a model against a larger one with the same target.

        It is a Wald test of the coefficients that the smaller model lacks; its terms must be among
        those of the larger one.
        """
        return compared(self.regress(smaller), self.regress(larger))

    def select(
        self,
        formula: str,
        *,
        method: Literal["stepwise", "exhaustive"] = "stepwise",
        level: float = 0.95,
    ) -> Selection:
        """Select terms of a model by the Bayesian information criterion.

        Parameters
        ----------
        formula : str
            The largest model.
        method : {"stepwise", "exhaustive"}, default="stepwise"
            Backward elimination of terms, or all subsets of at most 15 terms.
        level : float, default=0.95
            Joint confidence level of the intervals of the selected model.

        Returns
        -------
        Selection
            The selected model, how many models were looked at, and intervals that hold together for
            every model that could have been selected.

        Notes
        -----
        The search costs no privacy. Its criterion is that of Wald statistics in the largest model,
        ``W + log(n) q`` for a model with q coefficients, W the statistic of those it lacks (Lawless
        and Singhal, "Efficient screening of nonnormal regression models", Biometrics 1978), so that
        privacy noise counts as error. Intervals after selection are Bonferroni's over all
        coefficients of all models that the method could have selected.
        """
        level = check_real("level", level, above=0.0, below=1.0)
        weight = self._space.moments.weight
        return selected(formula, self.regress, self.basis.described, method, level, weight)

    def correlation(
        self, one: str, other: str, given: Sequence[str] = (), *, level: float = 0.95
    ) -> Correlation:
        """Correlate two columns, or their residuals on other columns.

        Parameters
        ----------
        one, other : str
            Terms of a formula with one column each, such as names of columns.
        given : sequence of str, default=()
            Terms that are held fixed, for a partial correlation.
        level : float, default=0.95
            Confidence level in (0, 1).

        Notes
        -----
        The sampling error is that of normal columns.
        """
        level = check_real("level", level, above=0.0, below=1.0)
        u, w = (self._one(term, "one and other") for term in (one, other))
        held = [self._space.constant[:, np.newaxis]]
        held += [self._columns(term) for term in check_list("given", given)]
        return correlation(self._space.moments, u, w, np.column_stack(held), level)

    def correlations(
        self, columns: Sequence[str] | None = None, *, level: float = 0.95
    ) -> Mapping[tuple[str, str], Correlation]:
        """Correlate all pairs of columns, by default of numbers and categories with two levels.

        The confidence level is in (0, 1).
        """
        names = self._single() if columns is None else check_list("columns", columns)
        return {
            (a, b): self.correlation(a, b, level=level)
            for k, a in enumerate(names)
            for b in names[k + 1 :]
        }

    def components(self, columns: Sequence[str] | None = None) -> PrincipalComponents:
        """Return the principal components of standardised columns.

        Columns are by default all numbers, and categories with two levels.
        """
        names = self._single() if columns is None else check_list("columns", columns)
        L = np.column_stack([self._one(name, "columns") for name in names])
        return components(self._space.moments, L, self._space.constant, names)

    def variance_inflation(self, formula: str) -> Mapping[str, float]:
        """Return the variance inflation factor of each column of a model; its target is not used.

        At least 1, it is the variance of a column over that of its residual on the other columns.
        """
        _, design = parsed(formula, self.basis.described)
        space = self._space
        L, constant, moments = space.columns_of(design), space.constant, space.moments
        found = {}
        for place, name in enumerate(design.feature_names):
            others = np.column_stack([np.delete(L, place, axis=1), constant])
            left = []
            for held in (constant[:, np.newaxis], others):
                v = moments.residual(L[:, place], held)
                seen, noise = moments.form(v, v)
                left.append(max(seen, math.sqrt(noise), _TINY))
            found[name] = max(left[0] / left[1], 1.0)
        return found

    @checked
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the moments to a JSON file, with their certificate; an existing one is replaced."""
        write_json(path, self.to_dict())

    def to_dict(self) -> dict[str, Any]:
        """Return the moments and their certificate as plain values, like ``save``."""
        stored = _Stored(
            self.basis.schema, self.basis.columns, self.basis.terms, self.values, self.privacy_
        )
        return _FORMAT.write(stored)

    def summary(self) -> str:
        """Return the released columns, the number of rows and the budget as text."""
        return repr(self)

    def _columns(self, term: str) -> Array:
        name = f"`{term}`" if term in self.columns else term
        return self._space.columns_of(read_formula(f"~ {name}", self.basis.described, None))

    def _one(self, term: Any, name: str) -> Array:
        if not isinstance(term, str):
            raise ValueError(f"{name} must name columns, got {term!r}")
        L = self._columns(term)
        if L.shape[1] != 1:
            raise ValueError(f"{name} must have one column each, got {term!r} with {L.shape[1]}")
        return L[:, 0]

    def _single(self) -> tuple[str, ...]:
        widths = {one.name: len(one.feature_names) for one in self.basis.described}
        return tuple(name for name, width in widths.items() if width <= 2)

    def _facts(self) -> tuple[tuple[str, str], ...]:
        data, made = self.privacy_.data, self.privacy_
        found = [
            ("columns", ", ".join(self.columns)),
            ("further terms", ", ".join(self.terms)),
            ("rows", str(data.n_rows)),
            ("privacy", made.cost),
            ("rows that count less", self.weighting),
        ]
        return tuple((name, text) for name, text in found if text)

    @property
    def weighting(self) -> str:
        """The released share of the rows that count less, in words; or ""."""
        share, noise = self.released.long_rows, self.released.long_noise
        if noise == 0.0:
            return ""
        return f"{plain_number(100.0 * share, 2)} % (± {plain_number(200.0 * noise, 2)})"

    def __repr__(self) -> str:
        lines = (f"  {name}: {text}" for name, text in self._facts())
        return "\n".join(["Second moments, released", *lines])

    def _repr_html_(self) -> str:
        return card("Second moments, released", self._facts())


_FORMAT = Format("dpglm moments", 1, _Stored)


def basis_facts(basis: MomentBasis) -> tuple[PublicFact, ...]:
    """Return the schema, the columns and the terms as declared facts, for a certificate."""
    return (
        *schema_facts(basis.schema),
        PublicFact("columns", list(basis.columns), "declared"),
        PublicFact("terms", list(basis.terms), "declared"),
    )


@checked
def load_moments(path: str | os.PathLike[str]) -> Moments:
    """Read moments from a file that ``Moments.save`` wrote.

    Parameters
    ----------
    path : path-like
        The file; a ValueError names the place of an error in it.
    """
    with in_file(path):
        stored = _FORMAT.read(load(path))
        basis = basis_of(stored.schema, stored.columns, stored.terms)
        found = Moments(basis, stored.values, stored.certificate)
        if found.privacy_.model_digest != model_digest(stored.values, 0.0):
            raise ValueError("values must be those that the certificate is about")
        # Other bounds or columns would give other estimates from the same values.
        if any(found.privacy_.fact(one.name) != one for one in basis_facts(basis)):
            raise ValueError("schema, columns and terms must be those of the certificate")
        _ = found.released
    return found


# The release of a private table.

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
        "auto" downweights the rows with the largest norms, at most about 1 % and
        ``1 / sqrt(n_rows)`` of them, which reduces the noise several times. "none" gives all rows
        full weight.
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
    squares, first moments, counts of rows by norm, and second moments of standardised rows of
    bounded norm. Models, tests and searches are post-processing.

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
