"""Predictions of fitted models, and maps from the user's targets to those of a loss."""

from __future__ import annotations

import abc
import dataclasses
import math
import os
from collections.abc import Callable, Container
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Self, TypeAlias, final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.metaestimators import available_if

from dpglm._calls import all_or_nothing, checked
from dpglm._validation import check_one_of
from dpglm.certificate.certificate import PublicFact
from dpglm.data.collection import Collection, Output, TargetMap, scores, with_offset
from dpglm.data.rows import DataSpec
from dpglm.export import export
from dpglm.problem import LOSSES, ClassLink, Loss, Problem, Target
from dpglm.solvers.base import Plan
from dpglm.solvers.checkpoint import CheckpointFile
from dpglm.tables.cells import LARGEST_WHOLE, row_name
from dpglm.tables.given import Where, as_floats, as_offset, check_not_missing, is_text, spelled_as
from dpglm.tables.schema import Schema

_SHOWN = 5


@final
@dataclass(frozen=True, eq=False)
class ByLabel:
    """Map each of the sorted labels to a number."""

    labels: NDArray[Any]
    numbers: NDArray[Any]

    def __call__(self, y: NDArray[Any]) -> NDArray[Any]:
        y, classes = check_labels(self.labels, y), self.labels
        indices = np.minimum(np.searchsorted(classes, y), len(classes) - 1)
        if not (classes[indices] == y).all():
            unknown = sorted(set(y.tolist()) - set(classes.tolist()))
            raise ValueError(
                f"y has labels that are not in classes={classes.tolist()}: {unknown[:_SHOWN]}"
            )
        return self.numbers[indices]


def target_numbers(y: NDArray[Any]) -> NDArray[np.float64]:
    """Return targets as finite numbers."""
    return check_not_missing(as_floats("y", y))


Offsets: TypeAlias = tuple[float, float, float]
"""Public bounds on offsets, and the center that is subtracted and returns in the intercept."""


@final
@dataclass(frozen=True)
class BoundedTargets:
    """Clip targets to public bounds, subtract ``center`` and divide by ``scale``.

    Rounding does not leave ``scaled_bounds``. Numbers beyond the bounds raise an error if
    ``strict``, like proportions; so do numbers that the loss cannot take, such as negative
    counts. A second column holds offsets, which are clipped to ``offsets`` and centred.
    """

    bounds: tuple[float, float]
    center: float
    scale: float
    scaled_bounds: tuple[float, float]
    kind: Target = Target.REAL
    strict: bool = False
    numbers: TargetMap = target_numbers
    offsets: Offsets = (-math.inf, math.inf, 0.0)

    def __call__(self, y: NDArray[Any]) -> NDArray[np.float64]:
        if y.ndim == 2:
            low, high, center = self.offsets
            offset = np.clip(as_offset(y[:, 1], len(y)), low, high)
            return np.column_stack([self(y[:, 0]), offset - center])
        numbers = self.numbers(y)
        if self.strict and len(numbers):
            low, high = self.bounds
            if numbers.min() < low or numbers.max() > high:
                raise ValueError(
                    f"y must be numbers from {low:g} to {high:g}. For counts of successes give the "
                    "proportions y / trials and sample_weight=trials; for other labels classes="
                )
        # The loss decides whether the bound itself is allowed.
        below = ~self.kind.admits(np.minimum(numbers, self.kind.bounds[1]))
        if below.any():
            row = int(below.argmax())
            raise ValueError(
                f"y must be {self.kind.words}, got {numbers[row]:g} in {row_name(row)}"
            )
        scaled = (np.clip(numbers, *self.bounds) - self.center) / self.scale
        clipped: NDArray[np.float64] = np.clip(scaled, *self.scaled_bounds)
        return clipped


@final
@dataclass(frozen=True)
class FitTask:
    """The encoding of targets, and the problem to solve.

    ``weights`` maps targets to a factor of the row's weight, at most ``heaviest``.
    """

    targets: TargetMap
    problem: Callable[[DataSpec], Problem]
    n_outputs: int = 1
    target_range: tuple[float, float] = (-math.inf, math.inf)
    weights: TargetMap | None = None
    heaviest: float = 1.0


def as_bounds(name: str, bounds: Any) -> tuple[float, float]:
    """Read a pair of finite numbers."""
    try:
        # Text is not a number.
        low, high = (math.nan if isinstance(one, str | bytes) else float(one) for one in bounds)
    except (TypeError, ValueError):
        low, high = math.nan, math.nan
    if not (math.isfinite(low) and math.isfinite(high) and low <= high):
        raise ValueError(
            f"{name} must be a pair of finite numbers (low, high) with low <= high, got {bounds!r}"
        )
    return low, high


def stated_loss(
    loss: Any, names: Callable[[Loss], bool], targets: Container[Target], kind: str
) -> Loss:
    """Read a parameter ``loss``: a loss, or the name of one that satisfies ``names``."""
    known = [name for name, one in LOSSES.items() if names(one)]
    if isinstance(loss, str):
        loss = LOSSES[check_one_of("loss", loss, known)]
    if not isinstance(loss, Loss) or loss.target not in targets:
        raise ValueError(f"loss must be one of {known} or a Loss of {kind}, got {loss!r}")
    return loss


def check_labels(classes: NDArray[Any], y: NDArray[Any]) -> NDArray[Any]:
    """Check that no label is missing or of another type; return them as the classes spell them."""
    y = check_not_missing(y)
    if len(y) and (is_text(y) is None or is_text(y) != is_text(classes)):
        raise ValueError(f"y has labels of another type than classes={classes.tolist()}")
    kinds = {y.dtype.kind, classes.dtype.kind}
    if kinds <= set("iuf") and len(kinds) > 1 and np.abs(classes).max() > LARGEST_WHOLE:
        raise ValueError(
            f"y must hold labels of the type {classes.dtype}, got {y.dtype}: numbers beyond 2^53 "
            "do not compare exactly"
        )
    return spelled_as(y, classes.tolist())


NO_OFFSET = "offset and exposure must be None for a classifier: BinomialRegressor takes an offset"

Facts: TypeAlias = tuple[PublicFact, ...]
Finish: TypeAlias = Callable[[Any, Facts], Facts]
"""Called with a fitted linear model and its public facts before these are certified.

It may change the coefficients by post-processing, and returns the facts for the certificate.
"""


@final
@dataclass(frozen=True, eq=False)
class FitData:
    """The arguments of ``fit``, and the plan where it is made already."""

    X: Any
    y: Any = None
    sample_weight: Any = None
    groups: Any = None
    offset: Any = None
    exposure: Any = None
    where: Any = None
    checkpoint: str | os.PathLike[str] | CheckpointFile | None = None
    plan: Plan | None = None

    def chosen(self) -> FitData:
        """Keep the rows in memory for which ``where`` holds, and remember which these are."""
        if self.where is None or isinstance(self.where, Where):
            return self
        where = Where.of(self.where, self.X)
        names = ("X", "y", "sample_weight", "offset", "exposure")
        rows = {name: where.rows(getattr(self, name)) for name in names}
        return dataclasses.replace(self, where=where, **rows)


class Predictor(abc.ABC):
    """Fits a linear model and predicts by a function of its scores."""

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
        where: ArrayLike | None = None,
        checkpoint: str | os.PathLike[str] | CheckpointFile | None = None,
    ) -> Self:
        """Fit the model under differential privacy.

        Parameters
        ----------
        X : array_like, sparse matrix, table or Collection of shape (n, n_features)
            Rows: NumPy, pandas, polars, or SciPy sparse (read as CSR); float32 stays float32.
            With all public parameters declared also a large memory-mapped array, a torch tensor,
            a Dask array, or a ``Collection`` such as ``ParquetRows`` with its own targets and
            weights. Models of a schema take a table with the schema's columns: a data frame of
            pandas, polars or Dask, a mapping from names to columns, an array in the schema's
            order, ``ParquetRows``, or the path of Parquet files.
        y : array_like of shape (n,), optional
            Labels of a classifier, all among ``classes`` if these are declared; targets of a
            regressor. None for a ``Collection`` with its own targets, and for a table with the
            target column that the schema names.
        sample_weight : array_like of shape (n,), optional
            Weights in [0, ``weight_bound``]; larger ones are clipped. A row of weight 0 is erased:
            it contributes nothing. If all weights are 0, the result is the neutral model plus
            noise; a warning says so unless the released sums exceed the noise.
        groups : array_like of shape (n,), optional
            Id of the person, household or other group of each row: numbers or texts in any order,
            of Dask if X is. Privacy then protects all rows of a group together. Searches protect
            rows only.
        offset : array_like of shape (n,), or mapping of a name to one, optional
            Known terms of the scores, for a regressor with a link other than the identity: finite,
            as private as their rows, and clipped to ``offset_bounds``. The name, or that of a
            Series, is recorded.
        exposure : array_like of shape (n,), or mapping of a name to one, optional
            In place of ``offset``, for a log link: durations, numbers of people or the like above
            0, to which means are proportional. ``offset`` is its logarithm.
        where : array_like of bool of shape (n,), optional
            Private condition for the rows that count, such as that no cell is missing. All others
            have weight 0, and their cells are not read. The public number of rows stays that of
            the table. For rows in memory.
        checkpoint : path-like or CheckpointFile, optional
            File that holds the state after each step. If the process is killed, the same call
            resumes from it and spends nothing twice; once complete, it returns the same model
            until the file is deleted. A checkpoint of a fit with other parameters is refused.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If a parameter or the data are invalid; nothing has been released or spent.
        PlanMismatchError
            If the checkpoint belongs to another fit; the message names the difference.

        Notes
        -----
        Privacy: ``privacy_`` states the guarantee and the public parameters that it rests on.
        """
        data = FitData(X, y, sample_weight, groups, offset, exposure, where, checkpoint)
        with nullcontext() if where is None else Where.numbering(where):
            self._fit(data)
        return self

    @abc.abstractmethod
    def _fit(self, data: FitData, finish: Finish | None = None) -> None:
        """Fit this estimator, which is a draft that ``fit`` installs."""

    @abc.abstractmethod
    def _predicted(self, X: Any, output: Output) -> Any:
        """Apply a function of linear scores to rows; return an array of the same kind."""

    @abc.abstractmethod
    def _classifies(self) -> bool:
        """Whether predictions are labels."""

    @abc.abstractmethod
    def _answer(self) -> Output:
        """Return the map from linear scores to labels or means."""

    @abc.abstractmethod
    def _score(self, X: Any, y: Any, sample_weight: Any, offset: Any, exposure: Any) -> float:
        """Return the accuracy, or R squared."""

    def predict(self, X: Any, *, offset: Any = None, exposure: Any = None) -> Any:
        """Predict labels of a classifier, or targets of a regressor.

        Parameters
        ----------
        X : array_like, table, sparse matrix or Collection of shape (n, n_features)
            Rows, of all kinds that ``fit`` takes.
        offset, exposure : array_like of shape (n,) or float, optional
            As in ``fit``; arrays for rows in memory only. Default: the rows' own
            (``ParquetRows``), else an offset of 0 or an exposure of 1.

        Returns
        -------
        array of shape (n,)
            A NumPy array; a lazy Dask array for Dask rows; a tensor on the same device for a
            tensor. String labels always in a NumPy array.
        """
        self._check_offset(offset, exposure)
        if isinstance(X, Collection) and X.has_offset and not (offset is exposure is None):
            raise ValueError("offset and exposure must be None for rows with offsets")
        answer = with_offset(self._answer(), offset, exposure)
        return self._predicted(X, answer)

    @checked
    def export(self, to: str, *, schema: Schema | None = None) -> Any:
        """Write the model as SQL, Python or ONNX, to score rows elsewhere.

        Parameters
        ----------
        to : {"sql", "python", "onnx"}
            "sql" is an expression of the table's columns, "python" the source of a function
            ``predict(row)`` that imports nothing, and "onnx" a model for ONNX runtimes.
        schema : Schema, optional
            Schema of the table that was encoded as features; by default that of the fit.

        Returns
        -------
        str or onnx.ModelProto
            Probabilities of classes: of the second of two, or one for each. For other models
            linear scores of classes, or means of the target at an exposure of 1. A row that
            ``predict`` refuses is NULL, a ValueError or NaN.

        Raises
        ------
        ValueError
            If the model has transformers without a schema, or a link that cannot be written.
        ImportError
            If the package onnx is needed and not installed (``pip install 'dpglm[onnx]'``).

        Notes
        -----
        Privacy: post-processing of released coefficients and public facts.
        """
        estimator, own = self.linear_model()
        return export(estimator, to, own if schema is None else schema)

    @abc.abstractmethod
    def linear_model(self) -> tuple[Any, Schema | None]:
        """Return the linear model and the schema that a model file can hold.

        The model is the fitted linear model of the features, with private steps undone. The schema
        encodes a table as these features, or is None. A ValueError names other transformers.
        """

    def _check_offset(self, offset: Any, exposure: Any) -> None:
        if (offset is not None or exposure is not None) and self._classifies():
            raise ValueError(NO_OFFSET)

    def score(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        offset: Any = None,
        exposure: Any = None,
    ) -> float:
        """Return the accuracy of a classifier, or R squared of a regressor.

        Parameters
        ----------
        X, y, sample_weight, offset, exposure
            As in ``fit`` and ``predict``. Rows should be public: a score of private rows is a
            release without accounting, in contrast to ``dpglm.evaluate``. The first score on the
            rows of the fit warns.
        """
        return self._score(X, y, sample_weight, offset, exposure)


def _has_class_link(predictor: ClassPredictor) -> bool:
    try:
        return predictor._class_link() is not None
    except ValueError:  # fit refuses the loss
        return False


_if_it_classifies = available_if(lambda predictor: predictor._classifies())
_if_the_link_has_them = available_if(_has_class_link)


class ClassPredictor(Predictor):
    """Predicts classes, with probabilities if the link of the loss defines them."""

    @abc.abstractmethod
    def _class_link(self) -> ClassLink:
        """Return the link of the loss; AttributeError if it does not define probabilities."""

    @_if_it_classifies  # type: ignore[untyped-decorator]
    def decision_function(self, X: Any) -> Any:
        """Return the linear scores of a classifier for rows of any kind that ``fit`` takes.

        Their shape is (n,) for two classes, where positive scores mean ``classes_[1]``, and (n,
        n_classes) for more. The kind of array is that of ``predict``.
        """
        return self._predicted(X, scores)

    @_if_the_link_has_them  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Any:
        """Predict class probabilities, if the link of the loss defines them.

        They have shape (n, n_classes), with columns in the order of ``classes_``; rows sum to 1.
        Rows and kind of array are those of ``decision_function``.
        """
        return self._predicted(X, self._class_link().probabilities)

    @_if_the_link_has_them  # type: ignore[untyped-decorator]
    def predict_log_proba(self, X: Any) -> Any:
        """Predict logarithms of class probabilities, if the link of the loss defines them.

        They are like ``predict_proba``, but finite where probabilities underflow to 0.
        """
        return self._predicted(X, self._class_link().log_probabilities)
