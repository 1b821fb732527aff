"""The version of the library."""

__version__ = "0.1.0"
"""Version of the package."""
