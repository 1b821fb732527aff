"""Privacy events: what was released, as data that accountants read."""

from dpglm.privacy.events.base import BasicEvent, Event, GaussianMechanism, Mechanism
from dpglm.privacy.events.bounded_range import BoundedRange
from dpglm.privacy.events.compositions import (
    Composed,
    Repeated,
    canonical,
    describe_event,
    event_from_dict,
)
from dpglm.privacy.events.gaussian import Gaussian
from dpglm.privacy.events.laplace import Laplace
from dpglm.privacy.events.last_iterate import LastIterate
from dpglm.privacy.events.objective import ObjectivePerturbation
from dpglm.privacy.events.parallel import DisjointParts, Parallel, SplitByCoins
from dpglm.privacy.events.projected import ProjectedGaussian
from dpglm.privacy.events.pure import Pure
from dpglm.privacy.events.repeated import RandomlyRepeated
from dpglm.privacy.events.sampled import PoissonSampled, poisson_sampled

__all__ = [
    "BasicEvent",
    "BoundedRange",
    "Composed",
    "DisjointParts",
    "Event",
    "Gaussian",
    "GaussianMechanism",
    "Laplace",
    "LastIterate",
    "Mechanism",
    "ObjectivePerturbation",
    "Parallel",
    "PoissonSampled",
    "ProjectedGaussian",
    "Pure",
    "RandomlyRepeated",
    "Repeated",
    "SplitByCoins",
    "canonical",
    "describe_event",
    "event_from_dict",
    "poisson_sampled",
]
