"""Transformers that prepare rows for a private fit."""

from dpglm.preprocessing.schema_encoder import SchemaEncoder

__all__ = ["SchemaEncoder"]
