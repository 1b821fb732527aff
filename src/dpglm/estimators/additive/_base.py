"""What additive models share: from a table and its schema to a linear model of encoded rows."""

from __future__ import annotations

import abc
import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from dpglm._fitting import all_or_nothing
from dpglm._validation import check_count
from dpglm.certificate.certificate import certify
from dpglm.certificate.statement import PublicFact, schema_facts, with_implied
from dpglm.data.prepare import Matrix
from dpglm.estimators._private import PrivateFit
from dpglm.estimators._shapes import CURVES, MONOTONE, WithShapes
from dpglm.estimators.additive._curves import (
    Directions,
    given_table,
    projected,
    read_directions,
    shrunk_bends,
)
from dpglm.estimators.additive.resolution import Resolution, resolved, with_segments
from dpglm.estimators.composed._composed import FittedModel
from dpglm.estimators.linear._base import PrivateLinearModel
from dpglm.estimators.linear._regressor import PrivateRegressor
from dpglm.estimators.linear.classifiers import LogisticRegression
from dpglm.estimators.linear.regressors import Ridge
from dpglm.inference.inference import Inference, LinearScores
from dpglm.preprocessing.encoders import GivenSchema, as_schema
from dpglm.privacy.budget import is_pure
from dpglm.problem import LogLink
from dpglm.solvers.base import Plan, Solver, StepInfo
from dpglm.solvers.checkpoint import CheckpointFile
from dpglm.tables.additive import Additive, pairs_of_columns
from dpglm.tables.encoding import LinearUnits
from dpglm.tables.given import Where
from dpglm.tables.schema import Schema

__all__ = ["AdditiveModel"]

_OF_THE_FIT = tuple(one.name for one in dataclasses.fields(PrivateFit))
_KEPT = ("inference", "weight_bound")
"""Parameters that the linear model has as well, and keeps."""


class AdditiveModel(WithShapes, FittedModel, PrivateFit, own_first=False):
    """Curves of numbers, levels of categories, and interactions, which add up to a score.

    Parameters
    ----------
    schema : Schema, mapping or path-like
        The public facts about the table, their JSON form, or the file that holds it; without a
        formula. The target may be left out: then y must be given, and what a linear model has to
        be told about it.
    interactions : sequence of (str, str), default=()
        Pairs of columns whose effect together is added to their own.
    monotone : mapping from str to int, optional
        Numeric or ordered columns in which the score must not fall (1) or not rise (-1). The
        released curves are projected, which costs no privacy.
    segments : int, mapping from str to int, or "auto", default="auto"
        Equal segments between the bounds of each numeric column that lists no knots; "auto"
        follows from the budget and the numbers of rows and columns, with more of them in columns
        of ``"scale": "log"`` where there is much to see, and so do the next two. ``{"age": 6}``
        is for some columns, as if the schema listed these knots; others are "auto".
    smoothness : float or "auto", default="auto"
        Distance, as a share of a column's range, over which a curve's values are correlated
        beforehand: see ``SplineEncoder``.
    pair_segments : int or "auto", default="auto"
        As ``segments``, for the columns of interactions.
    solver : str or Solver, default="auto"
        As for linear models; "auto" is Newton's method in memory with fewer than 300 features,
        for two classes ``Calibrated``.
    inference : bool or "robust", default=False
        Whether ``inference_`` gets standard errors, intervals and tests, as for linear models.
    weight_bound : float, optional
        Public bound on ``sample_weight``.
    callback : callable, optional
        Called after each step with its ``dpglm.solvers.StepInfo``, which is public.
    verbose : int, default=0
        As for linear models.

    Attributes
    ----------
    schema_ : Schema
        The schema with the resolution in use; ``schema_.additive_encoding.terms`` are the terms.
    resolution_ : Resolution
        What was decided about knots, and why.
    estimator_ : estimator
        The fitted linear model of the features.
    coef_, intercept_, n_iter_, privacy_, solution_
        Those of ``estimator_``: coefficients of features. ``schema_.units`` maps them to the
        values of the effects at knots and of levels.
    inference_ : dpglm.inference.Inference
        Standard errors, intervals and tests of these values, with ``inference`` only; before the
        projection of ``monotone``.
    n_features_in_ : int
        Number of columns.
    feature_names_in_ : ndarray of str
        Their names.

    Notes
    -----
    Tables are pandas or polars data frames, mappings from names to columns, arrays in the schema's
    order, data frames of Dask, ``ParquetRows`` with a schema, or the path of Parquet files.

    Privacy: knots, levels, bounds, the resolution and the length of rows follow from the schema,
    the number of rows and the budget; the fit is that of a linear model, whose certificate is
    ``privacy_``. An effect costs nothing beyond what its features' share in a row's length does:
    at most 1 for each term, as much as for one plain column.

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
    inference: bool | Literal["robust"] = False
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

    def __sklearn_is_fitted__(self) -> bool:
        return "estimator_" in vars(self)

    @abc.abstractmethod
    def _linear_model(self, schema: Schema) -> PrivateLinearModel:
        """Return the linear model of the features, unfitted, with what it knows of the target."""

    @abc.abstractmethod
    def _check_directions(self, directions: Directions, linear: PrivateLinearModel) -> None:
        """Refuse monotone columns where scores have no order."""

    def plan(self, n_rows: int, **options: Any) -> Plan:
        """Plan a fit from public parameters, without data.

        Parameters
        ----------
        n_rows : int
            Number of rows.
        **options
            As for the linear model's ``plan``: the number of classes, type and container.

        Returns
        -------
        Plan
            The plan that ``fit`` on data of that size executes. ``resolve`` says what it rests on.

        Raises
        ------
        ValueError
            If a parameter is invalid.
        """
        n_rows = check_count("n_rows", n_rows)
        linear, _, encoded = self._configured(self._stated_schema(), n_rows)
        return _plan(linear, encoded, n_rows, **options)

    def resolve(self, n_rows: int) -> Resolution:
        """Say how fine curves would be for a number of rows, and why.

        Parameters
        ----------
        n_rows : int
            Number of rows.

        Returns
        -------
        Resolution
        """
        n_rows = check_count("n_rows", n_rows)
        return self._configured(self._stated_schema(), n_rows)[1]

    @all_or_nothing
    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: ArrayLike | None = None,
        *,
        groups: ArrayLike | None = None,
        offset: ArrayLike | None = None,
        exposure: ArrayLike | None = None,
        where: ArrayLike | Where | None = None,
        checkpoint: str | os.PathLike[str] | CheckpointFile | None = None,
    ) -> Self:
        """Fit the model under differential privacy.

        Parameters
        ----------
        X : table
            With the schema's columns, and its target unless y is given.
        y : array_like of shape (n,), optional
            Targets.
        sample_weight : array_like of shape (n,), optional
            Weights in [0, ``weight_bound``].
        groups : array_like of shape (n,), optional
            To whom each row belongs, as for linear models.
        offset, exposure : array_like of shape (n,), optional
            Known terms of the scores, as for the linear regressors.
        where : array_like of bool of shape (n,), optional
            Which rows count, by a private condition, such as that no cell is missing; all others
            have the weight 0, and their cells are not looked at. The public number of rows stays
            that of the table. For rows in memory.
        checkpoint : path-like or CheckpointFile, optional
            File that holds the state after each step, as for linear models.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If a parameter or the data are invalid; nothing is released or spent then.

        Notes
        -----
        Privacy: ``privacy_`` says what was spent and what was treated as public.
        """
        schema = self._stated_schema()
        table = given_table(X, schema)
        n_rows = table.n_rows if self.n_rows is None else self.n_rows
        estimator, resolution, schema = self._configured(schema, n_rows, in_memory=table.in_memory)
        directions = read_directions(self.monotone, schema)
        if where is not None and table.in_memory and not isinstance(where, Where):
            where = Where.of(where, X)
            given = (X, y, sample_weight, offset, exposure)
            X, y, sample_weight, offset, exposure = map(where.rows, given)
            table = given_table(X, schema)
        features, targets = table.features(schema), table.targets(schema, y)
        estimator.fit(
            features,
            targets,
            sample_weight,
            groups=groups,
            offset=offset,
            exposure=exposure,
            where=where,
            checkpoint=checkpoint,
        )
        self._finish(estimator, resolution, schema, directions)
        self.schema_, self.resolution_, self.estimator_ = schema, resolution, estimator
        return self

    def _finish(
        self,
        estimator: PrivateLinearModel,
        resolution: Resolution,
        schema: Schema,
        directions: Directions,
    ) -> None:
        """Record the schema, shrink bends, and project what must be monotone: post-processing."""
        certificate = estimator.privacy_
        facts = with_implied(certificate.public_facts, "row_norm", schema.row_norm)
        if certificate.fact("schema") is None:
            facts = (*facts, *schema_facts(schema))
        facts = (*facts, PublicFact(CURVES, str(resolution), "declared"))
        known = estimator.solution_.precision
        if not self.inference and known is not None:
            w, slopes = shrunk_bends(estimator.solution_.w, known, schema)
            released = estimator.units_.coefficients(w[:, np.newaxis])
            estimator.coef_, estimator.intercept_ = estimator._model(released)
            noise = estimator.solution_.noise_covariance
            if noise is not None:
                noise = noise.mapped(slopes).in_units(estimator.units_)
            estimator._noise_covariance = noise
        if directions:
            estimator._unprojected = estimator.coef_
            estimator.coef_ = projected(estimator.coef_, directions, schema)
            facts = (*facts, PublicFact(MONOTONE, dict(directions), "declared"))
        estimator.privacy_ = dataclasses.replace(
            certify(
                type(estimator).__name__,
                estimator.solution_,
                self._noise(),
                facts,
                estimator.coef_,
                estimator.intercept_,
            ),
            noise_source=certificate.noise_source,
        )

    def _stated_schema(self) -> Schema:
        schema = as_schema(self.schema)
        if schema.additive is not None:
            raise ValueError(
                "schema must not say how columns become curves, which segments=, smoothness= and "
                "interactions= say: leave out its 'additive'"
            )
        return (
            with_segments(schema, self.segments) if isinstance(self.segments, Mapping) else schema
        )

    def _configured(
        self, schema: Schema, n_rows: int, *, in_memory: bool = True
    ) -> tuple[PrivateLinearModel, Resolution, Schema]:
        """Return the linear model with what it must know, the resolution, and its schema."""
        linear = self._linear_model(schema)
        linear._family = self._family
        linear.set_params(**{name: getattr(self, name) for name in (*_OF_THE_FIT, *_KEPT)})

        def accepts(settings: Additive) -> bool:
            encoded = schema.with_additive(settings)
            linear.set_params(row_norm=encoded.row_norm, solver=self.solver)
            try:
                _plan(linear, encoded, n_rows)
            except ValueError:
                return False
            return True

        resolution = resolved(
            schema,
            n_rows,
            linear._budget(n_rows),
            linear._adjacency(),
            is_squared=isinstance(linear, Ridge),
            are_factors=_has_factors(linear),
            interactions=pairs_of_columns(self.interactions),
            segments="auto" if isinstance(self.segments, Mapping) else self.segments,
            smoothness=self.smoothness,
            pair_segments=self.pair_segments,
            accepts=accepts if self.inference else None,
        )
        encoded = schema.with_additive(resolution.settings)
        self._check_directions(read_directions(self.monotone, encoded), linear)
        linear.set_params(
            row_norm=encoded.row_norm,
            solver=self._solver(linear, resolution, in_memory=in_memory),
            callback=self.callback,
            verbose=self.verbose,
        )
        return linear, resolution, encoded

    def _solver(
        self, linear: PrivateLinearModel, resolution: Resolution, *, in_memory: bool
    ) -> str | Solver:
        """Return the solver, where it is left open the one that the resolution says."""
        measured = isinstance(linear, LogisticRegression | Ridge) or _has_factors(linear)
        gaussian = not is_pure(linear._budget(1))
        if self.solver == "auto" and not self.inference and measured and gaussian and in_memory:
            return resolution.solver or self.solver
        return self.solver

    def _transformed(self, X: Any) -> Any:
        return given_table(X, self.schema_).features(self.schema_)

    def _targets(self, X: Any, y: Any) -> Any:
        return given_table(X, self.schema_).targets(self.schema_, y)

    def _inner(self) -> Any:
        return vars(self).get("estimator_") or self._linear_model(as_schema(self.schema))

    @property
    def n_features_in_(self) -> int:
        """Number of columns."""
        check_is_fitted(self)
        return len(self.schema_.column_names)

    @property
    def feature_names_in_(self) -> Any:
        """Names of the columns."""
        check_is_fitted(self)
        return np.array(self.schema_.column_names, dtype=object)

    def coefficient_names(self) -> Any:
        """Name the features that coefficients are about.

        Returns
        -------
        ndarray of str
        """
        check_is_fitted(self)
        return np.array(self.schema_.feature_names, dtype=object)

    def table_units(self) -> LinearUnits:
        """Return the map from ``coef_`` and ``intercept_`` to effects at knots and of levels.

        Returns
        -------
        LinearUnits
        """
        check_is_fitted(self)
        return self.schema_.units

    @property
    def inference_(self) -> Inference:
        """Standard errors, intervals and tests of effects at knots and of levels, if asked for."""
        inner: Inference = self._fitted().inference_.of_features
        shown, scores = inner.in_units(self.schema_.units), inner.scores
        scores = LinearScores(_Encoded(self, scores.features), scores.estimates)
        return dataclasses.replace(shown, certificate=self.privacy_, scores=scores)

    def linear_model(self) -> tuple[PrivateLinearModel, Schema]:
        """Return what a model file can hold of the fitted model.

        Returns
        -------
        estimator : estimator
            ``estimator_``.
        schema : Schema
            ``schema_``.
        """
        check_is_fitted(self)
        return self.estimator_, self.schema_


def _has_factors(linear: PrivateLinearModel) -> bool:
    """Whether terms of the score multiply the mean."""
    return isinstance(linear, PrivateRegressor) and isinstance(linear._link(), LogLink)


def _plan(linear: Any, encoded: Schema, n_rows: int, **options: Any) -> Plan:
    """Return the linear model's plan for rows that a schema encodes."""
    n_classes = encoded.target.n_classes if encoded.has_target else None
    known = {} if n_classes is None else {"n_classes": n_classes}
    sparse = {"sparse": True} if encoded.is_wide else {}
    n_features = encoded.additive_encoding.n_features
    plan: Plan = linear.plan(n_rows, n_features, **known | sparse | options)
    return plan


@dataclasses.dataclass(frozen=True, eq=False)
class _Encoded:
    """Rows of a table as the features of the linear model."""

    model: AdditiveModel
    features: Callable[[Any], Matrix]

    def __call__(self, X: Any) -> Matrix:
        return self.features(self.model._transformed(X))
