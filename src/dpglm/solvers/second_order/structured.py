"""Posteriors for many levels, with Hessians that are diagonal except in few directions.

Within a factor, entries of the Hessian between two levels are zero. Between factors, entries are
those of independent factors, a matrix of rank one. So every matrix here is a diagonal plus a
product with few columns, and no cost grows with the square of the number of levels.

Privacy: post-processing of released values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from scipy import linalg, special

from dpglm.solvers.second_order.posterior import LEAST
from dpglm.solvers.uncertainty import Floats, solved


@final
@dataclass(frozen=True, eq=False)
class Structured:
    """The symmetric matrix ``diag(diagonal) + sides core sides^T``, with few sides."""

    diagonal: Floats
    sides: Floats
    core: Floats

    def times(self, x: Floats) -> Floats:
        """Return the product with a vector, or with the columns of a matrix."""
        product: Floats = (self.diagonal * x.T).T
        return product + self.sides @ (self.core @ (self.sides.T @ x))

    def inverted(self) -> tuple[Structured, float]:
        """Return the inverse and the log-determinant, by Woodbury's formula."""
        scaled = self.sides / self.diagonal[:, np.newaxis]
        inner = np.eye(len(self.core)) + self.core @ (self.sides.T @ scaled)
        log_determinant = np.log(self.diagonal).sum() + np.linalg.slogdet(inner)[1]
        inverse = Structured(1.0 / self.diagonal, scaled, -solved(inner, self.core))
        return inverse, float(log_determinant)

    @property
    def entries(self) -> Floats:
        """The diagonal of the matrix."""
        product = (self.sides @ self.core) * self.sides
        return np.asarray(self.diagonal + product.sum(axis=1))

    @property
    def dense(self) -> Floats:
        """The matrix as an array."""
        return np.asarray(np.diag(self.diagonal) + self.sides @ self.core @ self.sides.T)

    def columns(self, count: int) -> Floats:
        """Return the first columns, where the diagonal begins with as many zeros."""
        return np.asarray(self.sides @ (self.core @ self.sides[:count].T))

    @staticmethod
    def mean(matrices: Sequence[Structured]) -> Structured:
        """Return the mean of several matrices."""
        return Structured(
            np.mean([one.diagonal for one in matrices], axis=0),
            np.hstack([one.sides for one in matrices]),
            linalg.block_diag(*(one.core for one in matrices)) / len(matrices),
        )


@final
@dataclass(frozen=True, eq=False)
class LevelPosterior:
    """The posterior of fixed effects and levels, and the marginal likelihood.

    ``pooled = H theta + e`` with ``e ~ N(0, V)``; H and V have the same sides. The
    first ones are the unit vectors of the fixed effects, where the diagonal of H is zero.
    """

    hessian: Structured
    error: Structured
    pooled: Floats

    def likelihood(self, fixed: Floats, variances: Floats) -> float:
        """Return the marginal log-likelihood of a prior, up to a constant.

        ``fixed`` is the prior covariance of fixed effects, ``variances`` are those of the levels.
        """
        inverse, log_determinant, *_ = self._inverse(fixed, variances)
        product = self.pooled @ inverse.sides
        form = float(inverse.diagonal @ self.pooled**2 + product @ inverse.core @ product)
        return -0.5 * (log_determinant + form)

    def _inverse(
        self, fixed: Floats, variances: Floats
    ) -> tuple[Structured, float, Floats, Floats]:
        """Return inverse and log-determinant of the variance of ``pooled``, S and ``S sides``.

        S is the prior's covariance, without that of fixed effects where it is a vector.
        """
        d, sides, core = self.hessian.diagonal, self.hessian.sides, self.hessian.core
        prior = np.concatenate([np.zeros(len(fixed)), variances])
        through = prior[:, np.newaxis] * sides
        through[: len(fixed)] = fixed @ sides[: len(fixed)]
        inner = core @ (sides.T @ through) @ core + self.error.core
        # The diagonal of H is zero at fixed effects, and so are its products with their sides.
        rest = core[len(fixed) :]
        variance = Structured(
            self.error.diagonal + d**2 * prior,
            np.hstack([sides, d[:, np.newaxis] * through[:, len(fixed) :]]),
            np.block([[inner, rest.T], [rest, np.zeros((len(rest), len(rest)))]]),
        )
        return (*variance.inverted(), prior, through)

    def at(self, fixed: Floats, variances: Floats) -> tuple[Floats, Structured]:
        """Return the posterior mean and covariance for a prior, given as in ``likelihood``."""
        d, sides, core = self.hessian.diagonal, self.hessian.sides, self.hessian.core
        inverse, _, prior, through = self._inverse(fixed, variances)
        size, own = len(fixed), (d * prior)[:, np.newaxis]
        moved = self.hessian.times(inverse.times(self.pooled))
        mean = np.concatenate([fixed @ moved[:size], variances * moved[size:]])
        seen = inverse.times(sides)
        none = np.zeros_like(core)
        crossed = np.block([[none, core], [core, core @ (sides.T @ seen) @ core]])
        covariance = Structured(
            prior - own[:, 0] ** 2 * inverse.diagonal,
            np.hstack([sides[:, :size], own * seen, through, own * inverse.sides]),
            linalg.block_diag(fixed, -crossed, -inverse.core),
        )
        return mean, covariance


def curvature_of_levels(seen: Floats, noise: float, mean: float) -> tuple[Floats, Floats]:
    """Return posterior means and variances of the curvature of levels, given noisy values.

    The prior is exponential with this mean, the least informative one of positive numbers, and the
    posterior a normal distribution above zero. If values vary less than that, beyond their noise,
    the prior is normal with their variance.
    """
    spread = max(float(np.mean((seen - mean) ** 2)) - noise**2, 0.0)
    if spread < mean**2 and len(seen) > 1:
        kept = spread / (spread + noise**2)
        means = np.maximum(mean + kept * (seen - mean), LEAST * mean)
        return means, np.full_like(means, kept * noise**2)
    center = seen - noise**2 / mean
    at = -center / noise
    hazard = np.exp(-0.5 * at**2 - 0.5 * np.log(2.0 * np.pi) - special.log_ndtr(-at))
    means = center + noise * hazard
    variances = noise**2 * np.clip(1.0 + at * hazard - hazard**2, 0.0, 1.0)
    return np.maximum(means, LEAST * mean), variances


@final
@dataclass(frozen=True, eq=False)
class Curvature:
    """A posterior mean of the Hessian, the variances of its parts, and the scores' variance."""

    hessian: Structured
    sampling: Structured  # Covariance of a mean score, times the number of rows.
    levels: Floats  # Curvature of each level, in units of effects.
    of_levels: Floats  # Variances of these.
    of_crossed: Floats
    of_fixed: Floats
