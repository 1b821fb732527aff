"""Histograms of oriented gradients: features of images that cost no privacy.

They are as data-independent as scikit-learn's ``Normalizer``: transform images before the fit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any, Self, TypeAlias, final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import validate_data

__all__ = ["OrientedGradients"]

Floats: TypeAlias = NDArray[np.floating[Any]]
# Chosen on validation rows of MNIST; docs/pipelines.md has the figures.
_SMOOTHING = 0.17
_ENERGY_FLOOR = 0.1
_BLOCK_ENTRIES = 1 << 19


@final
class OrientedGradients(TransformerMixin, BaseEstimator):
    """Histograms of oriented gradients of grey images.

    An image is divided into a grid of cells. In each cell the strengths of brightness changes are
    added up by direction. Strokes and outlines remain, while their exact place, brightness and
    contrast do not matter.

    Parameters
    ----------
    image_shape : (int, int), optional
        Height and width; a row holds the pixels line by line. By default images are square.
    n_orientations : int, default=12
        Number of directions around the full circle, at least 3.
    cells : sequence of int, default=(4, 7)
        Cells along each side of the image, one grid per entry; each from 2 to the shorter side.

    Attributes
    ----------
    row_norm_ : float
        Bound on the L2 norm of every row of features, for an estimator's ``row_norm``: 1.
    n_features_in_ : int
        Number of pixels.

    Notes
    -----
    Privacy: each image is mapped by itself with public settings, so nothing is spent, and
    neighbouring tables become neighbouring matrices. Every row has norm 1 up to rounding; an image
    of constant brightness becomes zeros.

    With brightness scaled to a range of 2, the steps for each grid are: differences of pixels two
    apart; Gaussian smoothing by 0.17 of a cell; sharing each gradient among the directions less
    than one step from its own, and among the nearest cells; division of each cell by the root of
    its and its neighbours' energy, plus a floor; the square root; subtraction of each cell's mean
    over directions; scaling to unit norm. The square root and the subtraction reduce the mean row,
    which would waste budget.

    There are ``n_orientations * sum(cells squared)`` features: 780 by default.

    References
    ----------
    Dalal, N. and Triggs, B. (2005). Histograms of oriented gradients for human detection. CVPR.
    Tramèr, F. and Boneh, D. (2021). Differentially private learning needs better features (or much
    more data). ICLR.

    Examples
    --------
    >>> brighter_to_the_right = np.tile(np.arange(8.0), (1, 8))
    >>> features = OrientedGradients(n_orientations=4, cells=(2,))
    >>> features.fit_transform(brighter_to_the_right).reshape(4, 2, 2).sum((1, 2)).round(2)
    array([ 1.73, -0.58, -0.58, -0.58])
    """

    row_norm_ = 1.0

    def __init__(
        self,
        image_shape: tuple[int, int] | None = None,
        *,
        n_orientations: int = 12,
        cells: Sequence[int] = (4, 7),
    ) -> None:
        self.image_shape = image_shape
        self.n_orientations = n_orientations
        self.cells = cells

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def fit(self, X: ArrayLike, y: object = None) -> Self:
        """Check the settings and the number of pixels; the values of ``X`` do not matter."""
        rows = validate_data(self, X, dtype=(np.float32, np.float64))
        self._shape(rows.shape[1])
        return self

    def transform(self, X: ArrayLike) -> NDArray[np.floating[Any]]:
        """Map images, each by itself, to rows of features; float32 unless ``X`` is float64."""
        rows = validate_data(self, X, reset=False, dtype=(np.float32, np.float64))
        shape, count = self._shape(rows.shape[1]), self.n_orientations
        features = np.empty((len(rows), self._n_features_out), rows.dtype)
        step = max(1, _BLOCK_ENTRIES // (rows.shape[1] * count))
        grids = [_Grid.make(shape, cells, rows.dtype) for cells in self.cells]
        for start in range(0, len(rows), step):
            across, down = _differences(rows[start : start + step].reshape(-1, *shape))
            stop = 0
            for grid in grids:
                found = grid.features(across, down, count)
                begin, stop = stop, stop + found.shape[1]
                features[start : start + step, begin:stop] = found
        features /= math.sqrt(len(grids))
        return features

    def get_feature_names_out(self, input_features: object = None) -> NDArray[Any]:
        """Name the features by grid, direction, and row and column of the cell.

        An example is ``grid4_90deg_row0_column3``; 90 degrees is "brighter further down".
        """
        return np.array(
            [
                f"grid{cells}_{360.0 * k / self.n_orientations:g}deg_row{row}_column{column}"
                for cells in self.cells
                for k in range(self.n_orientations)
                for row in range(cells)
                for column in range(cells)
            ],
            dtype=object,
        )

    @property
    def _n_features_out(self) -> int:
        return self.n_orientations * sum(cells * cells for cells in self.cells)

    def _shape(self, n_pixels: int) -> tuple[int, int]:
        """Check the settings for images of this many pixels; return the height and width."""
        if not isinstance(self.cells, Sequence) or len(self.cells) == 0:
            raise ValueError(f"cells must be a sequence of integers, got {self.cells!r}")
        _check_integer("n_orientations", self.n_orientations, least=3)
        side = math.isqrt(n_pixels)
        shape: Any = (side, side) if self.image_shape is None else self.image_shape
        if not isinstance(shape, Sequence) or len(shape) != 2 or math.prod(shape) != n_pixels:
            raise ValueError(
                f"image_shape must be (height, width) with height * width = {n_pixels}, the number "
                f"of columns of X, got {self.image_shape!r}"
            )
        height, width = (_check_integer("image_shape", side, least=2) for side in shape)
        if max(_check_integer("cells", one, least=2) for one in self.cells) > min(shape):
            raise ValueError(
                f"cells must be at most {min(shape)}, the shorter side of the images, "
                f"got {self.cells!r}"
            )
        return height, width


def _check_integer(name: str, value: Any, *, least: int) -> int:
    if not isinstance(value, Integral) or value < least:
        raise ValueError(f"{name} must be an integer of at least {least}, got {value!r}")
    return int(value)


@final
@dataclass(frozen=True, eq=False)
class _Grid:
    """One grid of cells: the constant matrices that its features are made with."""

    cells: int
    smooth_rows: Floats
    smooth_columns: Floats
    pool_rows: Floats
    pool_columns: Floats
    neighbours: Floats

    @classmethod
    def make(cls, shape: tuple[int, int], cells: int, dtype: np.dtype[Any]) -> Self:
        height, width = shape
        places = np.arange(cells)
        return cls(
            cells=cells,
            smooth_rows=_smoothing(height, cells).astype(dtype),
            smooth_columns=_smoothing(width, cells).astype(dtype),
            pool_rows=_pooling(height, cells).astype(dtype),
            pool_columns=_pooling(width, cells).astype(dtype),
            neighbours=_hat(places[:, np.newaxis] - places, 2.0).astype(dtype),
        )

    def features(self, across: Floats, down: Floats, n_orientations: int) -> Floats:
        """Map gradients of shape (n, height, width) to rows of unit length."""
        across, down = (self.smooth_rows @ (one @ self.smooth_columns.T) for one in (across, down))
        pooled = self._pool(_by_direction(across, down, n_orientations))
        energy = self.neighbours @ np.square(pooled).sum(axis=1) @ self.neighbours
        pooled /= np.sqrt(energy)[:, np.newaxis] + _ENERGY_FLOOR
        np.sqrt(pooled, out=pooled)
        pooled -= pooled.mean(axis=1, keepdims=True)
        rows: Floats = pooled.reshape(len(pooled), -1)
        lengths = np.sqrt(np.square(rows).sum(axis=1, keepdims=True))
        rows /= np.where(lengths > 0.0, lengths, 1.0)
        return rows

    def _pool(self, directed: Floats) -> Floats:
        n, n_orientations, height, width = directed.shape
        # One product for each image and no larger ones: those may round an image by its place.
        lines = directed.reshape(n, n_orientations * height, width) @ self.pool_columns.T
        return self.pool_rows @ lines.reshape(n, n_orientations, height, self.cells)


def _differences(images: Floats) -> tuple[Floats, Floats]:
    """Differences of pixels two apart, to the right and down, of images with a range of 2."""
    low, high = (bound(images, axis=(1, 2), keepdims=True) for bound in (np.min, np.max))
    half = high / 2.0 - low / 2.0
    # Differences of equal pixels are exactly zero, so an image of one brightness gives zeros.
    scaled = np.pad(images / np.where(half > 0.0, half, 1.0), ((0, 0), (1, 1), (1, 1)), "edge")
    return scaled[:, 1:-1, 2:] - scaled[:, 1:-1, :-2], scaled[:, 2:, 1:-1] - scaled[:, :-2, 1:-1]


def _by_direction(across: Floats, down: Floats, n_orientations: int) -> Floats:
    """Share each gradient among the directions that are less than one step from its own.

    With only sums, products and square roots, which round each entry by itself alone.
    """
    strength = np.sqrt(np.square(across) + np.square(down))
    n, height, width = strength.shape
    shares = np.empty((n, n_orientations, height, width), strength.dtype)
    step = 2.0 * math.pi / n_orientations
    edge = strength * math.cos(step)
    for k in range(n_orientations):
        share = shares[:, k]
        np.multiply(across, math.cos(k * step), out=share)
        share += down * math.sin(k * step)
        share -= edge
        np.maximum(share, 0.0, out=share)
    shares /= 1.0 - math.cos(step)
    return shares


def _smoothing(side: int, cells: int) -> NDArray[np.float64]:
    """Gaussian averages along a side; every row sums to 1."""
    places = np.arange(side)
    weights: NDArray[np.float64] = np.exp(
        -0.5 * ((places[:, np.newaxis] - places) / (_SMOOTHING * side / cells)) ** 2
    )
    weights /= weights.sum(axis=1, keepdims=True)
    return weights


def _pooling(side: int, cells: int) -> NDArray[np.float64]:
    """Averages that share each place linearly between the two nearest cells; rows sum to 1."""
    width = side / cells
    centers = (np.arange(cells) + 0.5) * width - 0.5
    weights = _hat(np.arange(side) - centers[:, np.newaxis], width)
    weights /= weights.sum(axis=1, keepdims=True)
    return weights


def _hat(distance: NDArray[Any], width: float) -> NDArray[np.float64]:
    heights: NDArray[np.float64] = np.maximum(0.0, 1.0 - np.abs(distance) / width)
    return heights
