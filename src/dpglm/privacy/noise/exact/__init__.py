"""Exact samplers: discrete laws without the rounding of floats."""
