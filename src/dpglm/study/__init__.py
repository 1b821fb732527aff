"""A whole study under one budget: look, learn, evaluate."""
