"""Base of the linear models: plan, fit, and coefficients in the user's units."""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted, validate_data

from dpglm._calls import is_watched, shown, stage
from dpglm._validation import (
    check_bool,
    check_integer,
    check_kind,
    check_one_of,
    check_real,
    in_one_line,
)
from dpglm.certificate.certificate import certify, schema_facts
from dpglm.certificate.statement import WHERE, WHERE_IN_WORDS
from dpglm.data.collection import (
    Collection,
    MatrixRows,
    Output,
    Preparation,
    RowPrediction,
    as_collection,
)
from dpglm.data.prepare import Matrix, column_units
from dpglm.data.rows import DataSpec, GroupBound
from dpglm.estimators._predictor import NO_OFFSET, Finish, FitData, FitTask, Predictor
from dpglm.estimators._private import (
    PrivateEstimator,
    PublicFacts,
    listener,
    warn_of_noise,
    warn_of_prior,
    warn_of_slow_sums,
    warn_of_unknown,
    warn_of_weights,
)
from dpglm.exceptions import PlanMismatchError
from dpglm.inference.estimates import Estimates, check_inference, scale_of_dispersions
from dpglm.inference.inference import Inference, LinearScores, checked_features
from dpglm.ledger.ledger import as_ledger
from dpglm.privacy.budget import Adjacency, Unit
from dpglm.privacy.noise import noise_source
from dpglm.problem import Constraint, Problem, Regularizer
from dpglm.solvers import SOLVERS
from dpglm.solvers.auto import Auto
from dpglm.solvers.base import Plan, Solver, StepInfo
from dpglm.solvers.checkpoint import CheckpointFile
from dpglm.solvers.run import run
from dpglm.solvers.second_order.random_intercepts import RandomIntercepts
from dpglm.solvers.uncertainty import Covariance, Uncertainty
from dpglm.tables.encoding import ColumnScaling, LinearUnits, read_feature_bounds
from dpglm.tables.given import (
    NO_WHERE,
    as_column,
    as_weights,
    check_not_missing,
    finite_matrix,
    series_name,
)
from dpglm.tables.named import OffsetColumn, stated_offset
from dpglm.tables.schema import Schema

NO_INFERENCE = "inference_ requires a fit with inference=True or inference='robust'"
# A checkpoint identifies its fit by the plan and by all parameters but these. The first are parts
# of the plan; the second do not change the model.
_IN_THE_PLAN = frozenset({"adjacency", "budget", "delta", "epsilon", "solver"})
_WITHOUT_EFFECT = frozenset({"callback", "ledger", "random_state", "verbose"})


class PrivateLinearModel(PrivateEstimator, Predictor, own_first=False):
    """Base of the linear models.

    A subclass defines its targets and its problem, and does not read private rows.

    Parameters
    ----------
    solver : str or Solver, default="auto"
        A name in ``dpglm.solvers.SOLVERS`` or a solver object; "auto" chooses by public
        parameters, see ``dpglm.solvers.choose``.
    inference : bool or "robust", default=False
        Whether to compute ``inference_``, with standard errors, intervals and tests: True assumes
        that the model is right, "robust" does not (sandwich covariance). The statistics for them
        are released within the same budget; if that is impossible, the fit is refused before
        anything is spent.
    prior_scales : float or array-like of shape (n_features,), optional
        Largest prior standard deviation of each coefficient, above 0, per unit of the columns of
        the fit (with a schema or formula: of the encoded columns). A prior keeps intervals finite
        if rows contain no information about a coefficient. Default: 2.5 per standard deviation of
        the column, as estimated from released second moments, and at most 5 per half of its
        declared range; with a schema at most 2.5 for a category. In least squares the unit is a
        standard deviation of the target. Only with ``inference``.
    weighting : {"auto", "none"}, default="auto"
        "auto" downweights rows with a large norm as far as this is necessary to limit noise. If
        the model is wrong, intervals are then for the minimizer of the weighted loss. "none"
        gives all rows full weight, with more noise. Only with ``inference``.
    weight_bound : float, optional
        Public bound on ``sample_weight``; default 1, or the largest weight with a warning. Rows
        without weights have weight 1, or ``weight_bound`` if that is smaller.
    fit_intercept : bool, default=True
        Whether to fit an intercept; without one ``intercept_`` is 0, and neither columns nor
        targets are centred.
    penalize_intercept : bool, default=False
        Whether penalty and constraint include the intercept.
    regularizer : Regularizer, optional
        Replaces the penalty that the other parameters define. Penalties act on the coefficients
        of the scaled columns.
    constraint : Constraint, optional
        Feasible set of the coefficients of the scaled columns.
    callback : callable, optional
        Called after each step with its ``dpglm.solvers.StepInfo``, which is public.
    verbose : int, default=0
        1 shows progress and remaining time: a bar of rich in a terminal, or in a notebook with
        ipywidgets, else a line per step on standard error. 2 always writes lines. If only the last
        iterate is released, lines contain counts only.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
        Coefficients, in the units of X (and of y for a regressor).
    intercept_ : float or ndarray
        Intercepts.
    n_iter_ : int
        Number of steps.
    units_ : LinearUnits
        The map of coefficients and covariances from the prepared rows to the user's units: from
        ``solution_.w`` to ``coef_`` and ``intercept_``.
    inference_ : dpglm.inference.Inference
        Standard errors, intervals and tests, with ``inference`` only; in the units of the table
        for rows with a schema (``ParquetRows``).
    """

    solver: str | Solver = "auto"
    inference: bool | Literal["robust"] = False
    # Whether fits have errors without ``inference``: those of additive models.
    _needs_errors = False
    _takes_sparse = True
    prior_scales: ArrayLike | None = None
    weighting: Literal["auto", "none"] = "auto"
    weight_bound: float | None = None
    fit_intercept: bool = True
    penalize_intercept: bool = False
    regularizer: Regularizer | None = None
    constraint: Constraint | None = None
    callback: Callable[[StepInfo], None] | None = None
    verbose: int = 0

    @abc.abstractmethod
    def _problem(self, spec: DataSpec) -> Problem:
        """Return the problem before ``regularizer`` and ``constraint`` replace its own."""

    @abc.abstractmethod
    def _task(self, y: NDArray[Any] | None, facts: PublicFacts) -> FitTask:
        """Return the learning task; ``y`` is None unless targets are in memory."""

    def _standardizes_as(self, other: PrivateLinearModel) -> bool:
        """Whether another estimator standardizes targets in the same way."""
        return True

    def _with_offset(self, task: FitTask, facts: PublicFacts, column: OffsetColumn) -> FitTask:
        """Return the task of rows with offsets."""
        raise ValueError(NO_OFFSET)

    def _offset_in(
        self, rows: Collection, offset: Any, exposure: Any
    ) -> tuple[Collection, OffsetColumn | None]:
        """Return rows with the given offsets, or their own, and the column of these."""
        self._check_offset(offset, exposure)
        if offset is None and exposure is None:
            return rows, rows.offset_column if rows.has_offset else None
        if rows.has_offset:
            raise ValueError("offset and exposure must be None for rows with offsets")
        column, values = stated_offset(offset, exposure)
        return rows.with_offset(values), column

    @abc.abstractmethod
    def _model(self, w: NDArray[np.float64]) -> tuple[NDArray[np.float64], Any]:
        """Return ``coef_`` and ``intercept_`` of ``w``, of shape (n_features + 1, outputs)."""

    def _target_units(self, task: FitTask, n_features: int) -> LinearUnits | None:
        """Return the map of coefficients that undoes the standardization of targets, if any."""
        return None

    def _fit(self, data: FitData, finish: Finish | None = None) -> None:
        facts, target = PublicFacts(), series_name(data.y)
        rows = as_collection(data.X, data.y, data.sample_weight)
        if rows is None:
            # Whether there is a row may be private.
            is_known = data.where is None and Adjacency(self.adjacency).n_is_public
            data = data if data.where is None else data.chosen()
            X, y = self._validated(data.X, data.y, ensure_min_samples=int(is_known))
            task = self._task(y, facts)
            own = data.sample_weight
            weights = None if own is None else as_weights(own, X.shape[0])
            rows = MatrixRows(X, y, weights)
        else:
            if data.where is not None:
                raise ValueError(NO_WHERE)
            task, weights = self._task(None, facts), None
            self._accept(rows, facts)
        weight_bound = self._weight_bound()
        if self.weight_bound is not None:
            facts.declared("weight_bound", weight_bound)
        elif weights is not None:
            weight_bound = float(weights.max()) or 1.0
            remedy = "Give weight_bound= from public knowledge."
            facts.from_data("weight_bound", weight_bound, remedy)
        elif rows.is_weighted:
            raise ValueError(
                "weight_bound must be declared for weights that are not in memory, got None"
            )
        rows, column = self._offset_in(rows, data.offset, data.exposure)
        if column is not None:
            task = self._with_offset(task, facts, column)
            facts.declared(column.kind, column.name or True)
        if data.where is not None:
            assert isinstance(rows, MatrixRows)
            rows = rows.spread(data.where.counts)
            facts.declared(WHERE, WHERE_IN_WORDS)
        target = target or rows.target_name
        if target is not None:
            facts.declared("target", target)
        w = self._run(rows, data, facts, task, weight_bound)
        self.coef_, self.intercept_ = self._model(w)
        known = tuple(facts.facts)
        known = known if finish is None else finish(self, known)
        noise = noise_source(self.random_state)
        self.privacy_ = certify(
            type(self).__name__, self.solution_, noise, known, self.coef_, self.intercept_
        )
        if self._uncertainty is not None:
            inference = vars(self)["inference_"] = self._inference(self._uncertainty, rows.schema)
            warn_of_unknown(inference)
            if finish is None:
                warn_of_prior(inference)

    @property
    def inference_(self) -> Inference:
        """Standard errors, intervals and tests, with ``inference`` only."""
        check_is_fitted(self)
        if "inference_" not in vars(self):
            raise AttributeError(NO_INFERENCE)
        inference: Inference = vars(self)["inference_"]
        return inference

    def _inference(self, uncertainty: Uncertainty, schema: Schema | None) -> Inference:
        size, seen = self.n_features_in_, getattr(self, "feature_names_in_", None)
        names = None if seen is None else tuple(map(str, seen))
        estimates = Estimates.of(
            uncertainty, self.units_, names or [f"x{place}" for place in range(size)]
        )
        if estimates.dispersion is not None:
            dispersion = estimates.dispersion * scale_of_dispersions(self.privacy_)
            estimates = dataclasses.replace(estimates, dispersion=dispersion)
        # A partial function, which can be pickled.
        features = functools.partial(checked_features, size, names, self._fitted_scaling())
        found = Inference(estimates, self.privacy_, LinearScores(features, estimates))
        return found if schema is None else found.in_units(schema.units)

    def _covariance(self) -> Covariance | None:
        """Read the parameter ``inference``."""
        if isinstance(self.inference, str) and self.inference == "robust":
            return "robust"
        check_kind("inference", self.inference, bool | np.bool_, "True, False or 'robust'")
        return "model" if self.inference else None

    def _prior_scales(self, spec: DataSpec, schema: Schema | None) -> tuple[float, ...] | None:
        """Return the prior's scales for prepared columns, declared or by the rows' schema."""
        if self.prior_scales is None:
            return None if schema is None else schema.encoding.prior_scales
        try:
            scales = np.broadcast_to(np.asarray(self.prior_scales, np.float64), spec.n_features)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"prior_scales must be a number or {spec.n_features} numbers above 0, got "
                f"{in_one_line(self.prior_scales)}"
            ) from error
        if not (scales > 0.0).all():
            raise ValueError(f"prior_scales must be above 0, got {in_one_line(self.prior_scales)}")
        if self.feature_bounds is not None:
            scaling = read_feature_bounds(self.feature_bounds, spec.n_features)
            scales = scales * scaling.scale(centered=spec.centers_columns)
        return tuple(scales.tolist())

    def _indicators(self, schema: Schema | None) -> tuple[tuple[int, int, float], ...]:
        """Return the columns that are indicators, unless rows are scaled or shortened again."""
        if schema is None or self.feature_bounds is not None:
            return ()
        longest = math.inf if self.row_norm is None else self.row_norm
        return schema.encoding.indicators if longest >= schema.row_norm else ()

    def _make_plan(
        self,
        spec: DataSpec,
        problem: Problem,
        *,
        may_copy: bool = True,
        weighted: bool = False,
        schema: Schema | None = None,
    ) -> Plan:
        solver, problem = self._solver(), self._stated(problem)
        if schema is not None and schema.encoding.pooled:
            solver = of_schema(self, self.solver, schema)["solver"]
        elif self.solver == "auto" and not may_copy:
            solver = Auto(may_copy=False)
        covariance = self._covariance()
        full_weights = check_one_of("weighting", self.weighting, ("auto", "none")) == "none"
        if covariance is not None:
            # A declared bound stands for weights, in a plan as in a fit.
            weighted = weighted or self.weight_bound is not None
            check_inference(problem, spec, covariance, weighted=weighted)
            scales = self._prior_scales(spec, schema)
            known = self._indicators(schema)
            solver = solver.with_inference(
                covariance, scales, full_weights=full_weights, indicators=known
            )
        elif full_weights:
            raise ValueError("weighting must be 'auto' without inference, got 'none'")
        if self.callback is not None and not callable(self.callback):
            raise ValueError(f"callback must be callable or None, got {self.callback!r}")
        if not isinstance(self.verbose, bool | np.bool_):
            check_integer("verbose", self.verbose, least=0)
        if self._needs_errors:
            check_inference(problem, spec, "model", weighted=weighted)
        with self._progress(), stage("Planning"):
            plan = solver.plan(problem, self._budget(spec.n_units), spec, Adjacency(self.adjacency))
        if self._needs_errors and not plan.method.estimates_errors:
            raise ValueError(
                "inference must be False with a solver that does not estimate its errors, got the "
                f"solver {plan.method.algorithm}: use solver='newton', with a delta above 0. "
                "solver='auto' can choose random intercepts for a category with many levels"
            )
        return plan

    def _pools(self, schema: Schema) -> bool:
        """Whether factors with many levels are pooled by default."""
        return False

    def _stated(self, problem: Problem) -> Problem:
        """Return the problem with the penalty and the constraint that the parameters give."""
        check_kind("regularizer", self.regularizer, Regularizer | None, "a Regularizer or None")
        check_kind("constraint", self.constraint, Constraint | None, "a Constraint or None")
        return Problem(
            problem.loss,
            problem.regularizer if self.regularizer is None else self.regularizer,
            problem.constraint if self.constraint is None else self.constraint,
            penalize_intercept=check_bool("penalize_intercept", self.penalize_intercept),
        )

    def _solver(self) -> Solver:
        solver = self.solver
        if isinstance(solver, str):
            check_one_of("solver", solver, tuple(SOLVERS))
            solver = SOLVERS[solver]()
        if not isinstance(solver, Solver):
            raise ValueError(f"solver must be a name or a Solver object, got {self.solver!r}")
        return solver

    def _spec(
        self,
        n_rows: int,
        n_features: int,
        row_norm: float,
        groups: GroupBound | None,
        task: FitTask,
        *,
        dtype: str,
        is_sparse: bool,
        weight_bound: float,
    ) -> DataSpec:
        # Sums require float64 where the places of rows differ between neighbours
        # (oracle/rounding.py).
        unit = Unit.ROW if groups is None else Unit.GROUP
        is_fixed = is_sparse or Adjacency(self.adjacency).rows_are_public(unit)
        spec = DataSpec(
            n_rows=n_rows,
            n_features=n_features,
            n_outputs=task.n_outputs,
            row_norm=row_norm,
            intercept=row_norm if check_bool("fit_intercept", self.fit_intercept) else 0.0,
            dtype="float32" if dtype == "float32" and is_fixed else "float64",
            sparse=is_sparse,
            weight_bound=weight_bound * task.heaviest,
            groups=groups,
            target_low=task.target_range[0],
            target_high=task.target_range[1],
            entry_bound=math.inf if self.feature_bounds is None else 1.0,
        )
        # Some solvers bound rounding errors for float64 only.
        strict = self._solver().needs_float64(task.problem(spec), self._budget(n_rows))
        return dataclasses.replace(spec, dtype="float64") if strict else spec

    def _planned(
        self, n_rows: int, n_features: int, task: FitTask, dtype: str, sparse: bool
    ) -> Plan:
        """Return the plan for data of a given size."""
        row_norm, groups = self._planned_row_norm(n_rows, n_features), self._planned_groups(n_rows)
        size, weight = (n_rows, n_features, row_norm), self._weight_bound()
        spec = self._spec(*size, groups, task, dtype=dtype, is_sparse=sparse, weight_bound=weight)
        weighted = getattr(self, "class_weight", None) is not None
        return self._make_plan(spec, task.problem(spec), weighted=weighted)

    def _weight_bound(self) -> float:
        """Return the declared bound on the weight of a row, before ``sample_weight``."""
        bound = 1.0 if self.weight_bound is None else self.weight_bound
        return check_real("weight_bound", bound, above=0.0)

    def _validated(self, X: Any, y: Any, **options: Any) -> tuple[Matrix, NDArray[Any]]:
        if y is not None:
            y = check_not_missing(as_column(y), names_row=True)
        read = functools.partial(validate_data, self, X, y, **options)
        return finite_matrix(X, read)

    def _accept(self, rows: Collection, facts: PublicFacts) -> None:
        """Record the public facts of a collection."""
        self._check_features(rows, is_fit=True)
        self.n_features_in_ = rows.shape[1]
        if rows.feature_names is not None:
            self.feature_names_in_ = np.array(rows.feature_names, dtype=object)
        if rows.schema is not None:
            facts.facts += schema_facts(rows.schema)

    def _run(
        self,
        rows: Collection,
        data: FitData,
        facts: PublicFacts,
        task: FitTask,
        weight_bound: float,
    ) -> NDArray[np.float64]:
        """Run the plan; return coefficients in the user's units, of shape (n_columns, outputs)."""
        Adjacency(self.adjacency), self._budget(1)
        noise = noise_source(self.random_state)
        ledger = None if self.ledger is None else as_ledger(self.ledger)
        names = getattr(self, "feature_names_in_", None)
        if names is not None:
            facts.declared("feature_names", list(names))
        given, rows = rows, self._in_groups(rows, data.groups, noise)
        n_rows, bound, row_norm, scaling = self._row_facts(rows, facts)
        spec = self._spec(
            n_rows,
            rows.shape[1],
            row_norm,
            bound,
            task,
            dtype=rows.dtype,
            is_sparse=rows.is_sparse,
            weight_bound=weight_bound,
        )
        plan = data.plan
        if plan is None:
            plan = self._make_plan(
                spec,
                task.problem(spec),
                may_copy=rows.copies_cheaply,
                schema=rows.schema,
                weighted=rows.is_weighted or task.weights is not None,
            )
        if plan.data != spec:
            raise PlanMismatchError(f"rows have the facts {spec}, but the plan is for {plan.data}")
        # Documents that a certificate cannot hold raise an error before anything is spent.
        _ = plan.document
        warn_of_noise(plan)
        if rows.is_numpy:
            warn_of_slow_sums()
        with self._progress(plan):
            prepared = rows.prepared(Preparation(spec, scaling, task.targets, task.weights))
            checkpoint = None
            if data.checkpoint is not None:
                known = self._identity(rows, facts, scaling, task)
                checkpoint = CheckpointFile.of(data.checkpoint, known)
            self._record(plan, given, checkpoint)
            solution = run(
                plan, prepared, noise, listener(self.callback, self.verbose), ledger, checkpoint
            )
        if rows.is_weighted:
            warn_of_weights(solution)
        bounds = None if scaling is None else np.stack([scaling.low, scaling.high])
        self.feature_bounds_: NDArray[np.float64] | None = bounds
        self.solution_ = solution
        self.n_iter_ = plan.method.n_steps
        columns, targets = column_units(spec, scaling), self._target_units(task, spec.n_features)
        self.units_ = columns if targets is None else targets.after(columns)
        in_w = solution.noise_covariance
        self._noise_covariance = None if in_w is None else in_w.in_units(self.units_)
        # Coefficients before the projection of monotone curves, if there are any.
        self._unprojected: NDArray[np.float64] | None = None
        # Of coefficients from noise, sampling and smoothing, where it is estimated.
        self._error_covariance: NDArray[np.float64] | None = None
        self._uncertainty = solution.uncertainty
        return self.units_.coefficients(solution.w.reshape(spec.n_columns, -1))

    def _fitted_scaling(self) -> ColumnScaling | None:
        """Return the bounds of columns that the fit used."""
        return None if self.feature_bounds_ is None else ColumnScaling(*self.feature_bounds_)

    def _identity(
        self, rows: Collection, facts: PublicFacts, scaling: ColumnScaling | None, task: FitTask
    ) -> dict[str, Any]:
        """Return the public facts that identify a fit to its checkpoint besides its plan."""
        parameters = self.get_params(deep=False)
        kept = sorted(set(parameters) - _IN_THE_PLAN - _WITHOUT_EFFECT)
        names = getattr(self, "feature_names_in_", None)
        return {
            "estimator": type(self),
            **{name: parameters[name] for name in kept},
            **{f"{fact.name} in use": (fact.value, fact.provenance) for fact in facts.facts},
            "feature names": None if names is None else list(names),
            "schema": rows.schema,
            "weighted rows": rows.is_weighted,
            "columns": scaling,
            "targets": task.targets,
            "weights": task.weights,
        }

    def _progress(self, plan: Plan | None = None) -> contextlib.AbstractContextManager[None]:
        """Show the progress of a block, unless the steps of its plan are shown as lines."""
        if not self.verbose:
            return contextlib.nullcontext()
        has_lines = plan is not None and plan.method.releases_iterates and not is_watched()
        return contextlib.nullcontext() if has_lines else shown()

    def linear_model(self) -> tuple[PrivateLinearModel, Schema | None]:
        check_is_fitted(self)
        return self, self.privacy_.schema

    def _row_prediction(self, output: Output) -> RowPrediction:
        check_is_fitted(self)
        scaling, most = self._fitted_scaling(), self.privacy_.largest_score
        return RowPrediction(self.coef_, self.intercept_, scaling, output, most)

    @abc.abstractmethod
    def _score_of(self, rows: Collection, predict: RowPrediction) -> float:
        """Return the score of predictions for rows with targets."""

    def _score(self, X: Any, y: Any, sample_weight: Any, offset: Any, exposure: Any) -> float:
        check_is_fitted(self)
        rows = as_collection(X, y, sample_weight)
        if rows is None:
            X, y = self._validated(X, y, reset=False)
            own = None if sample_weight is None else as_weights(sample_weight, X.shape[0])
            rows = MatrixRows(X, y, own)
        else:
            self._check_features(rows)
        self._family.scores(rows)
        rows, _ = self._offset_in(rows, offset, exposure)
        return self._score_of(rows, self._row_prediction(self._answer()))

    def _predicted(self, X: Any, output: Output) -> Any:
        function = self._row_prediction(output)
        rows = as_collection(X)
        if rows is None:

            def read(**options: Any) -> tuple[Matrix, None]:
                return validate_data(self, X, reset=False, **options), None

            return function(finite_matrix(X, read)[0])
        self._check_features(rows)
        if rows.has_offset and self._classifies():
            raise ValueError(NO_OFFSET)
        return rows.apply(function)

    def _check_features(self, rows: Collection, *, is_fit: bool = False) -> None:
        """Check that a collection has rows, and the columns that were fitted."""
        if rows.shape[0] == 0:
            raise ValueError(
                f"Found array with 0 sample(s) (shape={rows.shape}) while a minimum of 1 is "
                f"required by {type(self).__name__}."
            )
        if is_fit:
            return
        if rows.shape[1] != self.n_features_in_:
            raise ValueError(
                f"X has {rows.shape[1]} features, but {type(self).__name__} is expecting "
                f"{self.n_features_in_} features as input"
            )
        names, fitted = rows.feature_names, getattr(self, "feature_names_in_", None)
        if names is not None and fitted is not None and list(names) != list(fitted):
            raise ValueError(
                f"X must have the features that were fitted, {list(fitted)}, got {list(names)}"
            )


def of_schema(model: PrivateLinearModel, solver: Any, schema: Schema) -> dict[str, Any]:
    """Return the prior scales and the solver of a model for the schema of its rows.

    The solver is random intercepts for pooled columns. Factors with many levels are pooled, too,
    where the solver is open and the loss allows it.
    """
    scales, blocks = model.prior_scales, tuple(schema.encoding.large.values())
    if blocks and not isinstance(solver, RandomIntercepts):
        pooled = schema.encoding.pooled
        if pooled and solver != "auto":
            raise ValueError(
                f"solver must be 'auto' for the pooled columns {', '.join(pooled)}, got {solver!r}"
            )
        if pooled or (solver == "auto" and model._covariance() is None and model._pools(schema)):
            solver = RandomIntercepts(blocks)
    indicators = model._indicators(schema)
    if solver == "auto" and indicators and model._covariance() is not None:
        solver = Auto(indicators=indicators)
    return {
        "prior_scales": schema.encoding.prior_scales if scales is None else scales,
        "solver": solver,
    }
