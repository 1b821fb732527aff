"""The audit campaign: attacks on all that releases something, and on bugs planted in it."""
