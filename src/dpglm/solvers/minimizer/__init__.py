"""Solvers that release a minimiser, or perturb the objective."""
