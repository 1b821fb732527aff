"""Standard errors, confidence intervals and tests with sampling error and privacy noise."""

from dpglm.inference.comparisons import Anova, Comparisons, WaldTest
from dpglm.inference.effects import Curve
from dpglm.inference.estimates import Estimates
from dpglm.inference.inference import Inference
from dpglm.inference.layout import ModelTable
from dpglm.inference.summary import Summary
from dpglm.inference.table import table

__all__ = [
    "Anova",
    "Comparisons",
    "Curve",
    "Estimates",
    "Inference",
    "ModelTable",
    "Summary",
    "WaldTest",
    "table",
]
