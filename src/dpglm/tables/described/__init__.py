"""Cells in which the rows of a table are counted, made of public facts."""
