"""The bounded gradient sum seen through a public random matrix, and its release."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

import numpy as np

from dpglm._validation import Array
from dpglm.data.prepare import derived_rows
from dpglm.data.rows import LARGEST, SMALLEST, DataSpec, FloatType, Rows
from dpglm.oracle.clipping import Clipping, FlatClipping
from dpglm.oracle.gradients import Oracle, clipped_gradient_sum, gradient_release
from dpglm.oracle.moments import rows_in_basis
from dpglm.oracle.rounding import UNIT, sum_magnitude, sum_rounding
from dpglm.privacy.budget import Adjacency
from dpglm.privacy.noise import grid_sensitivity
from dpglm.privacy.noise.additive import ProjectedGaussianNoise
from dpglm.privacy.noise.exact import noise_scale
from dpglm.privacy.releases import Release, SumMechanism, SumRelease
from dpglm.problem.loss import Loss, Target

_BLOCK_ENTRIES, _BLOCK_ROWS = 1 << 20, 256
_MARGIN = 10.0


@final
@dataclass(frozen=True)
class GaussianMatrix:
    """A public (m, p) matrix A of independent standard normal entries, made when it is needed.

    Only a block of it is ever in memory: it is drawn again from ``seed`` each time it is used.
    Each release needs a seed of its own.

    Privacy: the accounting takes entries as independent of the rows and of each other. They come
    from a generator seeded with 64 bits drawn independently of the rows, not from the noise
    source.
    """

    rows: int
    columns: int
    seed: tuple[int, ...]

    def blocks(self) -> Iterator[Array]:
        """Yield A in blocks of successive rows."""
        rng = np.random.default_rng(self.seed)
        step = block_rows(self.columns)
        for start in range(0, self.rows, step):
            yield rng.standard_normal((min(step, self.rows - start), self.columns))

    def dense(self) -> Array:
        """Return A as one array."""
        return np.concatenate(list(self.blocks()))

    def project(self, vector: Array) -> Array:
        """Compute ``A^T vector / sqrt(p)``, of shape (p,), up to ``projected_rounding``.

        ``ArithmeticError`` is raised if A is longer than the bound that rounding counts on, for
        one seed in 10^21.
        """
        total, squares, start = np.zeros(self.columns), 0.0, 0
        for block in self.blocks():
            squares += float(np.vdot(block, block))
            total += block.T @ vector[start : start + len(block)]
            start += len(block)
        if squares > _length(self.rows, self.columns) ** 2:
            raise ArithmeticError(f"the public matrix of seed {self.seed} is too long to be used")
        return total / math.sqrt(self.columns)

    def lift(self, values: Array) -> Array:
        """Compute ``A values / sqrt(p)``, of shape (m,); its mean over A undoes ``project``."""
        scaled = values / math.sqrt(self.columns)
        return np.concatenate([block @ scaled for block in self.blocks()])


def block_rows(columns: int) -> int:
    """Rows of A that are in memory at once."""
    return min(_BLOCK_ROWS, max(1, _BLOCK_ENTRIES // columns))


def _length(rows: int, columns: int) -> float:
    """Bound on the Frobenius norm of A, exceeded with probability below ``exp(-50)``."""
    return math.sqrt(rows * columns) + _MARGIN


def projected_magnitude(
    spec: DataSpec, adjacency: Adjacency, bound: float, columns: int, blocks: int = 1
) -> float:
    """Public bound on the L2 norm of a computed ``A^T s / sqrt(p)``.

    ``bound`` limits one row's exact contribution to s, weight included. ``columns`` are those of A,
    or of each of ``blocks`` blocks of consecutive coefficients, as equal as can be.
    """
    length = _length(-(-spec.n_coefficients // blocks), columns) / math.sqrt(columns)
    return 2.0 * length * sum_magnitude(spec, adjacency, bound)


def projected_rounding(
    spec: DataSpec,
    adjacency: Adjacency,
    bound: float,
    columns: int,
    noise_multiplier: float,
    blocks: int = 1,
    sampling_rate: float = 1.0,
) -> float:
    """Bound the rounding error in the sensitivity of a projected sum.

    It is added to ``bound``, the bound on one row's exact contribution to s, before the relation's
    factor multiplies it. With fewer than 2 columns no such bound exists. With k ``blocks``, as in
    ``projected_magnitude``, contributions to each are at most ``bound / sqrt(k)``.

    Privacy: let D bound the change of the computed s (``sum_rounding`` is in it). The computed
    ``A^T s / sqrt(p)`` changes by ``A^T Delta / sqrt(p)`` with ``|Delta| <= D``, and by at most E
    beyond that: products and snapping to the grid err by an absolute amount, however short ``A^T
    Delta`` happens to be. So the release given A is mu-GDP with ``mu <= (chi D / sqrt(p) + E) /
    std``, chi the length of p standard normals. With ``std = sigma (D + sqrt(kappa) E)`` and
    ``kappa = (p + 1/(4 sigma^2)) / (p - 1)`` it costs no more than ``ProjectedGaussian(sigma,
    p)``, sampled or not: docs/solvers/d2p2.md has the proof.

    A sum of m products in blocks of b rows, the blocks one after the other, errs by at most
    ``gamma_{b + m/b + 3} |A|^T |s|`` in each coordinate, the division included (Higham 2002,
    section 3.1), so by ``gamma |A|_F |s| / sqrt(p)`` in L2 norm: for either of two neighbours.

    With k blocks that change by at most ``D / sqrt(k)`` each (every bound on a sum holds for each
    of its blocks with bound / sqrt(k)), ``mu <= (chi D / sqrt(k p) + E) / std`` with chi the length
    of k p standard normals: the same with k p in place of p. The errors of the blocks' products are
    orthogonal, so that the longest ``|A_b|_F / sqrt(p)`` stands for all.
    """
    if columns < 2:
        raise ValueError(f"dimension must be an integer of at least 2, got {columns!r}")
    step, released = block_rows(columns), blocks * columns
    terms = step + -(-spec.n_coefficients // step) + 3
    unit = terms * UNIT
    magnitude = projected_magnitude(spec, adjacency, bound, columns, blocks)
    products = 2.0 * unit / (1.0 - unit) * magnitude
    spread = math.sqrt((released + 0.25 / noise_multiplier**2) / (released - 1))
    within = sum_rounding(spec, adjacency, bound, sampling_rate) + spread * products
    sensitivity = adjacency.sum_sensitivity(bound + within)
    grid = noise_scale(adjacency, sensitivity, noise_multiplier, released, magnitude)
    # The curator allows for snapping once; the grid it takes may be twice as coarse as this one.
    return within + 2.0 * spread * grid_sensitivity(released, grid.exponent)


def projected_gradient_release(
    spec: DataSpec,
    adjacency: Adjacency,
    clipping: Clipping,
    noise: ProjectedGaussianNoise,
    *,
    quantity: str = "projected gradient sum",
    count: int = 1,
    sampling_rate: float = 1.0,
    blocks: int = 1,
) -> SumRelease:
    """Declare the release of projected gradient sums, each through a matrix of its own.

    Gradients are clipped before A is applied; ``noise`` knows the number of columns of A, or of all
    blocks' matrices together: see ``projected_rounding``.
    """
    bound, columns = clipping.bound * spec.weight_bound, noise.dimension // blocks
    return Release(
        quantity,
        noise,
        adjacency,
        bound,
        noise.dimension,
        count,
        projected_rounding(
            spec, adjacency, bound, columns, noise.multiplier, blocks, sampling_rate
        ),
        projected_magnitude(spec, adjacency, bound, columns, blocks),
        sampling_rate,
    )


def noisy_projected_gradient(
    oracle: Oracle, declared: SumRelease, w: Array, clipping: Clipping, matrix: GaussianMatrix
) -> Array:
    """Release ``A^T g / sqrt(p)``, g the mean clipped gradient of all rows or a Poisson sample.

    Privacy: ``declared.event``. A is drawn for this release only, independently of the rows and of
    all earlier releases, so whatever the direction of the change of the sum is, its length is
    multiplied by ``chi_p / sqrt(p)``. Used twice, A would not be independent of the second
    direction.
    """

    def kernel(rows: Rows) -> Array:
        total = clipped_gradient_sum(rows, oracle.loss, clipping, w)
        return matrix.project(total.ravel())

    return oracle.noisy_mean(declared, kernel, clipping.bound * oracle.rows.spec.weight_bound)


# The bounded sum of row gradients that are clipped in a public basis, and its release.

_MANY_ENTRIES = 1 << 22
"""Entries from which rows are kept in single precision: 32 MB in double, more than caches hold."""
_LEAST_CLIP, _MOST_CLIP = 1e-10, 1e10


def type_in_basis(data: DataSpec, adjacency: Adjacency, loss: Loss, bound: float) -> FloatType:
    """Type of the rows in a basis: single precision where they are many and targets are classes.

    Single precision halves the memory traffic of a step. Its rounding is declared and, with up to
    4000 classes, adds less than a thousandth to the sensitivity. It costs no accuracy where targets
    are classes; others may be far larger than their differences. ``bound`` limits a row's
    contribution. Only public facts decide.
    """
    classifies = loss.target in (Target.BINARY, Target.CLASS)
    many = data.n_rows * data.n_columns >= _MANY_ENTRIES
    usual = _LEAST_CLIP <= bound <= _MOST_CLIP
    fixed = adjacency.rows_are_public(data.unit)
    return "float32" if classifies and many and usual and fixed else "float64"


def preconditioned_release(
    data: DataSpec,
    adjacency: Adjacency,
    dtype: FloatType,
    clip: float,
    mechanism: SumMechanism,
    count: int = 1,
) -> SumRelease:
    """Declare the releases that ``noisy_preconditioned_gradient`` makes of rows of a type."""
    if dtype == "float32":
        data = dataclasses.replace(data, dtype=dtype, sparse=False)
    return gradient_release(
        data,
        adjacency,
        FlatClipping(clip),
        mechanism,
        quantity="preconditioned gradient sum",
        count=count,
    )


def noisy_preconditioned_gradient(
    oracle: Oracle, declared: SumRelease, turned: Rows, v: Array, clipping: Clipping
) -> Array:
    """Release the mean gradient with respect to v at ``w = B v``, clipped row by row.

    ``turned`` is ``rotated_rows(oracle, B)``; ``clipping`` bounds the L2 norm of ``l'(z_i) B^T
    x_i``. Declared by ``preconditioned_release`` for its bound; the divisor is the public n.

    Privacy: ``declared.event``; the contribution bound is ``clipping.bound * spec.weight_bound``,
    whatever the rows, the basis and v are, as the clipped rows are the computed ``B^T x_i``. They
    are dense. In float32 they are declared and summed as in ``sum_rounding``. In float64 a block of
    at most 16384 of them is summed with an error below ``330 u`` times the sum of the norms: runs
    of 64 rows, and at most 256 runs; ``sum_rounding`` allows for more whatever the rows were stored
    as (at least ``gamma_4096`` times 4096 rows for sparse ones). For rows on a device see
    ``dpglm.data.torch``.
    """

    def kernel(_: Rows) -> Array:
        rows = turned.bounded(declared.contribution_bound)
        return clipped_gradient_sum(rows, oracle.loss, clipping, v)

    return oracle.noisy_mean(declared, kernel, clipping.bound * oracle.rows.spec.weight_bound)


def rotated_rows(oracle: Oracle, basis: Array, dtype: FloatType = "float64") -> Rows:
    """Return the rows ``B^T x_i`` for a public matrix B, dense and of the type. Private.

    The type is float64, with less rounding, where B could make float32 overflow.
    """
    rows, spec = oracle.rows, oracle.rows.spec
    row_by_row = not oracle.places_are_fixed
    longest = 2.0 * spec.augmented_row_norm * float(np.linalg.norm(basis))
    dtype = dtype if longest <= LARGEST else "float64"
    facts = dataclasses.replace(
        spec,
        n_features=basis.shape[1],
        row_norm=min(max(longest, SMALLEST), LARGEST),
        intercept=0.0,
        dtype=dtype,
        sparse=False,
    )
    return derived_rows(
        rows,
        lambda block: rows_in_basis(block, spec, basis, row_by_row, dtype),
        facts,
    )
