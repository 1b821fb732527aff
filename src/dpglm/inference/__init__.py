"""Standard errors, confidence intervals and tests with sampling error and privacy noise."""

from dpglm.inference.comparisons import Anova as Anova
from dpglm.inference.comparisons import Comparisons as Comparisons
from dpglm.inference.comparisons import WaldTest as WaldTest
from dpglm.inference.effects import Curve as Curve
from dpglm.inference.estimates import Estimates as Estimates
from dpglm.inference.inference import Inference as Inference
from dpglm.inference.layout import ModelTable as ModelTable
from dpglm.inference.summary import Summary as Summary
from dpglm.inference.table import table as table
