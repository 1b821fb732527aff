"""Fitted models as SQL, Python and ONNX, for scores where the rows are."""

from __future__ import annotations

from typing import Any

from dpglm._validation import check_one_of
from dpglm.export.onnx import as_onnx
from dpglm.export.python import as_python
from dpglm.export.scoring import Scoring, scoring_of
from dpglm.export.sql import as_sql
from dpglm.tables.schema import Schema

__all__: list[str] = []  # Estimators and model files have ``export``.


def written(scoring: Scoring, to: str) -> Any:
    """Write predictions as SQL or Python text, or as an ONNX model."""
    writers = {"sql": as_sql, "python": as_python, "onnx": as_onnx}
    return writers[check_one_of("to", to, list(writers))](scoring)


def export(model: Any, to: str, schema: Schema | None) -> Any:
    """Write the predictions of a fitted linear model, or one that was read from a file."""
    certificate = model.privacy_
    bounds, names = certificate.fact("feature_bounds"), getattr(model, "feature_names_in_", None)
    scoring = scoring_of(
        model.coef_,
        model.intercept_,
        getattr(model, "classes_", None),
        certificate.problem.loss.link,
        schema,
        None if names is None else [str(name) for name in names],
        bounds=None if bounds is None else bounds.value,
        largest_score=certificate.largest_score,
    )
    return written(scoring, to)
