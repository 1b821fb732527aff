"""Figures, colours, quiet axes, text that fits its place."""
