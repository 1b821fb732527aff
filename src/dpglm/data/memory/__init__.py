"""Rows in memory: dense and sparse matrices."""
