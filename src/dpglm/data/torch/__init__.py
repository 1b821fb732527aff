"""Rows in torch tensors, summed on their device."""

from dpglm.data.torch.tensors import TensorCollection, TensorRows

__all__ = ["collection_of", "rows_of"]

collection_of, rows_of = TensorCollection, TensorRows
