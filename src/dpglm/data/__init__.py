"""Rows in blocks, their public facts, and the preparation that makes the facts true."""
