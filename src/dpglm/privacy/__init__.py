"""Privacy: neighbouring relations, events, budgets, accountants, calibration, noise."""

from dpglm.privacy.events import Composed as Composed
from dpglm.privacy.events import Event as Event
from dpglm.privacy.events import Gaussian as Gaussian
from dpglm.privacy.events import Laplace as Laplace
from dpglm.privacy.events import LastIterate as LastIterate
from dpglm.privacy.events import PoissonSampled as PoissonSampled
from dpglm.privacy.events import Repeated as Repeated
from dpglm.privacy.events import canonical as canonical
from dpglm.privacy.events import event_from_dict as event_from_dict
from dpglm.privacy.unit import Adjacency as Adjacency
