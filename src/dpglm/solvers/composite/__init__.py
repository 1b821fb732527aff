"""Solvers made of preprocessing and another solver."""
