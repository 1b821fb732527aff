"""A table of several models side by side, for papers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, final

import numpy as np

from dpglm._calls import checked
from dpglm._validation import check_bool, check_list, check_one_of, check_real, in_one_line
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
        term, one joint test for a spline, and the budgets in the footer.

    Raises
    ------
    ValueError
        If a model was fitted without inference, or an argument is out of range.

    Notes
    -----
    Privacy: post-processing of released values. Models of the same rows cost their budgets
    together.

    Examples
    --------
    See docs/reporting.md.
    """
    check_real("level", level, above=0.0, below=1.0)
    named = models if isinstance(models, Mapping) else _numbered(models)
    found = {str(name): _inference(one) for name, one in named.items()}
    if not found:
        raise ValueError("models must be one model at least, got none")
    links = [one.link for one in found.values()]
    ratios = (
        all(link.exponentiated is not None for link in links)
        if exponentiate is None
        else check_bool("exponentiate", exponentiate)
    )
    if ratios and any(link.exponentiated is None for link in links):
        raise ValueError("exponentiate requires links with odds or rate ratios in all models")
    columns = [_Column(one, level, ratios) for one in found.values()]
    known: dict[str, NamedTerm] = {}
    for one in found.values():
        for name, term in one.named.terms.items():
            known.setdefault(name, term)
    shown = list(known) if terms is None else check_list("terms", terms)
    for name in shown:
        check_one_of("terms", name, tuple(known))
    rows = [row for name in shown for row in _rows_of(known[name], columns)]
    if terms is None and any(one.estimates.has_intercept for one in found.values()):
        rows.append(("intercept", *(one.effect("intercept") for one in columns)))
    sizes = [
        ("rows", *(plain_number(one.certificate.data.n_rows) for one in found.values())),
        ("epsilon", *(rounded_up(one.certificate.epsilon) for one in found.values())),
        ("delta", *(rounded_up(one.certificate.delta) for one in found.values())),
    ]
    ratio = " or ".join(dict.fromkeys(f"{link.exponentiated}s" for link in links))
    what = ratio[:1].upper() + ratio[1:] if ratios else "Coefficients"
    covered = f"{what} with {100.0 * level:g} % intervals: sampling error and privacy noise."
    notes = [covered, *_protection(list(found.values()))]
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


def _numbered(models: Any) -> dict[str, Any]:
    listed = models if isinstance(models, Sequence) and not isinstance(models, str) else [models]
    return {f"({place})": one for place, one in enumerate(listed, start=1)}


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


@final
class _Column:
    """The cells of one model."""

    def __init__(self, model: Inference, level: float, ratios: bool) -> None:
        self._model, self._ratios = model, ratios
        values, ends = model.params, model.conf_int(level)
        with np.errstate(over="ignore"):
            self._numbers = np.column_stack([values, ends])
            if ratios:
                self._numbers = np.exp(self._numbers)
        self._errors = model.standard_errors * (self._numbers[:, 0] if ratios else 1.0)

    def effect(self, name: str | None) -> str:
        """Write an effect with its interval; "" without this coefficient, None for a reference."""
        if name is None:
            return "1 (reference)" if self._ratios else "0 (reference)"
        if name not in self._model.names:
            return ""
        place = self._model.names.index(name)
        if not np.isfinite(self._errors[place]):
            return _UNKNOWN
        error, numbers = self._errors[place], self._numbers[place]
        if self._ratios:
            value, low, high = (_of_ratio(one, error / numbers[0]) for one in numbers)
        else:
            decimals = min(max(1 - math.floor(math.log10(error)), 0), 12) if error > 0.0 else 4
            value, low, high = (f"{one:.{decimals}f}" for one in numbers)
        mark = _OF_PRIOR if name in self._model.of_prior else ""
        return f"{value} ({low}, {high}){mark}"

    def has(self, term: NamedTerm) -> bool:
        return term.name in self._model.terms

    def test(self, term: NamedTerm) -> str:
        """Write the joint test of a term; "" without it."""
        if not self.has(term):
            return ""
        found = self._model.wald_test(term.name)
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


def _rows_of(term: NamedTerm, columns: Sequence[_Column]) -> Iterable[tuple[str, ...]]:
    blank = ("",) * len(columns)
    if term.levels:
        is_reference = any(name is None for _, name in term.levels)
        yield (term.name if is_reference else f"{term.name} (vs mean)", *blank)
        for label, name in term.levels:
            yield f"  {label}", *(one.effect(name) if one.has(term) else "" for one in columns)
    elif len(term.coefficients) == 1:
        yield term.name, *(one.effect(term.coefficients[0]) for one in columns)
    elif len(term.columns) > 1:
        yield term.name, *blank
        for name in term.coefficients:
            yield f"  {name}", *(one.effect(name) for one in columns)
    else:
        yield f"{term.name}, joint test", *(one.test(term) for one in columns)
