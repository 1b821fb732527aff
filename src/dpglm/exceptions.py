"""The errors and warnings of the library that are not plain ValueErrors."""

__all__ = [
    "BudgetExceededError",
    "EqualBoundsWarning",
    "LedgerError",
    "LowSignalWarning",
    "NearIdsWarning",
    "PlanMismatchError",
    "PublicInformationWarning",
    "RowsChangedError",
    "SeededNoiseWarning",
    "SlowSumsWarning",
    "TooCostlyError",
    "UnpaidReleaseWarning",
]


class LedgerError(ValueError):
    """A budget ledger cannot be used: no ledger, damaged, busy, or that of other data."""


class BudgetExceededError(LedgerError):
    """A budget ledger refuses to spend more than it has; nothing was spent or released."""


class EqualBoundsWarning(UserWarning):
    """A lower bound equals its upper bound, so that all rows are given one and the same value."""


class LowSignalWarning(UserWarning):
    """Rows times budget are too few for the number of coefficients: noise will drown the signal."""


class NearIdsWarning(UserWarning):
    """Ids of groups differ in case or zero padding alone: a person may be in several groups."""


class PlanMismatchError(RuntimeError):
    """What happened, or what was about to happen, is not what the plan says."""


class PublicInformationWarning(UserWarning):
    """A fact that privacy rests on was taken from the private data and treated as public."""


class RowsChangedError(OSError):
    """A file of rows changed while a fit or a prediction was reading it."""


class SeededNoiseWarning(UserWarning):
    """Noise follows from an integer seed, so the result can be reproduced and is not private."""


class SlowSumsWarning(UserWarning):
    """Sums over rows were not compiled when dpglm was installed: fits are the same, but slower."""


class TooCostlyError(ValueError):
    """A computation would take more time or memory than it is allowed."""


class UnpaidReleaseWarning(UserWarning):
    """Rows were fitted again without a ledger, or scored, which costs more than a single fit."""
