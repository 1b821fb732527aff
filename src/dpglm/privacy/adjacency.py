"""The neighbouring relations, and the sensitivity of a sum under each."""

from __future__ import annotations

import enum
from types import MappingProxyType
from typing import Self

from dpglm._validation import check_one_of, check_real


class Unit(enum.StrEnum):
    """The protected unit: the rows in which neighbouring data sets differ.

    Attributes
    ----------
    ROW
        One row.
    GROUP
        All rows of one group, such as a person.

    Examples
    --------
    >>> Unit("group").all_rows
    'all rows of any one group (person)'
    """

    ROW = "row"
    GROUP = "group"

    @property
    def all_rows(self) -> str:
        """The rows that are erased, added, removed or replaced, in words."""
        return "any one row" if self is Unit.ROW else "all rows of any one group (person)"


class Adjacency(enum.StrEnum):
    """The neighbouring relation of a privacy claim.

    Attributes
    ----------
    ZERO_OUT
        One row is erased; the number of rows is public. An erased row has weight 0 after
        preparation, and contributes nothing to any sum, count or score.
    ADD_REMOVE
        One row is added or removed; the number of rows is private.
    REPLACE_ONE
        One row is replaced by any other row; the number of rows is public.

    For rows in groups, read "group" for "row": the number of groups is then public or private. The
    total number of rows is public under ``ZERO_OUT`` only, where erased rows are still counted. The
    number of rows of a single group is always private.

    Notes
    -----
    Privacy: every claim in this library names one of these relations. Under ``REPLACE_ONE`` a sum
    has up to twice the sensitivity.

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

    @classmethod
    def _missing_(cls, value: object) -> Self:
        check_one_of("adjacency", value, tuple(cls))
        raise AssertionError

    @property
    def n_is_public(self) -> bool:
        """Whether neighbouring data sets have the same number of rows, which is then public."""
        return self is not Adjacency.ADD_REMOVE

    def rows_are_public(self, unit: Unit) -> bool:
        """Whether the total number of rows is public.

        Parameters
        ----------
        unit : Unit
            The protected unit. Groups that replace each other may differ in size.
        """
        return self.n_is_public if unit is Unit.ROW else self is Adjacency.ZERO_OUT

    def sum_sensitivity(self, contribution_bound: float, diameter: float = 2.0) -> float:
        """L2 sensitivity of a sum of one vector per row.

        Parameters
        ----------
        contribution_bound : float
            Bound on the L2 norm of each row's vector; finite and at least 0.
        diameter : float, default=2.0
            Bound on the distance of any two such vectors, in units of ``contribution_bound``;
            from 1 to 2.

        Returns
        -------
        float
            ``contribution_bound``, times ``diameter`` for ``REPLACE_ONE``.

        Raises
        ------
        ValueError
            If ``contribution_bound`` or ``diameter`` is out of range.

        Notes
        -----
        Privacy: under ``REPLACE_ONE`` a new vector takes the place of the old one, so the sum
        moves by their distance: up to twice the bound, and less for vectors that cannot be
        opposite. Under the other relations one vector is added or removed. Multiplication by 2
        is exact in floating point.
        """
        bound = check_real("contribution_bound", contribution_bound, least=0.0)
        factor = check_real("diameter", diameter, least=1.0, most=2.0)
        return factor * bound if self is Adjacency.REPLACE_ONE else bound

    def describe(self, unit: Unit = Unit.ROW) -> str:
        """Return a sentence on the protection by the relation.

        Parameters
        ----------
        unit : Unit, default=Unit.ROW
            The protected unit.
        """
        return _SENTENCE[unit][self]


_SENTENCE = MappingProxyType(
    {
        Unit.ROW: {
            Adjacency.ZERO_OUT: (
                "The result is nearly as likely if any one row's contribution is erased; "
                "the number of rows is public."
            ),
            Adjacency.ADD_REMOVE: (
                "The result is nearly as likely if any one row is added or removed; "
                "the number of rows is also private."
            ),
            Adjacency.REPLACE_ONE: (
                "The result is nearly as likely if any one row is replaced by any other; "
                "the number of rows is public."
            ),
        },
        Unit.GROUP: {
            Adjacency.ZERO_OUT: (
                "The result is nearly as likely if the contribution of all rows of any one group "
                "(person) is erased; the numbers of groups and of rows are public, the number of "
                "rows of each group is private."
            ),
            Adjacency.ADD_REMOVE: (
                "The result is nearly as likely if any one group (person) is added or removed "
                "with all its rows; the numbers of groups and of rows are also private."
            ),
            Adjacency.REPLACE_ONE: (
                "The result is nearly as likely if any one group (person) is replaced by any "
                "other with all its rows; the number of groups is public, the number of rows is "
                "private."
            ),
        },
    }
)
