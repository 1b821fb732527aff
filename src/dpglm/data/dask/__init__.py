"""Rows of Dask collections, prepared and summed where their partitions lie."""

from dpglm.data.dask.arrays import dask_arrays as collection_of

__all__ = ["collection_of"]
