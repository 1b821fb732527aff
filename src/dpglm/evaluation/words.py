"""Numbers of an evaluation in order, and in words."""

from __future__ import annotations

from typing import Any, TypeAlias

from dpglm._words import plain_number
from dpglm.evaluation.binary_result import BinaryResult
from dpglm.evaluation.classes import ClassesResult
from dpglm.evaluation.regression import RegressionResult
from dpglm.exploration.numbers import Number
from dpglm.exploration.summary import ends_of, in_units

__all__ = [
    "Result",
    "in_words",
    "named",
    "numbers_of",
    "of_rows",
    "plain_numbers",
    "population",
    "written",
]

Result: TypeAlias = BinaryResult | ClassesResult | RegressionResult
"""What an evaluation says of all rows, or of those of one group."""

_NAMES = {
    "auc": "AUC",
    "ks": "KS distance",
    "lift": "lift of the top tenth",
    "d2": "D\N{SUPERSCRIPT TWO}",
    "brier": "Brier score",
    "f1": "F1",
    "r2": "R\N{SUPERSCRIPT TWO}",
    "mse": "mean squared error",
    "rmse": "root mean squared error",
    "mae": "mean absolute error",
    "bias": "mean error",
}


def named(measure: str) -> str:
    """Return what a measure is called, with its threshold if it has one."""
    what, at, threshold = measure.partition(" at ")
    return _NAMES.get(what, what.replace("_", " ")) + at + threshold


def numbers_of(rows: Result, thresholds: tuple[float, ...]) -> dict[str, Number]:
    """Return all numbers of a result, those of decisions at each threshold."""
    found = {name: measure() for name, measure in rows.measures.items()}
    if isinstance(rows, BinaryResult):
        for threshold in thresholds:
            at = "" if thresholds == (rows.usual_threshold,) else f" at {threshold:g}"
            found |= {f"{name}{at}": number for name, number in rows.at(threshold).items()}
    return found


def plain_numbers(rows: Result, thresholds: tuple[float, ...]) -> dict[str, Any]:
    """Return all numbers as plain values."""
    return {name: one.to_dict() for name, one in numbers_of(rows, thresholds).items()}


def in_words(number: Number) -> str:
    """Write an estimate with its intervals: of sampling and noise, and of noise alone."""

    def pair(low: float | None, high: float | None) -> str:
        return f"[{_short(low)}, {_short(high)}]"

    return (
        f"{_short(number.estimate):>8}  "
        f"{pair(number.population_low, number.population_high)}  "
        f"{pair(number.low, number.high)}"
    )


def _short(value: float | None) -> str:
    return "" if value is None else plain_number(value, 4)


def written(number: Number) -> str:
    """Write an estimate with the digits that its interval for a population leaves meaningful."""
    width = (number.population_high or 0.0) - (number.population_low or 0.0)
    return in_units(number.estimate, width)


def of_rows(number: Number) -> str:
    """Write the interval for these rows."""
    return " to ".join(ends_of(number.low, number.high))


def population(number: Number) -> str:
    """Write the interval for a population; nothing for a number that has none."""
    return " to ".join(ends_of(number.population_low, number.population_high))
