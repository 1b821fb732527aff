"""Rows in torch tensors, summed on their device."""

from dpglm.data.torch.tensors import TensorRows
from dpglm.data.torch.tensors import tensor_collection as collection_of

__all__ = ["collection_of", "rows_of"]

rows_of = TensorRows
