"""What curators release while a test looks on."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

from dpglm.privacy.releases import Curator, Mechanism


@contextlib.contextmanager
def watched(
    kinds: type | tuple[type, ...] = Mechanism,
    change: Callable[[Any, Any, Any], Any] = lambda declared, value, answer: answer,
) -> Iterator[list[tuple[Any, Any, Any]]]:
    """List what mechanisms of these kinds release: what was declared, the value, the answer.

    ``change`` plants another answer.
    """
    seen: list[tuple[Any, Any, Any]] = []
    honest = Curator.release

    def release(self: Curator, declared: Any, value: Any) -> Any:
        answer = honest(self, declared, value)
        if isinstance(declared.mechanism, kinds):
            answer = change(declared, value.value, answer)
            seen.append((declared, value.value, answer))
        return answer

    with mock.patch.object(Curator, "release", release):
        yield seen
