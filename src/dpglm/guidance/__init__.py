"""The accuracy to expect from a plan, before any row is seen."""

from dpglm.guidance.expectation import Guidance, guidance

__all__ = ["Guidance", "guidance"]
