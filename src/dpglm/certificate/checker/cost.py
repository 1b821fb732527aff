"""The cost of recomputing a claim, from its public event alone."""

from __future__ import annotations

from dpglm.exceptions import TooCostlyError
from dpglm.privacy.events import Event, RandomlyRepeated
from dpglm.privacy.events.branches import branches

__all__ = ["check_cost"]

# Each law is put on grids for both orders of the data sets, tilted and transformed several times.
_MOST_LAWS = 48


def check_cost(event: Event) -> None:
    """Refuse events of more than 48 different mechanisms, before anything is computed.

    They are counted over all choices of one part from each parallel event. Grids that would be too
    large are refused by the accountants that plan them.
    """
    laws = _laws(event)
    if laws > _MOST_LAWS:
        raise TooCostlyError(
            f"{laws} laws of privacy losses would have to be composed, at most {_MOST_LAWS} are"
        )


def _laws(event: Event) -> int:
    total = 0
    for branch in branches(event):
        for basic, _ in branch.terms():
            tries = basic.events if isinstance(basic, RandomlyRepeated) else ()
            total += sum(_laws(one) for one in tries) if tries else 1
    return total
