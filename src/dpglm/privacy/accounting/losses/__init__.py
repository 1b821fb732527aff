"""Privacy loss distributions of single mechanisms."""
