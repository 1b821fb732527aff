"""Base of the private regressors: bounded targets, predictions and scores."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from dpglm._validation import check_bool, check_real
from dpglm.data.collection import Collection, Output, RowPrediction, TargetMap
from dpglm.data.rows import DataSpec, check_target_bounds
from dpglm.estimators._parameters import RegressorMixin
from dpglm.estimators._predictor import (
    BoundedTargets,
    FitTask,
    Offsets,
    Predictor,
    as_bounds,
    target_numbers,
)
from dpglm.estimators._private import PublicFacts, warn_of_equal_targets
from dpglm.estimators.linear._base import PrivateLinearModel
from dpglm.estimators.linear.classifiers import r_squared, squared_errors
from dpglm.problem import (
    L2,
    ConvexScalarLoss,
    IdentityLink,
    Link,
    LogLink,
    Loss,
    NoPenalty,
    Problem,
    Regularizer,
    Squared,
    WithOffset,
)
from dpglm.solvers.base import Plan
from dpglm.tables.encoding import LinearUnits
from dpglm.tables.named import OffsetColumn


class PrivateRegressor(RegressorMixin, PrivateLinearModel):
    """Base of the regressors: bounds on the target, and its standardization.

    Parameters
    ----------
    target_bounds : pair of float, optional
        Public lower and upper bound of the target; targets are clipped to them. Default: the
        extremes in the data, with a warning. Proportions have the bounds 0 and 1, and values
        beyond these raise an error.
    offset_bounds : pair of float, optional
        Public lower and upper bound of offsets (of logarithms of exposures), which are clipped to
        them and centred at their midpoint. Required for ``inference``, and by solvers with noise
        that depends on the largest prediction.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
        Coefficients, in the units of X and y.
    intercept_ : float
        Intercept.

    Notes
    -----
    Privacy: targets are clipped to ``target_bounds`` and, if the loss allows it, scaled: to [-1,
    1], or with a log link divided by the upper bound. The releases are those of the solver's plan,
    listed in ``privacy_``.

    References
    ----------
    Arora et al. 2022, Algorithm 1; Song, Steinke, Thakkar and Thakurta 2021, Lemma 5.1.
    """

    # The mixin's score takes rows in memory only.
    score = Predictor.score

    target_bounds: tuple[float, float] | None = None
    offset_bounds: tuple[float, float] | None = None

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        # With the default epsilon and a few dozen rows, noise dominates.
        tags.regressor_tags.poor_score = True
        with contextlib.suppress(ValueError):  # fit refuses the loss
            tags.target_tags.positive_only = self._loss(1.0).target.bounds[0] == 0.0
        return tags

    def _loss(self, scale: float) -> Loss:
        """Return the loss of targets divided by ``scale``: by default least squares."""
        return Squared()

    def _penalty(self, n_rows: int, scale: float) -> Regularizer:
        """Return the penalty on coefficients for targets divided by ``scale``."""
        return NoPenalty()

    def _link(self) -> Link:
        loss = self._loss(1.0)
        if loss.link is None:
            raise ValueError(f"loss must have a link function, got {loss!r}")
        return loss.link

    def _problem(self, spec: DataSpec) -> Problem:
        return self._problem_for(self._planned_bounds(), spec)

    def _problem_for(self, bounds: tuple[float, float], spec: DataSpec) -> Problem:
        _, scale = self._standardization(*bounds)
        return Problem(self._loss(scale), self._penalty(spec.n_rows, scale))

    def _standardization(self, low: float, high: float) -> tuple[float, float]:
        """Return the shift and scale of the targets from their public bounds."""
        has_intercept = check_bool("fit_intercept", self.fit_intercept)
        return self._link().standardization(low, high, intercept=has_intercept)

    def _standardizes_as(self, other: PrivateLinearModel) -> bool:
        if not isinstance(other, PrivateRegressor):
            return False
        return self._standardization(1.0, 4.0) == other._standardization(1.0, 4.0)

    def _declared_target_bounds(self) -> tuple[float, float] | None:
        target = self._loss(1.0).target
        if self.target_bounds is None:
            return target.bounds if all(map(math.isfinite, target.bounds)) else None
        low, high = as_bounds("target_bounds", self.target_bounds)
        if not target.admits([low, high]).all():
            raise ValueError(f"target_bounds must be {target.words}, got {self.target_bounds!r}")
        return low, high

    def _planned_bounds(self) -> tuple[float, float]:
        bounds = self._declared_target_bounds()
        if bounds is None:
            raise ValueError("target_bounds must be given for a plan, got None")
        return bounds

    def plan(
        self,
        n_rows: int,
        n_features: int,
        dtype: str = "float64",
        sparse: bool = False,
        offset: bool = False,
    ) -> Plan:
        """Plan a fit from public parameters, without data.

        Parameters
        ----------
        n_rows, n_features : int
            Size of the data.
        dtype : {"float64", "float32"}, default="float64"
            Type of the matrix that ``fit`` will get.
        sparse, offset : bool, default=False
            Whether it will be a sparse matrix, and ``fit`` get an offset or an exposure.

        Returns
        -------
        Plan
            Releases, noise, steps and expected noise per coefficient. ``fit`` on data of that
            size executes this plan; ``dpglm.report.guidance`` predicts its accuracy.

        Raises
        ------
        ValueError
            If a parameter is invalid, or ``target_bounds`` is not given, or neither
            ``row_norm`` nor ``feature_bounds`` is.
        """
        task = self._task_of(self._planned_bounds())
        if offset:
            shifted = functools.partial(_shifted, task.problem, self._offset_range())
            task = dataclasses.replace(task, problem=shifted)
        return self._planned(n_rows, n_features, task, dtype, sparse)

    def _task_of(self, bounds: tuple[float, float]) -> FitTask:
        """Return the task of targets within public bounds."""
        low, high = bounds
        check_target_bounds(low, high)
        shift, scale = self._standardization(low, high)
        scaled = (low - shift) / scale, (high - shift) / scale
        kind, strict, numbers = self._loss(1.0).target, self.target_bounds is None, self._numbers()
        targets = BoundedTargets((low, high), shift, scale, scaled, kind, strict, numbers)
        problem = functools.partial(self._problem_for, bounds)
        return FitTask(targets, problem, target_range=scaled)

    def _numbers(self) -> TargetMap:
        """Return the map from targets to numbers."""
        return target_numbers

    def _task(self, y: NDArray[Any] | None, facts: PublicFacts) -> FitTask:
        numbers = None if y is None else self._numbers()(y)
        bounds = self._declared_target_bounds()
        if bounds is not None:
            facts.declared("target_bounds", list(bounds))
            warn_of_equal_targets(bounds)
        elif numbers is None:
            raise ValueError("target_bounds must be declared for rows not in memory, got None")
        else:
            target = self._loss(1.0).target
            if not target.admits(numbers).all():
                raise ValueError(f"y must be {target.words} for a {type(self).__name__}")
            bounds = float(numbers.min()), float(numbers.max())
            remedy = "Give target_bounds= from public knowledge."
            facts.from_data("target_bounds", list(bounds), remedy)
        return self._task_of(bounds)

    def _with_offset(self, task: FitTask, facts: PublicFacts, column: OffsetColumn) -> FitTask:
        if column.kind == "exposure" and not isinstance(self._link(), LogLink):
            raise ValueError("exposure must be None for a link other than the logarithm")
        offsets = self._offset_range()
        if self.offset_bounds is not None:
            facts.declared("offset_bounds", list(offsets[:2]))
        targets = task.targets
        assert isinstance(targets, BoundedTargets)
        return dataclasses.replace(
            task,
            targets=dataclasses.replace(targets, offsets=offsets),
            problem=functools.partial(_shifted, task.problem, offsets),
        )

    def _offset_range(self) -> Offsets:
        """Check that rows may have offsets; return their range."""
        if isinstance(self._link(), IdentityLink):
            raise ValueError("offset must be None for an identity link: subtract it from y")
        loss = self._loss(1.0)
        if not isinstance(loss, ConvexScalarLoss):
            raise ValueError(f"offset must be None for a loss that is not convex, got {loss!r}")
        if self.offset_bounds is None:
            return -math.inf, math.inf, 0.0
        low, high = as_bounds("offset_bounds", self.offset_bounds)
        return low, high, low / 2.0 + high / 2.0 if self.fit_intercept else 0.0

    def _model(self, w: NDArray[np.float64]) -> tuple[NDArray[Any], float]:
        return w[:-1, 0], float(w[-1, 0])

    def _target_units(self, task: FitTask, n_features: int) -> LinearUnits:
        targets = task.targets
        assert isinstance(targets, BoundedTargets)
        factor, offset = self._link().original_scores(targets.center, targets.scale)
        scaled = sparse.csr_array(sparse.diags_array(np.full(n_features + 1, factor)))
        return LinearUnits(scaled, offset - targets.offsets[2])

    def _classifies(self) -> bool:
        return False

    def _answer(self) -> Output:
        check_is_fitted(self)
        link = self.solution_.plan.problem.loss.link
        assert link is not None
        return link.inverse

    def _score_of(self, rows: Collection, predict: RowPrediction) -> float:
        return r_squared(rows.parts(functools.partial(squared_errors, predict, self._numbers())))


def _shifted(make: Callable[[DataSpec], Problem], offsets: Offsets, spec: DataSpec) -> Problem:
    """Return a problem of rows with offsets, by a bound on their magnitude once centred."""
    (low, high, center), problem = offsets, make(spec)
    # A margin covers rounding.
    bound = max(high - center, center - low) * (1.0 + 1e-6)
    assert isinstance(problem.loss, ConvexScalarLoss)
    return dataclasses.replace(problem, loss=WithOffset(problem.loss, bound))


class PenalizedRegressor(PrivateRegressor):
    """Base of the regressors with a penalty.

    Parameters
    ----------
    alpha : float, default=1.0
        Strength of the penalty, at least 0.
    """

    alpha: float = 1.0

    def _strength(self) -> float:
        return check_real("alpha", self.alpha, least=0.0)

    def _penalty(self, n_rows: int, scale: float) -> Regularizer:
        return L2(self._strength())
