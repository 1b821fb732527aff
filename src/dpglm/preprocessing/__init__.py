"""Data-independent transformers, and private preprocessing steps."""

from dpglm.data.maps import RowMap as RowMap
from dpglm.preprocessing.base import PlannedStep as PlannedStep
from dpglm.preprocessing.base import Preprocessor as Preprocessor
from dpglm.preprocessing.encoders import SchemaEncoder as SchemaEncoder
from dpglm.preprocessing.encoders import SplineEncoder as SplineEncoder
from dpglm.preprocessing.steps import Center as Center
from dpglm.preprocessing.steps import ClipToQuantile as ClipToQuantile
from dpglm.preprocessing.steps import InstanceOptimalCenter as InstanceOptimalCenter
from dpglm.preprocessing.steps import RandomProjection as RandomProjection
from dpglm.preprocessing.steps import Scale as Scale
from dpglm.preprocessing.steps import Whiten as Whiten
from dpglm.tables.encoding import LinearUnits as LinearUnits
