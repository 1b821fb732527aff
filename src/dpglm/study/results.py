"""What a study has found, with its certificate."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, final

from dpglm._html import card
from dpglm._words import rounded_up
from dpglm.certificate.verify import Verification
from dpglm.study.certificate import StudyCertificate
from dpglm.study.parts.part import EVALUATION, EXPLORATION, MODEL
from dpglm.study.planning import StudyPlan
from dpglm.study.verification import verify_study

__all__ = ["StudyResult"]


@final
@dataclass(frozen=True, eq=False)
class StudyResult:
    """What a study has found.

    Parameters
    ----------
    plan : StudyPlan
        What was planned, and happened.
    privacy_ : StudyCertificate
        The certificate of everything together, with those of the parts.
    exploration : Description or None
        Counts, quantiles and tables of all rows.
    model : estimator or None
        The fitted model.
    evaluation : Evaluation or None
        How good the model is on rows held out.

    Notes
    -----
    Privacy: all of it was released, and may be published.
    """

    plan: StudyPlan
    privacy_: StudyCertificate
    exploration: Any = None
    model: Any = None
    evaluation: Any = None

    @property
    def parts(self) -> Iterator[tuple[str, Any]]:
        """The results by the names of their parts."""
        for name in (EXPLORATION, MODEL, EVALUATION):
            result = getattr(self, name)
            if result is not None:
                yield name, result

    def statement(self) -> str:
        """Return the guarantee in plain words, as text of several paragraphs."""
        return self.privacy_.statement()

    def verify(self) -> Verification:
        """Check that the certificate's claim follows from what it records."""
        return verify_study(self.privacy_)

    def _repr_html_(self) -> str:
        return card(
            "Results of a study",
            [
                ("parts", ", ".join(name for name, _ in self.parts)),
                ("epsilon", rounded_up(self.privacy_.epsilon)),
                ("delta", rounded_up(self.privacy_.delta)),
            ],
            warnings=self.privacy_.caveats(),
        )
