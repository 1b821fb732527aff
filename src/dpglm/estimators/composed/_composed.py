"""Models of transformed rows: a linear model with transformers and private steps before it."""

from __future__ import annotations

import abc
import copy
import dataclasses
import functools
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, final

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from dpglm._calls import checked
from dpglm._validation import in_one_line
from dpglm.certificate.certificate import PublicFact, model_digest, schema_facts, with_implied
from dpglm.data.collection import Collection, Output
from dpglm.estimators._predictor import ClassPredictor, Facts, Finish, FitData
from dpglm.estimators._private import OF_THE_FIT, PrivateFit
from dpglm.estimators.composed._transformers import (
    check_alone,
    known_row_norm,
    named_error,
    named_numbers,
    names_after,
    ready,
    units_after,
)
from dpglm.estimators.linear._base import PrivateLinearModel, of_schema
from dpglm.inference.inference import Inference, LinearScores
from dpglm.preprocessing.base import Preprocessor
from dpglm.preprocessing.encoders import TableEncoder
from dpglm.problem import ClassLink
from dpglm.shapes import ReleasedModel, Shape
from dpglm.shapes.collection import EDITS, HasShapes, errors_of, released_model
from dpglm.solvers.base import Plan
from dpglm.solvers.checkpoint import CheckpointFile
from dpglm.solvers.composite.preprocessed import Preprocessed
from dpglm.tables.cells import spelled_in
from dpglm.tables.encoding import LinearUnits
from dpglm.tables.given import Where
from dpglm.tables.named import by_name
from dpglm.tables.schema import Schema

SKIPPED = "passthrough"
OF_THE_MODEL = ("estimator_type", "classifier_tags", "regressor_tags", "target_tags")
"""Tags that a composition has from the linear model in it."""


def _of_fitted(name: str, doc: str) -> Any:
    """Return a property: an attribute of the fitted estimator inside a model."""
    return property(lambda model: getattr(model._fitted(), name), doc=doc)


class FittedModel(ClassPredictor):
    """Predicts by the fitted estimator inside it, and has the fitted attributes of that."""

    @abc.abstractmethod
    def _inner(self) -> Any:
        """Return the fitted estimator, or before the fit the unfitted one."""

    def _transformed(self, X: Any) -> Any:
        """Return rows as the inner estimator takes them."""
        return X

    def _targets(self, X: Any, y: Any) -> Any:
        """Return the targets of rows, given or in a column of the table."""
        return y

    def _first(self) -> Any:
        """Return the first step that takes the rows."""
        return self._fitted()

    def _fitted(self) -> Any:
        check_is_fitted(self)
        return self._inner()

    classes_ = _of_fitted("classes_", "Labels of a classifier, sorted.")
    coef_ = _of_fitted("coef_", "Coefficients of the columns after the fixed transformers.")
    intercept_ = _of_fitted("intercept_", "Intercepts.")
    n_iter_ = _of_fitted("n_iter_", "Number of steps, private preprocessing included.")
    privacy_ = _of_fitted("privacy_", "The certificate of the whole fit.")
    solution_ = _of_fitted(
        "solution_", "The plan that was executed, and public diagnostics of each step."
    )
    inference_ = _of_fitted("inference_", "Standard errors, intervals and tests, if requested.")

    n_features_in_ = property(
        lambda model: model._first().n_features_in_, doc="Number of input columns."
    )
    feature_names_in_ = property(
        lambda model: model._first().feature_names_in_, doc="Names of the input columns, if any."
    )

    def linear_model(self) -> tuple[Any, Schema | None]:
        return self._fitted().linear_model()  # type: ignore[no-any-return]

    def _predicted(self, X: Any, output: Output) -> Any:
        return self._fitted()._predicted(self._transformed(X), output)

    def _classifies(self) -> bool:
        return self._inner()._classifies()  # type: ignore[no-any-return]

    def _answer(self) -> Output:
        return self._fitted()._answer()  # type: ignore[no-any-return]

    def _score(self, X: Any, y: Any, *options: Any) -> float:
        y, rows = self._targets(X, y), self._transformed(X)
        return self._fitted()._score(rows, y, *options)  # type: ignore[no-any-return]

    def _class_link(self) -> ClassLink:
        return self._inner()._class_link()  # type: ignore[no-any-return]


@final
@dataclass(frozen=True)
class Parts:
    """The parts of a model: fixed transformers, private steps and a linear model, in this order."""

    transformers: Sequence[tuple[str, Any]]
    private: Sequence[tuple[str, Preprocessor]]
    model: PrivateLinearModel
    shares: Mapping[str, float] | None = None


class ComposedModel(HasShapes, FittedModel, PrivateFit):
    """A linear model of rows that fixed transformers and private steps make."""

    def __sklearn_is_fitted__(self) -> bool:
        return "estimator_" in vars(self)

    @abc.abstractmethod
    def _planned_parts(self, n_rows: int) -> Parts:
        """Return the unfitted parts for a number of rows."""

    def n_planned_columns(self, n_rows: int) -> int:
        """Return the number of columns of a table's model, with the intercept."""
        parts = self._planned_parts(n_rows)
        return len(_encoded(parts).feature_names) + int(parts.model.fit_intercept)

    def _planned(self, parts: Parts, n_rows: int, n_features: int | None, options: Any) -> Plan:
        if n_features is None:
            schema = _encoded(parts)
            n_features = len(schema.feature_names)
            options = {"sparse": True} | options if schema.is_wide else options
        plan: Plan = self._configured(parts).plan(n_rows, n_features, **options)
        return plan

    def _fit_parts(self, parts: Parts, data: FitData, finish: Finish | None) -> None:
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
            facts = _with_transformers(facts, parts.transformers, transformers)
            return facts if finish is None else finish(model, facts)

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
        private = dict(parts.private)
        given: Any = {} if parts.shares is None else parts.shares
        if not isinstance(given, Mapping) or not set(given) <= set(private):
            raise ValueError(
                f"shares must be a mapping from names of private steps, {list(private)!r}, to "
                f"shares of the budget, got {parts.shares!r}"
            )
        if private:
            # A step without a share follows its own rule.
            shares = [given.get(name) for name in private]
            changes["solver"] = Preprocessed(list(private.values()), model._solver(), shares)
        made = clone(model).set_params(**changes)
        if parts.transformers and model.row_norm is None and model.feature_bounds is None:
            last = parts.transformers[-1][1]
            made.set_params(row_norm=known_row_norm(last))
            if isinstance(last, TableEncoder):
                made.set_params(**of_schema(made, made.solver, last.stated_schema()))
        return made

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
        """Return the names of the coefficients' columns; None if a transformer names none."""
        check_is_fitted(self)
        if not self.transformers_:
            return getattr(self, "feature_names_in_", None)
        return names_after(self.transformers_)

    def table_units(self) -> LinearUnits | None:
        """Return the map from ``coef_`` and ``intercept_`` to the units of the table.

        It is None unless the fixed transformers are one ``SchemaEncoder`` or ``SplineEncoder``;
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

    @checked
    def with_shape(self, term: str, shape: Shape | Mapping[Any, float]) -> Self:
        """Return a copy of the model with another shape for a term.

        The certificate of the edited model names the edit. It lacks ``inference_``, which describes
        the fit; shapes that were not edited keep their noise bands.

        Parameters
        ----------
        term : str
            A column, or a pair of columns with `` x `` between them.
        shape : Shape, or mapping from number or level to float
            Such as ``model.shapes_["age"].monotone(1)``; or points, as in ``Shape.through``. A
            ValueError if the model cannot express it.

        Notes
        -----
        Privacy: post-processing, provided that the edit does not depend on private rows.
        """
        if term not in self.shapes_:
            raise ValueError(f"term must be one of {in_one_line(list(self.shapes_))}, got {term!r}")
        own = self.shapes_[term]
        edited = own.through(shape) if isinstance(shape, Mapping) else shape
        if edited.term != term:
            raise ValueError(f"shape must be of {term!r}, got a shape of {edited.term!r}")
        released = self._released().with_shape(edited)
        changed = copy.copy(self)
        fitted, _ = self.linear_model()
        estimator = copy.copy(fitted)
        for name in ("inference_", "_error_covariance"):
            vars(estimator).pop(name, None)
        estimator.coef_ = released.coef.reshape(np.shape(fitted.coef_))
        estimator.intercept_ = released.intercept.reshape(np.shape(fitted.intercept_))[()]
        certificate = fitted.privacy_
        facts = [one for one in certificate.public_facts if one.name != EDITS]
        estimator.privacy_ = certificate.with_part(
            public_facts=(*facts, PublicFact(EDITS, dict(released.edits), "declared")),
            model_digest=model_digest(estimator.coef_, estimator.intercept_),
        )
        changed.estimator_ = estimator
        return changed

    def _released(self) -> ReleasedModel:
        estimator, schema = self.linear_model()
        return released_model(estimator, schema, errors_of(estimator))


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
    check_is_fitted(model)
    return Parts(model.transformers_, [], model.estimator_)


@parts_of.register
def _(pipeline: Pipeline) -> Parts:
    *before, (_, last) = pipeline.steps
    inner = parts_of(last)
    steps = [(name, step) for name, step in before if step is not None and step != SKIPPED]
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


def _encoded(parts: Parts) -> Schema:
    """Return the schema of the columns that a single encoder makes."""
    encoder = _encoder(parts.transformers)
    if encoder is None:
        raise ValueError("n_features must be given for a plan, got None")
    return encoder.stated_schema()


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


# Tables that an encoder takes: in memory, in Parquet files and on Dask.

_NOT_A_TABLE = (
    "X must be a table with the columns of the schema (also Dask, ParquetRows, ArrowRows or "
    "SparkRows), the path of Parquet files or the address of a database"
)
_TEXTS = (".csv", ".tsv", ".txt")


def is_in_memory(X: Any) -> bool:
    """Whether rows are in memory, unlike those of a Collection or of Dask."""
    return not (isinstance(X, Collection) or type(X).__module__.partition(".")[0] == "dask")


def opened(encoder: TableEncoder, X: Any) -> Any:
    """Check that an encoder can take a table, and open it if it is the path of files."""
    if isinstance(X, str | os.PathLike | Collection):
        # Imported when needed, as most tables are in memory.
        from dpglm.data.pyspark import SparkRows
        from dpglm.data.stream.arrow import ArrowRows

        if not isinstance(X, Collection) and Path(X).suffix.lower() in _TEXTS:
            raise ValueError(
                "X must be the path of Parquet files or a table: read text first, as with "
                f"pandas.read_csv, or use dpglm fit; got {in_one_line(X)}"
            )
        rows = X if isinstance(X, Collection) else ArrowRows(X, schema=encoder._schema())
        if isinstance(rows, ArrowRows | SparkRows):
            return rows
        raise ValueError(f"{_NOT_A_TABLE}, got {type(X).__name__}")
    if not is_in_memory(X):
        import dask.dataframe

        if not isinstance(X, dask.dataframe.DataFrame):
            raise ValueError(f"X must be a data frame if it is of Dask, got {in_one_line(X)}")
    else:
        by_name(X, _NOT_A_TABLE)
    return X


def n_rows_of(encoder: TableEncoder, table: Any, where: Any) -> int:
    """Return the number of rows of an opened table, of which ``where`` may select some."""
    if isinstance(where, Where):
        return len(where.counts)
    if is_in_memory(table):
        return encoder._schema().count(table)
    n_rows = table.shape[0]
    return int(n_rows if isinstance(table, Collection) else n_rows.compute())


def encoded(encoder: TableEncoder, table: Any, *, fit: bool = False) -> Any:
    """Encode an opened table: Parquet as it is read, and Dask in its partitions."""
    if is_in_memory(table):
        return (encoder.fit(table) if fit else encoder).transform(table)
    schema = encoder._schema()
    if fit:
        encoder.fit(dict.fromkeys(schema.column_names, ()))
    if isinstance(table, Collection):
        return table.with_schema(schema)  # type: ignore[attr-defined]
    columns = _columns(table, schema.column_names)
    empty = np.zeros((0, len(schema.feature_names)))
    return table[columns].map_partitions(schema.encode, meta=empty).compute_chunk_sizes()


def targets(encoder: TableEncoder, table: Any, y: Any) -> Any:
    """Return the given targets, else those in the column that the schema names."""
    if y is not None or isinstance(table, Collection):
        return y
    schema = encoder._schema()
    if not schema.has_target:
        raise ValueError("y must be given, as the schema describes no target")
    if is_in_memory(table):
        return encoder.target(table)
    column = table[_columns(table, [schema.target.name])[0]]
    like = schema.target.encode(column.head(0))
    return column.map_partitions(schema.encode_target, meta=like).compute_chunk_sizes()


def _columns(frame: Any, names: Sequence[str]) -> list[Any]:
    """Return the frame's spelling of the schema's column names."""
    spelled = spelled_in(names, frame.columns)
    return [spelled.get(name, name) for name in names]
