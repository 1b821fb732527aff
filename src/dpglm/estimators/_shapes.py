"""Shapes of fitted models of tables: to look at, to write as a table, and to edit."""

from __future__ import annotations

import abc
import copy
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dpglm.certificate.certificate import model_digest
from dpglm.certificate.statement import PublicFact
from dpglm.inference.inference import Inference
from dpglm.inference.summary import is_shrunk
from dpglm.problem import Link
from dpglm.problem.links import IdentityLink, LogitLink, LogLink
from dpglm.shapes import Errors, ReleasedModel, Shape, Shapes, shapes_of
from dpglm.solvers.uncertainty import NoiseCovariance
from dpglm.tables.schema import Schema

__all__ = ["CURVES", "MONOTONE", "WithShapes", "released_model"]

CURVES = "curves"
"""Name of the public fact that says how fine curves are, and why."""
EDITS = "edited_shapes"
"""Name of the public fact that says which shapes were edited, and how."""
MONOTONE = "monotone"
"""Name of the public fact that says which curves were made monotone, and in which direction."""

_SCORES: Mapping[type[Link], str] = MappingProxyType(
    {LogitLink: "log-odds of {}", LogLink: "logarithm of the mean of {}", IdentityLink: "{}"}
)


class WithShapes(abc.ABC):
    """A model of a table whose columns have effects that add up to its score."""

    @abc.abstractmethod
    def linear_model(self) -> tuple[Any, Schema | None]:
        """Return the fitted linear model of the features, and the schema that made these."""

    @property
    def shapes_(self) -> Shapes:
        """What each column, or declared pair, adds to the score, with simultaneous 95 % bands."""
        try:
            return self.shapes()
        except ValueError as error:
            # As scikit-learn: what an estimator has not is no attribute.
            raise AttributeError(str(error)) from error

    def shapes(self, *, level: float = 0.95, simultaneous: bool = True) -> Shapes:
        """Return what each column, or declared pair of columns, adds to the score.

        Parameters
        ----------
        level : float, default=0.95
            Probability with which a band covers, in (0, 1).
        simultaneous : bool, default=True
            Whether a band covers a whole curve, or all levels, at once with that probability; else
            each point of it.

        Returns
        -------
        Shapes
            By term. With ``inference``, bands count sampling and privacy noise together; without
            it privacy noise alone, and say so, or there are none, where the solver does not know
            how much there is.

        Raises
        ------
        ValueError
            If the level is out of range, or no schema without a formula made the features.

        Notes
        -----
        Privacy: post-processing of what ``privacy_`` lists.
        """
        return shapes_of(self._released(), level=level, simultaneous=simultaneous)

    def shapes_table(self) -> Any:
        """Return all shapes as a table of points: knots and levels.

        Returns
        -------
        pandas.DataFrame
            ``shapes_.table()`` is the same without pandas, ``shapes_.to_csv`` writes it.

        Raises
        ------
        ImportError
            If pandas is not installed.
        """
        return self.shapes_.to_frame()

    def plot_shapes(self, most: int | None = None, **options: Any) -> Any:
        """Draw the shapes: one panel for each column or pair, all to one scale.

        Parameters
        ----------
        most : int, optional
            How many are drawn, those of the largest range first; by default 12.
        **options
            As for ``shapes``.

        Returns
        -------
        matplotlib.figure.Figure

        Raises
        ------
        ImportError
            If Matplotlib is not installed (``pip install 'dpglm[plot]'``).
        """
        return self.shapes(**options).plot(most)

    def with_shape(self, term: str, shape: Shape | Mapping[Any, float]) -> Self:
        """Return a copy of the model in which a term has another shape.

        Parameters
        ----------
        term : str
            A column, or two with `` x `` between them.
        shape : Shape, or mapping from number, or level, to float
            Such as ``model.shapes_["age"].monotone(1)``; or points, as for ``Shape.through``.

        Returns
        -------
        estimator
            Predicts by the edited shape. Its certificate names the edit; it has no intervals, which
            were about the model as it was fitted.

        Raises
        ------
        KeyError
            If there is no such term.
        ValueError
            If the shape is of another term, or none that the model can take.

        Notes
        -----
        Privacy: post-processing, provided that the edit was not made by looking at private rows.
        """
        own = self.shapes_[term]
        edited = own.through(shape) if isinstance(shape, Mapping) else shape
        if edited.term != term:
            raise ValueError(f"shape must be of {term!r}, got one of {edited.term!r}")
        released = self._released().with_shape(edited)
        changed = copy.copy(self)
        fitted, _ = self.linear_model()
        estimator = copy.copy(fitted)
        vars(estimator).pop("inference_", None)
        estimator.coef_ = released.coef.reshape(np.shape(fitted.coef_))
        estimator.intercept_ = released.intercept.reshape(np.shape(fitted.intercept_))[()]
        certificate = fitted.privacy_
        facts = [one for one in certificate.public_facts if one.name != EDITS]
        estimator.privacy_ = certificate.with_part(
            public_facts=(*facts, PublicFact(EDITS, dict(released.edits), "declared")),
            model_digest=model_digest(estimator.coef_, estimator.intercept_),
        )
        changed.estimator_ = estimator  # type: ignore[attr-defined]
        return changed

    def _released(self) -> ReleasedModel:
        estimator, schema = self.linear_model()
        if schema is None:
            raise ValueError("shapes need a model whose first step encodes a table by a schema")
        return released_model(estimator, schema)


def released_model(estimator: Any, schema: Schema) -> ReleasedModel:
    """Return what shapes are made of: that of a fitted linear model of a schema's features."""
    certificate, classes = estimator.privacy_, getattr(estimator, "classes_", None)
    coef = np.atleast_2d(np.asarray(estimator.coef_, dtype=np.float64))
    name = schema.target.name if schema.has_target else "target"
    # One score for two classes speaks for the second.
    outputs = (name,) if classes is None else tuple(map(str, classes[-len(coef) :].tolist()))
    edits, directions = certificate.fact(EDITS), certificate.fact(MONOTONE)
    words = _SCORES.get(type(certificate.problem.loss.link), "score of {}")
    unit = schema.target.unit
    named = outputs[0] if unit is None else f"{outputs[0]} ({unit})"
    return ReleasedModel(
        schema,
        coef,
        np.atleast_1d(np.asarray(estimator.intercept_, dtype=np.float64)),
        outputs,
        words.format(named if len(outputs) == 1 else "each class"),
        _errors(estimator, coef),
        {} if directions is None else dict(directions.value),
        is_shrunk(certificate),
        {} if edits is None else dict(edits.value),
    )


def _errors(estimator: Any, coef: NDArray[np.float64]) -> Errors | None:
    """Return what is known of the errors of coefficients: all of them, or those of noise."""
    known = vars(estimator)
    inference: Inference | None = known.get("inference_")
    if inference is not None:
        found = inference.of_features.estimates
        first = int(found.has_intercept)
        center, covariance = found.params[np.newaxis, first:], found.covariance[first:, first:]
        freedom, doubt = found.degrees_of_freedom, found.doubt
        if doubt is not None:
            doubt = doubt.mapped(lambda matrix: matrix[first:, first:])
        return Errors(center, covariance, np.ones(1), True, freedom, doubt)
    noise: NoiseCovariance | None = known.get("_noise_covariance")
    if noise is None:
        return None
    before = known.get("_unprojected")
    center = coef if before is None else np.atleast_2d(before)
    return Errors(center, noise.columns[:-1, :-1], noise.outputs, False)
