"""How good a model to expect from a plan, before any row is seen."""

from dpglm.guidance.expectation import Guidance, guidance
from dpglm.guidance.expected_curve import ExpectedCurve, expected_curve

__all__ = ["ExpectedCurve", "Guidance", "expected_curve", "guidance"]
