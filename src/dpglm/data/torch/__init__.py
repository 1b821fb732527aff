"""Rows in torch tensors, summed on their device."""
