"""The section of a page about what each column of an additive model does."""

from __future__ import annotations

from typing import Any

from dpglm.estimators._shapes import CURVES, released_model
from dpglm.pictures.drawing import as_data_uri
from dpglm.shapes import Shape, shapes_of
from dpglm.shapes.picture import draw_shape, reach_of, scale_in_words
from dpglm.tables.schema import Schema

__all__ = ["shapes_view"]

_MOST_OPEN, _MOST = 12, 36


def shapes_view(estimator: Any) -> dict[str, Any] | None:
    """Return the panels of a fitted linear model of curves; None for other models."""
    fact = estimator.privacy_.fact("schema")
    schema = None if fact is None else Schema.from_dict(fact.value)
    if schema is None or schema.additive is None:
        return None
    shapes = shapes_of(released_model(estimator, schema))
    largest = shapes.by_importance
    reach = reach_of(largest)
    panels = [(_in_words(one), as_data_uri(draw_shape(one, reach))) for one in largest[:_MOST]]
    curves = estimator.privacy_.fact(CURVES)
    made = "" if curves is None else f" Curves: {curves.value}."
    return {
        "about": f"{scale_in_words(shapes)} {shapes.band}{made}",
        "first": panels[:_MOST_OPEN],
        "folded": panels[_MOST_OPEN:],
        "left_out": len(largest) - len(panels),
        "edits": [(one.term, one.edit) for one in largest if one.edit],
    }


def _in_words(shape: Shape) -> str:
    low, high = float(shape.values.min()), float(shape.values.max())
    return f"{shape.term}: effects from {low:.3g} to {high:.3g}"
