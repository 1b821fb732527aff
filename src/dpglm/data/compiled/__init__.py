"""Compiled sums over rows, and how they round."""
