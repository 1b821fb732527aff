"""Data-independent transformers, and private preprocessing steps."""

from dpglm.preprocessing.base import PlannedStep, Preprocessor
from dpglm.preprocessing.center import Center
from dpglm.preprocessing.clip_to_quantile import ClipToQuantile
from dpglm.preprocessing.instance_optimal_center import InstanceOptimalCenter
from dpglm.preprocessing.oriented_gradients import OrientedGradients
from dpglm.preprocessing.random_fourier import RandomFourierFeatures
from dpglm.preprocessing.random_projection import RandomProjection
from dpglm.preprocessing.row_map import RowMap
from dpglm.preprocessing.scale import Scale
from dpglm.preprocessing.schema_encoder import SchemaEncoder
from dpglm.preprocessing.spline_encoder import SplineEncoder
from dpglm.preprocessing.whiten import Whiten
from dpglm.tables.units import LinearUnits

__all__ = [
    "Center",
    "ClipToQuantile",
    "InstanceOptimalCenter",
    "LinearUnits",
    "OrientedGradients",
    "PlannedStep",
    "Preprocessor",
    "RandomFourierFeatures",
    "RandomProjection",
    "RowMap",
    "Scale",
    "SchemaEncoder",
    "SplineEncoder",
    "Whiten",
]
