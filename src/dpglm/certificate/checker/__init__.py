"""Claims recomputed by methods that share no code with the accountants."""
