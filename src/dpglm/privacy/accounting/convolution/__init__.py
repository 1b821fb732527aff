"""Numerical accounting: privacy losses convolved by FFT."""
