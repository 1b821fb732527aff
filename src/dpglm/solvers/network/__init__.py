"""Networks: what is released about their row gradients, and what becomes of it."""
