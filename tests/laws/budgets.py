"""How many examples a law tries, by default and in the long run of `make laws`."""

from __future__ import annotations

from hypothesis import HealthCheck, settings


def examples(count: int) -> settings:
    """Settings of a law with expensive examples: ``count`` for a hundred of other laws, or five."""
    return settings(
        max_examples=max(min(count, 5), count * settings.default.max_examples // 100),
        suppress_health_check=[HealthCheck.too_slow],
    )
