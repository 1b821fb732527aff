"""Linear hypotheses and contrasts, by the names of terms and coefficients."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from dpglm._validation import check_list, check_real, in_one_line
from dpglm.tables.encoding import NamedTerm

Floats: TypeAlias = NDArray[np.float64]

_ZERO_SUM = 1e-9


@final
@dataclass(frozen=True, eq=False)
class NamedEstimates:
    """The coefficients of a model and its terms, as rows of linear combinations."""

    names: tuple[str, ...]
    terms: Mapping[str, NamedTerm]

    def hypothesis(self, text: str) -> tuple[Floats, Floats]:
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
        restrictions: list[Floats] = []
        values: list[Floats] = []
        for part in plain.split(","):
            if part.strip() in by_place:
                joint = self._joint(by_place[part.strip()])
                restrictions.append(joint)
                values.append(np.zeros(len(joint)))
                continue
            sides = [self._side(side, by_place, text) for side in part.split("=")]
            if len(sides) == 1:
                sides.append(np.zeros_like(sides[0]))
            gaps = np.array([left - right for left, right in itertools.pairwise(sides)])
            restrictions.append(gaps[:, :-1])
            values.append(-gaps[:, -1])
        return np.vstack(restrictions), np.concatenate(values)

    def contrast(self, weights: Any) -> tuple[str, Floats]:
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

    def levels(self, term: str) -> tuple[list[Any], Floats]:
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

    def interacting(self, rows: Floats) -> list[str]:
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

    def _joint(self, name: str) -> Floats:
        """Return a row for each coefficient of a term, or for the one coefficient."""
        chosen = [name] if name in self.names else list(self.terms[name].coefficients)
        return np.eye(len(self.names))[[self.names.index(one) for one in chosen]]

    def _side(self, text: str, by_place: Mapping[str, str], whole: str) -> Floats:
        """Read one side of an equation: weights of the coefficients, and a constant."""
        try:
            tree = ast.parse(text.strip(), mode="eval").body
        except (SyntaxError, ValueError, MemoryError, RecursionError):
            raise self._unread(whole) from None
        return self._linear(tree, by_place, whole)

    def _linear(self, node: ast.AST, by_place: Mapping[str, str], whole: str) -> Floats:
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

    def _weighted(self, name: str, given: Any) -> tuple[str, Floats]:
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


def _by_level(name: str, labels: Sequence[Any], given: Any) -> Floats:
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


def pairs(labels: Sequence[Any], rows: Floats) -> Iterator[tuple[str, Floats]]:
    """List the differences of all pairs of levels, the later one minus the earlier one."""
    for one, other in itertools.combinations(range(len(labels)), 2):
        yield f"{labels[other]} - {labels[one]}", rows[other] - rows[one]
