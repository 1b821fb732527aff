"""Additive models of a table: curves, levels and interactions that add up to a score."""
