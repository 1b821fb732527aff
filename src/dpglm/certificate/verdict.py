"""Whether a page may call a fit private, and what it says if not."""

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
    """What stands at the top of a page.

    Parameters
    ----------
    is_private : bool
        Whether the certificate holds and nothing is known that weakens it: the page is green.
    failures : tuple of str
        Checks of the certificate that failed.
    cautions : tuple of str
        What makes the claim less than it seems.
    scope : str
        What no certificate can know.
    """

    is_private: bool
    failures: tuple[str, ...]
    cautions: tuple[str, ...]
    scope: str = SCOPE


def verdict(verification: Verification, others: Sequence[str] = ()) -> Verdict:
    """Decide whether a fit may be called private.

    Parameters
    ----------
    verification : Verification
        What ``verify`` found: failed checks, and the cautions of the certificate.
    others : sequence of str
        What else is known to weaken it, such as the steps of a pipeline around it.

    Returns
    -------
    Verdict
        Private only if every check passed and there is no caution of either kind.
    """
    cautions = (*others, *verification.caveats)
    return Verdict(verification.ok and not cautions, verification.findings, cautions)
