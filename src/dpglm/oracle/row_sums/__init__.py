"""Bounded sums of rows, of their moments and of their losses."""
