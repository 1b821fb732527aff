"""Transformers that prepare rows for a private fit, and private steps that learn a map of them."""

from dpglm.preprocessing.base import PlannedStep, Preprocessor
from dpglm.preprocessing.center import Center
from dpglm.preprocessing.row_map import RowMap
from dpglm.preprocessing.schema_encoder import SchemaEncoder

__all__ = ["Center", "PlannedStep", "Preprocessor", "RowMap", "SchemaEncoder"]
