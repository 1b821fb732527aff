"""Fitted models as SQL, Python and ONNX, for scores where the rows are."""

from dpglm.export.forms import export, written
from dpglm.export.scoring import scoring_of

__all__ = ["export", "scoring_of", "written"]
