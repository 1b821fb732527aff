"""Private choices by scores summed over rows: ranks, coordinates, parameters."""
