"""How many examples a law tries, by default and in the long run of `make laws`."""

from __future__ import annotations

from hypothesis import HealthCheck, settings


def examples(count: int) -> settings:
    """Settings of a law with expensive examples: ``count`` of them by default."""
    return settings(
        max_examples=max(1, count * settings.default.max_examples // 100),
        suppress_health_check=[HealthCheck.too_slow],
    )
