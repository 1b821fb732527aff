"""Worked examples that are not part of the package."""
