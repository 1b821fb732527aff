"""Whether a page may call a fit private, and why not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from dpglm.certificate.cautions import SCOPE
from dpglm.certificate.verify import Verification

__all__ = ["Verdict", "verdict"]


@final
@dataclass(frozen=True)
class Verdict:
    """What stands at the top of a page: private only without failed checks and without cautions."""

    is_private: bool
    failures: tuple[str, ...]
    cautions: tuple[str, ...]
    scope: str = SCOPE


def verdict(verification: Verification, others: Sequence[str] = ()) -> Verdict:
    """Decide whether a fit may be called private."""
    cautions = (*others, *verification.caveats)
    return Verdict(verification.ok and not cautions, verification.findings, cautions)
