"""One release of second moments, and every linear model that follows."""

from dpglm.moments.model import MomentFit as MomentFit
from dpglm.moments.moments import Moments as Moments
from dpglm.moments.moments import load_moments as load_moments
from dpglm.moments.moments import release_moments as release_moments
from dpglm.moments.regression import Comparison as Comparison
from dpglm.moments.regression import Correlation as Correlation
from dpglm.moments.regression import PrincipalComponents as PrincipalComponents
from dpglm.moments.regression import Selection as Selection

__all__ = [
    "Comparison",
    "Correlation",
    "MomentFit",
    "Moments",
    "PrincipalComponents",
    "Selection",
    "load_moments",
    "release_moments",
]
