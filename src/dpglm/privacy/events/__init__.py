"""Privacy events: releases as data for accountants."""

from dpglm.privacy.events.base import BasicEvent, Event, GaussianMechanism, MechanismEvent
from dpglm.privacy.events.compositions import (
    Composed,
    DisjointParts,
    Parallel,
    RandomlyRepeated,
    Repeated,
    SplitByCoins,
    canonical,
    describe_event,
    event_from_dict,
)
from dpglm.privacy.events.gaussian import Gaussian, LastIterate, PoissonSampled, poisson_sampled
from dpglm.privacy.events.objective import ObjectivePerturbation
from dpglm.privacy.events.projected import ProjectedGaussian
from dpglm.privacy.events.pure import BoundedRange, Laplace, Pure

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
    "MechanismEvent",
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
