"""PrivatePipeline: fixed transformers, private steps and an estimator under one budget."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any, Self, final

from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.utils import Bunch, Tags, get_tags
from sklearn.utils.validation import check_is_fitted

from dpglm._fitting import all_or_nothing
from dpglm._validation import in_one_line
from dpglm.certificate.statement import PublicFact, schema_facts, with_implied
from dpglm.data.collection import Collection
from dpglm.data.prepare import Matrix
from dpglm.estimators._private import PrivateFit
from dpglm.estimators._shapes import WithShapes
from dpglm.estimators.composed._composed import (
    FittedModel,
    named_error,
    named_numbers,
    names_after,
    units_after,
)
from dpglm.estimators.composed._fixed import check_alone, check_fixed, known_row_norm, ready
from dpglm.estimators.composed._steps import NamedSteps, private_shares
from dpglm.estimators.linear._base import PrivateLinearModel
from dpglm.inference.inference import Inference, LinearScores
from dpglm.preprocessing.base import Preprocessor
from dpglm.preprocessing.encoders import TableEncoder
from dpglm.solvers.base import Plan
from dpglm.solvers.checkpoint import CheckpointFile
from dpglm.solvers.composite.preprocessed import Preprocessed
from dpglm.tables.encoding import LinearUnits
from dpglm.tables.given import Where
from dpglm.tables.schema import Schema

__all__ = ["PrivatePipeline"]

_OF_THE_PIPELINE = tuple(one.name for one in dataclasses.fields(PrivateFit))
_SKIPPED = "passthrough"


@dataclasses.dataclass(frozen=True)
class _Parts:
    transformers: list[tuple[str, Any]]
    private: list[tuple[str, Preprocessor]]
    estimator: PrivateLinearModel


@final
class PrivatePipeline(NamedSteps, WithShapes, FittedModel, PrivateFit):
    """Transformers, private preprocessing and a private estimator that share one budget.

    Parameters
    ----------
    steps : list of step, or of (str, step)
        In this order: any number of fixed transformers, which learn nothing from rows
        (``SchemaEncoder``, ``SplineEncoder``, scikit-learn's ``Normalizer``,
        ``OneHotEncoder(categories=[...])``, a ``FrozenEstimator`` that was fitted on public data,
        ``ColumnTransformer`` of such steps with listed columns, ...); any number of private steps
        (``dpglm.preprocessing.Center``, ...); an estimator of dpglm. ``"passthrough"`` in the
        place of a step leaves it out.
    shares : mapping from str to float, optional
        Share of the budget (of mu squared, if the budget is seen as mu-GDP) for private steps by
        name, each in (0, 1), together below 1. A step that is not named takes what its own rule
        says, a function of public facts. The estimator gets the rest.

    Attributes
    ----------
    estimator_ : estimator
        The last step, fitted, with the pipeline's budget; its solver is
        ``Preprocessed(private steps, its own solver, shares)``.
    transformers_ : list of (str, transformer)
        The fixed transformers, ready to transform.
    classes_, coef_, intercept_, n_iter_, privacy_, solution_
        Those of ``estimator_``. Coefficients are about the columns that enter the private steps,
        see ``coefficient_names``.
    n_features_in_, feature_names_in_
        Those of the first step that takes the rows.

    Notes
    -----
    Budget, ledger, neighbouring relation, number of rows and randomness are parameters of the
    pipeline: those of the estimator must be left at their defaults, or equal the pipeline's.

    If the estimator has neither ``row_norm`` nor ``feature_bounds``, the row norm that the last
    fixed transformer's settings imply is used.

    Privacy: the whole is one run of one mechanism with one certificate, ``privacy_``, whose
    ``spending()`` says who spent what. Gaussian stages compose exactly: nothing is lost by
    splitting. A transformer that would learn from rows is refused, as no budget covers that; the
    list of transformers is recorded as a declared public fact.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.preprocessing import Normalizer
    >>> from dpglm import LogisticRegression, PrivatePipeline
    >>> from dpglm.preprocessing import Center
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(25_000, 5)) + 4.0
    >>> y = X[:, 0] > X[:, 1]
    >>> model = PrivatePipeline(
    ...     [Normalizer(), Center(), LogisticRegression(classes=[False, True])], epsilon=1.0
    ... ).fit(X[:20_000], y[:20_000])
    >>> model.score(X[20_000:], y[20_000:]) > 0.9
    True
    >>> [one.stage for one in model.privacy_.spending()]
    ['center', 'model']
    """

    steps: Sequence[Any] = field(kw_only=False)
    shares: Mapping[str, float] | None = None

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        steps = [step for _, step in self._named()]
        if not steps or not isinstance(steps[-1], PrivateLinearModel):
            return tags  # fit says what is wrong
        last = get_tags(steps[-1])
        tags.estimator_type = last.estimator_type
        tags.target_tags = last.target_tags
        tags.classifier_tags = last.classifier_tags
        tags.regressor_tags = last.regressor_tags
        first = next(step for step in steps if isinstance(step, BaseEstimator))
        tags.input_tags = get_tags(first).input_tags
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "estimator_")

    def plan(self, n_rows: int, n_features: int | None = None, **options: Any) -> Plan:
        """Plan a fit from public parameters, without data.

        Parameters
        ----------
        n_rows : int
            Number of rows.
        n_features : int, optional
            Number of columns after the fixed transformers; needed unless these are one
            ``SchemaEncoder`` or ``SplineEncoder``, whose schema says it.
        **options
            As for the estimator's ``plan``: the number of classes, type and container.

        Returns
        -------
        Plan
            The plan that ``fit`` on data of that size executes.

        Raises
        ------
        ValueError
            If a step or parameter is invalid, or the row norm is not known beforehand.
        """
        parts = self._parts()
        if n_features is None:
            if not _is_encoder(parts.transformers):
                raise ValueError("n_features must be given to plan before data, got None")
            n_features = len(parts.transformers[0][1].get_feature_names_out())
        plan: Plan = self._configured(parts).plan(n_rows, n_features, **options)
        return plan

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
        """Fit all steps under one budget.

        Parameters
        ----------
        X : table or matrix
            What the first step takes; without fixed transformers, all that the estimator takes.
        y : array_like of shape (n,)
            Targets, for the estimator only; None for a ``Collection`` that has its own, and for a
            table whose target's column the schema of a first step ``SchemaEncoder`` or
            ``SplineEncoder`` names.
        sample_weight : array_like of shape (n,), optional
            Weights, for the estimator. Private steps leave them out, but for rows of weight 0,
            which are erased there, too.
        groups : array_like of shape (n,), optional
            Whose each row is, for private steps and the estimator: see its ``fit``.
        offset, exposure : array_like of shape (n,), optional
            Known terms of the scores, for the estimator only: see its ``fit``.
        where : array_like of bool of shape (n,), optional
            Which rows count, by a private condition, such as that no cell is missing; all others
            have the weight 0, and their cells are not looked at. The public number of rows stays
            that of the table. For rows in memory.
        checkpoint : path-like or CheckpointFile, optional
            File that holds the state after each step, as for the estimator's ``fit``.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If a step, a parameter or the data are invalid; nothing is released or spent then.

        Notes
        -----
        Privacy: ``privacy_`` says what was spent by whom and what was treated as public.
        """
        parts = self._parts()
        estimator = self._configured(parts)
        estimator._family = self._family
        transformers: list[tuple[str, Any]] = []
        _check_transformable(X, parts.transformers)
        if where is not None and not isinstance(where, Where) and parts.transformers:
            where = Where.of(where, X)
            given = (X, y, sample_weight, offset, exposure)
            X, y, sample_weight, offset, exposure = map(where.rows, given)
        for name, step in parts.transformers:
            transformer = ready(step)
            transformed = _applied(name, transformer, X, fit=True)
            check_alone(name, transformer, X, transformed)
            if not transformers:
                y = _target_of(transformer, X, y)
            transformers.append((name, transformer))
            X = transformed
        if checkpoint is not None:
            checkpoint = CheckpointFile.of(checkpoint, {"transformers": parts.transformers})
        estimator.fit(
            named_numbers(X, transformers),
            y,
            sample_weight,
            groups=groups,
            offset=offset,
            exposure=exposure,
            where=where,
            checkpoint=checkpoint,
        )
        if transformers:
            steps = [repr(step) for _, step in parts.transformers]
            declared = [PublicFact("transformers", steps, "declared")]
            if _is_encoder(transformers):
                declared += schema_facts(transformers[0][1].schema_)
            known = with_implied(
                estimator.privacy_.public_facts, "row_norm", known_row_norm(transformers[-1][1])
            )
            facts = (*known, *declared)
            estimator.privacy_ = dataclasses.replace(estimator.privacy_, public_facts=facts)
        self.transformers_ = transformers
        self.estimator_ = estimator
        return self

    def _parts(self) -> _Parts:
        """Check the steps and their order."""
        *before, (_, estimator) = self._checked()
        if not isinstance(estimator, PrivateLinearModel):
            raise ValueError(
                f"steps must end with a linear model of dpglm, got {in_one_line(estimator)}"
            )
        transformers: list[tuple[str, Any]] = []
        private: list[tuple[str, Preprocessor]] = []
        for name, step in before:
            if isinstance(step, str) and step == _SKIPPED:
                continue
            if isinstance(step, Preprocessor):
                private.append((name, step))
                continue
            if private:
                raise ValueError(
                    f"steps must have fixed transformers first, then private steps, got {name!r} "
                    f"after {private[-1][0]!r}"
                )
            check_fixed(name, step)
            transformers.append((name, step))
        return _Parts(transformers, private, estimator)

    def _configured(self, parts: _Parts) -> Any:
        """Return a copy of the estimator with the pipeline's budget and private steps."""
        estimator = parts.estimator
        for name in _OF_THE_PIPELINE:
            theirs, default = getattr(estimator, name), getattr(type(estimator), name)
            if theirs not in (default, getattr(self, name)):
                raise ValueError(
                    f"{name} is for the pipeline to say: leave the estimator's at {default!r}, "
                    f"got {theirs!r}"
                )
        changes = {name: getattr(self, name) for name in _OF_THE_PIPELINE}
        shares = private_shares(parts.private, self.shares)
        if parts.private:
            steps = [step for _, step in parts.private]
            changes["solver"] = Preprocessed(steps, estimator._solver(), shares)
        if parts.transformers and estimator.row_norm is None and estimator.feature_bounds is None:
            changes["row_norm"] = known_row_norm(parts.transformers[-1][1])
        return clone(estimator).set_params(**changes)

    def _transformed(self, X: Any) -> Any:
        check_is_fitted(self)
        _check_transformable(X, self.transformers_)
        for name, transformer in self.transformers_:
            X = _applied(name, transformer, X)
        return named_numbers(X, self.transformers_)

    def _targets(self, X: Any, y: Any) -> Any:
        check_is_fitted(self)
        return _target_of(self.transformers_[0][1], X, y) if self.transformers_ else y

    def coefficient_names(self) -> NDArray[Any] | None:
        """Name the columns that coefficients are about: those after the fixed transformers.

        Returns
        -------
        ndarray of str, or None where a step does not name its columns
        """
        check_is_fitted(self)
        if not self.transformers_:
            return getattr(self, "feature_names_in_", None)
        return names_after(self.transformers_)

    def table_units(self) -> LinearUnits | None:
        """Return the map from ``coef_`` and ``intercept_`` to the units of the table.

        Returns
        -------
        LinearUnits or None
            None where the fixed transformers are other than one ``SchemaEncoder`` or
            ``SplineEncoder``: coefficients
            are then per unit of the columns that ``coefficient_names`` names.
        """
        check_is_fitted(self)
        return units_after(self.transformers_)

    @property
    def inference_(self) -> Inference:
        """Standard errors, intervals and tests in the units of ``table_units``, if asked for."""
        inner: Inference = self._fitted().inference_
        units, names = self.table_units(), self.coefficient_names()
        shown = inner
        if units is not None:
            shown = inner.in_units(units)
        elif names is not None and not inner.of_table:
            shown = dataclasses.replace(inner, estimates=inner.estimates.renamed(list(names)))
        scores = inner.scores
        scores = LinearScores(_Transformed(self, scores.features), scores.estimates)
        return dataclasses.replace(shown, certificate=self.privacy_, scores=scores)

    def linear_model(self) -> tuple[PrivateLinearModel, Schema | None]:
        """Return what a model file can hold of the fitted pipeline.

        Returns
        -------
        estimator : estimator
            ``estimator_``, which has learned and undone the private steps.
        schema : Schema or None
            That of the ``SchemaEncoder`` or ``SplineEncoder`` that comes first, if one does.

        Raises
        ------
        ValueError
            If there are other transformers, which a model file cannot hold.
        """
        check_is_fitted(self)
        others = [step for _, step in self.transformers_]
        schema = None
        if others and isinstance(others[0], TableEncoder):
            schema = others.pop(0).schema_
        if others:
            raise ValueError(
                f"a model file cannot hold {in_one_line(others[0])}: save estimator_ for the "
                "columns that come out of transformers_, and apply these before it"
            )
        return self.estimator_, schema

    @property
    def named_steps(self) -> Bunch:
        """The steps by name; fitted ones after ``fit``."""
        steps = self._named()
        if not self.__sklearn_is_fitted__():
            return Bunch(**dict(steps))
        return Bunch(**dict(steps) | dict(self.transformers_) | {steps[-1][0]: self.estimator_})

    def _inner(self) -> Any:
        return vars(self).get("estimator_") or self._parts().estimator

    def _first(self) -> Any:
        inner = self._fitted()
        return self.transformers_[0][1] if self.transformers_ else inner


@dataclasses.dataclass(frozen=True, eq=False)
class _Transformed:
    """Rows of a pipeline as the features of its estimator."""

    pipeline: PrivatePipeline
    features: Callable[[Any], Matrix]

    def __call__(self, X: Any) -> Matrix:
        return self.features(self.pipeline._transformed(X))


def _applied(name: str, transformer: Any, X: Any, *, fit: bool = False) -> Any:
    try:
        return (transformer.fit(X, None) if fit else transformer).transform(X)
    except (TypeError, ValueError) as error:
        raise named_error(name, transformer, X, error) from error


def _target_of(transformer: Any, X: Any, y: Any) -> Any:
    """Return targets, by the first step's schema if they are in the table."""
    return transformer.target(X) if y is None and isinstance(transformer, TableEncoder) else y


def _is_encoder(transformers: Sequence[tuple[str, Any]]) -> bool:
    """Whether the fixed transformers are one that encodes a table by its schema."""
    return [isinstance(step, TableEncoder) for _, step in transformers] == [True]


def _check_transformable(X: Any, transformers: Sequence[tuple[str, Any]]) -> None:
    """Refuse rows that transformers would read as one table in memory."""
    is_elsewhere = isinstance(X, Collection) or type(X).__module__.partition(".")[0] == "dask"
    if transformers and is_elsewhere:
        raise ValueError(
            f"steps must have no fixed transformers for {type(X).__name__}, got "
            f"{transformers[0][0]!r}: transform the rows beforehand (each by itself, as in "
            "dask.array.map_blocks), or encode a table by ParquetRows(..., schema=)"
        )
