"""Summary tables of estimates as text and HTML."""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from dpglm._registry import snake_case
from dpglm._words import plain_number, visible
from dpglm.certificate.certificate import Certificate
from dpglm.certificate.statement import LABELS, WHERE
from dpglm.inference.estimates import Estimates, target_scale
from dpglm.inference.layout import ModelTable
from dpglm.privacy.accounting.accountants import GaussianAccountant
from dpglm.privacy.events import Repeated
from dpglm.problem import L2, IdentityLink, Link, NoPenalty
from dpglm.tables.cells import listed
from dpglm.tables.columns import Column
from dpglm.tables.encoding import NamedTerm

if TYPE_CHECKING:
    import pandas as pd


Kind: TypeAlias = Literal["estimate", "statistic", "probability", "share", "count"]
"""Kind of the numbers in a column, which decides their format."""
_MOST_DECIMALS = 15
# Fixed notation may be this many characters longer than scientific: R's option scipen.
_FAVOUR_FIXED = 2


@final
@dataclass(frozen=True, eq=False)
class SummaryColumn:
    """A column of a summary; estimates are written with three digits of their errors."""

    heading: str
    values: NDArray[np.float64]
    kind: Kind
    errors: NDArray[np.float64]

    def cell(self, place: int, *, scientific: bool = False) -> str:
        """Write one of the numbers; a dash for an infinite error."""
        value, error = float(self.values[place]), float(self.errors[place])
        if math.isinf(error) and math.isfinite(value):
            return "–"
        if self.kind == "probability":
            return "<0.001" if value < 0.001 else f"{value:.3f}"
        if self.kind == "share":
            return f"{100.0 * value:.0f} %"
        if self.kind == "count":
            return f"{value:.0f}"
        if self.kind == "statistic" or not math.isfinite(value):
            return f"{value:.2f}" if abs(value) < 1e5 else f"{value:.3g}"
        decimals = 2 - math.floor(math.log10(error)) if 0.0 < error < math.inf else 4
        if scientific:
            decimals += math.floor(math.log10(abs(value))) if value else 0
        decimals = min(max(decimals, 0), _MOST_DECIMALS)
        return f"{value:.{decimals}e}" if scientific else f"{value:.{decimals}f}"


@final
@dataclass(frozen=True, eq=False, repr=False)
class Summary:
    """Table of estimates with its assumptions; made by ``Inference.summary``.

    ``str()`` returns plain text; notebooks show a table.

    Parameters
    ----------
    title : str
        Title, such as the name of the estimator.
    facts : tuple of (str, str)
        Names and values of facts about the fit: target, loss, rows, budget and others.
    names : tuple of str
        Names of the rows.
    columns : tuple of SummaryColumn
        The numbers.
    notes : tuple of str
        Assumptions and cautions, in sentences.
    """

    title: str
    facts: tuple[tuple[str, str], ...]
    names: tuple[str, ...]
    columns: tuple[SummaryColumn, ...]
    notes: tuple[str, ...]

    def cells(self) -> list[tuple[str, ...]]:
        """Return the rows as text: for each its name and its numbers."""
        places = range(len(self.names))
        estimates = [one for one in self.columns if one.kind == "estimate"]

        def width(*, scientific: bool) -> int:
            widths = [
                len(one.cell(at, scientific=scientific)) for one in estimates for at in places
            ]
            return max(widths, default=0)

        # All estimates use scientific notation if it is shorter (as in R).
        scientific = width(scientific=True) + _FAVOUR_FIXED < width(scientific=False)
        return [
            (visible(name), *(one.cell(place, scientific=scientific) for one in self.columns))
            for place, name in enumerate(self.names)
        ]

    def to_frame(self) -> pd.DataFrame:
        """Return the numbers as a data frame; an ImportError without pandas."""
        import pandas as pd

        numbers = {one.heading: one.values for one in self.columns}
        return pd.DataFrame(numbers, index=list(self.names))

    @property
    def layout(self) -> ModelTable:
        """The cells of the table, and the text around it."""
        header = ("", *(one.heading for one in self.columns))
        return ModelTable(self.title, self.facts, header, (tuple(self.cells()),), self.notes)

    def to_markdown(self) -> str:
        """Return the table in GitHub's Markdown."""
        return self.layout.to_markdown()

    def to_html(self) -> str:
        """Return the table as one HTML element."""
        return self.layout.to_html()

    def to_latex(self) -> str:
        """Return the table in LaTeX, for the package booktabs."""
        return self.layout.to_latex()

    def __repr__(self) -> str:
        return repr(self.layout)

    _repr_html_ = to_html


class Tabled:
    """Base of results that text, notebooks and data frames show as their ``table``."""

    table: Summary

    def to_frame(self) -> pd.DataFrame:
        """Return the numbers of ``table`` as a data frame; an ImportError without pandas."""
        return self.table.to_frame()

    def __repr__(self) -> str:
        return str(self.table)

    def _repr_html_(self) -> str:
        return self.table._repr_html_()


def effect_columns(
    values: NDArray[np.float64],
    errors: NDArray[np.float64],
    statistics: NDArray[np.float64],
    p_values: NDArray[np.float64],
    intervals: NDArray[np.float64],
    *,
    level: float,
    freedom: float,
    link: Link | None,
    shares: NDArray[np.float64] | None = None,
) -> tuple[SummaryColumn, ...]:
    """Return the columns of effects; with a ``link``, their exponentials.

    Raises
    ------
    ValueError
        If exponentials are not ratios for the link.
    """
    tail, letter = 0.5 * (1.0 - level), "z" if math.isinf(freedom) else "t"
    heading, known, ends = "coef", np.isfinite(errors), intervals
    if link is not None:
        if link.exponentiated is None:
            raise ValueError(
                "exponentiate requires a link whose exponentials are ratios, such as the logit "
                f"or the log, got {link!r}"
            )
        with np.errstate(over="ignore"):
            heading, values, ends = link.exponentiated, np.exp(values), np.exp(intervals)

    def column(heading: str, values: NDArray[np.float64], kind: Kind) -> SummaryColumn:
        own = errors.copy()
        if link is not None:
            # Errors of exponentials are relative.
            np.multiply(values, errors, out=own, where=np.isfinite(errors))
        return SummaryColumn(heading, values, kind, own)

    def end(heading: str, values: NDArray[np.float64]) -> SummaryColumn:
        # Ends of unknown coefficients are exact: infinite, or 0 for ratios.
        found = column(heading, values, "estimate")
        return dataclasses.replace(found, errors=np.where(known, found.errors, 0.0))

    return (
        column(heading, values, "estimate"),
        *([] if link is not None else [column("std err", errors, "estimate")]),
        column(letter, statistics, "statistic"),
        column(f"P>|{letter}|", p_values, "probability"),
        end(f"[{tail:.3g}", ends[:, 0]),
        end(f"{1.0 - tail:.5g}]", ends[:, 1]),
        *([] if shares is None else [column("noise", shares, "share")]),
    )


# A penalty this weak, in rows (C of 1000 and more), changes coefficients by less than their errors.
_HARMLESS_PENALTY = 1e-3
# A released share is positive if it exceeds this many standard deviations of its noise.
_SURE = 2.0
# A term is named if its part in long rows is this many times the mean part.
_MOST_TERMS, _UNEVEN = 3, 1.5
_UNITS = (
    "Coefficients are per unit of the columns of the fit. If a SchemaEncoder encoded a table, "
    "in_units(encoder.units()) converts them to units of the table."
)
_KINDS = {"model": "model-based", "robust": "robust (sandwich)"}


def facts(certificate: Certificate, estimates: Estimates) -> tuple[tuple[str, str], ...]:
    """Return names and values of facts about a fit."""
    schema = _value(certificate, "schema", {})
    classes = _value(certificate, "classes", ()) or _value(certificate, LABELS, ())
    data, found = certificate.data, estimates.dispersion
    dispersion = {}
    if found is not None and isinstance(certificate.problem.loss.link, IdentityLink):
        dispersion["Residual SD"] = f"{plain_number(math.sqrt(found))}, estimated"
    elif found is not None:
        dispersion["Dispersion"] = f"{plain_number(found)}, estimated"
    some = "" if certificate.fact(WHERE) is None else "some of "
    of_groups = "" if data.groups is None else f" of {data.n_units} groups"
    texts = {
        "Target": schema.get("target", {}).get("name") or _role(certificate, "target"),
        "Outcome": f"{classes[1]}, against {classes[0]}" if classes else "",
        "Formula": schema.get("formula", ""),
        "Loss": loss_in_words(certificate),
        "Exposure": _role(certificate, "exposure"),
        "Offset": _role(certificate, "offset"),
        "Random intercepts": "; ".join(
            f"{name}: SD {scale:.3g} ({low:.3g} to {high:.3g})"
            for name, (scale, low, high) in components(certificate, estimates).items()
        ),
        "Intercept": "" if data.intercept else "none",
        **dispersion,
        "Penalty": _penalty(certificate),
        "Rows": f"{some}{data.n_rows}{of_groups}",
        "Covariance": _KINDS[estimates.kind],
        "Privacy": f"{certificate.cost}; {certificate.adjacency.value} ({certificate.relation})",
        "Budget": shares_of_budget(certificate),
    }
    return tuple((name, text) for name, text in texts.items() if text)


def components(
    certificate: Certificate, estimates: Estimates
) -> dict[str, tuple[float, float, float]]:
    """Return the standard deviations of pooled factors with their intervals, by name."""
    pooled = None if (schema := certificate.schema) is None else schema.encoding.pooled
    found = estimates.components
    names = [*(pooled or (f"columns {one.start} to {one.stop - 1}" for one in found))]
    scales = [(one.scale, one.low, one.high) for one in found]
    return dict(zip(names, scales, strict=False))


@final
@dataclass(frozen=True)
class SummarySource:
    """Title, facts and notes of a summary, for estimates that are not those of a fit."""

    title: str
    facts: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]
    target: str = ""
    columns: tuple[Column, ...] = ()
    terms: tuple[NamedTerm, ...] = ()


def of_intervals(estimates: Estimates, level: float) -> tuple[str, ...]:
    """Return notes on the confidence level, and on coefficients with little information."""
    freedom = estimates.degrees_of_freedom
    law = "the normal distribution"
    if math.isfinite(freedom):
        law = f"Student's t distribution with {plain_number(freedom, 3)} degrees of freedom"
    unknown, prior, beyond = estimates.unknown, estimates.of_prior, estimates.beyond_prior
    found = [
        f"{plain_number(100.0 * level)} % intervals include sampling error and privacy noise; "
        f"critical values are from {law}. noise: share of the squared error due to privacy"
        + ("." if estimates.prior is None else ", with the effect of the prior.")
    ]
    if unknown and len(unknown) == len(estimates.names):
        found.append(
            "No coefficient can be estimated at this budget: the fit did not converge, as with "
            "nearly separable classes, or the curvature of the loss cannot be distinguished from "
            "noise. A larger budget, fewer columns or a penalty would help."
        )
    elif unknown:
        found.append(
            f"Cannot be estimated at this budget: {listed(unknown)}. The information about them is "
            "below the noise level, and the estimates are noise."
        )
    if prior:
        found.append(
            f"Standard errors of {listed(prior)} are at least two thirds of the prior's: the rows "
            "carry little information about them at this budget. Their intervals hold for effects "
            "as large as the prior expects (prior_scales)."
        )
    if beyond:
        found.append(
            f"{listed(beyond)}: more than two prior standard deviations from zero. Targets may be "
            "nearly separable, and intervals may be too short. Check the data."
        )
    return tuple(found)


def notes(
    certificate: Certificate, estimates: Estimates, level: float, *, of_table: bool
) -> tuple[str, ...]:
    """Return the confidence level, assumptions and cautions of a summary."""
    assumed = (
        "The model is assumed to be right: its link, and the variance of the target that its loss "
        "implies. inference='robust' does not need this assumption."
    )
    if certificate.fact("weight_bound") is not None:
        assumed += " A weight divides that variance, like a number of trials."
    if estimates.kind == "robust":
        assumed = (
            "Sandwich covariance: the model need not be right. The target of inference is the "
            "minimizer of the expected loss, in which rows with large norms and large residuals "
            "count less. This downweighting vanishes with more rows or a larger budget."
        )
        weights = certificate.rebuild().method.estimand
        assumed += f" {weights}" if weights else ""
        if certificate.data.groups is not None:
            assumed += " Rows of a group may be dependent (cluster-robust)."
    elif certificate.data.groups is not None:
        assumed += " Rows of a group are assumed to be independent given their features."
    unit = "Rows" if certificate.data.groups is None else "Groups"
    rows = (
        f"{unit} are assumed to be independent. Values beyond declared bounds are clipped to "
        "them, and coefficients describe the clipped values."
    )
    shrunk = (
        "Intervals are for the minimizer of the penalized expected loss; its coefficients are "
        "shrunk towards zero."
    )
    shrinks = (shrunk,) if is_shrunk(certificate) else ()
    units = () if of_table else (_UNITS,)
    covered = of_intervals(estimates, level)
    bound = _bound(estimates)
    return (*covered, assumed, *bound, rows, *units, *shrinks, *certificate.caveats())


def _bound(estimates: Estimates) -> tuple[str, ...]:
    """Return notes on the released shares of rows that the limits of the fit affect."""
    found = estimates.binding
    if found is None:
        return ()
    values = found.long, found.lost, found.clipped
    long, lost, clipped = (
        f"{plain_number(100.0 * share, 2)} %"
        if share > _SURE * noise
        else f"at most {plain_number(100.0 * (share + _SURE * noise), 2)} %"
        for share, noise in zip(values, found.noise[:3], strict=True)
    )
    names = estimates.names[int(estimates.has_intercept) :]
    usual = _UNEVEN * float(np.mean(found.columns)) + _SURE * found.noise[3]
    by_share = sorted(zip(found.columns, names, strict=True), reverse=True)
    most = [name for share, name in by_share if share > usual]
    of_terms = f", mainly because of {listed(most[:_MOST_TERMS])}" if most else ""
    weighted = (
        f"Limits, from released counts: {long} of the rows count less because their norm is "
        f"large{of_terms}, and lose {lost} of the weight of all rows. If the model is right, this "
        "does not change the target of inference. If it is wrong, intervals are for the minimizer "
        "of the weighted loss, and may not cover coefficients of the whole population: transform "
        "a skewed column, or set weighting='none', which needs more noise."
    )
    weighted = "All rows count fully." if found.noise[0] == 0.0 else weighted
    if found.noise[2] == 0.0:
        return (weighted, "No residual is clipped.")
    note = f"Residuals of {clipped} of the rows are clipped"
    if found.clipped <= _SURE * found.noise[2]:
        return (weighted, note + "; this matters if targets are very skewed.")
    note += (
        ". If targets are more skewed than the model implies, this biases coefficients, mainly the "
        "intercept, and intervals do not include that bias. More rows or a larger budget reduce it"
    )
    note += "." if estimates.kind == "robust" else ", and so does inference='robust'."
    return (weighted, note)


def is_shrunk(certificate: Certificate) -> bool:
    """Return whether the penalty shifts coefficients noticeably, compared with their errors."""
    weight = certificate.problem.regularizer.strong_convexity * certificate.data.n_rows
    return weight > _HARMLESS_PENALTY


def loss_in_words(certificate: Certificate) -> str:
    """Return the name of a loss, its constants in the units of the targets, and its link."""
    loss = certificate.problem.loss.without_offset
    loss = loss.for_scaled_targets(1.0 / target_scale(certificate)) or loss
    numbers = [f"{name} {plain_number(one)}" for name, one in loss.constants.items()]
    parts = [_name(loss) + (f" ({', '.join(numbers)})" if numbers else "")]
    if loss.link is not None:
        parts.append(f"{_name(loss.link).removesuffix(' link')} link")
    is_named = _role(certificate, "exposure") or _role(certificate, "offset")
    if certificate.problem.loss.without_offset is not certificate.problem.loss and not is_named:
        parts.append("offsets" if certificate.fact("exposure") is None else "exposures")
    text = ", ".join(parts)
    return text[:1].upper() + text[1:]


def _name(thing: object) -> str:
    return snake_case(type(thing).__name__).replace("_", " ")


def _value(certificate: Certificate, name: str, default: Any) -> Any:
    """Return the value of a public fact."""
    fact = certificate.fact(name)
    return default if fact is None else fact.value


def _role(certificate: Certificate, role: str) -> str:
    """Return the name of the column with a role; "" if it is unknown."""
    value = _value(certificate, role, "")
    return value if isinstance(value, str) else ""


def _penalty(certificate: Certificate) -> str:
    """Return the name and strength of a penalty; "" without one."""
    penalty = certificate.problem.regularizer
    if isinstance(penalty, NoPenalty) or penalty == L2(0.0):
        return ""
    strength = plain_number(penalty.strong_convexity, 3)
    scaled = "columns" if target_scale(certificate) == 1.0 else "columns and targets"
    return f"{type(penalty).__name__} of strength {strength}, on scaled {scaled}"


def shares_of_budget(certificate: Certificate) -> str:
    """Return the share of mu squared of each kind of release; "" if one is not Gaussian."""
    exact = GaussianAccountant()
    counts: dict[str, int] = defaultdict(int)
    squares: dict[str, float] = defaultdict(float)
    for release in certificate.releases:
        event = Repeated(release.event, release.count)
        if not exact.supports(event, certificate.adjacency):
            return ""
        counts[release.quantity] += release.count
        squares[release.quantity] += exact.mu(event, certificate.adjacency) ** 2
    total = math.fsum(squares.values())
    return "; ".join(
        f"{plain_number(100.0 * square / total, 3)} % {quantity}"
        + ("" if counts[quantity] == 1 else f" ({counts[quantity]} times)")
        for quantity, square in squares.items()
    )
