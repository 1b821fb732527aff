"""The accuracy to expect from a plan, before any row is seen."""

from dpglm.guidance.expectation import Guidance as Guidance
from dpglm.guidance.expectation import guidance as guidance
