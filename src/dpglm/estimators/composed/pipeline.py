"""PrivatePipeline: fixed transformers, private steps and an estimator under one budget."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, final

from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.pipeline import Pipeline
from sklearn.utils import Bunch, Tags, get_tags
from sklearn.utils.validation import check_is_fitted

from dpglm._validation import in_one_line
from dpglm.certificate.statement import PublicFact, schema_facts, with_implied
from dpglm.estimators._predictor import Facts, Finish, FitData, as_it_is
from dpglm.estimators._private import OF_THE_FIT, PrivateFit
from dpglm.estimators._shapes import WithShapes
from dpglm.estimators.composed._composed import (
    FittedModel,
    encoded,
    is_in_memory,
    opened,
    targets,
)
from dpglm.estimators.composed._steps import NamedSteps, private_shares
from dpglm.estimators.composed._transformers import (
    check_alone,
    check_fixed,
    known_row_norm,
    named_error,
    named_numbers,
    names_after,
    ready,
    units_after,
)
from dpglm.estimators.linear._base import PrivateLinearModel
from dpglm.inference.inference import Inference, LinearScores
from dpglm.preprocessing.base import Preprocessor
from dpglm.preprocessing.encoders import TableEncoder
from dpglm.solvers.base import Plan
from dpglm.solvers.checkpoint import CheckpointFile
from dpglm.solvers.composite.preprocessed import Preprocessed
from dpglm.tables.encoding import LinearUnits
from dpglm.tables.schema import Schema

__all__ = ["PrivatePipeline"]

_SKIPPED = "passthrough"


@final
@dataclass(frozen=True)
class Parts:
    """The parts of a model: fixed transformers, private steps and a linear model, in this order."""

    transformers: Sequence[tuple[str, Any]]
    private: Sequence[tuple[str, Preprocessor]]
    model: PrivateLinearModel
    shares: Mapping[str, float] | None = None


class ComposedModel(WithShapes, FittedModel, PrivateFit):
    """A linear model of rows that fixed transformers and private steps make."""

    def __sklearn_is_fitted__(self) -> bool:
        return "estimator_" in vars(self)

    def _planned(self, parts: Parts, n_rows: int, n_features: int | None, options: Any) -> Plan:
        if n_features is None:
            encoder = _encoder(parts.transformers)
            if encoder is None:
                raise ValueError("n_features must be given for a plan, got None")
            schema = encoder.stated_schema()
            n_features = len(schema.feature_names)
            options = {"sparse": True} | options if schema.is_wide else options
        plan: Plan = self._configured(parts).plan(n_rows, n_features, **options)
        return plan

    def _fit_parts(self, parts: Parts, data: FitData, finish: Finish) -> None:
        model = self._configured(parts)
        model._family = self._family
        data = dataclasses.replace(data, X=_opened(data.X, parts.transformers))
        if parts.transformers and is_in_memory(data.X):
            data = data.chosen()
        X, y = data.X, data.y
        transformers: list[tuple[str, Any]] = []
        for name, step in parts.transformers:
            transformer = ready(step)
            transformed = _applied(name, transformer, X, fit=True)
            check_alone(name, transformer, X, transformed)
            if not transformers and isinstance(transformer, TableEncoder):
                y = targets(transformer, X, y)
            transformers.append((name, transformer))
            X = transformed
        X, checkpoint = named_numbers(X, transformers), data.checkpoint
        if checkpoint is not None:
            checkpoint = CheckpointFile.of(checkpoint, {"transformers": parts.transformers})

        def with_transformers(model: Any, facts: Facts) -> Facts:
            return finish(model, _with_transformers(facts, parts.transformers, transformers))

        model._fit(dataclasses.replace(data, X=X, y=y, checkpoint=checkpoint), with_transformers)
        self.transformers_: list[tuple[str, Any]] = transformers
        self.estimator_: PrivateLinearModel = model

    def _configured(self, parts: Parts) -> Any:
        """Return a copy of the linear model with the budget of the whole and the private steps."""
        model = parts.model
        for name in OF_THE_FIT:
            theirs, default = getattr(model, name), getattr(type(model), name)
            if theirs not in (default, getattr(self, name)):
                raise ValueError(
                    f"{name} must be set on the pipeline: leave the estimator's at {default!r}, "
                    f"got {theirs!r}"
                )
        changes = {name: getattr(self, name) for name in OF_THE_FIT}
        shares = private_shares(parts.private, parts.shares)
        if parts.private:
            steps = [step for _, step in parts.private]
            changes["solver"] = Preprocessed(steps, model._solver(), shares)
        if parts.transformers and model.row_norm is None and model.feature_bounds is None:
            changes["row_norm"] = known_row_norm(parts.transformers[-1][1])
        return clone(model).set_params(**changes)

    def _transformed(self, X: Any) -> Any:
        check_is_fitted(self)
        X = _opened(X, self.transformers_)
        for name, transformer in self.transformers_:
            X = _applied(name, transformer, X)
        return named_numbers(X, self.transformers_)

    def _targets(self, X: Any, y: Any) -> Any:
        check_is_fitted(self)
        first = self.transformers_[0][1] if self.transformers_ else None
        return targets(first, opened(first, X), y) if isinstance(first, TableEncoder) else y

    def coefficient_names(self) -> NDArray[Any] | None:
        """Return the names of the columns that the coefficients belong to.

        Returns
        -------
        ndarray of str, or None if a transformer does not name its columns
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
            None unless the fixed transformers are one ``SchemaEncoder`` or ``SplineEncoder``;
            coefficients are then in units of the columns in ``coefficient_names``.
        """
        check_is_fitted(self)
        return units_after(self.transformers_)

    @property
    def inference_(self) -> Inference:
        """Standard errors, intervals and tests in the units of ``table_units``, if requested."""
        inner: Inference = self._fitted().inference_
        units, names = self.table_units(), self.coefficient_names()
        shown = inner
        if units is not None:
            shown = inner.of_features.in_units(units)
        elif names is not None and not inner.of_table:
            shown = dataclasses.replace(inner, estimates=inner.estimates.renamed(list(names)))
        # A partial function, which can be pickled.
        features = functools.partial(self._features, inner.scores.features)
        scores = LinearScores(features, inner.scores.estimates)
        return dataclasses.replace(shown, certificate=self.privacy_, scores=scores)

    def _features(self, features: Callable[[Any], Any], X: Any) -> Any:
        """Return the features of the last step for rows of the pipeline."""
        return features(self._transformed(X))

    def linear_model(self) -> tuple[PrivateLinearModel, Schema | None]:
        """Return the linear model and the schema that a model file can hold.

        Returns
        -------
        estimator : estimator
            ``estimator_``, with the private steps undone.
        schema : Schema or None
            That of the ``SchemaEncoder`` or ``SplineEncoder`` that comes first, if any.

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

    def _first(self) -> Any:
        inner = self._fitted()
        return self.transformers_[0][1] if self.transformers_ else inner


@final
class PrivatePipeline(NamedSteps, ComposedModel):
    """Transformers, private preprocessing and a private estimator that share one budget.

    Parameters
    ----------
    steps : list of step, or of (str, step)
        In this order: any number of fixed transformers, which learn nothing from rows
        (``SchemaEncoder``, ``SplineEncoder``, scikit-learn's ``Normalizer``,
        ``OneHotEncoder(categories=[...])``, a ``FrozenEstimator`` that was fitted on public data,
        ``ColumnTransformer`` of such steps with listed columns, ...); any number of private steps
        (``dpglm.preprocessing.Center``, ...); an estimator of dpglm. ``"passthrough"`` in place of
        a step skips it.
    shares : mapping from str to float, optional
        Share of the budget (of mu squared in Gaussian DP) for private steps by name, each in
        (0, 1), together below 1. Other steps follow their own rule, a function of public facts. The
        estimator gets the rest.

    Attributes
    ----------
    estimator_ : estimator
        The last step, fitted, with the pipeline's budget; its solver is
        ``Preprocessed(private steps, its own solver, shares)``.
    transformers_ : list of (str, transformer)
        The fixed transformers, ready to transform.
    classes_, coef_, intercept_, n_iter_, privacy_, solution_
        Those of ``estimator_``. Coefficients belong to the columns after the fixed transformers,
        see ``coefficient_names``.
    n_features_in_, feature_names_in_
        Those of the first step.

    Notes
    -----
    Budget, ledger, neighbouring relation, number of rows and randomness are parameters of the
    pipeline: those of the estimator must be left at their defaults, or equal the pipeline's.

    If the estimator has neither ``row_norm`` nor ``feature_bounds``, the row norm that the last
    fixed transformer's settings imply is used.

    Privacy: the whole is a single run with a single certificate, ``privacy_``; its ``spending()``
    lists the cost by step. Gaussian stages compose exactly, so splitting loses nothing. A
    transformer that would learn from rows is refused; the list of transformers is recorded as a
    declared public fact.

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
            return tags  # fit raises the error
        last = get_tags(steps[-1])
        tags.estimator_type = last.estimator_type
        tags.target_tags = last.target_tags
        tags.classifier_tags = last.classifier_tags
        tags.regressor_tags = last.regressor_tags
        first = next(step for step in steps if isinstance(step, BaseEstimator))
        tags.input_tags = get_tags(first).input_tags
        return tags

    def plan(self, n_rows: int, n_features: int | None = None, **options: Any) -> Plan:
        """Plan a fit from public parameters, without data.

        Parameters
        ----------
        n_rows : int
            Number of rows.
        n_features : int, optional
            Number of columns after the fixed transformers; required unless these are a single
            ``SchemaEncoder`` or ``SplineEncoder``.
        **options
            Options of the estimator's ``plan``: the number of classes, type and container.

        Returns
        -------
        Plan
            The plan that ``fit`` on data of that size executes.

        Raises
        ------
        ValueError
            If a step or parameter is invalid, or the row norm is not public.
        """
        return self._planned(self._parts(), n_rows, n_features, options)

    def _fit(self, data: FitData, finish: Finish = as_it_is) -> None:
        self._fit_parts(self._parts(), data, finish)

    def _parts(self) -> Parts:
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
        return Parts(transformers, private, estimator, self.shares)

    @property
    def named_steps(self) -> Bunch:
        """The steps by name; fitted ones after ``fit``."""
        steps = self._named()
        if not self.__sklearn_is_fitted__():
            return Bunch(**dict(steps))
        return Bunch(**dict(steps) | dict(self.transformers_) | {steps[-1][0]: self.estimator_})

    def _inner(self) -> Any:
        return vars(self).get("estimator_") or self._parts().model


@functools.singledispatch
def parts_of(estimator: Any) -> Parts:
    """Return the parts of a model, fitted ones after ``fit``; of a search those of the best one."""
    raise ValueError(
        "estimator must be a fitted linear model of dpglm, a PrivatePipeline or private search of "
        f"one, or a Pipeline that ends with one, got {type(estimator).__name__}"
    )


@parts_of.register
def _(model: PrivateLinearModel) -> Parts:
    return Parts([], [], model)


@parts_of.register
def _(model: ComposedModel) -> Parts:
    if isinstance(model, PrivatePipeline) and not model.__sklearn_is_fitted__():
        return model._parts()
    check_is_fitted(model)
    return Parts(model.transformers_, [], model.estimator_)


@parts_of.register
def _(pipeline: Pipeline) -> Parts:
    *before, (_, last) = pipeline.steps
    inner = parts_of(last)
    steps = [(name, step) for name, step in before if step is not None and step != _SKIPPED]
    return dataclasses.replace(inner, transformers=[*steps, *inner.transformers])


def _applied(name: str, transformer: Any, X: Any, *, fit: bool = False) -> Any:
    # Errors of an encoder name the column and the row.
    if isinstance(transformer, TableEncoder):
        return encoded(transformer, X, fit=fit)
    try:
        return (transformer.fit(X, None) if fit else transformer).transform(X)
    except (TypeError, ValueError) as error:
        raise named_error(name, transformer, X, error) from error


def _encoder(transformers: Sequence[tuple[str, Any]]) -> TableEncoder | None:
    """Return the fixed transformer if it is a single one that encodes a table by its schema."""
    found = [step for _, step in transformers]
    return found[0] if len(found) == 1 and isinstance(found[0], TableEncoder) else None


def _opened(X: Any, transformers: Sequence[tuple[str, Any]]) -> Any:
    """Open a file of rows for an encoder; other transformers take rows in memory only."""
    encoder = _encoder(transformers)
    if encoder is not None:
        return opened(encoder, X)
    if transformers and not is_in_memory(X):
        raise ValueError(
            f"steps must not have fixed transformers for {type(X).__name__}, got "
            f"{transformers[0][0]!r}: transform the rows beforehand (each by itself, as in "
            "dask.array.map_blocks), or encode a table by a single SchemaEncoder or SplineEncoder"
        )
    return X


def _with_transformers(
    facts: Facts, given: Sequence[tuple[str, Any]], transformers: Sequence[tuple[str, Any]]
) -> Facts:
    """Add the public facts that fixed transformers contribute, as given and as fitted."""
    if not transformers:
        return facts
    encoder, steps = _encoder(transformers), [repr(step) for _, step in given]
    known = with_implied(facts, "row_norm", known_row_norm(transformers[-1][1]))
    if encoder is None:
        return (*known, PublicFact("transformers", steps, "declared"))
    known = (*known, PublicFact("transformers", [type(encoder).__name__], "declared"))
    # Rows of files may carry their schema.
    has_schema = any(fact.name == "schema" for fact in known)
    return known if has_schema else (*known, *schema_facts(encoder.schema_))
