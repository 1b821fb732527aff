"""The rows divided in two by secret randomness: some to learn from, some to evaluate on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from dpglm._codec import line
from dpglm._json import at
from dpglm._validation import check_count, check_real
from dpglm.data.groups.ids import Groups
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.events import Event, Parallel, SplitByCoins
from dpglm.privacy.noise import NoiseSource, bernoulli

__all__ = ["Split"]


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
