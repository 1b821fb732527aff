"""Minimisers of strongly convex objectives over private rows."""
