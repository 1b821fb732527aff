"""Benchmarks: problems, and the commands that measure the library on them."""
