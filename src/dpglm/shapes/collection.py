"""All shapes of a model: computed from released values, tabulated, and edited."""

from __future__ import annotations

import abc
import dataclasses
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dpglm._calls import checked
from dpglm._validation import check_real, in_one_line
from dpglm.inference.estimates import Estimates
from dpglm.inference.inference import Inference
from dpglm.inference.summary import is_shrunk
from dpglm.ledger.store import write_text
from dpglm.problem import IdentityLink, Link, LogitLink, LogLink
from dpglm.shapes.shape import Errors, Shape, terms_of, weights_of
from dpglm.solvers.uncertainty import NoiseCovariance
from dpglm.tables.additive_terms import Term, as_dense
from dpglm.tables.schema import Schema

_NO_BANDS = (
    "No bands: this solver does not estimate its remaining privacy noise (inference=True gives "
    "confidence bands, but not in additive models with pooled columns)."
)

_UNKNOWN = "A band without an end marks values that cannot be estimated at this budget."


@final
@dataclass(frozen=True, eq=False)
class ReleasedModel:
    """The released coefficients and public facts that shapes are computed from.

    Parameters
    ----------
    schema : Schema
        Schema of the features, without a formula.
    coef : ndarray of shape (n_outputs, n_features)
        Coefficients of the features.
    intercept : ndarray of shape (n_outputs,)
        Intercepts.
    outputs : tuple of str
        Name of each score: the target, or classes.
    score : str
        Meaning of a score, such as ``"log-odds of >50K"``.
    errors : Errors, optional
        Errors of the coefficients.
    means : ndarray of shape (n_features,), optional
        Released means of the features.
    directions : mapping from str to int, optional
        Terms with curves that were projected to never fall (1), or never rise (-1).
    shrunk : bool, default=False
        Whether the penalty's bias exceeds the standard errors.
    edits : mapping from str to str, optional
        Edits after the fit, by term.
    """

    schema: Schema
    coef: NDArray[np.float64]
    intercept: NDArray[np.float64]
    outputs: tuple[str, ...]
    score: str
    errors: Errors | None = None
    means: NDArray[np.float64] | None = None
    directions: Mapping[str, int] = field(default_factory=dict)
    shrunk: bool = False
    edits: Mapping[str, str] = field(default_factory=dict)

    def with_shape(self, shape: Shape) -> ReleasedModel:
        """Replace the shape of one term; everything else stays.

        Parameters
        ----------
        shape : Shape
            The shape of one of the model's terms.

        Returns
        -------
        ReleasedModel
            Without bands of sampling and noise together, which hold for the fitted model only.

        Raises
        ------
        ValueError
            If the term does not exist, or a line cannot take the shape.
        """
        by_name = {term.name: term for term in terms_of(self.schema)}
        term = by_name.get(shape.term)
        if term is None or shape.values.shape != (len(self.outputs), *term.shape):
            raise ValueError(
                f"shape must be of a term of this model, {in_one_line(list(by_name))}, got one of "
                f"{shape.term!r}"
            )
        coef, intercept = self.coef.copy(), self.intercept.copy()
        weights = weights_of(term, self.means)
        for output, values in enumerate(shape.values.reshape(len(self.outputs), -1)):
            old = term.matrix @ coef[output, term.features]
            # The term's mean contribution stays with the term, or the intercept.
            wanted = values + weights @ old
            coef[output, term.features], constant = _solved(term, wanted)
            intercept[output] += constant
        return dataclasses.replace(
            self,
            coef=coef,
            intercept=intercept,
            errors=None if self.errors is None or self.errors.of_sampling else self.errors,
            edits={**self.edits, shape.term: shape.edit or "replaced"},
        )


@final
@dataclass(frozen=True, eq=False)
class Shapes(Mapping[str, Shape]):
    """The shapes of a fitted model by term, as a mapping.

    Parameters
    ----------
    shapes : tuple of Shape
        In the order of the columns, then interactions.
    score : str
        Scale of the effects, such as ``"log-odds of >50K"``.
    intercept : ndarray of shape (n_outputs,)
        The score of a row without effects: the mean score over rows, if ``are_of_rows``.
    band : str
        Coverage of the bands in words; "" without bands.
    are_of_rows : bool, default=False
        Whether effects are centred at their means over rows, not over knots and levels.

    Notes
    -----
    Privacy: post-processing of released values.
    """

    shapes: tuple[Shape, ...]
    score: str
    intercept: NDArray[np.float64]
    band: str = ""
    are_of_rows: bool = False

    def __getitem__(self, term: str) -> Shape:
        for one in self.shapes:
            if one.term == term:
                return one
        raise KeyError(f"term must be one of {in_one_line(list(self))}, got {term!r}")

    def __iter__(self) -> Iterator[str]:
        return (one.term for one in self.shapes)

    def __len__(self) -> int:
        return len(self.shapes)

    @property
    def by_importance(self) -> tuple[Shape, ...]:
        """The shapes in descending order of their standard deviation over rows."""
        return tuple(sorted(self.shapes, key=lambda one: -one.importance))

    def table(self) -> dict[str, list[Any]]:
        """Return the points of all shapes, which determine predictions up to the intercept.

        Returns
        -------
        dict from str to list
            Columns ``term``, ``value``, ``other value`` (of interactions), ``output``, ``effect``,
            ``low`` and ``high``.
        """
        tables = [one.to_dict() for one in self.shapes]
        return {name: [cell for one in tables for cell in one[name]] for name in tables[0]}

    @checked
    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """Write ``table()`` as a CSV file, whole or not at all.

        Parameters
        ----------
        path : path-like
            The file; an OSError is raised if it cannot be written.
        """
        import csv
        import io

        table = self.table()
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(table)
        for row in zip(*table.values(), strict=True):
            writer.writerow("" if cell is None or cell != cell else cell for cell in row)
        write_text(path, text.getvalue())

    def plot(self, most: int | None = None, *, common_scale: bool = False) -> Any:
        """Draw the shapes, one panel each.

        Parameters
        ----------
        most : int, optional
            Number of shapes to draw, the largest standard deviation first; by default 12.
        common_scale : bool, default=False
            Whether all panels have the same scale; otherwise each its own.

        Returns
        -------
        matplotlib.figure.Figure

        Raises
        ------
        ImportError
            If Matplotlib is not installed (``pip install 'dpglm[plot]'``).
        """
        from dpglm.shapes.picture import draw_shapes

        return draw_shapes(self, most, common_scale=common_scale)


@checked
def shapes_of(model: ReleasedModel, *, level: float = 0.95, simultaneous: bool = True) -> Shapes:
    """Return the shapes of a model, with bands.

    Parameters
    ----------
    model : ReleasedModel
        Coefficients and their errors.
    level : float, default=0.95
        Confidence level of the bands, in (0, 1).
    simultaneous : bool, default=True
        Whether a band covers a whole curve, or all levels, at once; otherwise each point.

    Returns
    -------
    Shapes
        Bands include sampling error and privacy noise for fits with ``inference=True`` and default
        fits of additive models; otherwise privacy noise alone.

    Raises
    ------
    ValueError
        If the confidence level is out of range, or the schema has a formula.
    """
    check_real("level", level, above=0.0, below=1.0)
    errors, intercept = model.errors, model.intercept
    found = []
    for term in terms_of(model.schema):
        weights = weights_of(term, model.means)
        values = np.asarray(term.matrix @ model.coef[:, term.features].T).T
        intercept = intercept + values @ weights
        values = values - (values @ weights)[:, np.newaxis]
        band = None
        if errors is not None and term.name not in model.edits:
            direction = model.directions.get(term.name, 0)
            band = errors.band(term, weights, level, simultaneous, direction)
        found.append(
            Shape(
                term.axes,
                model.outputs,
                values.reshape(len(values), *term.shape),
                weights.reshape(term.shape),
                band,
                model.edits.get(term.name, ""),
            )
        )
    words = _band_in_words(model, level, simultaneous)
    if any(one.band is not None and np.isinf(one.band).any() for one in found):
        words += f" {_UNKNOWN}"
    return Shapes(tuple(found), model.score, intercept, words, model.means is not None)


def _band_in_words(model: ReleasedModel, level: float, simultaneous: bool) -> str:
    errors = model.errors
    if errors is None:
        return "" if model.edits else _NO_BANDS
    what = "whole curves" if simultaneous else "single points"
    share, own = f"{100.0 * level:g} %", set(model.directions) - set(model.edits)
    if errors.of_sampling:
        parts = "sampling error and privacy noise"
        if errors.of_smoothing:
            parts = "sampling error, privacy noise and smoothing"
        words = f"Bands: {share} confidence for {what}, with {parts}."
        if errors.of_smoothing and not simultaneous:
            words += " Coverage is an average over the curve."
    else:
        words = (
            f"Bands: {share} of privacy noise alone, for {what}, without sampling error "
            "(inference=True gives confidence bands)."
        )
    if own:
        words += " Bands of monotone curves are projected like the curves."
    if errors.of_sampling and model.shrunk and not errors.of_smoothing:
        words += " Bands do not include the bias of the smoothing penalty."
    return words


def _solved(term: Term, wanted: NDArray[np.float64]) -> tuple[NDArray[np.float64], float]:
    """Return coefficients and a constant that give a term these values."""
    count, n_features = term.matrix.shape
    if count == n_features and not isinstance(term.matrix, np.ndarray):
        return np.asarray(sparse.linalg.spsolve(sparse.csc_array(term.matrix), wanted)), 0.0
    matrix = as_dense(term.matrix)
    full = np.column_stack([matrix, np.ones(len(wanted))])
    solution: NDArray[np.float64] = np.asarray(np.linalg.lstsq(full, wanted)[0], np.float64)
    if not np.allclose(full @ solution, wanted, atol=1e-9 * max(1.0, np.abs(wanted).max())):
        raise ValueError(
            f"shape of {term.name!r} must be an interaction without main effects: the model's "
            "features cannot represent it"
        )
    return solution[:-1], float(solution[-1])


# Shapes of fitted models.

CURVES = "curves"
"""Name of the public fact with the resolution of curves."""
EDITS = "edited_shapes"
"""Name of the public fact with the edited shapes."""
MONOTONE = "monotone"
"""Name of the public fact with the directions of monotone curves."""

_SCORES: Mapping[type[Link], str] = MappingProxyType(
    {LogitLink: "log-odds of {}", LogLink: "logarithm of the mean of {}", IdentityLink: "{}"}
)


class HasShapes(abc.ABC):
    """Base of models with additive effects of the columns of a table, fitted or read."""

    @abc.abstractmethod
    def _released(self) -> ReleasedModel:
        """Return the released coefficients; a ValueError without a schema."""

    @property
    def shapes_(self) -> Shapes:
        """Contribution of each column or pair to the score, with simultaneous 95 % bands."""
        try:
            return self.shapes()
        except ValueError as error:
            # As in scikit-learn: unavailable attributes do not exist.
            raise AttributeError(str(error)) from error

    def shapes(self, *, level: float = 0.95, simultaneous: bool = True) -> Shapes:
        """Return the contribution of each column or declared pair to the score.

        Parameters
        ----------
        level : float, default=0.95
            Coverage probability of a band, in (0, 1).
        simultaneous : bool, default=True
            Whether a band covers a whole curve, or all levels, with that probability; else each
            single point.

        Notes
        -----
        With ``inference``, and for additive models, bands include sampling error and privacy noise;
        otherwise privacy noise only, or there are none if the noise is unknown to the solver. The
        features must come from a schema without a formula.

        Privacy: post-processing of the releases in ``privacy_``.
        """
        return shapes_of(self._released(), level=level, simultaneous=simultaneous)

    def shapes_table(self) -> Any:
        """Return all shapes as a pandas table of points: knots and levels.

        ``shapes_.table()`` returns the same without pandas; ``shapes_.to_csv`` writes it.
        """
        import pandas as pd

        return pd.DataFrame(self.shapes_.table())

    def plot_shapes(
        self, most: int | None = None, *, common_scale: bool = False, **options: Any
    ) -> Any:
        """Plot the shapes: a panel for each column or pair.

        Parameters
        ----------
        most : int, optional
            Maximum number of panels, largest standard deviation first; by default 12.
        common_scale : bool, default=False
            Whether all panels have the same scale; otherwise each its own.
        **options
            Options of ``shapes``.

        Raises
        ------
        ImportError
            If Matplotlib is not installed (``pip install 'dpglm[plot]'``).
        """
        return self.shapes(**options).plot(most, common_scale=common_scale)


def released_model(estimator: Any, schema: Schema | None, errors: Errors | None) -> ReleasedModel:
    """Return the released part of a fitted linear model of a schema's features."""
    if schema is None:
        raise ValueError("shapes require a model with a schema encoder as its first step")
    certificate, classes = estimator.privacy_, getattr(estimator, "classes_", None)
    coef = np.atleast_2d(np.asarray(estimator.coef_, dtype=np.float64))
    name = schema.target.name if schema.has_target else "target"
    # With two classes the score is that of the second.
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
        errors,
        feature_means(estimator),
        {} if directions is None else dict(directions.value),
        is_shrunk(certificate),
        {} if edits is None else dict(edits.value),
    )


def feature_means(estimator: Any) -> NDArray[np.float64] | None:
    """Return the released means of a model's features, fitted or read; None if there are none."""
    means = getattr(vars(estimator).get("solution_", estimator), "means", None)
    if means is None or "solution_" not in vars(estimator):
        return means
    found = sparse.linalg.spsolve(sparse.csc_array(estimator.units_.matrix.T), means)
    return np.asarray(found[:-1] / found[-1])


def errors_of(estimator: Any) -> Errors | None:
    """Return the known errors of a fitted model's coefficients: all of them, or those of noise."""
    known = vars(estimator)
    before = known.get("_unprojected")
    center = np.atleast_2d(np.asarray(estimator.coef_ if before is None else before, np.float64))
    errors: NDArray[np.float64] | None = known.get("_error_covariance")
    if errors is not None:
        return Errors(center, errors, np.ones(1), True, of_smoothing=True)
    inference: Inference | None = known.get("inference_")
    if inference is not None:
        return errors_of_estimates(inference.of_features.estimates)
    noise: NoiseCovariance | None = known.get("_noise_covariance")
    if noise is None:
        return None
    return Errors(center, noise.columns[:-1, :-1], noise.outputs, False)


def errors_of_estimates(found: Estimates, *, of_smoothing: bool = False) -> Errors:
    """Return the errors of a fit with inference; those of additive models include smoothing."""
    first = int(found.has_intercept)
    center, covariance = found.params[np.newaxis, first:], found.covariance[first:, first:]
    return Errors(center, covariance, np.ones(1), True, found.degrees_of_freedom, of_smoothing)
