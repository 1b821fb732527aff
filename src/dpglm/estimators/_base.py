"""What all estimators share: public facts, plan, fit, and the way back to the user's units."""

from __future__ import annotations

import math
import numbers
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, validate_data

from dpglm._validation import check_integer, check_one_of, check_real
from dpglm.data.prepare import ColumnScaling, Matrix, column_scaling, largest_norm, prepare_rows
from dpglm.data.spec import SMALLEST, DataSpec
from dpglm.exceptions import PublicInformationWarning
from dpglm.privacy.budget import ApproximateDP, PrivacyBudget, default_delta
from dpglm.privacy.noise import NoiseSource, SeededNoise, SystemNoise
from dpglm.privacy.unit import Adjacency
from dpglm.problem import Constraint, Problem, Regularizer
from dpglm.report.certificate import PublicFact, certify
from dpglm.solvers.base import Plan, Solver, StepInfo
from dpglm.solvers.registry import SOLVERS
from dpglm.solvers.run import run

__all__ = ["PrivateLinearModel", "PublicFacts"]


@dataclass
class PublicFacts:
    """Facts that a fit treats as public, each with where it came from."""

    facts: list[PublicFact] = field(default_factory=list)

    def declared(self, name: str, value: Any) -> None:
        """Note a fact that the caller declared."""
        self.facts.append(PublicFact(name, value, "declared"))

    def by_relation(self, name: str, value: Any) -> None:
        """Note a fact that neighbouring data sets share, so that releasing it costs nothing."""
        self.facts.append(PublicFact(name, value, "by relation"))

    def from_data(self, name: str, value: Any, cure: str) -> None:
        """Note a fact that was read off private rows, and warn."""
        self.facts.append(PublicFact(name, value, "from the data"))
        warnings.warn(
            f"{name} was taken from the private data and is treated as public; the privacy "
            f"guarantee does not cover what it reveals. {cure}",
            PublicInformationWarning,
            stacklevel=_frames_to_the_user(),
        )


class PrivateLinearModel(BaseEstimator):
    """Base of the estimators; see the subclasses for the parameters.

    A subclass says what its targets are and which problem is solved; everything that touches
    private rows happens here and below.
    """

    def __init__(
        self,
        *,
        epsilon: float,
        delta: float | Literal["auto"],
        budget: PrivacyBudget | None,
        adjacency: str,
        n_rows: int | None,
        solver: str | Solver,
        row_norm: float | None,
        feature_bounds: tuple[ArrayLike, ArrayLike] | None,
        weight_bound: float | None,
        fit_intercept: bool,
        penalize_intercept: bool,
        regularizer: Regularizer | None,
        constraint: Constraint | None,
        random_state: int | None,
        callback: Callable[[StepInfo], None] | None,
        verbose: int,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.budget = budget
        self.adjacency = adjacency
        self.n_rows = n_rows
        self.solver = solver
        self.row_norm = row_norm
        self.feature_bounds = feature_bounds
        self.weight_bound = weight_bound
        self.fit_intercept = fit_intercept
        self.penalize_intercept = penalize_intercept
        self.regularizer = regularizer
        self.constraint = constraint
        self.random_state = random_state
        self.callback = callback
        self.verbose = verbose

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.non_deterministic = self.random_state is None
        return tags

    def _make_plan(self, spec: DataSpec, problem: Problem) -> Plan:
        solver = self._solver()
        if self.regularizer is not None and not isinstance(self.regularizer, Regularizer):
            raise ValueError(f"regularizer must be a Regularizer or None, got {self.regularizer!r}")
        if self.constraint is not None and not isinstance(self.constraint, Constraint):
            raise ValueError(f"constraint must be a Constraint or None, got {self.constraint!r}")
        if self.callback is not None and not callable(self.callback):
            raise ValueError(f"callback must be callable or None, got {self.callback!r}")
        problem = Problem(
            problem.loss,
            problem.regularizer if self.regularizer is None else self.regularizer,
            problem.constraint if self.constraint is None else self.constraint,
            penalize_intercept=bool(self.penalize_intercept),
        )
        return solver.plan(problem, self._budget(spec.n_rows), spec, self._adjacency())

    def _solver(self) -> Solver:
        solver = self.solver
        if isinstance(solver, str):
            check_one_of("solver", solver, tuple(SOLVERS))
            solver = SOLVERS[solver]()
        if not isinstance(solver, Solver):
            raise ValueError(f"solver must be a name or a Solver object, got {self.solver!r}")
        return solver

    def _adjacency(self) -> Adjacency:
        return Adjacency(check_one_of("adjacency", self.adjacency, tuple(Adjacency)))

    def _budget(self, n_rows: int) -> PrivacyBudget:
        if self.budget is not None:
            if not isinstance(self.budget, PrivacyBudget):
                raise ValueError(f"budget must be a PrivacyBudget or None, got {self.budget!r}")
            return self.budget
        epsilon = check_real("epsilon", self.epsilon, above=0.0, most=1e6)
        if isinstance(self.delta, str):
            check_one_of("delta", self.delta, ("auto",))
            return ApproximateDP(epsilon, default_delta(n_rows))
        return ApproximateDP(epsilon, check_real("delta", self.delta, least=0.0, below=1.0))

    def _noise(self) -> NoiseSource:
        if self.random_state is None:
            return SystemNoise()
        if isinstance(self.random_state, np.random.RandomState | np.random.Generator):
            raise ValueError(
                "random_state must be None (noise from the operating system) or an integer "
                f"(reproducible, NOT private), got {self.random_state!r}"
            )
        return SeededNoise(check_integer("random_state", self.random_state, least=0))

    def _public_n_rows(self, n_rows: int, facts: PublicFacts) -> int:
        """Return the n that plans and divisors use."""
        if self.n_rows is not None:
            declared = check_integer("n_rows", self.n_rows, least=1)
            if self._adjacency().n_is_public and declared != n_rows:
                raise ValueError(
                    f"n_rows must be the number of rows, {n_rows}, or None, got {declared!r}"
                )
            facts.declared("n_rows", declared)
            return declared
        if self._adjacency().n_is_public:
            facts.by_relation("n_rows", n_rows)
        else:
            facts.from_data("n_rows", n_rows, "Give n_rows= a public (rough) number of rows.")
        return n_rows

    def _scaling(self, n_features: int) -> ColumnScaling | None:
        if self.feature_bounds is None:
            return None
        return column_scaling(self.feature_bounds, n_features)

    def _declared_row_norm(self, n_features: int) -> float | None:
        """Return the row norm that follows from declared facts, if any does."""
        if self.row_norm is not None:
            return check_real("row_norm", self.row_norm, above=0.0)
        return None if self.feature_bounds is None else math.sqrt(n_features)

    def _spec(
        self,
        n_rows: int,
        n_features: int,
        row_norm: float,
        *,
        dtype: str,
        is_sparse: bool,
        weight_bound: float,
        n_outputs: int = 1,
        target_range: tuple[float, float] = (-math.inf, math.inf),
    ) -> DataSpec:
        # Rows that one addition or removal shifts need float64 sums (oracle/rounding.py).
        coarse = (
            dtype == "float32"
            and (is_sparse or self._adjacency().n_is_public)
            and not self._solver().needs_float64
        )
        return DataSpec(
            n_rows=n_rows,
            n_features=n_features,
            n_outputs=n_outputs,
            row_norm=row_norm,
            intercept=row_norm if self.fit_intercept else 0.0,
            dtype="float32" if coarse else "float64",
            sparse=is_sparse,
            weight_bound=weight_bound,
            target_low=target_range[0],
            target_high=target_range[1],
            entry_bound=math.inf if self.feature_bounds is None else 1.0,
        )

    def _planned_spec(
        self, n_rows: int, n_features: int, *, dtype: str, is_sparse: bool, **options: Any
    ) -> DataSpec:
        """Return the facts of data that nobody has seen yet."""
        check_integer("n_rows", n_rows, least=1)
        check_integer("n_features", n_features, least=1)
        row_norm = self._declared_row_norm(n_features)
        if row_norm is None:
            raise ValueError(
                "row_norm or feature_bounds must be given to plan before data, got neither"
            )
        return self._spec(n_rows, n_features, row_norm, dtype=dtype, is_sparse=is_sparse, **options)

    def _weight_bound(self) -> float:
        """Return the declared bound on the weight of a row, before ``sample_weight``."""
        return (
            1.0
            if self.weight_bound is None
            else check_real("weight_bound", self.weight_bound, above=0.0)
        )

    def _validated(self, X: Any, y: Any, **options: Any) -> tuple[Matrix, NDArray[Any]]:
        X, y = validate_data(
            self, X, y, accept_sparse="csr", dtype=[np.float64, np.float32], **options
        )
        if sparse.issparse(X):
            X = _csr(X)
            if not X.has_canonical_format:
                X = X.copy()
                X.sum_duplicates()
            if not np.isfinite(X.data).all():
                raise ValueError("X contains infinity after duplicate entries were added up")
        return X, y

    def _weights(
        self, sample_weight: Any, n_rows: int, facts: PublicFacts
    ) -> tuple[NDArray[np.float64] | None, float]:
        """Check ``sample_weight``, and say which public bound it is held to."""
        if sample_weight is None:
            if self.weight_bound is not None:
                facts.declared("weight_bound", self._weight_bound())
            return None, self._weight_bound()
        try:
            weights = np.asarray(sample_weight, dtype=np.float64)
        except (TypeError, ValueError):
            raise ValueError("sample_weight must be numbers, one for each row") from None
        if isinstance(sample_weight, numbers.Real):
            weights = np.full(n_rows, float(sample_weight))
        if weights.shape != (n_rows,):
            raise ValueError(
                f"sample_weight must have shape ({n_rows},), got shape {weights.shape}"
            )
        if not (np.isfinite(weights).all() and (weights >= 0.0).all()):
            raise ValueError("sample_weight must be finite and at least 0 in every row")
        if not weights.any():
            raise ValueError("sample_weight must not be zero in every row")
        if self.weight_bound is not None:
            facts.declared("weight_bound", self._weight_bound())
            return weights, self._weight_bound()
        bound = float(weights.max())
        facts.from_data("weight_bound", bound, "Give weight_bound= a public bound on the weights.")
        return weights, bound

    def _fit(
        self,
        X: Matrix,
        y: NDArray[Any],
        facts: PublicFacts,
        problem_for: Callable[[DataSpec], Problem],
        *,
        weights: NDArray[np.float64] | None,
        weight_bound: float,
        n_outputs: int = 1,
        target_range: tuple[float, float] = (-math.inf, math.inf),
    ) -> NDArray[np.float64]:
        """Run the plan; return coefficients (columns, outputs) in the user's feature units."""
        self._adjacency(), self._budget(1), self._noise()
        n_features = X.shape[1]
        n_rows = self._public_n_rows(X.shape[0], facts)
        scaling = self._scaling(n_features)
        row_norm = self._declared_row_norm(n_features)
        if row_norm is None:
            largest = largest_norm(X)
            row_norm = largest if largest >= SMALLEST else 1.0
            cure = "Give row_norm= or feature_bounds= from public knowledge."
            facts.from_data("row_norm", row_norm, cure)
        elif self.row_norm is not None:
            facts.declared("row_norm", row_norm)
        if scaling is not None:
            if sparse.issparse(X) and ((scaling.low > 0.0) | (scaling.high < 0.0)).any():
                raise ValueError(
                    "feature_bounds must contain 0 in every column of a sparse X, as its "
                    f"missing entries are zeros, got {self.feature_bounds!r}"
                )
            facts.declared("feature_bounds", [scaling.low.tolist(), scaling.high.tolist()])
        spec = self._spec(
            n_rows,
            n_features,
            row_norm,
            dtype=X.dtype.name,
            is_sparse=sparse.issparse(X),
            weight_bound=weight_bound,
            n_outputs=n_outputs,
            target_range=target_range,
        )
        plan = self._make_plan(spec, problem_for(spec))
        noise = self._noise()
        matrix = X.astype(spec.dtype, copy=False)
        matrix = _csr(matrix) if sparse.issparse(matrix) else matrix
        rows = prepare_rows(matrix, y, spec, scaling, weights)
        solution = run(plan, rows, noise, self._progress())
        self.solution_ = solution
        self.n_iter_ = solution.n_steps
        return self._to_user_units(solution.w.reshape(spec.n_columns, -1), spec, scaling)

    def _certify(self, facts: PublicFacts) -> None:
        self.privacy_ = certify(
            type(self).__name__,
            self.solution_,
            self._noise(),
            tuple(facts.facts),
            self.coef_,
            self.intercept_,
        )

    def _progress(self) -> Callable[[StepInfo], None] | None:
        if self.callback is not None:
            return self.callback
        return _print_step if self.verbose else None

    @staticmethod
    def _to_user_units(
        w: NDArray[np.float64], spec: DataSpec, scaling: ColumnScaling | None
    ) -> NDArray[np.float64]:
        """Coefficients for unscaled columns; the last row is the intercept, also where fixed."""
        if spec.intercept:
            intercept = spec.intercept * w[-1:]
            w = w[:-1]
        else:
            intercept = np.zeros((1, w.shape[1]))
        if scaling is None:
            return np.vstack([w, intercept])
        if spec.sparse:
            return np.vstack([w / scaling.sparse_scale[:, np.newaxis], intercept])
        w = w / scaling.scale[:, np.newaxis]
        return np.vstack([w, intercept - scaling.center @ w])

    def _linear_prediction(self, X: Any) -> NDArray[np.float64]:
        check_is_fitted(self)
        X = validate_data(self, X, accept_sparse="csr", dtype=[np.float64, np.float32], reset=False)
        scaling = self._scaling(self.n_features_in_)
        if scaling is not None:
            X = scaling.clip_matrix(X)
        z: NDArray[np.float64] = np.asarray(X @ self.coef_.T) + self.intercept_
        return z


def _frames_to_the_user() -> int:
    """Count the frames from the caller of this up to the first one outside the library."""
    depth, frame = 0, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals["__name__"].startswith("dpglm."):
        depth, frame = depth + 1, frame.f_back
    return depth + 1


def _csr(X: Any) -> sparse.csr_array:
    return sparse.csr_array(X)


def _print_step(info: StepInfo) -> None:
    sys.stderr.write(
        f"step {info.step}: step size {info.step_size:.3g}, "
        f"noisy gradient norm {info.gradient_norm:.3g}\n"
    )
