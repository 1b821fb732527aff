"""Privacy events: releases as data for accountants."""

from dpglm.privacy.events.base import BasicEvent as BasicEvent
from dpglm.privacy.events.base import Event as Event
from dpglm.privacy.events.base import Gaussian as Gaussian
from dpglm.privacy.events.base import GaussianMechanism as GaussianMechanism
from dpglm.privacy.events.base import MechanismEvent as MechanismEvent
from dpglm.privacy.events.compositions import Composed as Composed
from dpglm.privacy.events.compositions import DisjointParts as DisjointParts
from dpglm.privacy.events.compositions import Parallel as Parallel
from dpglm.privacy.events.compositions import RandomlyRepeated as RandomlyRepeated
from dpglm.privacy.events.compositions import Repeated as Repeated
from dpglm.privacy.events.compositions import SplitByCoins as SplitByCoins
from dpglm.privacy.events.compositions import canonical as canonical
from dpglm.privacy.events.compositions import describe_event as describe_event
from dpglm.privacy.events.compositions import event_from_dict as event_from_dict
from dpglm.privacy.events.gaussian import LastIterate as LastIterate
from dpglm.privacy.events.gaussian import PoissonSampled as PoissonSampled
from dpglm.privacy.events.gaussian import poisson_sampled as poisson_sampled
from dpglm.privacy.events.objective import PerturbedObjective as PerturbedObjective
from dpglm.privacy.events.projected import ProjectedGaussian as ProjectedGaussian
from dpglm.privacy.events.pure import BoundedRange as BoundedRange
from dpglm.privacy.events.pure import Laplace as Laplace
from dpglm.privacy.events.pure import Pure as Pure
