"""Solvers that use released second moments of the rows."""
