"""Predictions of a linear model as expressions of the table's own columns."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from dpglm import problem
from dpglm._score import Score, as_score, cell, choice, function, is_number, refused, total
from dpglm.tables.derived import derived
from dpglm.tables.schema import Schema

# Within these, exponentials neither overflow nor underflow, in a database an error.
_LEAST, _MOST = -700.0, 700.0
_LARGEST_EXPONENT = 300.0


@final
@dataclass(frozen=True, eq=False)
class BoundedScore:
    """A score, and a bound on its magnitude."""

    score: Score
    most: float

    def within(self, low: float, high: float) -> Score:
        """Return the score clipped to [low, high], unclipped where its bound allows."""
        if self.most <= min(-low, high):
            return self.score
        return self.score.named(lambda z: z.clipped(low, high))


def _exp(z: BoundedScore, most: float = _MOST) -> Score:
    return function("exp", z.within(_LEAST, most))


def _logit(z: BoundedScore) -> Score:
    return 1.0 / (_exp(BoundedScore(0.0 - z.score, z.most)) + 1.0)


# Hart's rational approximation of the normal distribution function, *Computer Approximations*
# (1968), algorithm 5666, as in West, "Better approximations to cumulative normal functions" (2005);
# errors are below 1e-15 up to 7.07, and tails beyond are below 1e-12.
_ABOVE = (
    3.52624965998911e-02, 0.700383064443688, 6.37396220353165, 33.912866078383,
    112.079291497871, 221.213596169931, 220.206867912376,
)  # fmt: skip
_BELOW = (
    8.83883476483184e-02, 1.75566716318264, 16.064177579207, 86.7807322029461,
    296.564248779674, 637.333633378831, 793.826512519948, 440.413735824752,
)  # fmt: skip
_FAR = 7.07


def _probit(z: BoundedScore) -> Score:
    def tail(size: Score) -> Score:
        above, below = (
            functools.reduce(lambda value, one: value * size + one, some[1:], as_score(some[0]))
            for some in (_ABOVE, _BELOW)
        )
        return function("exp", size * size * -0.5) * above / below

    def of_score(x: Score) -> Score:
        size = choice(x < 0.0, 0.0 - x, x)
        return size.named(tail).named(lambda p: choice(x < 0.0, p, 1.0 - p))

    return z.within(-_FAR, _FAR).named(of_score)


_MEANS: Mapping[type[problem.Link], Callable[[BoundedScore], Score]] = MappingProxyType(
    {
        problem.IdentityLink: lambda z: z.score,
        problem.LogLink: lambda z: _exp(z, _LARGEST_EXPONENT),
        problem.LogitLink: _logit,
        problem.ProbitLink: _probit,
        # At log(700) the mean is 1 in double precision.
        problem.ComplementaryLogLogLink: lambda z: (
            1.0 - function("exp", 0.0 - _exp(z, float(np.log(_MOST))))
        ),
        problem.TangentLink: lambda z: (function("arctan", z.score) + 0.5).named(
            lambda p: p.clipped(0.0, 1.0)
        ),
    }
)
"""The mean of a target, or the probability of the second class, by the link."""

Linear: TypeAlias = Callable[[NDArray[np.float64], float], BoundedScore]
"""From coefficients and an intercept to the score of a row."""


@final
@dataclass(frozen=True, eq=False)
class Scoring:
    """Predictions of a model as named expressions of a row's cells, and their meaning in words."""

    what: str
    outputs: tuple[tuple[str, Score], ...]


def scoring_of(
    coef: Any,
    intercept: Any,
    classes: Sequence[Any] | None,
    link: problem.Link | None,
    schema: Schema | None,
    names: Sequence[str] | None = None,
    *,
    bounds: Any = None,
    largest_score: float = math.inf,
) -> Scoring:
    """Return the predictions of a released linear model, with ``coef`` in the estimator's shape.

    Without a schema, features are columns of numbers called ``names`` (x0, x1, ...), clipped to
    ``bounds``. Scores of one output are clipped to ``largest_score``.
    """
    coef, intercept = np.atleast_2d(coef), np.atleast_1d(intercept)
    if schema is not None and len(schema.feature_names) != coef.shape[1]:
        raise ValueError(
            f"schema must have {coef.shape[1]} features, as the model has, got "
            f"{len(schema.feature_names)}"
        )
    limits = None if bounds is None else [np.broadcast_to(b, coef.shape[1]) for b in bounds]
    linear: Linear
    if schema is None:
        known = [f"x{i}" for i in range(coef.shape[1])] if names is None else list(names)
        linear = functools.partial(_of_matrix, known, limits)
    else:
        if limits is not None and (np.any(limits[0] > -1.0) or np.any(limits[1] < 1.0)):
            raise ValueError(
                "feature_bounds must be None for an export of a model with a schema, which bounds "
                "the features itself"
            )

        def linear(w: NDArray[np.float64], intercept: float) -> BoundedScore:
            most = schema.row_norm * float(np.linalg.norm(w)) + abs(intercept)
            return BoundedScore(total([as_score(float(intercept)), schema.score(w)]), most)

    found = _outputs(linear, coef, intercept, classes, link, largest_score)
    if schema is None:
        return found
    used = [one for one in schema.columns if one.source in schema.column_names]
    outputs = tuple((name, derived(score, used)) for name, score in found.outputs)
    return Scoring(found.what, outputs)


def _outputs(
    linear: Linear,
    coef: Any,
    intercept: Any,
    classes: Sequence[Any] | None,
    link: problem.Link | None,
    largest_score: float,
) -> Scoring:
    labels = None if classes is None else [str(one) for one in np.asarray(classes).tolist()]
    if labels is not None and len(coef) > 1:
        found = _of_classes(link, linear, coef, intercept)
        what = "linear score" if link is None else "probability"
        return Scoring(f"{what} of each class", tuple(zip(labels, found, strict=True)))
    z = linear(coef[0], float(intercept[0]))
    if link is None:
        return Scoring("linear score, positive for " + (labels or ["?"])[-1], (("score", z.score),))
    if type(link) not in _MEANS:
        raise ValueError(f"link must be one of {[one.__name__ for one in _MEANS]}, got {link!r}")
    if z.most > largest_score:
        z = BoundedScore(z.within(_LEAST, largest_score), min(z.most, _MOST))
    mean = _MEANS[type(link)](z)
    if labels is None:
        return Scoring("mean of the target", (("prediction", mean),))
    return Scoring(f"probability of {labels[1]}", (("probability", mean),))


def _of_classes(
    link: problem.Link | None, linear: Linear, coef: Any, intercept: Any
) -> list[Score]:
    if isinstance(link, problem.SoftmaxLink):
        ratios = (
            [_exp(linear(coef[j] - w, intercept[j] - b)) for j in range(len(coef)) if j != k]
            for k, (w, b) in enumerate(zip(coef, intercept, strict=True))
        )
        return [1.0 / total([as_score(1.0), *others]) for others in ratios]
    scores = [linear(*one) for one in zip(coef, intercept, strict=True)]
    if link is None:
        return [one.score for one in scores]
    if not isinstance(link, problem.OneVsRestLink):
        raise ValueError(f"link must be one of softmax and one-vs-rest, got {link!r}")
    if not isinstance(link.link, problem.LogitLink):
        raise ValueError(
            f"model must have one score per class with logistic probabilities, got {link!r}, "
            "which can exclude every class: fit with the loss 'logistic'"
        )
    if max(one.most for one in scores) > _MOST:
        raise ValueError(
            f"scores must be within +-{_MOST:g} for an export of one model per class: declare "
            "bounds of the features, as in a schema"
        )
    own = [_logit(one) for one in scores]
    return [one / total(own) for one in own]


def _of_matrix(
    names: Sequence[str],
    limits: list[NDArray[np.float64]] | None,
    w: NDArray[np.float64],
    intercept: float,
) -> BoundedScore:
    terms: list[Score] = [as_score(float(intercept))]
    for i, name in enumerate(names):
        x = cell(name)
        if limits is not None:
            x = x.clipped(float(limits[0][i]), float(limits[1][i]))
        terms.append(choice(is_number(name), x * float(w[i]), refused(name)))
    most = np.inf if limits is None else float(np.maximum(*map(np.abs, limits)) @ np.abs(w))
    return BoundedScore(total(terms), most + abs(float(intercept)))
