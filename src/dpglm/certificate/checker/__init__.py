"""Claims recomputed by ways that share nothing with the accountants."""
