"""A table of several models side by side, for papers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from dpglm._calls import checked
from dpglm._validation import check_list, check_one_of, check_real, in_one_line
from dpglm._words import plain_number, rounded_up
from dpglm.inference.inference import Inference
from dpglm.inference.layout import ModelTable
from dpglm.tables.encoding import NamedTerm

_OF_PRIOR = "†"
_UNKNOWN = "–"
MARKS = (_OF_PRIOR, _UNKNOWN)
"""Marks of cells, with which their notes begin."""


@checked
def table(
    models: Any,
    *,
    level: float = 0.95,
    exponentiate: bool | None = None,
    title: str = "Models",
    terms: Sequence[str] | None = None,
) -> ModelTable:
    """Return the effects of several models side by side, with intervals and reference rows.

    Parameters
    ----------
    models : list of models, or mapping from headings to models
        Estimators that were fitted with ``inference``, or their ``inference_``.
    level : float, default=0.95
        Confidence level in (0, 1) of each interval.
    exponentiate : bool, optional
        Whether to show odds ratios or rate ratios; by default if all models have them.
    title : str, default="Models"
        Title of the table.
    terms : sequence of str, optional
        Terms to show, by ``inference_.terms``; by default all, and the intercept.

    Returns
    -------
    ModelTable
        With rows for the terms of all models, a row for the reference category of a categorical
        term, one joint test for a spline, the standard deviation of random intercepts, and the
        budgets in the footer.

    Raises
    ------
    ValueError
        If a model was fitted without inference, or an argument is out of range.

    Notes
    -----
    Privacy: post-processing of released values. Models of the same rows cost their budgets
    together.
    """
    check_real("level", level, above=0.0, below=1.0)
    if not isinstance(models, Mapping):
        listed = [models] if isinstance(models, str) or not isinstance(models, Sequence) else models
        models = {f"({place})": one for place, one in enumerate(listed, start=1)}
    found = {str(name): _inference(one) for name, one in models.items()}
    if not found:
        raise ValueError("models must be one model at least, got none")
    links = [one.link for one in found.values()]
    have_ratios = all(link.exponentiated is not None for link in links)
    ratios = have_ratios if exponentiate is None else exponentiate
    if ratios and not have_ratios:
        raise ValueError("exponentiate requires links with odds or rate ratios in all models")
    every = list(found.values())
    effects = [_effects(one, level, ratios) for one in every]
    known: dict[str, NamedTerm] = {}
    for one in found.values():
        for name, term in one.named.terms.items():
            known.setdefault(name, term)
    shown = list(known) if terms is None else check_list("terms", terms)
    for name in shown:
        check_one_of("terms", name, tuple(known))
    rows = [row for name in shown for row in _rows_of(known[name], every, effects, ratios)]
    if terms is None and any(one.estimates.has_intercept for one in every):
        rows.append(("intercept", *(one.get("intercept", "") for one in effects)))
    made = [one.certificate for one in every]
    sizes = [
        ("rows", *(plain_number(one.data.n_rows) for one in made)),
        ("epsilon", *(rounded_up(one.epsilon) for one in made)),
        ("delta", *(rounded_up(one.delta) for one in made)),
    ]
    ratio = " or ".join(dict.fromkeys(f"{link.exponentiated}s" for link in links))
    what = ratio[:1].upper() + ratio[1:] if ratios else "Coefficients"
    covered = f"{what} with {100.0 * level:g} % intervals: sampling error and privacy noise."
    notes = [covered, *_protection(every)]
    cells = "".join(cell for row in rows for cell in row[1:])
    if _OF_PRIOR in cells:
        notes.append(
            f"{_OF_PRIOR} The rows carry little information at this budget: the standard error is "
            "at least two thirds of the prior's."
        )
    if _UNKNOWN in cells:
        notes.append(f"{_UNKNOWN} Cannot be estimated at this budget.")
    heads = ("", *(name for name in found))
    targets = ("target", *(one.target for one in found.values()))
    sections = ((targets,), tuple(rows), tuple(sizes))
    return ModelTable(title, (), heads, sections, tuple(notes))


def _inference(model: Any) -> Inference:
    found = model if isinstance(model, Inference) else getattr(model, "inference_", None)
    if not isinstance(found, Inference):
        raise ValueError(
            f"models must be fitted with inference=True or 'robust', got {in_one_line(model)}"
        )
    return found


def _protection(models: Sequence[Inference]) -> Iterable[str]:
    words = dict.fromkeys(
        f"{one.certificate.adjacency.value} ({one.certificate.relation})" for one in models
    )
    yield f"Privacy: {'; '.join(words)}."
    different = {id(one.certificate): one.certificate for one in models}.values()
    if len(different) > 1:
        epsilon = math.fsum(one.epsilon for one in different)
        delta = math.fsum(one.delta for one in different)
        yield (
            f"Fits to the same rows cost together at most epsilon {rounded_up(epsilon)}, delta "
            f"{rounded_up(delta)}."
        )


def _effects(model: Inference, level: float, ratios: bool) -> dict[str, str]:
    """Write the effects of a model with their intervals, by coefficient."""
    numbers, found = np.column_stack([model.params, model.conf_int(level)]), {}
    if ratios:
        with np.errstate(over="ignore"):
            numbers = np.exp(numbers)
    for name, error, own in zip(model.names, model.standard_errors, numbers, strict=True):
        if not (np.isfinite(error) and np.isfinite(own[0])):
            found[name] = _UNKNOWN
            continue
        if ratios:
            value, low, high = (_of_ratio(one, error) for one in own)
        else:
            decimals = min(max(1 - math.floor(math.log10(error)), 0), 12) if error > 0.0 else 4
            value, low, high = (f"{one:.{decimals}f}" for one in own)
        mark = _OF_PRIOR if name in model.of_prior else ""
        found[name] = f"{value} ({low}, {high}){mark}"
    return found


def _test(model: Inference, term: NamedTerm) -> str:
    """Write the joint test of a term; "" without it."""
    if term.name not in model.terms:
        return ""
    found = model.wald_test(term.name)
    p = "p < 0.001" if found.p_value < 0.001 else f"p = {found.p_value:.3f}"
    return f"{p} ({found.df} df)"


def _of_ratio(value: float, error: float) -> str:
    """Write a ratio with the significant digits of its relative error, at least two.

    >>> _of_ratio(1.2345, 0.02), _of_ratio(0.0012, 2.4), _of_ratio(321.6, 2.4)
    ('1.23', '0.0012', '322')
    """
    if not 0.0 < value < 1e12 or not error > 0.0:
        return f"{value:.3g}"
    digits = min(max(1 - math.floor(math.log10(error)), 2), 12)
    decimals = digits - 1 - math.floor(math.log10(value))
    return f"{value:.{max(decimals, 0)}f}"


def _rows_of(
    term: NamedTerm, models: Sequence[Inference], effects: Sequence[dict[str, str]], ratios: bool
) -> Iterable[tuple[str, ...]]:
    blank, reference = ("",) * len(models), "1 (reference)" if ratios else "0 (reference)"

    def cells(name: str | None) -> Iterable[str]:
        for model, found in zip(models, effects, strict=True):
            own = reference if term.name in model.terms else ""
            yield own if name is None else found.get(name, "")

    scales = [model.variance_components.get(term.name) for model in models]
    if any(scales):
        written = ("{:.2g} ({:.2g}, {:.2g})".format(*one) if one else "" for one in scales)
        yield f"{term.name}, SD", *written
    elif term.levels:
        is_reference = any(name is None for _, name in term.levels)
        yield (term.name if is_reference else f"{term.name} (vs mean)", *blank)
        yield from ((f"  {label}", *cells(name)) for label, name in term.levels)
    elif len(term.coefficients) == 1:
        yield term.name, *cells(term.coefficients[0])
    elif len(term.columns) > 1:
        yield term.name, *blank
        yield from ((f"  {name}", *cells(name)) for name in term.coefficients)
    else:
        yield f"{term.name}, joint test", *(_test(one, term) for one in models)
