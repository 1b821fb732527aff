"""The errors and warnings of the library that are not plain ValueErrors."""

__all__ = ["LowSignalWarning", "PlanMismatchError", "PublicInformationWarning"]


class LowSignalWarning(UserWarning):
    """Rows times budget are too few for the number of coefficients: noise will drown the signal."""


class PlanMismatchError(RuntimeError):
    """What happened, or what was about to happen, is not what the plan says."""


class PublicInformationWarning(UserWarning):
    """A fact that privacy rests on was taken from the private data and treated as public."""
