"""Standard errors, confidence intervals and tests with sampling error and privacy noise."""

from dpglm.inference.estimates import Estimates
from dpglm.inference.inference import Inference, WaldTest
from dpglm.inference.summary import Summary

__all__ = ["Estimates", "Inference", "Summary", "WaldTest"]
