"""Additive models of declared columns: a curve for each number, a level for each category."""
