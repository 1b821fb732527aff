"""Rows in storage: memory-mapped arrays and Parquet, read a chunk at a time."""
