"""Privacy events: what was released, as data that accountants read."""

from dpglm.privacy.events.compositions import (
    BoundedRange,
    Composed,
    Event,
    Gaussian,
    Laplace,
    LastIterate,
    ObjectivePerturbation,
    Parallel,
    PoissonSampled,
    ProjectedGaussian,
    Pure,
    RandomlyRepeated,
    Repeated,
    canonical,
    event_from_dict,
)

__all__ = [
    "BoundedRange",
    "Composed",
    "Event",
    "Gaussian",
    "Laplace",
    "LastIterate",
    "ObjectivePerturbation",
    "Parallel",
    "PoissonSampled",
    "ProjectedGaussian",
    "Pure",
    "RandomlyRepeated",
    "Repeated",
    "canonical",
    "event_from_dict",
]
