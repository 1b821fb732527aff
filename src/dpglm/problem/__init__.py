"""The mathematics of a fit: losses, penalties and constraints, free of data and of privacy."""

from types import MappingProxyType as _MappingProxyType

from dpglm._registry import makers_in as _makers_in
from dpglm.problem.class_losses import OneVsRest as OneVsRest
from dpglm.problem.class_losses import Softmax as Softmax
from dpglm.problem.class_losses import Sparsemax as Sparsemax
from dpglm.problem.clipped import ClippedLoss as ClippedLoss
from dpglm.problem.clipped import WithOffset as WithOffset
from dpglm.problem.clipped import clipped_slope as clipped_slope
from dpglm.problem.clipped import clipped_value as clipped_value
from dpglm.problem.family_losses import Binomial as Binomial
from dpglm.problem.family_losses import ComplementaryLogLog as ComplementaryLogLog
from dpglm.problem.family_losses import Gamma as Gamma
from dpglm.problem.family_losses import NegativeBinomial as NegativeBinomial
from dpglm.problem.family_losses import Poisson as Poisson
from dpglm.problem.family_losses import Probit as Probit
from dpglm.problem.family_losses import Tweedie as Tweedie
from dpglm.problem.links import BinaryLink as BinaryLink
from dpglm.problem.links import ClassLink as ClassLink
from dpglm.problem.links import ComplementaryLogLogLink as ComplementaryLogLogLink
from dpglm.problem.links import IdentityLink as IdentityLink
from dpglm.problem.links import Link as Link
from dpglm.problem.links import LogitLink as LogitLink
from dpglm.problem.links import LogLink as LogLink
from dpglm.problem.links import OneVsRestLink as OneVsRestLink
from dpglm.problem.links import ProbitLink as ProbitLink
from dpglm.problem.links import SoftmaxLink as SoftmaxLink
from dpglm.problem.links import TangentLink as TangentLink
from dpglm.problem.loss import ConvexScalarLoss as ConvexScalarLoss
from dpglm.problem.loss import Loss as Loss
from dpglm.problem.loss import Target as Target
from dpglm.problem.losses import Hinge as Hinge
from dpglm.problem.losses import Huber as Huber
from dpglm.problem.losses import Logistic as Logistic
from dpglm.problem.losses import Pinball as Pinball
from dpglm.problem.losses import SmoothedHinge as SmoothedHinge
from dpglm.problem.losses import Squared as Squared
from dpglm.problem.losses import SquaredHinge as SquaredHinge
from dpglm.problem.problem import L1 as L1
from dpglm.problem.problem import L2 as L2
from dpglm.problem.problem import Box as Box
from dpglm.problem.problem import Constraint as Constraint
from dpglm.problem.problem import ElasticNetPenalty as ElasticNetPenalty
from dpglm.problem.problem import GroupLasso as GroupLasso
from dpglm.problem.problem import L1Ball as L1Ball
from dpglm.problem.problem import L2Ball as L2Ball
from dpglm.problem.problem import NoPenalty as NoPenalty
from dpglm.problem.problem import Problem as Problem
from dpglm.problem.problem import Regularizer as Regularizer
from dpglm.problem.problem import Simplex as Simplex
from dpglm.problem.problem import Unconstrained as Unconstrained
from dpglm.problem.robust_losses import Savage as Savage
from dpglm.problem.robust_losses import Tangent as Tangent
from dpglm.problem.robust_losses import Tempered as Tempered

LOSSES = _MappingProxyType({name: make() for name, make in _makers_in(globals(), Loss).items()})
"""Each loss that needs no settings, by the name that estimators take."""
