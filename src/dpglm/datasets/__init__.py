"""Real data with licences, shipped or read where installed.

The small sets of scikit-learn (``sklearn.datasets.load_breast_cancer`` and the like) are there
already and are not wrapped.
"""

from dpglm.datasets.images import load_fashion_mnist, load_mnist
from dpglm.datasets.tables import (
    Columns,
    Dataset,
    load_adult,
    load_california_housing,
    split_by_index,
)

__all__ = [
    "Columns",
    "Dataset",
    "load_adult",
    "load_california_housing",
    "load_fashion_mnist",
    "load_mnist",
    "split_by_index",
]
