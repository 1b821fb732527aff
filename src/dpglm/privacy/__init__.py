"""Privacy: neighbouring relations, events, budgets, accountants, calibration, noise."""

from dpglm.privacy.accountants import Accountant as Accountant
from dpglm.privacy.accountants import GaussianAccountant as GaussianAccountant
from dpglm.privacy.accountants import PLDAccountant as PLDAccountant
from dpglm.privacy.accountants import accountant_for as accountant_for
from dpglm.privacy.budget import ApproximateDP as ApproximateDP
from dpglm.privacy.budget import GaussianDP as GaussianDP
from dpglm.privacy.budget import PrivacyBudget as PrivacyBudget
from dpglm.privacy.budget import ZeroConcentratedDP as ZeroConcentratedDP
from dpglm.privacy.budget import budget_from_dict as budget_from_dict
from dpglm.privacy.budget import default_delta as default_delta
from dpglm.privacy.calibrate import calibrate as calibrate
from dpglm.privacy.calibrate import spent as spent
from dpglm.privacy.calibrate import within_budget as within_budget
from dpglm.privacy.events import Composed as Composed
from dpglm.privacy.events import Event as Event
from dpglm.privacy.events import Gaussian as Gaussian
from dpglm.privacy.events import Laplace as Laplace
from dpglm.privacy.events import LastIterate as LastIterate
from dpglm.privacy.events import PoissonSampled as PoissonSampled
from dpglm.privacy.events import Repeated as Repeated
from dpglm.privacy.events import canonical as canonical
from dpglm.privacy.events import event_from_dict as event_from_dict
from dpglm.privacy.fourier import FourierAccountant as FourierAccountant
from dpglm.privacy.unit import Adjacency as Adjacency
