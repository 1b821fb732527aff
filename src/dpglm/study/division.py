"""How much of a study's budget goes to its exploration, for what the study is meant to serve."""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self, final

import numpy as np
from numpy.typing import NDArray

from dpglm._codec import line
from dpglm._json import at
from dpglm._validation import check_count, check_integer, check_real
from dpglm.data.groups import Groups
from dpglm.data.spec import GroupBound
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.events import Event, Parallel, SplitByCoins
from dpglm.privacy.noise import NoiseSource, bernoulli

# Persons of a study, where all rows of a person are protected together.


@final
@dataclass(frozen=True)
class Persons:
    """Whose rows are protected together, and how many of them are used.

    Parameters
    ----------
    column : str
        Column of the table that says whose each row is.
    n_groups : int
        Public number of persons, at least 1; a rough one will do.
    most : int
        How many rows of a person are used at most, at least 1.
    """

    column: str
    n_groups: int
    most: int

    def __post_init__(self) -> None:
        check_count("n_groups", self.n_groups)
        check_integer("max_rows_per_group", self.most, least=1)

    def of_part(self, n_groups: int) -> Self:
        """Return the same for a part of the persons."""
        return dataclasses.replace(self, n_groups=n_groups)

    @property
    def bound(self) -> GroupBound:
        """The bound on what a person contributes to counts."""
        return GroupBound(self.n_groups, float(self.most))

    @property
    def parameters(self) -> dict[str, int]:
        """What an estimator must know of them."""
        return {"n_groups": self.n_groups, "max_rows_per_group": self.most}

    def of(self, table: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
        """Return whose each row of a table is."""
        return table[self.column]


# How many times as much the part that comes first counts.
_FIRST = 10.0


@final
class Purpose(enum.StrEnum):
    """What a study is to do best; each of its other parts gets what makes it useful.

    Attributes
    ----------
    MODEL
        A model as accurate, and intervals as short, as the budget allows.
    EVALUATION
        Held-out performance as precise as the budget allows: half of the rows are held out.
    EXPLORATION
        Counts and quantiles as precise as the budget allows.
    BALANCED
        Every part counts alike.
    """

    MODEL = "model"
    EVALUATION = "evaluation"
    EXPLORATION = "exploration"
    BALANCED = "balanced"

    @property
    def test_share(self) -> float:
        """Share of the rows that is held out, unless the study says otherwise."""
        return 0.5 if self is Purpose.EVALUATION else 0.2


def ratio_of_share(noise_std: float, n_rows: int, share: float) -> float:
    """Return how much more noise varies than sampling, in the share of rows of a kind.

    Of a share p, sampling n rows varies by ``p (1 - p) / n``.

    >>> round(ratio_of_share(0.003, 10_000, 0.1), 3)
    1.0
    """
    return noise_std**2 * n_rows / (share * (1.0 - share))


def ratio_of_slopes(values: int, n_rows: int, mu: float) -> float:
    """Return how much more noise varies than sampling, in the fit of so many coefficients.

    A sum over n rows of slopes as long as ``b`` at most, paid for by mu, gets noise of variance
    ``b^2 / mu^2`` in each of k values. Sampling moves it by ``n b^2 / 4`` in all, as the slope of a
    logistic loss has a variance of ``p (1 - p)``, a quarter at most.

    >>> ratio_of_slopes(100, 10_000, 0.2)
    1.0
    """
    return 4.0 * values / (n_rows * mu * mu)


def exploration_share(explored: float, others: float, purpose: Purpose) -> float:
    """Return the share of mu squared for the exploration, in (0, 1).

    The model and its evaluation each get the rest, being about disjoint rows. ``explored`` and
    ``others`` say how much more noise varies than sampling in the exploration, and the sum of that
    over the model and its evaluation, each with the whole budget. With a share s of mu squared the
    variance of a value is ``1 + r / s`` times that of sampling. Where every part counts alike, the
    sum of these is least at ``sqrt(explored) / (sqrt(explored) + sqrt(others))``. Where one part
    comes first, it counts ten times as much, and the others get no more than the share with which
    noise and sampling are equally large.

    >>> exploration_share(0.01, 0.09, Purpose.BALANCED)
    0.25
    >>> exploration_share(0.01, 0.09, Purpose.MODEL)
    0.01
    >>> round(exploration_share(0.01, 0.09, Purpose.EXPLORATION), 12)
    0.91
    """
    if purpose is Purpose.BALANCED:
        return _least(explored, others)
    if purpose is Purpose.EXPLORATION:
        return max(_least(_FIRST * explored, others), 1.0 - others)
    return min(_least(explored, _FIRST * others), explored)


def _least(one: float, other: float) -> float:
    """Return the share s at which ``one / s + other / (1 - s)`` is least."""
    return math.sqrt(one) / (math.sqrt(one) + math.sqrt(other))


# The rows divided in two by secret randomness: some to learn from, some to evaluate on.


@final
@dataclass(frozen=True)
class Split:
    """A division of the rows into a part to learn from and a part to evaluate on.

    Parameters
    ----------
    test_share : float, default=0.2
        Share of the rows, or of the persons, to evaluate on, in (0, 1).
    persons : str, optional
        Column of the table that says whose each row is: all rows of a person go to the same part.

    Notes
    -----
    Privacy: the split is drawn without looking at what the rows contain, so that what is released
    about one part costs nothing on top of what is released about the other
    (``docs/proofs/splits.md``). Where the number of rows is public the parts have fixed sizes;
    elsewhere each row, or person, goes to its part by a coin of its own: of parts of fixed sizes
    both would change when one row enters. A split by person protects rows, as another one does.

    Examples
    --------
    >>> from dpglm.privacy.noise import SystemNoise
    >>> split = Split(0.25)
    >>> split.sizes(1000)
    (750, 250)
    >>> int(split.draw(1000, Adjacency.ZERO_OUT, SystemNoise()).sum())
    250
    """

    test_share: float = 0.2
    persons: str | None = None

    def __post_init__(self) -> None:
        share = check_real("test_share", self.test_share, above=0.0, below=1.0)
        object.__setattr__(self, "test_share", share)
        if self.persons is not None:
            with at("persons"):
                line(self.persons)

    def sizes(self, n_rows: int) -> tuple[int, int]:
        """Return how many rows of a public number are planned to learn from, and to evaluate on.

        Raises
        ------
        ValueError
            If one of the two would be empty.
        """
        total = check_count("n_rows", n_rows)
        test = round(self.test_share * total)
        if not 0 < test < total:
            raise ValueError(
                f"n_rows must leave rows in both parts at test_share={self.test_share:g}, got "
                f"{total!r}"
            )
        return total - test, test

    def draw(
        self,
        n_rows: int,
        adjacency: Adjacency,
        noise: NoiseSource,
        persons: NDArray[Any] | None = None,
    ) -> NDArray[np.bool_]:
        """Draw which rows to evaluate on, as a mask of shape (n_rows,), which is kept secret.

        ``persons``, of shape (n_rows,), says whose each row is, where the split is by person. A
        ValueError says that a part would be empty.
        """
        if (self.persons is None) != (persons is None):
            raise ValueError("persons must be given for a split by person, and for no other")
        if persons is not None:
            whose = Groups.of(persons, n_rows)
            mask = bernoulli(noise, whose.n_groups, self.test_share)[whose.codes]
        elif adjacency.n_is_public:
            # Positions in the order of random numbers: equal ones do not matter.
            mask = np.zeros(n_rows, dtype=np.bool_)
            mask[np.argsort(noise.words(n_rows), kind="stable")[: self.sizes(n_rows)[1]]] = True
        else:
            mask = bernoulli(noise, n_rows, self.test_share)
        if mask.all() or not mask.any():
            raise ValueError(
                "the table must have rows enough for both parts at "
                f"test_share={self.test_share:g}; one would be empty"
            )
        return mask

    def check(self, adjacency: Adjacency) -> None:
        """Raise ValueError for a split by person where rows of one may take another's place."""
        if self.persons is not None and adjacency is not Adjacency.ADD_REMOVE:
            raise ValueError(
                "persons needs a study with adjacency='add_remove', which has a private number of "
                f"rows, and leaves the sizes of the parts to chance; got {adjacency.value!r}"
            )

    def event(self, learning: Event, evaluating: Event, adjacency: Adjacency) -> Event:
        """Return what it costs to release one thing about each part."""
        self.check(adjacency)
        kind = Parallel if adjacency.n_is_public else SplitByCoins
        return kind((learning, evaluating))
