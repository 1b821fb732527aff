"""Rows in groups, such as persons: the rows of each are protected together."""
