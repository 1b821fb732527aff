"""Effects of columns in a fitted model, to draw, export and edit."""

from dpglm.shapes.collection import ReleasedModel, Shapes, shapes_of
from dpglm.shapes.shape import Errors, Shape

__all__ = ["Errors", "ReleasedModel", "Shape", "Shapes", "shapes_of"]
