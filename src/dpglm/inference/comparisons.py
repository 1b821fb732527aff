"""Linear hypotheses by name, several contrasts with their correction, and tests of all terms."""

from __future__ import annotations

import ast
import functools
import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, final

import numpy as np
from scipy import special

from dpglm._validation import Array, check_bool, check_list, check_one_of, check_real, in_one_line
from dpglm.inference.estimates import quadratic_of
from dpglm.inference.summary import Summary, SummaryColumn, Tabled, effect_columns
from dpglm.tables.cells import listed
from dpglm.tables.encoding import NamedTerm

if TYPE_CHECKING:
    from dpglm.inference.inference import Inference


CORRECTIONS = ("simultaneous", "holm", "bonferroni", "none")
"""Corrections for several comparisons."""

_DRAWS = 20_000


def quantile(level: float, degrees_of_freedom: float) -> float:
    """Return the critical value of one two-sided interval."""
    return -float(special.stdtrit(degrees_of_freedom, 0.5 * (1.0 - level)))


def root_of(covariance: Array) -> Array:
    """Return a root of a covariance matrix that is semidefinite up to rounding."""
    values, vectors = np.linalg.eigh(0.5 * (covariance + covariance.T))
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))


def largest_errors(root: Array, degrees_of_freedom: float) -> Array:
    """Simulate the largest studentized error of ``root @ z``; rows of ``root`` have norm 1."""
    return _simulated(root.tobytes(), root.shape, degrees_of_freedom)


@functools.lru_cache(maxsize=64)
def _simulated(root: bytes, shape: tuple[int, ...], degrees_of_freedom: float) -> Array:
    # A fixed seed keeps results reproducible; these draws are not privacy noise.
    random = np.random.default_rng(0)
    z = random.standard_normal((_DRAWS, shape[1]))
    largest: Array = np.abs(z @ np.frombuffer(root).reshape(shape).T).max(axis=1, initial=0.0)
    if math.isfinite(degrees_of_freedom):
        largest /= np.sqrt(random.chisquare(degrees_of_freedom, _DRAWS) / degrees_of_freedom)
    return largest


def corrected(
    correction: str,
    statistics: Array,
    p_values: Array,
    root: Array,
    degrees_of_freedom: float,
    level: float,
) -> tuple[Array, float]:
    """Return adjusted p-values and the critical value of the intervals.

    ``root`` has the studentized errors of the comparisons that can be estimated. Holm's method has
    no intervals of its own; those of Bonferroni go with it.
    """
    size = len(p_values)
    if correction == "none" or size == 1:
        return p_values, quantile(level, degrees_of_freedom)
    if correction == "simultaneous":
        largest = np.sort(largest_errors(root, degrees_of_freedom))
        above = len(largest) - np.searchsorted(largest, np.abs(statistics))
        simulated = (1.0 + above) / (1.0 + len(largest))
        return np.maximum(simulated, p_values), float(np.quantile(largest, level))
    critical = quantile(1.0 - (1.0 - level) / size, degrees_of_freedom)
    if correction == "bonferroni":
        return np.minimum(1.0, size * p_values), critical
    order = np.argsort(p_values, kind="stable")
    stepped = np.maximum.accumulate((size - np.arange(size)) * p_values[order])
    return np.minimum(1.0, stepped)[np.argsort(order)], critical


_ZERO_SUM = 1e-9


@final
@dataclass(frozen=True, eq=False)
class NamedEstimates:
    """The coefficients of a model and its terms, as rows of linear combinations."""

    names: tuple[str, ...]
    terms: Mapping[str, NamedTerm]

    def hypothesis(self, text: str) -> tuple[Array, Array]:
        """Read a hypothesis as rows of combinations and their values.

        Such as ``"C(ward)"`` (all effects are zero), ``"age = 0.1"``, ``"a + b = 0"``,
        ``"a = b = c"``, or several with commas between them.
        """
        if text.strip() in (*self.terms, *self.names):
            rows = self._joint(text.strip())
            return rows, np.zeros(len(rows))
        known = sorted({*self.terms, *self.names}, key=len, reverse=True)
        choices = "|".join(map(re.escape, known))
        found: dict[str, str] = {}

        def placeholder(match: re.Match[str]) -> str:
            return found.setdefault(match[1] or match[2], f" _{len(found)}_ ")

        plain = re.sub(rf"`({choices})`|(?<![\w.])({choices})(?!\w)", placeholder, text)
        by_place = {place.strip(): name for name, place in found.items()}
        restrictions: list[Array] = []
        values: list[Array] = []
        for part in plain.split(","):
            if part.strip() in by_place:
                joint = self._joint(by_place[part.strip()])
                restrictions.append(joint)
                values.append(np.zeros(len(joint)))
                continue
            try:
                trees = [ast.parse(one.strip(), mode="eval").body for one in part.split("=")]
            except (SyntaxError, ValueError, MemoryError, RecursionError):
                raise self._unread(text) from None
            sides = [self._linear(one, by_place, text) for one in trees]
            if len(sides) == 1:
                sides.append(np.zeros_like(sides[0]))
            gaps = np.array([left - right for left, right in itertools.pairwise(sides)])
            restrictions.append(gaps[:, :-1])
            values.append(-gaps[:, -1])
        return np.vstack(restrictions), np.concatenate(values)

    def contrast(self, weights: Any) -> tuple[str, Array]:
        """Read a contrast as its name and one row: text, or weights by term."""
        if isinstance(weights, str):
            rows, values = self.hypothesis(weights)
            if len(rows) != 1 or values.any():
                raise ValueError(f"contrast must be one combination without a value, got {weights}")
            return weights, rows[0]
        if not isinstance(weights, Mapping) or not weights:
            raise ValueError(
                'contrast must be text such as "a - b", or weights by term such as '
                f'{{"C(dose)": [-1, 0, 1]}}, got {in_one_line(weights)}'
            )
        parts = [self._weighted(name, given) for name, given in weights.items()]
        said = ", ".join(f"{name}: {text}" for name, (text, _) in zip(weights, parts, strict=True))
        return said, sum((row for _, row in parts), np.zeros(len(self.names)))

    def levels(self, term: str) -> tuple[list[Any], Array]:
        """Return the categories of a term, and the row of each one's effect."""
        named = self.terms.get(term)
        if named is None or not named.levels:
            known = [name for name, one in self.terms.items() if one.levels]
            raise ValueError(f"term must be a categorical one, of {known}, got {term!r}")
        rows = np.zeros((len(named.levels), len(self.names)))
        for row, (_, name) in zip(rows, named.levels, strict=True):
            if name is not None:
                row[self.names.index(name)] = 1.0
        return [label for label, _ in named.levels], rows

    def interacting(self, rows: Array) -> list[str]:
        """Return columns that interact with terms in combinations, and are not in them."""
        used = {self.names[place] for place in np.flatnonzero(np.abs(rows).sum(axis=0))}
        own = [one for one in self.terms.values() if used & {*one.coefficients}]
        read = {column for one in own for column in one.columns}
        joined = [
            column
            for one in self.terms.values()
            if one not in own and read & {*one.columns}
            for column in one.columns
            if column not in read
        ]
        return list(dict.fromkeys(joined))

    def _joint(self, name: str) -> Array:
        """Return a row for each coefficient of a term, or for the one coefficient."""
        chosen = [name] if name in self.names else list(self.terms[name].coefficients)
        return np.eye(len(self.names))[[self.names.index(one) for one in chosen]]

    def _linear(self, node: ast.AST, by_place: Mapping[str, str], whole: str) -> Array:
        size = len(self.names)
        if isinstance(node, ast.Name) and node.id in by_place:
            row = self._joint(by_place[node.id])
            if len(row) != 1:
                raise ValueError(
                    f"{by_place[node.id]!r} has {len(row)} coefficients: test it alone, or name "
                    f"one of them in {whole!r}"
                )
            return np.append(row[0], 0.0)
        if isinstance(node, ast.Constant) and type(node.value) in (int, float):
            return np.append(np.zeros(size), check_real("number", node.value))
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
            sign = -1.0 if isinstance(node.op, ast.USub) else 1.0
            return sign * self._linear(node.operand, by_place, whole)
        if isinstance(node, ast.BinOp):
            left = self._linear(node.left, by_place, whole)
            right = self._linear(node.right, by_place, whole)
            if isinstance(node.op, ast.Add):
                return left + right
            if isinstance(node.op, ast.Sub):
                return left - right
            if isinstance(node.op, ast.Mult) and not (left[:-1].any() and right[:-1].any()):
                factor, other = (left, right) if right[:-1].any() else (right, left)
                return np.asarray(factor[-1] * other)
            if isinstance(node.op, ast.Div) and not right[:-1].any() and right[-1]:
                return np.asarray(left / right[-1])
        raise self._unread(whole)

    def _unread(self, text: str) -> ValueError:
        return ValueError(
            f"a hypothesis must be a linear equation of terms and coefficients such as 'a + b = 0',"
            f" got {text!r}. Terms: {in_one_line(list(self.terms))}; coefficients: "
            f"{in_one_line(list(self.names))}"
        )

    def _weighted(self, name: str, given: Any) -> tuple[str, Array]:
        """Read the weights of one term, or of one coefficient."""
        if name not in self.terms and name not in self.names:
            raise self._unread(str(name))
        levels = self.terms[name].levels if name in self.terms else ()
        if isinstance(given, Mapping) or (levels and isinstance(given, Sequence)):
            labels, rows = self.levels(name)
            weights = _by_level(name, labels, given)
            used = ((one, w) for one, w in zip(labels, weights, strict=True) if w)
            return " ".join(f"{w:+g} {one}" for one, w in used), weights @ rows
        rows = self._joint(name)
        listed = [given] if len(rows) == 1 and np.ndim(given) == 0 else check_list(name, given)
        weights = np.array([check_real(name, one) for one in listed])
        if len(weights) != len(rows):
            raise ValueError(f"{name} must have {len(rows)} weights, got {in_one_line(given)}")
        return " ".join(f"{one:+g}" for one in weights), weights @ rows


def _by_level(name: str, labels: Sequence[Any], given: Any) -> Array:
    """Return the weight of each level; they sum to zero, as only differences are identified."""
    if isinstance(given, Mapping):
        unknown = [one for one in given if one not in labels]
        if unknown:
            raise ValueError(f"{name} must have weights of {labels}, got {in_one_line(unknown)}")
        given = [given.get(one, 0.0) for one in labels]
    weights = np.array([check_real(name, one) for one in check_list(name, given)])
    if len(weights) != len(labels) or abs(weights.sum()) > _ZERO_SUM * np.abs(weights).sum():
        raise ValueError(
            f"{name} must have weights of {in_one_line(labels)} that sum to zero, got "
            f"{in_one_line(given)}"
        )
    return weights


Correction: TypeAlias = Literal["simultaneous", "holm", "bonferroni", "none"]
_CORRECTED: Mapping[str, str] = {
    "simultaneous": "P-values and intervals hold for all comparisons together (largest statistic, "
    "simulated from the released covariance).",
    "holm": "P-values (Holm) and intervals (Bonferroni) hold for all comparisons together.",
    "bonferroni": "P-values and intervals hold for all comparisons together (Bonferroni).",
    "none": "P-values and intervals are for each comparison by itself.",
}


@final
@dataclass(frozen=True)
class WaldTest:
    """Result of a Wald test.

    Parameters
    ----------
    statistic : float
        Chi-square statistic, or F statistic if ``df_denominator`` is finite.
    p_value : float
        Probability of at least this statistic under the hypothesis.
    df : int
        Number of linearly independent restrictions.
    df_denominator : float
        Degrees of freedom of the denominator; inf for a chi-square test.
    """

    statistic: float
    p_value: float
    df: int
    df_denominator: float = math.inf


@final
@dataclass(frozen=True, eq=False, repr=False)
class Comparisons(Tabled):
    """Contrasts of coefficients, or predictions and their changes; text and tables show them.

    Parameters
    ----------
    names : tuple of str
        A name for each number.
    estimates, standard_errors : ndarray of shape (n,)
        Contrasts are on the scale of the coefficients, others in the units of the target
        (probabilities for two classes); errors of ratios are those of their logarithms. Errors are
        infinite for numbers that cannot be estimated at this budget.
    intervals : ndarray of shape (n, 2)
        Lower and upper ends.
    table : Summary
        The numbers as text, HTML, Markdown and LaTeX.
    p_values : ndarray of shape (n,), optional
        Adjusted p-values of contrasts.
    correction : {"simultaneous", "holm", "bonferroni", "none"}, default="none"
        Correction for several comparisons.
    of_prior : tuple of str, default=()
        Contrasts with at least two thirds of the prior's standard deviation.

    Notes
    -----
    Privacy: post-processing of released values.
    """

    names: tuple[str, ...]
    estimates: Array
    standard_errors: Array
    intervals: Array
    table: Summary
    p_values: Array | None = None
    correction: str = "none"
    of_prior: tuple[str, ...] = ()


@final
@dataclass(frozen=True, eq=False, repr=False)
class Anova(Tabled, Mapping[str, WaldTest]):
    """Wald tests of all terms of a model, by term; text and tables show them.

    Parameters
    ----------
    tests : mapping from str to WaldTest
        The test that all effects of a term are zero, given the other terms.
    table : Summary
        The tests as text, HTML, Markdown and LaTeX.

    Notes
    -----
    Privacy: post-processing of released values.
    """

    tests: Mapping[str, WaldTest]
    table: Summary

    def __getitem__(self, term: str) -> WaldTest:
        return self.tests[term]

    def __iter__(self) -> Iterator[str]:
        return iter(self.tests)

    def __len__(self) -> int:
        return len(self.tests)


def compared(
    inference: Inference,
    what: str,
    names: tuple[str, ...],
    combinations: Sequence[Array],
    correction: str,
    level: float,
    exponentiate: bool,
) -> Comparisons:
    """Return estimates, intervals and tests of linear combinations of coefficients."""
    rows = np.array(combinations)
    check_one_of("correction", correction, CORRECTIONS)
    check_real("level", level, above=0.0, below=1.0)
    estimates, quadratic = inference.estimates, quadratic_of(rows)
    others = inference.named.interacting(rows)
    values: Array = np.asarray(rows @ estimates.params)
    errors = estimates.standard_errors(quadratic)
    known = np.isfinite(errors) & (errors > 0.0)
    statistics = np.divide(values, errors, out=np.zeros_like(values), where=known)
    freedom = estimates.degrees_of_freedom
    alone = np.asarray(2.0 * special.stdtr(freedom, -np.abs(statistics)), dtype=np.float64)
    root = rows[known] @ root_of(estimates.covariance)
    root /= np.maximum(np.linalg.norm(root, axis=1, keepdims=True), np.finfo(float).tiny)
    p_values, critical = corrected(correction, statistics, alone, root, freedom, level)
    half = critical * errors
    intervals = np.column_stack([values - half, values + half])
    of_prior = tuple(
        name for name, is_so in zip(names, estimates.is_of_prior(quadratic), strict=True) if is_so
    )
    notes = [
        f"{100.0 * level:g} % intervals include sampling error and privacy noise. "
        + _CORRECTED[correction if len(names) > 1 else "none"]
    ]
    unknown = [name for name, error in zip(names, errors, strict=True) if math.isinf(error)]
    if unknown:
        notes.append(f"Cannot be estimated at this budget: {listed(unknown)}.")
    if others:
        notes.append(
            f"Effects at the reference or at zero of {listed(list(others))}, which the model lets "
            "interact."
        )
    if of_prior:
        notes.append(
            f"Standard errors of {listed(list(of_prior))} are at least two thirds of the prior's: "
            "the rows carry little information about them at this budget."
        )
    columns = effect_columns(
        values,
        errors,
        statistics,
        p_values,
        intervals,
        level=level,
        freedom=freedom,
        link=inference.link if check_bool("exponentiate", exponentiate) else None,
    )
    table = Summary(f"{inference.title}: {what}", (), names, columns, tuple(notes))
    return Comparisons(names, values, errors, intervals, table, p_values, correction, of_prior)


def table_of_tests(title: str, tests: Mapping[str, WaldTest], unknown: tuple[str, ...]) -> Anova:
    """Return the tests of terms with their table."""
    found = list(tests.values())
    freedom = found[0].df_denominator if found else math.inf
    name = "chi2" if math.isinf(freedom) else "F"
    sure = np.zeros(len(found))
    columns = (
        SummaryColumn("df", np.array([float(one.df) for one in found]), "count", sure),
        SummaryColumn(name, np.array([one.statistic for one in found]), "statistic", sure),
        SummaryColumn(f"P>{name}", np.array([one.p_value for one in found]), "probability", sure),
    )
    about = (
        "Wald tests that all effects of a term are zero, given all other terms (type III, for the "
        "coding of the model: with an interaction, a main effect is the effect at the reference "
        "or at zero of the other column). They include sampling error and privacy noise."
    )
    notes = [about]
    if math.isfinite(freedom):
        notes.append(f"The F statistics have {freedom:.4g} degrees of freedom in the denominator.")
    if unknown:
        notes.append(
            f"Not tested are effects that cannot be estimated at this budget: {listed(unknown)}."
        )
    return Anova(dict(tests), Summary(title, (), tuple(tests), columns, tuple(notes)))
