"""Errors and warnings of the library."""


class LedgerError(ValueError):
    """A budget ledger cannot be used: missing, damaged, busy, or for other data."""


class BudgetExceededError(LedgerError):
    """A charge exceeds the budget of the ledger; nothing was spent or released."""


class EqualBoundsWarning(UserWarning):
    """A lower bound equals its upper bound, so all rows take this value."""


class LowSignalWarning(UserWarning):
    """The noise exceeds the signal: too few rows or budget for the number of coefficients."""


class NearIdsWarning(UserWarning):
    """Group ids differ only in case or zero padding, so a person may be in several groups."""


class PlanMismatchError(RuntimeError):
    """The run deviates from its plan."""


class PublicInformationWarning(UserWarning):
    """A fact was taken from the private data and treated as public."""


class RowsChangedError(OSError):
    """A file of rows changed while it was read."""


class SeededNoiseWarning(UserWarning):
    """Noise follows from an integer seed: the result is reproducible and not private."""


class SlowSumsWarning(UserWarning):
    """Sums over rows were not compiled at installation, so fits are slower."""


class TooCostlyError(ValueError):
    """A computation would exceed its limits of time or memory."""


class UnpaidReleaseWarning(UserWarning):
    """Rows were fitted again without a ledger, or scored, which costs more privacy."""
