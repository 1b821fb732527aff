"""Rows of Dask collections, prepared and summed where their partitions lie."""
