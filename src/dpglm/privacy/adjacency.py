"""The neighbouring relations, and the one place that decides the factor 2."""

from __future__ import annotations

import enum
from types import MappingProxyType

from dpglm._validation import check_real

__all__ = ["Adjacency"]


class Adjacency(enum.StrEnum):
    """What counts as "one person's data" when a privacy claim is made.

    Attributes
    ----------
    ZERO_OUT
        One row's contribution becomes zero; the number of rows is public.
    ADD_REMOVE
        One row more or less; the number of rows is private.
    REPLACE_ONE
        One row replaced by any other row; the number of rows is public.

    Notes
    -----
    Privacy: every claim in this library names one of these relations. They are not
    interchangeable: with the same noise, ``REPLACE_ONE`` has twice the sensitivity.

    Examples
    --------
    >>> Adjacency("replace_one").sum_sensitivity(1.5)
    3.0
    >>> Adjacency.ADD_REMOVE.n_is_public
    False
    """

    ZERO_OUT = "zero_out"
    ADD_REMOVE = "add_remove"
    REPLACE_ONE = "replace_one"

    @property
    def n_is_public(self) -> bool:
        """Whether neighbouring data sets have the same, hence public, number of rows."""
        return self is not Adjacency.ADD_REMOVE

    def sum_sensitivity(self, contribution_bound: float) -> float:
        """L2 sensitivity of a sum of one vector per row.

        Parameters
        ----------
        contribution_bound : float
            Bound on the L2 norm of each row's vector; finite and at least 0.

        Returns
        -------
        float
            ``contribution_bound``, or twice that for ``REPLACE_ONE``.

        Raises
        ------
        ValueError
            If ``contribution_bound`` is negative or not finite.

        Notes
        -----
        Privacy: under ``REPLACE_ONE`` the old vector leaves and a new one, possibly
        opposite, enters, so the sum moves by up to twice the bound; under the other two
        relations one vector leaves or enters. A product by 2 is exact in floating point.
        """
        bound = check_real("contribution_bound", contribution_bound, least=0.0)
        return _SUM_FACTOR[self] * bound

    def describe(self) -> str:
        """One plain-English sentence saying what the relation protects."""
        return _SENTENCE[self]


_SUM_FACTOR = MappingProxyType(
    {Adjacency.ZERO_OUT: 1.0, Adjacency.ADD_REMOVE: 1.0, Adjacency.REPLACE_ONE: 2.0}
)

_SENTENCE = MappingProxyType(
    {
        Adjacency.ZERO_OUT: (
            "The result is nearly as likely if any one row's contribution is erased; "
            "the number of rows is public."
        ),
        Adjacency.ADD_REMOVE: (
            "The result is nearly as likely if any one row is added or removed; "
            "the number of rows is private too."
        ),
        Adjacency.REPLACE_ONE: (
            "The result is nearly as likely if any one row is replaced by any other; "
            "the number of rows is public."
        ),
    }
)
