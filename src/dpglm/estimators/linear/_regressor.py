"""What all private regressors share: bounded targets, predictions and scores."""

from __future__ import annotations

import abc
import contextlib
import functools
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from dpglm.data.collection import Collection
from dpglm.data.prediction import Output, RowPrediction
from dpglm.data.spec import DataSpec
from dpglm.estimators._predictor import Predictor
from dpglm.estimators._private import PublicFacts, warn_of_equal_targets
from dpglm.estimators._sklearn import RegressorMixin
from dpglm.estimators.linear._base import PrivateLinearModel
from dpglm.estimators.linear._tallies import SquaredErrorTally, r_squared
from dpglm.estimators.linear._targets import BoundedTargets, Task
from dpglm.problem import Link, Loss, NoPenalty, Problem, Regularizer
from dpglm.solvers.base import Plan
from dpglm.tables.given import as_floats, check_not_missing
from dpglm.tables.units import LinearUnits

__all__ = ["PrivateRegressor"]


class PrivateRegressor(RegressorMixin, PrivateLinearModel):
    """Bounds on the target, and the standardization of targets that they allow.

    Parameters
    ----------
    target_bounds : pair of float, optional
        Public lower and upper bound of the target; targets are clipped to them. Default: the
        extremes in the data, with a warning; for proportions 0 and 1, and other values are refused.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
        Coefficients, in the units of X and y.
    intercept_ : float
        Intercept.

    Notes
    -----
    Privacy: targets are clipped to ``target_bounds`` and scaled to [-1, 1]; the releases are those
    of the solver's plan, listed in ``privacy_``.

    References
    ----------
    Arora et al. 2022, Algorithm 1; Song, Steinke, Thakkar and Thakurta 2021, Lemma 5.1.
    """

    # Not the mixin's, which knows rows in memory only.
    score = Predictor.score

    target_bounds: tuple[float, float] | None = None

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        # With the default epsilon and a few dozen rows, noise rightly drowns the signal.
        tags.regressor_tags.poor_score = True
        with contextlib.suppress(ValueError):  # of a loss that fit refuses
            tags.target_tags.positive_only = self._loss(1.0).target.bounds[0] == 0.0
        return tags

    @abc.abstractmethod
    def _loss(self, scale: float) -> Loss:
        """Return the loss of targets divided by ``scale``."""

    def _penalty(self, n_rows: int, scale: float) -> Regularizer:
        """Return the penalty on coefficients for targets divided by ``scale``."""
        return NoPenalty()

    def _link(self) -> Link:
        loss = self._loss(1.0)
        if loss.link is None:
            raise ValueError(f"loss must have a link that means follow from, got {loss!r}")
        return loss.link

    def _problem(self, spec: DataSpec) -> Problem:
        return self._problem_for(self._planned_bounds(), spec)

    def _problem_for(self, bounds: tuple[float, float], spec: DataSpec) -> Problem:
        _, scale = self._standardization(*bounds)
        return Problem(self._loss(scale), self._penalty(spec.n_rows, scale))

    def _standardization(self, low: float, high: float) -> tuple[float, float]:
        """Shift and scale of the targets, from their public bounds."""
        return self._link().standardization(low, high)

    def _standardizes_as(self, other: PrivateLinearModel) -> bool:
        if not isinstance(other, PrivateRegressor):
            return False
        return self._standardization(1.0, 4.0) == other._standardization(1.0, 4.0)

    def _declared_target_bounds(self) -> tuple[float, float] | None:
        target = self._loss(1.0).target
        if self.target_bounds is None:
            return target.bounds if all(map(math.isfinite, target.bounds)) else None
        try:
            low, high = (float(bound) for bound in self.target_bounds)
        except (TypeError, ValueError):
            low, high = math.nan, math.nan
        if not (math.isfinite(low) and math.isfinite(high) and low <= high):
            raise ValueError(
                "target_bounds must be a pair of finite numbers (low, high) with low <= high, "
                f"got {self.target_bounds!r}"
            )
        if not target.admits([low, high]).all():
            raise ValueError(
                f"target_bounds must be {target.words}, as targets are, got {self.target_bounds!r}"
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
        """Plan a fit from public parameters, without data.

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
            Releases, noise, steps and expected noise per coefficient. ``fit`` on data of that
            size executes exactly this plan; ``dpglm.report.guidance`` predicts its accuracy.

        Raises
        ------
        ValueError
            If a parameter is invalid, or ``target_bounds`` is not given, or neither
            ``row_norm`` nor ``feature_bounds`` is.
        """
        return self._planned(
            n_rows,
            n_features,
            dtype=dtype,
            is_sparse=sparse,
            weight_bound=self._weight_bound(),
            target_range=self._targets(*self._planned_bounds()).scaled_bounds,
        )

    def _targets(self, low: float, high: float) -> BoundedTargets:
        shift, scale = self._standardization(low, high)
        scaled_bounds = (low - shift) / scale, (high - shift) / scale
        return BoundedTargets(
            (low, high), shift, scale, scaled_bounds, strict=self.target_bounds is None
        )

    def _task(self, y: NDArray[Any] | None, facts: PublicFacts) -> Task:
        numbers = None if y is None else check_not_missing(as_floats("y", y))
        bounds = self._declared_target_bounds()
        if bounds is not None:
            facts.declared("target_bounds", list(bounds))
            warn_of_equal_targets(bounds)
        elif numbers is None:
            raise ValueError(
                "target_bounds must be declared for rows that are not one matrix in memory, got "
                "None"
            )
        else:
            target = self._loss(1.0).target
            if not target.admits(numbers).all():
                raise ValueError(f"y must be {target.words} for a {type(self).__name__}")
            bounds = float(numbers.min()), float(numbers.max())
            cure = "Give target_bounds= from public knowledge."
            facts.from_data("target_bounds", list(bounds), cure)
        targets = self._targets(*bounds)
        problem = functools.partial(self._problem_for, bounds)
        return Task(targets, problem, target_range=targets.scaled_bounds)

    def _model(self, w: NDArray[np.float64]) -> tuple[NDArray[Any], float]:
        return w[:-1, 0], float(w[-1, 0])

    def _target_units(self, task: Task, n_features: int) -> LinearUnits:
        targets = task.targets
        assert isinstance(targets, BoundedTargets)
        factor, offset = self._link().original_scores(targets.center, targets.scale)
        scaled = sparse.csr_array(sparse.diags_array(np.full(n_features + 1, factor)))
        return LinearUnits(scaled, offset)

    def _classifies(self) -> bool:
        return False

    def _answer(self) -> Output:
        check_is_fitted(self)
        link = self.solution_.plan.problem.loss.link
        assert link is not None
        return link.inverse

    def _score_of(self, rows: Collection, predict: RowPrediction) -> float:
        return r_squared(rows.parts(SquaredErrorTally(predict)))
