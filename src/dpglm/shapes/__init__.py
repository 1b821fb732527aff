"""What each column does in a fitted model: curves and levels to look at, to export and to edit."""

from dpglm.shapes.collection import ReleasedModel, Shapes, shapes_of
from dpglm.shapes.shape import Errors, Shape

__all__ = ["Errors", "ReleasedModel", "Shape", "Shapes", "shapes_of"]
