"""A basis with about equal second moments in every direction, from noisy second moments."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from scipy import sparse

from dpglm.data.rows import DataSpec
from dpglm.oracle.moments import (
    Standardising,
    constant_column,
    spectrum,
    unit_of_moments,
)
from dpglm.solvers.second_order.posterior import (
    FAR,
    LEAST,
    PRIOR_INTERCEPT,
    Prior,
    prior_deviations,
)
from dpglm.solvers.uncertainty import Floats, without_repulsion

# Chosen by ``python -m experiments.coverage``: narrow columns are within a quarter of their usual
# bound, counts can tell if noise is a quarter of the rows, and a single value is one with nine
# tenths of them.
_NARROW, FEW, _ONE_VALUE = 2, 0.25, 0.9


@final
@dataclass(frozen=True, eq=False)
class Basis:
    """Coordinates v of the parameter, ``w = vectors v``, and the way back."""

    vectors: Floats  # Public; rows become ``vectors^T x``.
    inverse: Floats

    @property
    def scales(self) -> Floats:
        """Factors of noise in the coordinates, for each coefficient."""
        return np.asarray(np.linalg.norm(self.vectors, axis=1))

    def columns(self, means: Floats, deviations: Floats, data: DataSpec) -> Floats:
        """Return the matrix from a row's coordinates to its standardised columns."""
        standardised = np.eye(data.n_columns, data.n_features)
        if data.intercept > 0.0:
            standardised[-1] = -means / data.intercept
        return np.asarray(self.inverse @ (standardised / deviations))

    def longest(self, data: DataSpec) -> float:
        """Bound the L2 norm of a row in the coordinates, whatever the row is."""
        of_features, of_constant = self.vectors[: data.n_features], self.vectors[data.n_features :]
        most = data.row_norm * float(np.linalg.norm(of_features, 2))
        return most + data.intercept * float(np.linalg.norm(of_constant))

    def products(self, first: int) -> Floats:
        """Return the matrix of the squared norm of the first coefficients, in coordinates."""
        free = self.vectors[first:]
        return np.asarray(self._products - free.T @ free)

    def spectrum(self, first: int) -> tuple[Floats, Floats]:
        """Return eigenvalues and eigenvectors of ``products(first)``, computed once.

        Eigenvalues within rounding of zero are 0: those of directions without these coefficients.
        """
        if first not in self._spectra:
            values, directions = np.linalg.eigh(self.products(first))
            hidden = values <= len(values) * np.finfo(np.float64).eps * values[-1]
            self._spectra[first] = np.where(hidden, 0.0, values), directions
        return self._spectra[first]

    @functools.cached_property
    def _products(self) -> Floats:
        return np.asarray(self.vectors.T @ self.vectors)

    @functools.cached_property
    def _spectra(self) -> dict[int, tuple[Floats, Floats]]:
        return {}


@final
@dataclass(frozen=True, eq=False)
class Columns:
    """Released centers and scales of columns, which make wide bounds harmless.

    Columns far narrower than their bounds become ``(x - center) / scale``, as if their bounds were
    right; others stay as they are.
    """

    means: Floats
    scales: Floats

    @classmethod
    def of(
        cls, moments: Floats, noise_std: float, counts: Floats, count_noise: float, data: DataSpec
    ) -> Columns:
        """Make it from second moments, and counts near ``centers_of(moments)``.

        A column is narrow if its variance is not seen, noise explains all counts beyond a distance,
        and no single cell has nearly all rows up to noise, as the zeros of a rare indicator have.
        """
        centers, _ = centers_of(moments, noise_std, data)
        moment = unit_of_moments(moments, noise_std, data)
        variances = moment * np.diag(moments)[: data.n_features] - centers**2
        rows = np.maximum(counts.sum(axis=(0, 1)), count_noise)
        noise = FAR * count_noise * np.sqrt(2.0 * np.arange(len(counts)))
        beyond = np.cumsum(counts.sum(axis=1), axis=0) - counts.sum(axis=1)
        is_empty = np.logical_and.accumulate(beyond <= noise[:, np.newaxis], axis=0)
        level = is_empty.sum(axis=0) - 1
        is_narrow = (
            (variances <= FAR * moment * noise_std)
            & (level >= _NARROW)
            & (noise[-1] <= FEW * rows)
            & (counts.max(axis=(0, 1)) + noise[-1] <= _ONE_VALUE * rows)
        )
        scales = np.where(is_narrow, 2.0 ** -level.astype(np.float64), 1.0)
        return cls(np.where(is_narrow, centers, 0.0), scales)

    @property
    def standardising(self) -> Standardising | None:
        """Means and scales for ``noisy_second_moments``; None if no column is narrow."""
        return (self.means, self.scales) if (self.scales != 1.0).any() else None

    def parameter(self, w: Floats, data: DataSpec) -> Floats:
        """Return the parameters, columns of w, of rows, from those of standardised rows."""
        found, d = w.copy(), data.n_features
        found[:d] = (w[:d].T / self.scales).T
        if data.intercept > 0.0:
            found[-1] -= (self.means / data.intercept) @ found[:d]
        return np.asarray(found)

    def basis(self, basis: Basis, data: DataSpec) -> Basis:
        """Return the coordinates of rows, from those of standardised rows."""
        inverse, d = basis.inverse.copy(), data.n_features
        inverse[:, :d] *= self.scales
        if data.intercept > 0.0:
            inverse[:, :d] += np.outer(basis.inverse[:, -1], self.means / data.intercept)
        return Basis(self.parameter(basis.vectors, data), inverse)


def prior_of_columns(
    basis: Basis,
    means: Floats,
    variances: Floats,
    noise: float,
    by: Columns | None,
    scales: tuple[float, ...] | None,
    data: DataSpec,
    indicators: Sequence[tuple[int, int, float]] = (),
) -> tuple[Prior, Floats]:
    """Return the prior in the coordinates, and the matrix from there to standardised columns.

    ``means``, and ``variances`` with this ``noise``, are those of columns in the units of ``by``.
    The prior of the intercept is at the means of the columns. ``indicators`` are factors, see
    ``with_products_of_indicators``. Next to a reference level (the constant is not 0) effects are
    differences of independent levels, so the prior does not depend on the reference.
    """
    units, bound = np.ones(data.n_features), data.row_norm / math.sqrt(data.n_features)
    if by is not None:
        means, units = by.means + by.scales * means, by.scales
    largest = None if scales is None else units * np.array(scales)
    declared, usual, hidden = prior_deviations(variances, noise, bound, largest)
    deviations = np.sqrt(np.maximum(variances, max(noise / FAR, (LEAST * bound) ** 2)))
    columns = basis.columns(means, units * deviations, data)

    def in_basis(one: Floats) -> Floats:
        level = PRIOR_INTERCEPT * basis.inverse[:, data.n_features :] / (data.intercept or 1.0)
        root = columns * (deviations * one)
        for start, stop, center in indicators:
            if center > 0.0:
                # Half the variance is that of the reference level, which all differences share.
                root[:, start:stop] *= math.sqrt(0.5)
                root = np.column_stack([root, root[:, start:stop].sum(axis=1)])
        root = np.column_stack([root, level])
        return np.asarray(root @ root.T)

    ways = tuple((columns[:, place], basis.vectors[place]) for place in np.flatnonzero(hidden))
    return Prior(in_basis(declared), in_basis(usual), ways), columns


def centers_of(moments: Floats, noise_std: float, data: DataSpec) -> tuple[Floats, float]:
    """Return released means of columns, and the usual bound of a column."""
    unit, constant = unit_of_moments(moments, noise_std, data), constant_column(data)
    means = np.zeros(data.n_features)
    if data.intercept > 0.0:
        means = np.clip(unit / constant * moments[:-1, -1], -data.row_norm, data.row_norm)
    return means, data.row_norm / math.sqrt(data.n_features)


def pooled_moments(
    first: Floats, first_noise: float, last: Floats, noise: float
) -> tuple[Floats, float]:
    """Average two releases by inverse variances, and return the noise of the average."""
    share = first_noise**2 / (first_noise**2 + noise**2)
    return (1.0 - share) * first + share * last, noise * math.sqrt(share)


def basis_from_moments(moments: Floats, noise_std: float, data: DataSpec) -> Basis:
    """Find coordinates in which second moments are about the same in every direction.

    ``moments`` were released with the constant ``constant_column(data)`` and this noise in their
    diagonal. Mean squared norms of rows become about the number of columns, as far as moments
    exceed the noise. Post-processing.
    """
    values, directions, _ = spectrum(moments, noise_std, data, data.n_columns)
    ends = np.ones(data.n_columns)
    if data.intercept > 0.0:
        ends[-1] = constant_column(data) / data.intercept
    lengths = np.sqrt(values)
    inverse = (lengths[:, np.newaxis] * directions.T) / ends
    return Basis(ends[:, np.newaxis] * (directions / lengths), inverse)


def constant_direction(moments: Floats, noise_std: float, basis: Basis, data: DataSpec) -> Floats:
    """Find the parameter with scores nearest to 1 in every row, from the same moments.

    With an intercept it is the intercept's. Otherwise it is the least-squares fit of the constant,
    with its scores shortened to at most 1, as noise lengthens them. Post-processing.
    """
    direction = np.zeros(data.n_columns)
    if data.intercept > 0.0:
        direction[-1] = 1.0 / data.intercept
        return direction
    total = max(float(moments[-1, -1]), noise_std)
    v = constant_column(data) / total * basis.vectors.T @ moments[:-1, -1]
    return np.asarray(basis.vectors @ (v / max(1.0, float(np.linalg.norm(v)))))


def products_in_basis(moments: Floats, noise_std: float, data: DataSpec, basis: Basis) -> Floats:
    """Estimate mean products of rows in the coordinates of a basis, from the moments it is made of.

    They are not the identity, since the basis raises directions below the noise. Noise has far
    larger eigenvalues than entries, so it is removed entry by entry in the columns' own
    coordinates: products keep the relative excess of their square over twice the noise's in the
    diagonal (the non-negative garrote), and squares below two deviations get their mean. No
    direction has less than half the average of the raised ones.
    """
    size = data.n_columns
    own = moments[:size, :size]
    squares = np.maximum(own**2, np.finfo(np.float64).tiny)
    kept = own * np.maximum(1.0 - 2.0 * noise_std**2 / squares, 0.0)
    diagonal = np.diag(own).copy()
    rare = diagonal < 2.0 * noise_std
    if rare.any():
        diagonal[rare] = max(float(diagonal[rare].mean()), 0.0)
    np.fill_diagonal(kept, diagonal)
    vectors = basis.vectors.copy()
    if data.intercept > 0.0:
        vectors[-1] *= data.intercept / constant_column(data)
    typical = unit_of_moments(moments, noise_std, data)
    values, directions = np.linalg.eigh(typical * vectors.T @ kept @ vectors)
    # The true average of the raised directions over their raised value.
    seen = np.asarray(np.linalg.eigvalsh(own), dtype=np.float64)
    raised = noise_std * math.sqrt(size)
    hidden, share = seen < raised, 0.0
    if hidden.any():
        share = max(float(without_repulsion(seen, noise_std)[hidden].mean()) / raised, 0.0)
    return np.asarray((directions * np.maximum(values, 0.5 * share)) @ directions.T)


def with_products_of_indicators(
    matrix: Floats, basis: Basis, indicators: Sequence[tuple[int, int, float]], intercept: float
) -> tuple[Floats, Floats]:
    """Return the nearest second moments that indicators can have, in the coordinates of a basis.

    Each of ``indicators`` is a factor: its first column, the one after its last, and the constant
    that was subtracted. The last column of rows is ``intercept``. Two indicators of a factor have
    the product 0 in every row, and each is its own square. So weighted second moments satisfy
    linear equations, and conjugate gradients project the matrix onto their solutions. Also returned
    is about the share of noise that is left in each product of coordinates, if they are close to
    columns. Post-processing.
    """
    size = len(matrix)
    back, kept, is_zero = np.eye(size), np.ones((size, size)), np.zeros((size, size))
    if not indicators:
        return matrix, kept
    for start, stop, center in indicators:
        back[start:stop, -1] = center / intercept
        kept[start:stop, start:stop] = 0.0
        # Conservative: squares keep some of their noise, and products with the constant lose most.
        kept[start:stop, -1] = kept[-1, start:stop] = 0.0
        is_zero[start:stop, start:stop] = 1.0
    np.fill_diagonal(kept, 1.0)
    is_level = np.diag(is_zero).copy()
    np.fill_diagonal(is_zero, 0.0)
    into = back @ basis.inverse.T

    def violated(products: Floats) -> Floats:
        result = is_zero * products
        squares = np.diag(products) - products[:, -1] / intercept
        np.fill_diagonal(result, is_level * squares)
        return result

    def weighted(multipliers: Floats) -> Floats:
        half = np.zeros((size, size))
        half[:, -1] = -0.5 / intercept * np.diag(multipliers)
        return np.asarray(multipliers + half + half.T)

    def equations(vector: Floats) -> Floats:
        return violated(gram @ weighted(vector.reshape(size, size)) @ gram).ravel()

    gram, shape = into @ into.T, (size**2, size**2)
    scales = np.outer(np.diag(gram), np.diag(gram)).ravel()
    by_scale = sparse.linalg.LinearOperator(shape, matvec=lambda vector: vector / scales)
    operator = sparse.linalg.LinearOperator(shape, matvec=equations)
    wanted = violated(into @ matrix @ into.T).ravel()
    found, _ = sparse.linalg.cg(operator, wanted, rtol=0.01, maxiter=100, M=by_scale)
    return matrix - into.T @ weighted(found.reshape(size, size)) @ into, kept


def usual_basis_scale(data: DataSpec, noise_std: float) -> float:
    """Return the expected factor from noise in the basis to noise in a coefficient.

    For similar columns, spread evenly between bounds that together make ``row_norm``; no direction
    has less than the noise in second moments.
    """
    least = noise_std * math.sqrt(data.n_columns) / data.n_rows
    return math.sqrt(3.0 / max(1.0 / data.n_features, least)) / data.row_norm
