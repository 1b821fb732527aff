"""The mathematics of a fit: losses, penalties and constraints, free of data and of privacy."""

from collections.abc import Mapping
from types import MappingProxyType

from dpglm._registry import makers_in
from dpglm.problem.class_losses import OneVsRest, Softmax, Sparsemax
from dpglm.problem.clipped import ClippedLoss, WithOffset, clipped_slope, clipped_value
from dpglm.problem.family_losses import (
    Binomial,
    ComplementaryLogLog,
    Gamma,
    NegativeBinomial,
    Poisson,
    Probit,
    Tweedie,
)
from dpglm.problem.links import (
    BinaryLink,
    ClassLink,
    ComplementaryLogLogLink,
    IdentityLink,
    Link,
    LogitLink,
    LogLink,
    OneVsRestLink,
    ProbitLink,
    SoftmaxLink,
    TangentLink,
)
from dpglm.problem.loss import ConvexScalarLoss, Loss, Target
from dpglm.problem.losses import (
    Hinge,
    Huber,
    Logistic,
    Pinball,
    SmoothedHinge,
    Squared,
    SquaredHinge,
)
from dpglm.problem.problem import (
    L1,
    L2,
    Box,
    Constraint,
    ElasticNetPenalty,
    GroupLasso,
    L1Ball,
    L2Ball,
    NoPenalty,
    Problem,
    Regularizer,
    Simplex,
    Unconstrained,
)
from dpglm.problem.robust_losses import Savage, Tangent, Tempered

__all__ = [
    "L1",
    "L2",
    "LOSSES",
    "BinaryLink",
    "Binomial",
    "Box",
    "ClassLink",
    "ClippedLoss",
    "ComplementaryLogLog",
    "ComplementaryLogLogLink",
    "Constraint",
    "ConvexScalarLoss",
    "ElasticNetPenalty",
    "Gamma",
    "GroupLasso",
    "Hinge",
    "Huber",
    "IdentityLink",
    "L1Ball",
    "L2Ball",
    "Link",
    "LogLink",
    "Logistic",
    "LogitLink",
    "Loss",
    "NegativeBinomial",
    "NoPenalty",
    "OneVsRest",
    "OneVsRestLink",
    "Pinball",
    "Poisson",
    "Probit",
    "ProbitLink",
    "Problem",
    "Regularizer",
    "Savage",
    "Simplex",
    "SmoothedHinge",
    "Softmax",
    "SoftmaxLink",
    "Sparsemax",
    "Squared",
    "SquaredHinge",
    "Tangent",
    "TangentLink",
    "Target",
    "Tempered",
    "Tweedie",
    "Unconstrained",
    "WithOffset",
    "clipped_slope",
    "clipped_value",
]

LOSSES: Mapping[str, Loss] = MappingProxyType(
    {name: make() for name, make in makers_in(globals(), Loss).items()}
)
"""Each loss that needs no settings, by the name that estimators take."""
