"""The only code that touches private rows while fitting."""
