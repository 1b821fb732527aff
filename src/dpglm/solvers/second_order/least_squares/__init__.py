"""Least squares from noisy sums: what is made of them after their release."""
