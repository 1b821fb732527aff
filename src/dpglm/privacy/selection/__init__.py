"""Exact private choices: which candidate, which rank, how many tries."""
