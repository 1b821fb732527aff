"""The division of a table's rows among the parts of a study."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from dpglm._codec import line
from dpglm._json import at
from dpglm._validation import check_count, check_real
from dpglm._words import plain_number
from dpglm.data.groups import Groups
from dpglm.privacy.budget import Adjacency
from dpglm.privacy.events import Composed, Event, Parallel, SplitByCoins, canonical
from dpglm.privacy.noise import NoiseSource, bernoulli

__all__ = ["Split"]

EXPLORATION, MODEL, EFFECTS, EVALUATION = "exploration", "model", "effects", "evaluation"
NUISANCES = ("propensity_a", "outcome_a"), ("propensity_b", "outcome_b")
_PLACES = {EXPLORATION: 0, MODEL: 2, EFFECTS: 3, EVALUATION: 4}


def in_order(names: Iterable[str]) -> tuple[str, ...]:
    """Return the names of parts in the order in which they run: the model and its evaluation last.

    >>> in_order(["evaluation", "model", "moments", "exploration"])
    ('exploration', 'moments', 'model', 'evaluation')
    """
    return tuple(sorted(names, key=lambda name: _PLACES.get(name, 1)))


def side_of(part: str) -> int | None:
    """Return the side of a split that a part uses, 0 or 1; None for all rows."""
    first, second = NUISANCES
    return 0 if part in (MODEL, *first) else 1 if part in (EVALUATION, *second) else None


@final
@dataclass(frozen=True)
class Split:
    """A random division of the rows into training rows and test rows.

    Parameters
    ----------
    test_share : float, default=0.2
        Share of the rows, or of the persons, that is held out for the evaluation, in (0, 1).
    persons : str, optional
        Column with the person id of each row. All rows of a person go to the same side.

    Notes
    -----
    Privacy: the split does not depend on the contents of the rows. Releases about the training
    rows and releases about the test rows therefore compose in parallel
    (``docs/proofs/splits.md``). The sides have fixed sizes where the number of rows is public.
    Otherwise each row, or person, is assigned by an independent coin, because adding one row would
    change both sides of a split with fixed sizes. A split by person still protects single rows.

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
        """Return the planned numbers of training rows and of test rows.

        Raises
        ------
        ValueError
            If one side would be empty.
        """
        total = check_count("n_rows", n_rows)
        test = round(self.test_share * total)
        if not 0 < test < total:
            raise ValueError(
                f"n_rows must leave rows on both sides of the split with "
                f"test_share={self.test_share:g}, got {total!r}"
            )
        return total - test, test

    def draw(
        self,
        n_rows: int,
        adjacency: Adjacency,
        noise: NoiseSource,
        persons: NDArray[Any] | None = None,
    ) -> NDArray[np.bool_]:
        """Draw the secret mask of test rows, of shape (n_rows,).

        ``persons`` holds the person id of each row, for a split by person. A side may be empty only
        where the number of rows is private.
        """
        if (self.persons is None) != (persons is None):
            raise ValueError("persons must be given for a split by person, and only then")
        if persons is not None:
            ids = Groups.of(persons, n_rows)
            mask = bernoulli(noise, ids.n_groups, self.test_share)[ids.codes]
        elif adjacency.n_is_public:
            # Rows in the order of random numbers; ties do not matter.
            mask = np.zeros(n_rows, dtype=np.bool_)
            mask[np.argsort(noise.words(n_rows), kind="stable")[: self.sizes(n_rows)[1]]] = True
        else:
            mask = bernoulli(noise, n_rows, self.test_share)
        return mask

    def check(self, adjacency: Adjacency) -> None:
        """Refuse a split by person under relations in which rows can change their person."""
        if self.persons is not None and adjacency is not Adjacency.ADD_REMOVE:
            raise ValueError(
                "persons requires a study with adjacency='add_remove', where the sizes of the "
                f"sides are random, got {adjacency.value!r}"
            )

    def event(self, training: Event, testing: Event, adjacency: Adjacency) -> Event:
        """Return the event of one release about each side."""
        self.check(adjacency)
        kind = Parallel if adjacency.n_is_public else SplitByCoins
        return kind((training, testing))


def size_of_part(part: str, n_units: int, split: Split | None) -> int:
    """Return the number of rows, or of groups, that a part is planned for."""
    side = side_of(part)
    return n_units if split is None or side is None else split.sizes(n_units)[side]


def rows_in_words(part: str, split: Split | None) -> str:
    """Describe the rows that a part uses."""
    side = side_of(part)
    if split is None or side is None:
        return "all rows"
    share = split.test_share if side else 1.0 - split.test_share
    units = "rows" if split.persons is None else "persons"
    return f"{plain_number(100.0 * share, 3)} % of the {units}, at random"


def composed_event(events: Mapping[str, Event], split: Split | None, adjacency: Adjacency) -> Event:
    """Compose the events of the parts; the sides of a split are disjoint."""
    if len(events) == 1:
        return next(iter(events.values()))
    whole, first, second = (
        Composed(tuple(events[name] for name in in_order(events) if side_of(name) == side))
        for side in (None, 0, 1)
    )
    halves = (first, second) if split is None else (split.event(first, second, adjacency),)
    return canonical(Composed((whole, *halves)))
