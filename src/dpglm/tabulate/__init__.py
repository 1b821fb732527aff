"""Released tables of counts and sums, and numbers with intervals computed from them."""
