"""The best of a random number of tries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from dpglm._words import plain_number
from dpglm.privacy.events.base import BasicEvent, Event
from dpglm.privacy.events.compositions import describe_event
from dpglm.privacy.events.parallel import Parallel
from dpglm.privacy.selection.repetitions import Repetitions

__all__ = ["RandomlyRepeated"]


@final
@dataclass(frozen=True)
class RandomlyRepeated(BasicEvent):
    """The best result of a random, secret number of independent tries; nothing else is released.

    Parameters
    ----------
    events : tuple of Event
        Each try is one of these, at least one; which, is public or drawn without looking at
        the data, and belongs to its result. Stored in canonical form, sorted, equal ones once.
    repetitions : Repetitions
        Law of the number of tries, which is drawn without looking at the data.

    Notes
    -----
    Privacy: "best" by any order of results that is fixed before, such as a noisy score that is
    part of the result. Neither the number of tries nor any other result is released. If a try
    is ``(e, delta(e))``-DP for every e, the best of all is ``(e + r, m delta(e))``-DP, with
    m the mean of the law and r its ``log_ratio``; the proof is in
    ``docs/proofs/random-repetition.md``.

    References
    ----------
    Papernot and Steinke, "Hyperparameter tuning with Renyi differential privacy", ICLR 2022,
    Theorems 2 and 6. Liu and Talwar, STOC 2019. Koskela, Redberg and Wang, "Privacy profiles
    for private selection", ICML 2024.

    Examples
    --------
    >>> from dpglm.privacy.events import Gaussian
    >>> from dpglm.privacy.selection.repetitions import NegativeBinomial
    >>> best = RandomlyRepeated((Gaussian(4.0), Gaussian(4.0)), NegativeBinomial(0.1))
    >>> best.events
    (Gaussian(noise_multiplier=4.0),)
    """

    events: tuple[Event, ...]
    repetitions: Repetitions

    def __post_init__(self) -> None:
        events = tuple(dict.fromkeys(Parallel(self.events).events))
        object.__setattr__(self, "events", events)
        if not isinstance(self.repetitions, Repetitions):
            raise ValueError(f"repetitions must be Repetitions, got {self.repetitions!r}")

    def words(self, count: int) -> str:
        tried = " or ".join(" and ".join(describe_event(one)) or "nothing" for one in self.events)
        lead = "The best" if count == 1 else f"{count} times the best"
        return (
            f"{lead} of a random, secret number of tries "
            f"({plain_number(self.repetitions.mean)} on average), each try being: {tried}"
        )
