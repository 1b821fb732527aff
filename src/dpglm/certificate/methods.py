"""The methods section of a paper, and a record for registries, from a certificate."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from dpglm._words import plain_number, rounded_up
from dpglm.certificate.statement import (
    PROTECTED,
    WHERE,
    cautions,
    leaked_names,
    relation_in_words,
    spending,
)
from dpglm.data.split import EVALUATION
from dpglm.privacy.budget import Unit

if TYPE_CHECKING:
    from dpglm.certificate.certificate import Certificate, CertifiedPart

_FIRST_LETTERS = 200


def methods(certificate: Certificate) -> str:
    """Return a paragraph for the methods section of a paper, with the numbers of this analysis.

    It is about rows, unit of protection, budget and its shares, public facts, mechanisms, noise
    source and software.

    >>> from dpglm.estimators import LogisticRegression
    >>> model = LogisticRegression(classes=[0, 1], row_norm=1.0).fit([[0.5], [1.0]], [0, 1])
    >>> print(model.privacy_.methods()[:74])
    We analysed 2 records under differential privacy with dpglm 0.1.0. The pro
    """
    return " ".join(_sentences(certificate))


def _sentences(certificate: Certificate) -> Iterator[str]:
    protection, n_rows = certificate.protection, f"{certificate.protection.n_rows:,}"
    version = certificate.versions.get("dpglm", "")
    some = ", some of them selected by a private condition" if certificate.fact(WHERE) else ""
    public = protection.adjacency.rows_are_public(protection.unit)
    about = "" if public else "about "
    rows = f"{about}{n_rows} records{some}"
    yield f"We analysed {rows} under differential privacy with dpglm {version}."
    unit, most = "record", ""
    if protection.groups is not None:
        unit = "person with all records"
        most = f"; at most {plain_number(protection.groups.rows)} records of a person were used"
    neighbours = f"the {PROTECTED[certificate.adjacency]} of one {unit}"
    yield (
        f"The protected unit is one {unit}: neighbouring data sets differ in {neighbours} "
        f"({certificate.adjacency.value.replace('_', '-')}){most}."
    )
    costs = spending(certificate) if len(certificate.parts) > 1 else ()
    over = ", ".join(
        f"the {one.stage.replace('_', ' ')}"
        + ("" if one.share is None else f" ({plain_number(100.0 * one.share, 2)} % of mu^2)")
        for one in costs
    )
    split, evaluated = certificate.split, EVALUATION in certificate.parts
    if split is not None:
        sides = "model and evaluation" if evaluated else "those of a and of b"
        over += f", {sides} on disjoint records"
    yield (
        f"The privacy budget was epsilon = {rounded_up(certificate.epsilon)} and delta = "
        f"{rounded_up(certificate.delta)}{over and f', shared by {over}'}, accounted for by "
        f"the {certificate.accountant} accountant."
    )
    schema = certificate.fact("schema")
    declared, source = "Bounds of all variables were declared", ""
    if schema is not None:
        source = " ".join(str(schema.value.get("provenance", "")).split()).rstrip(".")
        if len(source) > _FIRST_LETTERS:
            source = f"{source[: _FIRST_LETTERS - 3]}..."
        declared = "Bounds and categories of all variables were declared before the analysis"
        source = f" ({source})"
    yield f"{declared}{source}; values beyond a bound were clipped."
    leaked = leaked_names(certificate)
    if leaked:
        yield f"These facts were taken from the data without protection: {', '.join(leaked)}."
    for name, part in certificate.parts.items():
        yield _mechanism(name, part)
    if split is not None and evaluated:
        share = plain_number(100.0 * split.test_share, 3)
        yield (
            f"The evaluation used {share} % of the records, chosen at random; the model used the "
            "others."
        )
    source = (
        "the operating system's random numbers"
        if certificate.noise_is_private
        else f"a seeded generator ({certificate.noise_source}), so that the results are NOT private"
    )
    yield f"Noise was drawn from {source}."
    if certificate.ledger is not None:
        yield "The budget was charged to a ledger before the first release."
    yield "Certificates are in the supplement and can be checked with `dpglm verify`."


_DOES = {
    "Description": "Descriptive numbers rest",
    "Evaluation": "The evaluation rests",
    "KaplanMeier": "Survival curves rest",
    "Moments": "The second moments behind all linear models rest",
    "StandardizedMeans": "Standardised mean predictions rest",
    "calibration": "The calibration of the models rests",
    "spread": "The bound on contributions rests",
    "effect": "The effect rests",
}


def _mechanism(name: str, part: CertifiedPart) -> str:
    """Describe the releases of a part."""
    count = sum(one.count for one in part.releases)
    kinds = sorted({type(one.mechanism).__name__.removesuffix("Noise") for one in part.releases})
    scales = [plain_number(one.noise_multiplier, 3) for one in part.releases]
    low, high = min(scales, key=float), max(scales, key=float)
    own = f"The part {name} ({part.estimator}) rests"
    if part.loss is not None:
        own = f"The model ({part.estimator}, loss {part.loss}) rests"
    does = _DOES.get(part.estimator, _DOES.get(name, own))
    return (
        f"{does} on {count} noisy release{'s' if count > 1 else ''} "
        f"({' and '.join(kinds)} noise of {low}{'' if low == high else f' to {high}'} times the "
        "sensitivity)."
    )


def record(certificate: Certificate) -> dict[str, Any]:
    """Return the facts that registries of deployments and output checkers ask for.

    They are unit, relation, budget, mechanisms with sensitivities and noise scales, public facts,
    software, and digests of the released values: plain values, ready for JSON.
    """
    groups = certificate.protection.groups
    return {
        "privacy unit": "person" if certificate.unit is Unit.GROUP else "record",
        "relation": certificate.adjacency.value,
        "protects": relation_in_words(certificate.adjacency, certificate.unit),
        "n_rows": certificate.protection.n_rows,
        "n_groups": None if groups is None else groups.n_groups,
        "max_rows_per_group": None if groups is None else groups.rows,
        "epsilon": certificate.epsilon,
        "delta": certificate.delta,
        "accountant": f"{certificate.accountant} {certificate.accountant_version}",
        "noise": certificate.noise_source,
        "is private": certificate.is_private,
        "software": dict(certificate.versions),
        "parts": {
            name: {
                "estimator": part.estimator,
                "loss": part.loss,
                "digest of values": part.model_digest,
                "releases": [
                    {
                        "quantity": one.quantity,
                        "count": one.count,
                        "mechanism": type(one.mechanism).__name__,
                        "sensitivity": one.sensitivity,
                        "noise scale": scale,
                    }
                    for one, scale in zip(part.releases, part.noise_scales, strict=True)
                ],
            }
            for name, part in certificate.parts.items()
        },
        "public facts": [
            {"name": one.name, "provenance": one.provenance} for one in certificate.public_facts
        ],
        "cautions": list(cautions(certificate)),
    }
