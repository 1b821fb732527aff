"""Attacks that try to refute the library's own claims."""

from dpglm.audit.attack import audit as audit
from dpglm.audit.attack import exact_audit as exact_audit
from dpglm.audit.guessing import audit_in_one_run as audit_in_one_run
from dpglm.audit.guessing import epsilon_of_guesses as epsilon_of_guesses
from dpglm.audit.neighbours import Neighbours as Neighbours
from dpglm.audit.neighbours import worst_neighbours as worst_neighbours
from dpglm.audit.report import AuditReport as AuditReport
from dpglm.audit.report import Claim as Claim
from dpglm.audit.report import ErrorBounds as ErrorBounds
from dpglm.audit.report import error_bounds as error_bounds
from dpglm.audit.report import rate_above as rate_above
