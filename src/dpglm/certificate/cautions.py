"""What weakens a claim: rules about certificates, each with its reason."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from dpglm.privacy.weakness import weak_delta, weak_epsilon

if TYPE_CHECKING:
    from dpglm.certificate.certificate import Certificate

__all__ = ["CAUTIONS", "SCOPE", "Caution", "cautions"]

SCOPE = (
    "This certificate covers the releases that it lists, and nothing else. If another step "
    "learned from the same rows (a scaler, an imputer, a choice of columns, another fit), that is "
    "not covered, and no certificate can know of it."
)
"""What no certificate can know."""


@final
@dataclass(frozen=True)
class Caution:
    """A rule about certificates; ``says`` returns a sentence where it applies, else None.

    It never raises for a certificate that could be read.
    """

    name: str
    reason: str
    says: Callable[[Certificate], str | None]


def cautions(certificate: Certificate) -> tuple[str, ...]:
    """Return a sentence for each rule of ``CAUTIONS`` that weakens a certificate's claim."""
    said = (rule.says(certificate) for rule in CAUTIONS)
    return tuple(sentence for sentence in said if sentence is not None)


def _seeded(certificate: Certificate) -> str | None:
    if certificate.noise_is_private:
        return None
    return (
        f"NOT PRIVATE: the noise came from a seeded generator ({certificate.noise_source}). "
        "Whoever learns or guesses the seed can subtract it. The guarantee would hold with noise "
        "from the operating system (random_state=None)."
    )


def _leaked(certificate: Certificate) -> str | None:
    names = [fact.name for fact in certificate.public_facts if fact.provenance == "from the data"]
    if not names:
        return None
    return (
        f"WEAKER THAN STATED, because of what came from the private data: {', '.join(names)}. The "
        "guarantee holds only if that reveals nothing about any one row; declare it from public "
        "knowledge instead."
    )


def _weak_epsilon(certificate: Certificate) -> str | None:
    return _weak(weak_epsilon(certificate.epsilon))


def _weak_delta(certificate: Certificate) -> str | None:
    return _weak(weak_delta(certificate.delta, max(_rows(certificate), default=None)))


def _weak(sentence: str | None) -> str | None:
    return None if sentence is None else f"WEAK GUARANTEE: {sentence}"


def _rows(certificate: Certificate) -> Iterator[int]:
    """List what the plan and the public facts give as the number of rows, or of groups."""
    if certificate.data.groups is not None:
        yield certificate.data.n_units
        return
    found = [fact.value for fact in certificate.public_facts if fact.name == "n_rows"]
    yield certificate.data.n_rows
    yield from (value for value in found if type(value) is int and value > 0)


CAUTIONS = (
    Caution(
        "seeded noise",
        "Noise that can be computed can be subtracted: the guarantee rests on random bits that "
        "nobody knows (Garfinkel and Leclerc, 'Randomness concerns when deploying differential "
        "privacy', WPES 2020).",
        _seeded,
    ),
    Caution(
        "facts from the data",
        "Bounds, classes and weights taken from the rows are released without noise: one row may "
        "change them with certainty.",
        _leaked,
    ),
    Caution(
        "weak epsilon",
        "Above 10 the formal guarantee alone says next to nothing: a guess that is right with "
        "probability 1 % may become right with more than 99 % (Ponomareva et al., 'How to DP-fy "
        "ML', JAIR 77 (2023): up to 1 is strong, up to 10 reasonable, above 10 "
        "weak).",
        _weak_epsilon,
    ),
    Caution(
        "large delta",
        "To publish one of n rows, picked at random, is (0, 1/n)-differentially private under "
        "zero_out and replace_one; to publish each row with probability delta is "
        "(0, delta)-differentially private (Dwork and Roth, 'The algorithmic foundations of "
        "differential privacy', 2014, section 2.3). Few rows make 1/n large, so a hundredth is "
        "the limit for them.",
        _weak_delta,
    ),
)
"""The rules, in the order of their sentences."""
