"""The promise of privacy: neighbouring relations and budgets."""

from __future__ import annotations

import abc
import enum
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self, final

from dpglm._codec import decode, encode
from dpglm._validation import check_count, check_kind, check_one_of, check_real
from dpglm.privacy import gdp


class Unit(enum.StrEnum):
    """The protected unit: the rows in which neighbouring data sets differ.

    Attributes
    ----------
    ROW
        One row.
    GROUP
        All rows of one group, such as a person.
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
    n_is_public : bool
        Whether neighbouring data sets have the same number of rows, which is then public.

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
    n_is_public: bool

    def __init__(self, value: str) -> None:
        self.n_is_public = value != "add_remove"

    @classmethod
    def _missing_(cls, value: object) -> Self:
        check_one_of("adjacency", value, tuple(cls))
        raise AssertionError

    def rows_are_public(self, unit: Unit) -> bool:
        """Whether the total number of rows is public: groups that replace others differ in size."""
        return self.n_is_public if unit is Unit.ROW else self is Adjacency.ZERO_OUT

    def sum_sensitivity(self, contribution_bound: float, diameter: float = 2.0) -> float:
        """Return the L2 sensitivity of a sum of one vector per row.

        ``contribution_bound``, at least 0, bounds the L2 norm of each vector. ``diameter``, from 1
        to 2, bounds the distance of any two, in units of it.

        Privacy: under ``REPLACE_ONE`` a new vector takes the place of the old one, so the sum moves
        by their distance: up to twice the bound, and less for vectors that cannot be opposite.
        Under the other relations one vector is added or removed. Multiplying by 2 is exact.
        """
        bound = check_real("contribution_bound", contribution_bound, least=0.0)
        factor = check_real("diameter", diameter, least=1.0, most=2.0)
        return factor * bound if self is Adjacency.REPLACE_ONE else bound

    def describe(self, unit: Unit = Unit.ROW) -> str:
        """Return a sentence on the protection of a row or a group by the relation."""
        return f"The result is nearly as likely if {_CHANGES[unit][self]}."


_CHANGES = {
    Unit.ROW: {
        Adjacency.ZERO_OUT: ("any one row's contribution is erased; the number of rows is public"),
        Adjacency.ADD_REMOVE: "any one row is added or removed; the number of rows is also private",
        Adjacency.REPLACE_ONE: "any one row is replaced by any other; the number of rows is public",
    },
    Unit.GROUP: {
        Adjacency.ZERO_OUT: (
            "the contribution of all rows of any one group (person) is erased; the numbers of "
            "groups and of rows are public, the number of rows of each group is private"
        ),
        Adjacency.ADD_REMOVE: (
            "any one group (person) is added or removed with all its rows; the numbers of groups "
            "and of rows are also private"
        ),
        Adjacency.REPLACE_ONE: (
            "any one group (person) is replaced by any other with all its rows; the number of "
            "groups is public, the number of rows is private"
        ),
    },
}


SMALLEST_DELTA = 1e-70
"""Smallest positive delta of a budget."""


class PrivacyBudget(abc.ABC):
    """An upper bound on the privacy loss."""

    is_pure: bool = False
    """Whether delta is 0, which Gaussian noise cannot give."""

    @abc.abstractmethod
    def gdp_mu(self) -> float:
        """Return the largest mu, rounded down, for which mu-GDP implies the budget.

        A delta of 0, which no Gaussian noise can give, is a ValueError.
        """

    def allows_mu(self, mu: float) -> bool:
        """Whether a mu-GDP release is within the budget."""
        cost = self.statement_for_mu(mu)
        return all(spent <= getattr(self, name) for name, spent in cost.items())

    def as_approximate_dp(self) -> ApproximateDP:
        """Return the budget as (epsilon, delta); a ValueError if it is given in another form."""
        raise ValueError(
            "budget must be given as (epsilon, delta) for events that are not all Gaussian, "
            f"got {self!r}"
        )

    @abc.abstractmethod
    def statement_for_mu(self, mu: float) -> dict[str, float]:
        """Return the cost of a mu-GDP release in the budget's currency, rounded up.

        It is ``epsilon`` and ``delta`` (the budget's delta), or ``mu``, or ``rho``.
        """

    @final
    def to_dict(self) -> dict[str, Any]:
        """Return JSON values for ``budget_from_dict``."""
        document: dict[str, Any] = encode(self, PrivacyBudget)
        return document


@final
@dataclass(frozen=True)
class ApproximateDP(PrivacyBudget):
    """(epsilon, delta)-differential privacy.

    Parameters
    ----------
    epsilon : float
        Above 0, at most 1e6.
    delta : float
        0, or from 1e-70 to below 1. Zero is pure differential privacy, which Gaussian noise
        cannot give. Proofs ignore events of probability at most 1e-86 (extreme noise, tails of a
        sampler), which is below the rounding of a positive delta; mechanisms with a delta of 0
        exclude such events.

    Examples
    --------
    >>> round(ApproximateDP(1.0, 1e-5).gdp_mu(), 4)
    0.2681
    """

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "epsilon", check_real("epsilon", self.epsilon, above=0.0, most=1e6)
        )
        delta = check_real("delta", self.delta, least=0.0, below=1.0)
        if 0.0 < delta < SMALLEST_DELTA:
            raise ValueError(
                f"delta must be 0, or at least {SMALLEST_DELTA:g} and below 1, got {self.delta!r}"
            )
        vars(self).update(delta=delta, is_pure=delta == 0.0)

    def gdp_mu(self) -> float:
        if self.is_pure:
            raise ValueError(
                "delta must be above 0 for Gaussian noise, got 0.0. Give a small delta, such as "
                "1e-6, or a solver of other noise, such as 'pure_gd' or 'objective_perturbation'"
            )
        return gdp.mu(self.epsilon, self.delta)

    def as_approximate_dp(self) -> ApproximateDP:
        return self

    def statement_for_mu(self, mu: float) -> dict[str, float]:
        return {"epsilon": gdp.epsilon(self.delta, mu), "delta": self.delta}


@final
@dataclass(frozen=True)
class GaussianDP(PrivacyBudget):
    """Gaussian differential privacy: at most as distinguishable as N(0, 1) and N(mu, 1).

    Parameters
    ----------
    mu : float
        Finite, above 0.

    References
    ----------
    Dong, Roth and Su, "Gaussian differential privacy", JRSS B 2022, Definition 4.
    """

    mu: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "mu", check_real("mu", self.mu, above=0.0))

    def gdp_mu(self) -> float:
        return self.mu

    def statement_for_mu(self, mu: float) -> dict[str, float]:
        return {"mu": mu}


@final
@dataclass(frozen=True)
class ZeroConcentratedDP(PrivacyBudget):
    """Zero-concentrated differential privacy with parameter rho.

    Parameters
    ----------
    rho : float
        Finite, above 0. A mu-GDP release is (mu^2 / 2)-zCDP.

    References
    ----------
    Bun and Steinke, "Concentrated differential privacy", TCC 2016, Definition 1.1 and
    Proposition 1.6. Dong, Roth and Su, JRSS B 2022, Corollary B.6.
    """

    rho: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "rho", check_real("rho", self.rho, above=0.0))

    def gdp_mu(self) -> float:
        mu = math.sqrt(2.0 * self.rho)
        while 0.5 * mu * mu > self.rho:
            mu = math.nextafter(mu, 0.0)
        return mu

    def statement_for_mu(self, mu: float) -> dict[str, float]:
        return {"rho": 0.5 * mu * mu}


def budget_from_dict(mapping: Mapping[str, Any]) -> PrivacyBudget:
    """Read what ``PrivacyBudget.to_dict`` wrote.

    Parameters
    ----------
    mapping : mapping
        The JSON object, with the key ``"type"`` and the keys of that type; a ValueError names an
        unknown type, a missing or unknown key, or an invalid value.

    Examples
    --------
    >>> budget_from_dict({"type": "gaussian_dp", "mu": 0.5})
    GaussianDP(mu=0.5)
    """
    return decode(PrivacyBudget, mapping)  # type: ignore[type-abstract]


def default_delta(n_rows: int) -> float:
    """Return the largest power of ten that is at most ``1 / (10 n_rows)`` and at most 1e-5.

    Parameters
    ----------
    n_rows : int
        Public number of rows, at least 1.

    Notes
    -----
    Privacy: a delta of ``1/n`` would allow a mechanism that publishes a random row, so delta must
    be far below. The number of rows must be public.

    Examples
    --------
    >>> default_delta(48842), default_delta(100), default_delta(100_000)
    (1e-06, 1e-05, 1e-06)
    """
    rows = check_count("n_rows", n_rows)
    # Number of digits of 10 n - 1: the smallest k with 10^k >= 10 n, without rounding.
    exponent = max(5, len(str(10 * rows - 1)))
    return float(f"1e-{exponent}")


def stated_budget(
    epsilon: float, delta: float | Literal["auto"], budget: PrivacyBudget | None, n_units: int
) -> PrivacyBudget:
    """Return ``budget`` if given, else (epsilon, delta).

    ``n_units``, the public number of rows or groups, decides the delta "auto".
    """
    if budget is not None:
        check_kind("budget", budget, PrivacyBudget, "a PrivacyBudget or None")
        return budget
    epsilon = check_real("epsilon", epsilon, above=0.0, most=1e6)
    if isinstance(delta, str):
        if delta != "auto":
            raise ValueError(f"delta must be a number from 0 to below 1, or 'auto', got {delta!r}")
        return ApproximateDP(epsilon, default_delta(n_units))
    return ApproximateDP(epsilon, check_real("delta", delta, least=0.0, below=1.0))
