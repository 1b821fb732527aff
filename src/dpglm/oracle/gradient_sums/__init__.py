"""Bounded sums made of row gradients, beyond the plain clipped sum."""
