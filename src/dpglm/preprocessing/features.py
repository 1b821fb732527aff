"""Random projection of rows to fewer columns, without privacy cost."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

import numpy as np
from scipy import sparse

from dpglm._validation import check_integer
from dpglm.data.projection import Embedding, GaussianEmbedding, embedded_spec
from dpglm.data.spec import DataSpec
from dpglm.oracle.gradients import Oracle
from dpglm.preprocessing.base import PlannedStep, Preprocessor
from dpglm.preprocessing.row_map import RowMap
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.releases import AnyRelease


@final
@dataclass(frozen=True)
class RandomProjection(Preprocessor):
    """Multiply rows by a public random matrix that approximately keeps inner products.

    Parameters
    ----------
    dimension : int
        Number of columns afterwards, at least 1.
    embedding : Embedding, default=GaussianEmbedding()
        Distribution of the matrix.

    Notes
    -----
    Rows longer than the row norm are scaled down to it. For sparse rows with very many columns use
    ``JohnsonLindenstrauss``: this step makes blocks of 4096 rows dense.

    Privacy: nothing is released. The matrix is made of public random bits, and each row is mapped
    by itself.

    References
    ----------
    Arora et al. 2022, Algorithm 2.

    Examples
    --------
    >>> data = DataSpec(n_rows=1000, n_features=300, row_norm=2.0)
    >>> RandomProjection(20).plan(data, 0.0, Adjacency.ZERO_OUT).output.n_features
    20
    """

    dimension: int
    embedding: Embedding = field(default_factory=GaussianEmbedding)

    name = "random projection"

    def __post_init__(self) -> None:
        check_integer("dimension", self.dimension, least=1)
        if not isinstance(self.embedding, Embedding):
            raise ValueError(f"embedding must be an Embedding, got {self.embedding!r}")

    def share(self, data: DataSpec, mu: float) -> float:
        return 0.0

    def releases(self, data: DataSpec, mu: float, adjacency: Adjacency) -> tuple[AnyRelease, ...]:
        return ()

    def output(self, data: DataSpec) -> DataSpec:
        return embedded_spec(data, self.dimension, data.dtype)

    def learn(self, oracle: Oracle, planned: PlannedStep, seed: int) -> RowMap:
        size = planned.data.n_features
        drawn = self.embedding.draw(size, self.dimension, seed)
        matrix = drawn.toarray() if sparse.issparse(drawn) else drawn
        return RowMap(np.zeros(size), matrix)
