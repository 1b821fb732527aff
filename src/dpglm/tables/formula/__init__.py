"""Formulas: Wilkinson notation over declared columns, without anything learned from rows."""
