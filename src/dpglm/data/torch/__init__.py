"""Rows in torch tensors, summed on their device."""

from dpglm.data.torch.collection import tensor_collection as collection_of
from dpglm.data.torch.tensors import TensorRows

__all__ = ["collection_of", "rows_of"]

rows_of = TensorRows
