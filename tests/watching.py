"""Releases of curators during a test."""

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
    """List the releases of mechanisms of these kinds: declaration, value, answer.

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
