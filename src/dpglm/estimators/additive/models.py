"""Additive classifiers and regressors of tables."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any, Literal, final

import numpy as np
from sklearn.utils import Tags

from dpglm._validation import check_bool, check_count
from dpglm.certificate.certificate import PublicFact
from dpglm.estimators._parameters import ClassifierMixin, RegressorMixin
from dpglm.estimators._predictor import Facts, Finish, FitData, Predictor
from dpglm.estimators.additive._curves import (
    Directions,
    information_of,
    projected,
    read_directions,
    shrunk_bends,
    straightened,
)
from dpglm.estimators.additive._errors import uncertainty_of_effects
from dpglm.estimators.additive.resolution import Resolution, resolved, with_segments
from dpglm.estimators.composed._composed import (
    ComposedModel,
    Parts,
    is_in_memory,
    n_rows_of,
    opened,
)
from dpglm.estimators.linear._base import PrivateLinearModel
from dpglm.estimators.linear._regressor import PrivateRegressor
from dpglm.estimators.linear.classifiers import LogisticRegression
from dpglm.estimators.linear.regressors import GeneralizedLinearRegressor, Ridge
from dpglm.preprocessing.encoders import GivenSchema, SplineEncoder, as_schema
from dpglm.privacy.budget import Adjacency
from dpglm.problem import LogLink, Loss
from dpglm.shapes.collection import CURVES, MONOTONE
from dpglm.solvers.base import Plan, Solver, StepInfo
from dpglm.tables.additive import Additive, pairs_of_columns
from dpglm.tables.schema import Schema

__all__ = ["AdditiveClassifier", "AdditiveRegressor"]


_OF_THE_MODEL = ("weight_bound", "solver", "callback", "verbose")
"""Parameters of the linear model."""


class AdditiveModel(ComposedModel, own_first=False):
    """Base of the additive models: curves, category effects and interactions that add up.

    Parameters
    ----------
    schema : Schema, mapping or path-like
        The public facts about the table, their JSON form, or its path; without a formula. If it
        lacks the target, give y and the parameters that a linear model requires.
    interactions : sequence of (str, str), default=()
        Pairs of columns with a joint effect in addition to their own.
    monotone : mapping from str to int, optional
        Numeric or ordered columns in which the score must not fall (1) or not rise (-1). The
        released curves are projected, which costs no privacy.
    segments : int, mapping from str to int, or "auto", default="auto"
        Equal segments between the bounds of each numeric column without knots. "auto" chooses
        segments, smoothness and pair_segments by the budget and the numbers of rows and columns,
        with more segments in columns of ``"scale": "log"`` if the signal is strong. ``{"age": 6}``
        sets some columns; the others are "auto".
    smoothness : float or "auto", default="auto"
        Distance, as a share of a column's range, over which the values of a curve are correlated
        in the prior: see ``SplineEncoder``.
    pair_segments : int or "auto", default="auto"
        As ``segments``, for the columns of interactions.
    solver : str or Solver, default="auto"
        As in linear models; "auto" takes Newton-Raphson or Newton steps in memory with fewer than
        300 features (docs/defaults.md).
    inference : bool, default=False
        Whether to compute ``inference_``. The fit and its bands are the same without it.
    weight_bound : float, optional
        Public bound on ``sample_weight``.
    callback : callable, optional
        Called after each step with its ``dpglm.solvers.StepInfo``, which is public.
    verbose : int, default=0
        As in linear models.

    Attributes
    ----------
    schema_ : Schema
        The schema with the resolution in use; ``schema_.additive_encoding.terms`` are the terms.
    resolution_ : Resolution
        The resolution of the curves, with the reasons.
    estimator_ : estimator
        The fitted linear model of the features.
    transformers_ : list of (str, transformer)
        The fitted ``SplineEncoder``.
    coef_, intercept_, n_iter_, privacy_, solution_
        Those of ``estimator_``. ``schema_.units`` maps the coefficients to the values of effects at
        knots and of levels.
    inference_ : dpglm.inference.Inference
        Standard errors, intervals and tests of these values, with ``inference`` only; before the
        projection of ``monotone``. Standard errors include noise, sampling, and smoothing.
    n_features_in_ : int
        Number of columns.
    feature_names_in_ : ndarray of str
        Their names.

    Notes
    -----
    Privacy: knots, levels, bounds, the resolution and the row norm follow from the schema, the
    number of rows and the budget. The fit is that of a linear model with one certificate,
    ``privacy_``. A term adds at most 1 to the squared row norm, as a single column does.

    References
    ----------
    Hastie and Tibshirani, *Generalized additive models* (1990). Eilers and Marx, "Flexible
    smoothing with B-splines and penalties", Statistical Science 11 (1996).
    """

    schema: GivenSchema = field(kw_only=False)
    interactions: Sequence[tuple[str, str]] = ()
    monotone: Mapping[str, int] | None = None
    segments: int | Mapping[str, int] | Literal["auto"] = "auto"
    smoothness: float | Literal["auto"] = "auto"
    pair_segments: int | Literal["auto"] = "auto"
    solver: str | Solver = "auto"
    inference: bool = False
    weight_bound: float | None = None
    callback: Callable[[StepInfo], None] | None = None
    verbose: int = 0

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.no_validation = True
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        tags.target_tags.required = False
        return tags

    @abc.abstractmethod
    def _linear_model(self, schema: Schema) -> PrivateLinearModel:
        """Return the unfitted linear model of the features, with the facts about the target."""

    @abc.abstractmethod
    def _check_directions(self, directions: Directions, linear: PrivateLinearModel) -> None:
        """Refuse monotone columns if scores cannot be ordered."""

    def plan(self, n_rows: int, **options: Any) -> Plan:
        """Plan a fit from public parameters, without data.

        Parameters
        ----------
        n_rows : int
            Number of rows.
        **options
            Options of the linear model's ``plan``: the number of classes, type and container.

        Returns
        -------
        Plan
            The plan that ``fit`` on data of that size executes, with the resolution of
            ``resolve``.

        Raises
        ------
        ValueError
            If a parameter is invalid.
        """
        return self._planned(self._planned_parts(n_rows), n_rows, None, options)

    def _planned_parts(self, n_rows: int) -> Parts:
        return self._parts(self._stated_schema(), check_count("n_rows", n_rows))[0]

    def resolve(self, n_rows: int) -> Resolution:
        """Return the resolution of the curves for a number of rows, with the reasons.

        Parameters
        ----------
        n_rows : int
            Number of rows.

        Returns
        -------
        Resolution
        """
        return self._parts(self._stated_schema(), check_count("n_rows", n_rows))[1]

    def _fit(self, data: FitData, finish: Finish | None = None) -> None:
        schema = self._stated_schema()
        table = SplineEncoder(schema)
        X = opened(table, data.X)
        n_rows = n_rows_of(table, X, data.where) if self.n_rows is None else self.n_rows
        parts, resolution = self._parts(schema, n_rows, in_memory=is_in_memory(X))
        schema = parts.transformers[0][1].stated_schema()
        directions = read_directions(self.monotone, schema)

        def finished(model: Any, facts: Facts) -> Facts:
            facts = (*facts, PublicFact(CURVES, str(resolution), "declared"))
            _shrink(model, schema, with_inference=self.inference)
            if directions:
                model._unprojected = model.coef_
                model.coef_ = projected(model.coef_, directions, schema)
                facts = (*facts, PublicFact(MONOTONE, dict(directions), "declared"))
            return facts if finish is None else finish(model, facts)

        self._fit_parts(parts, dataclasses.replace(data, X=X), finished)
        self.schema_, self.resolution_ = schema, resolution

    def _stated_schema(self) -> Schema:
        schema = as_schema(self.schema)
        if schema.additive is not None:
            raise ValueError(
                "schema must leave out 'additive': segments=, smoothness= and interactions= decide "
                "how columns become curves"
            )
        return (
            with_segments(schema, self.segments) if isinstance(self.segments, Mapping) else schema
        )

    def _parts(
        self, schema: Schema, n_rows: int, *, in_memory: bool = True
    ) -> tuple[Parts, Resolution]:
        """Return the encoder and the linear model for a number of rows, and the resolution."""
        linear = self._linear_model(schema).set_params(
            **{name: getattr(self, name) for name in _OF_THE_MODEL}
        )

        def parts(settings: Additive) -> Parts:
            encoder = SplineEncoder(
                schema,
                settings.interactions,
                settings.segments,
                settings.reach,
                settings.pair_segments,
                settings.log_segments,
            )
            return Parts([("encoder", encoder)], [], linear)

        has_log_link = isinstance(linear, PrivateRegressor) and isinstance(linear._link(), LogLink)
        resolution = resolved(
            schema,
            n_rows,
            self._budget(n_rows),
            Adjacency(self.adjacency),
            is_squared=isinstance(linear, Ridge),
            has_log_link=has_log_link,
            interactions=pairs_of_columns(self.interactions),
            segments="auto" if isinstance(self.segments, Mapping) else self.segments,
            smoothness=self.smoothness,
            pair_segments=self.pair_segments,
        )
        self._check_directions(
            read_directions(self.monotone, schema.with_additive(resolution.settings)), linear
        )
        measured = isinstance(linear, LogisticRegression | Ridge) or has_log_link
        gaussian = not self._budget(1).is_pure
        large = parts(resolution.settings).transformers[0][1].stated_schema().encoding.large
        is_open = self.solver == "auto" and not large
        if is_open and measured and gaussian and in_memory:
            linear.set_params(solver=resolution.solver or self.solver)
        return parts(resolution.settings), resolution

    def _configured(self, parts: Parts) -> Any:
        model = super()._configured(parts)
        model._needs_errors = check_bool("inference", self.inference)
        return model

    def _inner(self) -> Any:
        return vars(self).get("estimator_") or self._linear_model(as_schema(self.schema))


def _shrink(model: PrivateLinearModel, schema: Schema, *, with_inference: bool) -> None:
    """Shrink the bends of curves in a fitted model, and add the covariance of errors."""
    solution = model.solution_
    if solution.precision is None:
        return
    w, kept, slopes = shrunk_bends(solution.w, solution.precision, schema)
    known = information_of(solution, schema)
    w = straightened(w, solution, schema, known)
    released = model.units_.coefficients(w[:, np.newaxis])
    model.coef_, model.intercept_ = model._model(released)
    noise = solution.noise_covariance
    model._noise_covariance = None if noise is None else noise.mapped(slopes).in_units(model.units_)
    found = uncertainty_of_effects(solution, schema, w, kept, slopes, known)
    if np.isfinite(found.covariance).all():
        model._error_covariance = model.units_.covariance(found.covariance)[:-1, :-1]
    if with_inference:
        model._uncertainty = found


@final
class AdditiveClassifier(ClassifierMixin, AdditiveModel):
    """Private additive logistic regression of a table: two classes, or more by softmax.

    The log-odds of a row are an intercept plus the value of a curve or level for each column.

    Parameters
    ----------
    C : float, default=1.0
        Inverse strength of the L2 penalty on the features' coefficients, above 0.
    classes : sequence, optional
        Public list of all possible labels. Default: the labels in the schema.
    class_weight : dict, optional
        Public weight of each label, as in ``LogisticRegression``.

    Examples
    --------
    >>> from dpglm import AdditiveClassifier
    >>> from dpglm.datasets import load_adult
    >>> adult = load_adult(as_frame=True)
    >>> model = AdditiveClassifier(adult.schema, epsilon=1.0)
    >>> model = model.fit(adult.data.iloc[adult.train], adult.target[adult.train])
    >>> model.score(adult.data.iloc[adult.test], adult.target[adult.test]) > 0.85
    True
    """

    # The mixin's score takes rows in memory only.
    score = Predictor.score

    C: float = 1.0
    classes: Sequence[Any] | None = None
    class_weight: Mapping[Any, float] | None = None

    def _linear_model(self, schema: Schema) -> PrivateLinearModel:
        known = schema.target.estimator_parameters()
        if not set(known) <= {"classes"}:
            raise ValueError(
                "schema must describe a target with classes for a classifier; use "
                "AdditiveRegressor for numbers"
            )
        classes = known.get("classes") if self.classes is None else self.classes
        return LogisticRegression(C=self.C, classes=classes, class_weight=self.class_weight)

    def _check_directions(self, directions: Directions, linear: PrivateLinearModel) -> None:
        classes = linear.classes  # type: ignore[attr-defined]
        if directions and (classes is None or len(classes) > 2):
            raise ValueError(
                "monotone must be None unless two classes are declared: several classes cannot be "
                f"ordered by a score, got {dict(directions)!r}"
            )


@final
class AdditiveRegressor(RegressorMixin, AdditiveModel):
    """Private additive regression of a table: numbers, counts, amounts or proportions.

    The score of a row is an intercept plus the value of a curve or level for each column. The
    prediction is the score, or the inverse link of it.

    Parameters
    ----------
    loss : str or Loss, default="auto"
        A loss of numbers, as in ``GeneralizedLinearRegressor``: ``"squared"``, ``"poisson"``,
        ``"gamma"``, ``"huber"``, ... "auto" is Poisson for a target of type "count", else squared.
    alpha : float, default=1.0
        Strength of the L2 penalty for squared loss, as in ``Ridge``.
    target_bounds : pair of float, optional
        Public bounds of the target. Default: the bounds in the schema.
    offset_bounds : pair of float, optional
        Public bounds of offsets, as in the linear regressors.

    Examples
    --------
    >>> from dpglm import AdditiveRegressor
    >>> from dpglm.datasets import load_california_housing
    >>> housing = load_california_housing()
    >>> model = AdditiveRegressor(housing.schema, interactions=[("Latitude", "Longitude")])
    >>> model = model.fit(housing.data[housing.train], housing.target[housing.train])
    >>> model.score(housing.data[housing.test], housing.target[housing.test]) > 0.7
    True
    """

    # The mixin's score takes rows in memory only.
    score = Predictor.score

    loss: str | Loss = "auto"
    alpha: float = 1.0
    target_bounds: tuple[float, float] | None = None
    offset_bounds: tuple[float, float] | None = None

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True
        return tags

    def _linear_model(self, schema: Schema) -> PrivateLinearModel:
        target = schema.target
        known = target.estimator_parameters()
        if not set(known) <= {"target_bounds"}:
            raise ValueError(
                "schema must describe a numeric target for a regressor; use AdditiveClassifier "
                "for classes"
            )
        bounds = known.get("target_bounds") if self.target_bounds is None else self.target_bounds
        loss = self.loss
        if isinstance(loss, str) and loss == "auto":
            loss = "poisson" if known and target.default_estimator == "poisson" else "squared"
        if isinstance(loss, str) and loss == "squared":
            return Ridge(alpha=self.alpha, target_bounds=bounds, offset_bounds=self.offset_bounds)
        return GeneralizedLinearRegressor(
            loss=loss, target_bounds=bounds, offset_bounds=self.offset_bounds
        )

    def _check_directions(self, directions: Directions, linear: PrivateLinearModel) -> None:
        pass
