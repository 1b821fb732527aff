"""PrivateTransformer: private preprocessing with its own budget and certificate."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any, Self, final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.utils import Tags
from sklearn.utils.validation import _check_feature_names_in, check_is_fitted, validate_data

from dpglm._fitting import all_or_nothing
from dpglm._validation import check_real, in_one_line
from dpglm.certificate.certificate import Certificate, certify
from dpglm.data.memory.matrix import MatrixRows
from dpglm.data.rows import Floats
from dpglm.data.spec import DataSpec, GroupBound
from dpglm.estimators._private import PrivateEstimator, PublicFacts
from dpglm.estimators._sklearn import TransformerMixin
from dpglm.estimators.composed._steps import NamedSteps, private_shares
from dpglm.preprocessing.base import Preprocessor
from dpglm.preprocessing.row_map import RowMap
from dpglm.privacy.accounting.accountants import GaussianAccountant
from dpglm.privacy.accounting.calibrate import excess
from dpglm.privacy.accounting.mixture import largest_share
from dpglm.privacy.budget import ApproximateDP, PrivacyBudget
from dpglm.problem import Problem, Squared
from dpglm.solvers.base import Plan, Solution
from dpglm.solvers.composite.preprocessed import NoModel, Preprocessed, PreprocessedMethod
from dpglm.solvers.run import run
from dpglm.tables.given import finite_matrix

__all__ = ["PrivateTransformer"]

# Steps learn from rows alone, so that no loss is ever asked.
_PROBLEM = Problem(Squared())
# Shares must leave something, however little, to the model that is not there.
_ALL = 1.0 - 1e-9
# An exponential mechanism spends down to a fifth of what its mu is worth.
_MOST_FILLING = 5.0


@final
class PrivateTransformer(NamedSteps, TransformerMixin, PrivateEstimator):
    """Private preprocessing with a budget of its own.

    The transformed rows of the public may be published; those of the private rows are as private
    as before, but may be fed to any private estimator, which pays for what it learns.

    Parameters
    ----------
    steps : list of Preprocessor, or of (str, Preprocessor)
        Private steps, such as ``dpglm.preprocessing.Center``, in order.
    shares : mapping from str to float, optional
        Share of the budget (of mu squared) for steps by name, each in (0, 1), together at most
        1. The other steps divide the rest in the proportion of their own rules.

    Attributes
    ----------
    maps_ : tuple of dpglm.preprocessing.RowMap
        What each step learned; released, hence public.
    row_norm_ : float
        Public: the bound to which rows were held while fitting, after the last step, and the
        natural ``row_norm`` of an estimator that comes next.
    privacy_ : dpglm.report.Certificate
        What was spent, on which events, and which facts were treated as public. Its digest is
        that of all matrices and all centers of ``maps_``.
    solution_ : dpglm.solvers.Solution
        The plan that was executed; there are no coefficients in it but zeros.

    Notes
    -----
    ``transform`` maps rows exactly as the learned maps say. Other than ``fit``, it scales no row
    down or up, so a transformed row can be longer than ``row_norm_``: an estimator that is given
    ``row_norm=transformer.row_norm_`` scales such rows down itself.

    Privacy: what leaves are the maps, paid for by ``privacy_``. What an estimator spends on the
    same rows comes on top: epsilons add up (and mu's in squares). ``PrivatePipeline`` has both
    under one budget.

    References
    ----------
    Sun et al. 2023, Algorithm 3, as a transformer and an estimator.

    Examples
    --------
    >>> import numpy as np
    >>> from dpglm import LogisticRegression, PrivateTransformer
    >>> from dpglm.preprocessing import Center
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(0.0, 1.0, size=(20_000, 4))
    >>> y = X[:, 0] > X[:, 1]
    >>> center = PrivateTransformer([Center()], epsilon=0.05, row_norm=2.0).fit(X)
    >>> bool(np.abs(center.transform(X).mean(axis=0)).max() < 0.05)
    True
    >>> model = LogisticRegression(
    ...     epsilon=0.95, classes=[False, True], row_norm=center.row_norm_
    ... ).fit(center.transform(X), y)
    >>> model.score(center.transform(X), y) > 0.9
    True
    """

    steps: Sequence[Any] = field(kw_only=False)
    shares: Mapping[str, float] | None = None

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def plan(self, n_rows: int, n_features: int, dtype: str = "float64") -> Plan:
        """Plan a fit from public parameters, without data.

        Parameters
        ----------
        n_rows, n_features : int
            Size of the data.
        dtype : {"float64", "float32"}, default="float64"
            Type of the matrix that ``fit`` will get.

        Returns
        -------
        Plan
            The plan that ``fit`` on data of that size executes.

        Raises
        ------
        ValueError
            If a parameter is invalid, or neither ``row_norm`` nor ``feature_bounds`` is given.
        """
        row_norm = self._planned_row_norm(n_rows, n_features)
        return self._make_plan(
            self._spec(n_rows, n_features, row_norm, dtype, self._planned_groups(n_rows))
        )

    @all_or_nothing
    def fit(self, X: Any, y: object = None, *, groups: ArrayLike | None = None) -> Self:
        """Learn the maps under differential privacy.

        Parameters
        ----------
        X : array_like or sparse matrix of shape (n, n_features)
            Rows; sparse ones are made dense.
        y : object
            Not used.
        groups : array_like of shape (n,), optional
            Whose each row is; privacy then protects all rows of a group together.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If a parameter or the data are invalid; nothing is released or spent then.

        Notes
        -----
        Privacy: ``privacy_`` says what was spent and which facts were treated as public.
        """
        self._private(), self._adjacency(), self._budget(1)
        noise, ledger = self._noise(), self._ledger()
        X = self._dense(X, reset=True)
        facts = PublicFacts()
        rows = self._in_groups(MatrixRows(X, np.zeros(len(X), X.dtype)), groups, noise)
        n_rows, bound, row_norm, scaling = self._row_facts(rows, facts)
        spec = self._spec(n_rows, X.shape[1], row_norm, X.dtype.name, bound)
        plan = self._make_plan(spec)
        # What no certificate could hold is refused before anything is spent.
        _ = plan.document
        prepared = rows.prepared(spec, scaling, np.asarray)
        self._noted(plan, rows)
        self.solution_ = run(plan, prepared, noise, ledger=ledger)
        self.maps_ = self.solution_.maps
        self._keep_scaling(scaling)
        self.row_norm_ = _method(plan).model.data.row_norm
        self.privacy_ = _certificate(self.solution_, self.maps_, noise, facts)
        return self

    def transform(self, X: Any) -> NDArray[np.floating[Any]]:
        """Map rows, each by itself, without bounding their norms.

        Parameters
        ----------
        X : array_like or sparse matrix of shape (n, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n, n_new_features), or what ``set_output`` asks for
            Dense, of the dtype of ``X`` where that is a floating-point type.
        """
        check_is_fitted(self, "maps_")
        rows = self._dense(X, reset=False)
        scaling = self._fitted_scaling()
        if scaling is not None:
            rows = scaling.apply(rows)
        for learned in self.maps_:
            rows = learned.transform(rows)
        return rows

    def get_feature_names_out(self, input_features: ArrayLike | None = None) -> NDArray[Any]:
        """Name the columns that come out.

        Parameters
        ----------
        input_features : array_like of str, optional
            Names of the columns that go in; default: those that ``fit`` saw, else ``x0``, ...

        Returns
        -------
        ndarray of str
            The same names if every step keeps the columns; ``privatetransformer0``, ... if one
            mixes them.
        """
        check_is_fitted(self, "maps_")
        names: NDArray[Any] = _check_feature_names_in(self, input_features)
        if all(learned.matrix.ndim == 1 for learned in self.maps_):
            return names
        count = _method(self.solution_.plan).model.data.n_features
        return np.array([f"privatetransformer{i}" for i in range(count)], dtype=object)

    def _dense(self, X: Any, *, reset: bool) -> Floats:
        def read(**options: Any) -> tuple[Any, None]:
            return validate_data(self, X, reset=reset, **options), None

        rows, _ = finite_matrix(X, read)
        is_sparse: bool = sparse.issparse(rows)
        dense: Floats = rows.toarray() if is_sparse else rows
        return dense

    def _spec(
        self,
        n_rows: int,
        n_features: int,
        row_norm: float,
        dtype: str,
        groups: GroupBound | None,
    ) -> DataSpec:
        return DataSpec(
            n_rows=n_rows,
            n_features=n_features,
            row_norm=row_norm,
            intercept=row_norm,
            dtype=self._stored_type(dtype, groups),
            entry_bound=math.inf if self.feature_bounds is None else 1.0,
            groups=groups,
        )

    def _private(self) -> list[tuple[str, Preprocessor]]:
        steps = self._checked()
        for name, step in steps:
            if not isinstance(step, Preprocessor):
                raise ValueError(
                    f"steps must be Preprocessors, got {in_one_line(step)} as {name!r}"
                )
        return steps

    def _make_plan(self, spec: DataSpec) -> Plan:
        steps, budget = self._private(), self._budget(spec.n_units)
        preprocessors = [step for _, step in steps]
        given = private_shares(steps, self.shares)

        def planned(shares: Sequence[float | None], budget: PrivacyBudget = budget) -> Plan:
            solver = Preprocessed(preprocessors, NoModel(), shares)
            return solver.plan(_PROBLEM, budget, spec, self._adjacency())

        # What a step's rule asks for depends on the rows that come to it: plan once to see them.
        draft = _method(planned([1.0 / (len(steps) + 1)] * len(steps)))
        mu = budget.gdp_mu() / self._adjacency().sum_sensitivity(spec.reach())
        specs = [spec, *(step.output for step in draft.steps)]
        wanted = [
            step.share(before, mu) for step, before in zip(preprocessors, specs[:-1], strict=True)
        ]
        shares = _divided(given, wanted)
        return _filled(planned(shares), lambda larger: planned(shares, larger))


def _method(plan: Plan) -> PreprocessedMethod:
    assert isinstance(plan.method, PreprocessedMethod)
    return plan.method


def _filled(plan: Plan, planned: Callable[[PrivacyBudget], Plan]) -> Plan:
    """Plan for a larger budget, if steps that choose at random spend less than they were given.

    Privacy: what is returned is within the budget of ``plan``, which is checked.
    """
    if GaussianAccountant().supports(plan.event, plan.adjacency):
        return plan
    limit = plan.budget.as_approximate_dp()
    over = excess(plan.event, plan.adjacency, limit)
    larger = largest_share(
        lambda share: planned(ApproximateDP(share * limit.epsilon, limit.delta)),
        lambda one: excess(one.event, plan.adjacency, limit),
        start=math.exp(min(-over, math.log(_MOST_FILLING))),
        most=_MOST_FILLING,
    )
    return dataclasses.replace(larger or plan, budget=limit)


def _divided(given: Sequence[float | None], wanted: Sequence[float]) -> list[float | None]:
    """Divide the whole: what is given, and the rest in proportion to what is wanted.

    Examples
    --------
    >>> [round(share, 6) for share in _divided([0.6, None, None], [0.1, 0.03, 0.01])]
    [0.6, 0.3, 0.1]
    """
    named = [share for share in given if share is not None]
    rest = 1.0 - sum(check_real("shares", share, above=0.0, most=1.0) for share in named)
    pairs = list(zip(given, wanted, strict=True))
    others = sum(want for share, want in pairs if share is None)
    if rest < -1e-9 or (rest <= 0.0 and others > 0.0):
        raise ValueError(f"shares must leave something to the other steps, got {named!r}")
    unit = rest / others if others > 0.0 else 0.0
    shares = [want * unit if share is None else share for share, want in pairs]
    # A step whose rule asks for nothing releases nothing.
    return [_ALL * share if share > 0.0 else None for share in shares]


def _certificate(
    solution: Solution, maps: Sequence[RowMap], noise: Any, facts: PublicFacts
) -> Certificate:
    """Certify a run of ``Preprocessed`` whose model is none."""
    matrices, centers = (
        np.concatenate([np.ravel(values) for values in all_values])
        for all_values in ([one.matrix for one in maps], [one.center for one in maps])
    )
    return certify("PrivateTransformer", solution, noise, tuple(facts.facts), matrices, centers)
