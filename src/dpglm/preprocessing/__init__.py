"""Data-independent transformers, and private preprocessing steps."""

from dpglm.preprocessing.base import PlannedStep, Preprocessor
from dpglm.preprocessing.encoders import SchemaEncoder, SplineEncoder
from dpglm.preprocessing.row_map import RowMap
from dpglm.preprocessing.steps import (
    Center,
    ClipToQuantile,
    InstanceOptimalCenter,
    RandomProjection,
    Scale,
    Whiten,
)
from dpglm.tables.encoding import LinearUnits

__all__ = [
    "Center",
    "ClipToQuantile",
    "InstanceOptimalCenter",
    "LinearUnits",
    "PlannedStep",
    "Preprocessor",
    "RandomProjection",
    "RowMap",
    "Scale",
    "SchemaEncoder",
    "SplineEncoder",
    "Whiten",
]
