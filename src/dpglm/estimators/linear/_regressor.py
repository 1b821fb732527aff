"""What all private regressors share: bounded targets, predictions and scores."""

from __future__ import annotations

import abc
import math
import os
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import RegressorMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from dpglm._all_or_nothing import all_or_nothing
from dpglm.data.collection import as_collection
from dpglm.data.memory.matrix import MatrixRows
from dpglm.data.spec import DataSpec
from dpglm.estimators._private import PublicFacts, warn_of_equal_targets
from dpglm.estimators.linear._base import PrivateLinearModel
from dpglm.estimators.linear._prediction import Output, SquaredErrorTally, r_squared
from dpglm.estimators.linear._targets import BoundedTargets
from dpglm.problem import Problem
from dpglm.solvers.base import Plan
from dpglm.solvers.checkpoint import CheckpointFile
from dpglm.tables.given import as_floats, check_not_missing

__all__ = ["PrivateRegressor"]


class PrivateRegressor(RegressorMixin, PrivateLinearModel):
    """Bounds on the target, and the scaling of targets that they allow."""

    def __init__(self, *, target_bounds: tuple[float, float] | None, **shared: Any) -> None:
        super().__init__(**shared)
        self.target_bounds = target_bounds

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        # With the default epsilon and a few dozen rows, noise rightly drowns the signal.
        tags.regressor_tags.poor_score = True
        return tags

    @abc.abstractmethod
    def _scaled_problem(self, n_rows: int, scale: float) -> Problem:
        """State what is minimised, for targets divided by ``scale``."""

    def _problem(self, spec: DataSpec) -> Problem:
        return self._scaled_problem(spec.n_rows, self._target_transform(*self._planned_bounds())[1])

    def _target_transform(self, low: float, high: float) -> tuple[float, float]:
        """Center and scale of the targets, from their public bounds."""
        return low / 2.0 + high / 2.0, (high / 2.0 - low / 2.0) or 1.0

    def _declared_target_bounds(self) -> tuple[float, float] | None:
        if self.target_bounds is None:
            return None
        try:
            low, high = (float(bound) for bound in self.target_bounds)
        except (TypeError, ValueError):
            low, high = math.nan, math.nan
        if not (math.isfinite(low) and math.isfinite(high) and low <= high):
            raise ValueError(
                "target_bounds must be a pair of finite numbers (low, high) with low <= high, "
                f"got {self.target_bounds!r}"
            )
        return low, high

    def _planned_bounds(self) -> tuple[float, float]:
        bounds = self._declared_target_bounds()
        if bounds is None:
            raise ValueError("target_bounds must be given to plan before data, got None")
        return bounds

    def plan(
        self, n_rows: int, n_features: int, dtype: str = "float64", sparse: bool = False
    ) -> Plan:
        """Say what ``fit`` will release, without seeing a row.

        Parameters
        ----------
        n_rows, n_features : int
            Size of the data.
        dtype : {"float64", "float32"}, default="float64"
            Type of the matrix that ``fit`` will get.
        sparse : bool, default=False
            Whether it will be a sparse matrix.

        Returns
        -------
        Plan
            Events, noise multiplier, steps and expected noise per coefficient. ``fit`` on data
            of that size executes exactly this plan; ``dpglm.report.guidance`` says what to
            expect of it.

        Raises
        ------
        ValueError
            If a parameter is invalid, or ``target_bounds`` is not given, or neither
            ``row_norm`` nor ``feature_bounds`` is.
        """
        spec = self._planned_spec(
            n_rows,
            n_features,
            dtype=dtype,
            is_sparse=sparse,
            weight_bound=self._weight_bound(),
            target_range=self._scaled_range(*self._planned_bounds()),
        )
        return self._make_plan(spec, self._problem(spec))

    def _scaled_range(self, low: float, high: float) -> tuple[float, float]:
        center, scale = self._target_transform(low, high)
        return (low - center) / scale, (high - center) / scale

    @all_or_nothing
    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: ArrayLike | None = None,
        *,
        checkpoint: str | os.PathLike[str] | CheckpointFile | None = None,
    ) -> Self:
        """Fit the model under differential privacy.

        Parameters
        ----------
        X : array_like, sparse matrix or Collection of shape (n, n_features)
            Rows: NumPy, pandas, polars, or SciPy sparse (read as CSR); float32 stays float32.
            Or rows that are not one matrix in memory, with all public facts declared: a large
            memory-mapped array, a torch tensor, Dask, or ``ParquetRows`` and its like, which
            have their own targets and weights.
        y : array_like of shape (n,)
            Targets.
        sample_weight : array_like of shape (n,), optional
            Weights in [0, ``weight_bound``]; larger ones count as ``weight_bound``. Not all zero:
            such rows are refused before anything is spent.
        checkpoint : path-like or CheckpointFile, optional
            File in which the state is kept after each step. If the process is killed, the same
            call goes on from there and spends nothing twice; after the end, it returns the same
            model again until the file is deleted. One of a fit with other parameters or public
            facts is refused.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If a parameter or the data are invalid; nothing is released or spent then.
        PlanMismatchError
            If the checkpoint is of another fit; the message names the fact that differs.

        Notes
        -----
        Privacy: ``privacy_`` says what was spent and which facts were treated as public.
        """
        bounds = self._declared_target_bounds()
        facts = PublicFacts()
        rows = as_collection(X, y, sample_weight)
        if rows is None:
            X, y = self._validated(X, y)
            y = check_not_missing(as_floats("y", y))
        elif bounds is None:
            raise ValueError(
                "target_bounds must be declared for rows that are not one matrix in memory, got "
                "None"
            )
        if bounds is None:
            bounds = float(y.min()), float(y.max())
            cure = "Give target_bounds= from public knowledge."
            facts.from_data("target_bounds", list(bounds), cure)
        else:
            facts.declared("target_bounds", list(bounds))
            warn_of_equal_targets(bounds)
        if rows is None:
            weights, weight_bound = self._weights(sample_weight, X.shape[0], facts)
            rows = MatrixRows(X, y, weights)
        else:
            weight_bound = self._accept(rows, facts)
        scaled_range = self._scaled_range(*bounds)
        center, scale = self._target_transform(*bounds)
        w = self._fit(
            rows,
            facts,
            lambda spec: self._scaled_problem(spec.n_rows, scale),
            targets=BoundedTargets(bounds, center, scale, scaled_range),
            weight_bound=weight_bound,
            checkpoint=checkpoint,
            target_range=scaled_range,
        )
        self.coef_, self.intercept_ = self._in_target_units(w[:-1, 0], float(w[-1, 0]), *bounds)
        self._certify(facts)
        return self

    def _in_target_units(
        self, coef: NDArray[np.float64], intercept: float, low: float, high: float
    ) -> tuple[NDArray[np.float64], float]:
        center, scale = self._target_transform(low, high)
        return scale * coef, scale * intercept + center

    def _mean(self) -> Output:
        """Return what turns linear scores into means of the target: the inverse link."""
        check_is_fitted(self)
        link = self.solution_.plan.problem.loss.link
        if link is None:
            raise AttributeError(f"{self.solution_.plan.problem.loss!r} has no link to predict by")
        return link.inverse

    def predict(self, X: Any) -> Any:
        """Predict the target.

        Parameters
        ----------
        X : array_like, sparse matrix or Collection of shape (n, n_features)
            Rows, of all kinds that ``fit`` takes.

        Returns
        -------
        array of shape (n,)
            Of NumPy; for rows of Dask, of Dask and not yet computed; for a tensor, a tensor where
            that is.
        """
        return self._predicted(X, self._mean())

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return R squared.

        Parameters
        ----------
        X : array_like, sparse matrix or Collection of shape (n, n_features)
            Rows, of all kinds that ``fit`` takes; of public rows, or the score is one more release.
        y : array_like of shape (n,)
            Targets; None for a ``Collection`` that has its own.
        sample_weight : array_like of shape (n,), optional
            Weights.

        Returns
        -------
        float
        """
        rows = self._scored(X, y, sample_weight)
        return r_squared(rows.parts(SquaredErrorTally(self._row_prediction(self._mean()))))
