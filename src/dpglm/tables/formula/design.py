"""Formulas in Wilkinson notation: parsing, coding, and encoded columns."""

from __future__ import annotations

import ast
import dataclasses
import functools
import importlib
import itertools
import math
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, final

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dpglm._score import Score, as_score, total
from dpglm._validation import in_one_line
from dpglm._words import did_you_mean
from dpglm.tables.columns import CategoricalColumn, Column, NumericColumn
from dpglm.tables.encoding import (
    CATEGORY_PRIOR,
    Encoding,
    FeatureBlock,
    LinearUnits,
    NamedTerm,
    Reader,
    indicators,
)
from dpglm.tables.formula.factors import Cells, Factor, Scaled, read_factor

_MOST_COLUMNS = 10_000
_ROWS_AT_ONCE = 1 << 16


Term: TypeAlias = tuple[Factor, ...]
_Key: TypeAlias = frozenset[tuple[Factor, str]]
"""A column: the field of each factor of its product."""


def coded_terms(terms: Iterable[Sequence[Factor]]) -> tuple[Term, ...]:
    """Code the factors of each term without redundant columns, for any rows.

    The rule is from Chambers and Hastie, *Statistical Models in S* (1992), section 2.4, as in
    formulaic and patsy: a factor that spans the intercept is 1 plus a reduced factor. Products
    spanned by earlier terms are omitted, and the others are joined to full factors again where
    possible. The empty term is the intercept.
    """
    spanned: set[frozenset[Factor]] = set()
    whole: dict[Factor, Factor] = {}
    found: list[Term] = []
    for term in terms:
        whole |= {one.rest: one for one in term if one.rest is not None}
        options: list[tuple[Term, ...]] = [
            ((one,),) if one.rest is None else ((one.rest,), ()) for one in term
        ]
        products = [tuple(itertools.chain(*parts)) for parts in itertools.product(*options)]
        new = [product for product in products if frozenset(product) not in spanned]
        spanned.update(frozenset(product) for product in new)
        found += _joined(new, whole)
    return tuple(found)


def _joined(terms: Iterable[Term], whole: Mapping[Factor, Factor]) -> list[Term]:
    """Apply ``others + others:rest = others:whole`` repeatedly, by the factors of rests."""
    found: list[Term] = []
    for term in sorted(terms, key=len):
        for shorter in found:
            extra = set(term) - set(shorter)
            if len(term) == len(shorter) + 1 and len(extra) == 1 and extra <= whole.keys():
                full = tuple(whole[one] if one in extra else one for one in term)
                found = _joined([*(one for one in found if one != shorter), full], whole)
                break
        else:
            found.append(term)
    return found


@final
@dataclass(frozen=True, eq=False)
class FormulaEncoding(Encoding):
    """Encodes the coded terms of a formula.

    A fitted column is a product of factors, each scaled to [-1, 1] and centred if possible: a
    factor may be centred if the model contains the terms that its center creates, so that the model
    stays the same. ``units`` reverts the scaling.
    """

    columns: tuple[Column, ...]
    terms: tuple[Term, ...]

    def __post_init__(self) -> None:
        if not self.slopes:
            raise ValueError(
                "a formula must name a column besides the intercept: for a mean, use dpglm.describe"
            )
        n_columns = sum(math.prod(len(one.fields) for one in term) for term in self.slopes)
        if n_columns > _MOST_COLUMNS:
            raise ValueError(
                f"a formula must have at most {_MOST_COLUMNS} columns besides the intercept, got "
                f"{n_columns}"
            )

    @property
    def has_intercept(self) -> bool:
        return () in self.terms

    @functools.cached_property
    def blocks(self) -> tuple[FeatureBlock, ...]:
        found = []
        for term, scales in zip(self.slopes, self._scales, strict=True):
            names = tuple(":".join(fields) for fields in self.fields_of(term))
            read = frozenset(column for one in term for column in one.columns)
            named = NamedTerm(
                ":".join(one.name for one in term),
                names,
                tuple(one.name for one in self.columns if one.name in read),
                term[0].levels if len(term) == 1 else (),
            )
            prior = CATEGORY_PRIOR if all(one.is_category for one in term) else math.inf
            norm, pooled = math.prod(one.norm for one in scales), term[0].pooled
            center = scales[0].center if len(term) == 1 and term[0].is_category else None
            score = functools.partial(_product, term, scales)
            found.append(
                FeatureBlock(named, names, norm, prior, score, tuple, pooled, pooled, center)
            )
        return tuple(found)

    @functools.cached_property
    def units(self) -> LinearUnits:
        rows: dict[_Key, int] = {}
        for term in self.slopes:
            for fields in self.fields_of(term):
                rows[frozenset(zip(term, fields, strict=True))] = len(rows)
        intercept = len(rows)
        entries: list[tuple[float, int, int]] = [(1.0, intercept, intercept)]
        for term, scales in zip(self.slopes, self._scales, strict=True):
            for fields in self.fields_of(term):
                column = rows[frozenset(zip(term, fields, strict=True))]
                for factor, key in _expanded(term, fields, scales):
                    entries.append((factor, rows.get(key, intercept), column))
        values, at, of = zip(*entries, strict=True)
        shape = (intercept + 1, intercept + 1)
        return LinearUnits(
            sparse.csr_array((values, (at, of)), shape=shape), names=self.feature_names
        )

    def encode(self, cells: Reader, out: NDArray[np.floating[Any]]) -> None:
        read = self._read(cells)
        for first in range(0, len(out), _ROWS_AT_ONCE):
            rows, start = out[first : first + _ROWS_AT_ONCE], 0
            block = {name: values[first : first + _ROWS_AT_ONCE] for name, values in read.items()}
            for place in range(len(self.slopes)):
                product = self.term_values(place, block, len(rows))
                stop = start + product.shape[1]
                rows[:, start:stop] = product
                start = stop

    def _read(self, cells: Reader) -> dict[str, NDArray[Any]]:
        used = [column for column in self.columns if column.name in self.column_names]
        return {one.name: one.read(cells(one.name), gaps=True) for one in used}

    def term_values(self, place: int, cells: Cells, n_rows: int) -> NDArray[np.float64]:
        """Return the columns of the term at ``place``, for cells from ``_read``."""
        product = np.ones((n_rows, 1))
        for one, scale in zip(self.slopes[place], self._scales[place], strict=True):
            values = one.values(cells)
            values = (values - scale.center) / scale.scale
            # The fields of the first factor change fastest, as in R.
            product = (values[:, :, np.newaxis] * product[:, np.newaxis, :]).reshape(n_rows, -1)
        return product

    def encode_sparse(self, cells: Reader, n_rows: int, dtype: str = "float64") -> sparse.csr_array:
        read, parts = self._read(cells), []
        for place, term in enumerate(self.slopes):
            if term[0].pooled:
                (name,) = term[0].columns
                parts.append(indicators(read[name], len(term[0].fields), dtype))
            else:
                parts.append(sparse.csr_array(self.term_values(place, read, n_rows), dtype=dtype))
        return sparse.csr_array(sparse.hstack(parts, "csr"))

    @functools.cached_property
    def slopes(self) -> tuple[Term, ...]:
        """The terms except the intercept."""
        return tuple(term for term in self.terms if term)

    def fields_of(self, term: Term) -> tuple[tuple[str, ...], ...]:
        """Return the field of each factor, for every column; the first factor changes fastest."""
        fields = itertools.product(*(one.fields for one in reversed(term)))
        return tuple(one[::-1] for one in fields)

    @functools.cached_property
    def _scales(self) -> tuple[tuple[Scaled, ...], ...]:
        """Scalings of each term's factors, with as many centred ones as possible."""
        known, found = {frozenset(term) for term in self.terms}, []
        for term in self.slopes:
            centered = _centered(term, known)
            found.append(tuple(one.centered if one in centered else one.plain for one in term))
        return tuple(found)


def _centered(term: Term, known: set[frozenset[Factor]]) -> frozenset[Factor]:
    """Return the largest set of a term's factors that may be centred."""
    movable = [one for one in term if one.centered.center != 0.0]
    for count in range(len(movable), 0, -1):
        for chosen in itertools.combinations(movable, count):
            counts = range(1, count + 1)
            parts = itertools.chain(*(itertools.combinations(chosen, some) for some in counts))
            if all(frozenset(term) - frozenset(part) in known for part in parts):
                return frozenset(chosen)
    return frozenset()


def _product(term: Term, scales: Sequence[Scaled], weights: Any) -> Score:
    """Return the effect of a term; the fields of its first factor change fastest."""
    if not term:
        return as_score(float(weights[0]))
    parts = np.reshape(weights, (len(term[-1].fields), -1))
    inner = [_product(term[:-1], scales[:-1], part) for part in parts]
    effect = term[-1].score(inner)
    if scales[-1].center:
        effect -= total(inner) * scales[-1].center
    return effect / scales[-1].scale


def _expanded(
    term: Term, fields: Sequence[str], scales: Sequence[Scaled]
) -> Iterator[tuple[float, _Key]]:
    """Expand a product of ``(f - c) / s`` into a sum of columns with coefficients."""
    size = math.prod(scale.scale for scale in scales)
    pairs = list(zip(zip(term, fields, strict=True), scales, strict=True))
    choices = [
        ((1.0, pair),) if scale.center == 0.0 else ((1.0, pair), (-scale.center, None))
        for pair, scale in pairs
    ]
    for chosen in itertools.product(*choices):
        factor = math.prod(value for value, _ in chosen) / size
        yield factor, frozenset(pair for _, pair in chosen if pair is not None)


# Artificial rows, on which identities between columns can be checked without data.

_NEAREST = -12.0
_MISSING = 0.1


def artificial_rows(
    columns: Sequence[Column], terms: Sequence[Term], n_unknowns: int, rng: np.random.Generator
) -> tuple[Cells, int]:
    """Return the cells of artificial rows, and their number.

    There are twice as many rows as unknowns, and a few more, for every combination of the
    categories of the terms. Numbers are random within their bounds, and many are at or near the
    numbers of the formula and the ends of the range, on a logarithmic scale.
    """
    factors = [one for term in terms for one in term]
    names = frozenset(name for one in factors for name in one.columns)
    used = [one for one in columns if one.name in names]
    categories = [one for one in used if isinstance(one, CategoricalColumn)]
    sizes = [len(one.categories) for one in categories]
    n_combined = math.prod(sizes)
    n_within = 2 * n_unknowns // n_combined + 20
    n_rows, found = n_combined * n_within, {number for one in factors for number in one.numbers}
    places = np.unravel_index(np.repeat(np.arange(n_combined), n_within), (*sizes, 1))
    cells: dict[str, NDArray[Any]] = dict(
        zip((one.name for one in categories), places[:-1], strict=True)
    )
    for one in used:
        if isinstance(one, NumericColumn):
            cells[one.name] = _drawn(one, found, n_rows, rng)
    return cells, n_rows


def _drawn(
    column: NumericColumn, places: Iterable[float], n_rows: int, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Draw numbers within the bounds of a column."""
    low, high = float(column.low), float(column.high)
    from_places = rng.choice([low, high, *(one for one in places if low < one < high)], n_rows)
    toward = rng.choice([low, high], n_rows)
    share = np.where(rng.random(n_rows) < 0.8, 10.0 ** rng.uniform(_NEAREST, 0.0, n_rows), 0.0)
    near = from_places + (toward - from_places) * share
    anywhere = rng.uniform(low, high, n_rows)
    drawn = np.clip(np.where(rng.random(n_rows) < 0.5, anywhere, near), low, high)
    if column.missing is not None:
        drawn[rng.random(n_rows) < _MISSING] = math.nan
    return drawn


_MOST_LETTERS = 2000
_MOST_TERMS = 1000
_MOST_POWER = _MOST_FACTORS = 6
_QUOTED = re.compile(r"`([^`]*)`")
# A random intercept, as in lme4.
_RANDOM = re.compile(r"\(\s*1\s*\|\s*(`[^`]+`|\w+)\s*\)")
# R's spelling, which Python cannot parse; not within backquotes.
_IS_NA = re.compile(r"(`[^`]*`)|(?<![\w.])is[._]na(?=\s*\()")


def read_formula(formula: str, columns: Sequence[Column], target: str | None) -> FormulaEncoding:
    """Read a formula such as ``"y ~ age + C(sex)"`` over declared columns.

    formulaic tokenizes it and multiplies terms out. It gets placeholders for names and Python,
    since it evaluates some Python while parsing. ``read_factor`` reads these with a fixed list of
    row-wise functions, without evaluation. Errors name the term.
    """
    if type(formula) is not str or len(formula) > _MOST_LETTERS:
        raise ValueError(
            f"formula must be text of at most {_MOST_LETTERS} characters, got "
            f"{in_one_line(formula)}"
        )
    try:
        terms = coded_terms(read_terms(formula, columns, target))
        return FormulaEncoding(_with_pooled(columns, terms), terms)
    except RecursionError:
        raise ValueError(f"formula {in_one_line(formula)} is nested too deeply") from None


def _with_pooled(columns: Sequence[Column], terms: Sequence[Term]) -> tuple[Column, ...]:
    """Return the columns as the terms use them: pooled, or not."""
    pooled: dict[str, bool] = {}
    for term in terms:
        for one in term:
            if one.pooled and len(term) > 1:
                raise ValueError(
                    f"formula term {one.name!r} must not be in an interaction: only "
                    "intercepts can be random"
                )
            for name in one.columns if one.is_category else ():
                if pooled.setdefault(name, one.pooled) is not one.pooled:
                    raise ValueError(f"column {name!r} must be either pooled or fixed, not both")
    return tuple(
        dataclasses.replace(
            column,
            pooled=pooled[column.name],
            reference=None if pooled[column.name] else column.reference,
        )
        if isinstance(column, CategoricalColumn) and column.name in pooled
        else column
        for column in columns
    )


def read_terms(
    formula: str, columns: Sequence[Column], target: str | None = None
) -> Iterator[list[Factor]]:
    """Yield the factors of each term of a formula, see ``read_formula``."""
    parser, tokenizer, errors = _formulaic()
    try:
        tokens = list(tokenizer.tokenize(_RANDOM.sub(r"re(\1)", formula)))
    except errors.FormulaParsingError as error:
        raise ValueError(f"formula {formula!r}: {_plain(error)}") from None
    operators = [token.token if token.kind.value == "operator" else "" for token in tokens]
    if any("|" in operator for operator in operators):
        raise ValueError(
            f"formula {formula!r} may contain '|' only in a random intercept, (1 | g), as slopes "
            "cannot be random. groups= (--groups COLUMN) protects all rows of a person together"
        )
    tildes = [i for i, operator in enumerate(operators) if "~" in operator]
    # formulaic joins following signs.
    if len(tildes) > 1 or any(operators[i].strip("+-")[1:] for i in tildes):
        raise ValueError(f"formula {formula!r} must have one '~'")
    split = tildes[0] if tildes else -1
    left, right = tokens[: max(split, 0)], tokens[split + 1 :]
    sign = operators[split][1:] if tildes else ""
    if not tildes and any((one.token, one.kind.value) == (target, "name") for one in tokens):
        raise ValueError(f"formula {formula!r} must have '~' after the target {target!r}")
    if left and [(one.token, one.kind.value) for one in left] != [(target, "name")]:
        raise ValueError(
            f"formula {formula!r} must have only the schema's target {target!r} before '~'"
        )
    factors: dict[str, Factor] = {}
    by_name = {column.name: column for column in columns}
    safe = [_placeholder(token, by_name, factors) for token in right]
    try:
        tree = parser.parse(" ".join([sign, *safe]), target="ast")
        if _count(tree) > _MOST_TERMS:
            raise ValueError(f"formula {formula!r} makes more than {_MOST_TERMS} terms")
        found = list(parser.get_terms_from_ast(tree, context={}))
    except errors.FormulaParsingError as error:
        said = _plain(error)
        for key, factor in factors.items():
            said = said.replace(f"`{key}`", f"`{factor.name}`")
        raise ValueError(f"formula {formula!r}: {said}") from None
    except AttributeError:
        # formulaic 1.2 fails so if one kind of bracket closes another.
        raise ValueError(f"formula {formula!r} has brackets that do not match") from None
    for term in sorted(found, key=lambda one: one.degree):
        written = [one.expr for one in term.factors]
        if len(written) > _MOST_FACTORS:
            raise ValueError(
                f"formula {formula!r} has an interaction of more than {_MOST_FACTORS} factors"
            )
        if written == ["1"]:
            yield []
        elif any(one not in factors for one in written):
            raise ValueError(
                f"formula {formula!r}: numbers cannot scale terms; write I(2 * x) for a column"
            )
        else:
            yield [factors[one] for one in written]


def _placeholder(token: Any, columns: Mapping[str, Column], factors: dict[str, Factor]) -> str:
    """Return the placeholder of a token for formulaic; names and Python become factors."""
    kind, text = token.kind.value, token.token
    if text == ".":
        return f"({' + '.join(_named(name, columns, factors) for name in columns)})"
    if kind == "name":
        return _named(text, columns, factors)
    return _called(text, columns, factors) if kind == "python" else str(text)


def _named(name: str, columns: Mapping[str, Column], factors: dict[str, Factor]) -> str:
    if name not in columns:
        raise ValueError(
            f"formula term {name!r} is not a column of the schema: {', '.join(columns)}"
            f"{did_you_mean(name, columns)}"
        )
    tree = ast.Name("_")
    return _kept(name, tree, {"_": columns[name]}, factors)


def _called(text: str, columns: Mapping[str, Column], factors: dict[str, Factor]) -> str:
    """Read Python as a factor, in a canonical spelling."""
    aliases: dict[str, str] = {}
    # Longer than any column name.
    stem = "_" * (1 + max(map(len, columns)))

    def alias(quoted: re.Match[str]) -> str:
        return aliases.setdefault(quoted[1], f"{stem}{len(aliases)}{stem}")

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)
            plain = _IS_NA.sub(lambda found: found[1] or "isna", text.strip())
            tree = ast.parse(_QUOTED.sub(alias, plain), mode="eval").body
        written = ast.unparse(tree).replace("\n", " ")
    except (SyntaxError, ValueError, MemoryError):
        raise ValueError(f"formula term {text!r}: this is not an expression") from None
    for name, short in aliases.items():
        written = written.replace(short, f"`{name}`")
    quoted = {short: columns[name] for name, short in aliases.items() if name in columns}
    return _kept(written, tree, {**columns, **quoted}, factors)


def _kept(
    written: str, tree: ast.AST, columns: Mapping[str, Column], factors: dict[str, Factor]
) -> str:
    """Add a factor by its text, and return its placeholder."""
    known = {factor.name: key for key, factor in factors.items()}
    key = known.get(written, f"factor {len(factors)}")
    if written not in known:
        try:
            factors[key] = read_factor(written, tree, columns)
        except ValueError as error:
            term = re.sub(r"^re\((.*)\)$", r"(1 | \1)", written)
            raise ValueError(f"formula term {term!r}: {error}") from None
    return f"`{key}`"


def _plain(error: Exception) -> str:
    """Return formulaic's message without its coloured excerpt."""
    return str(error).partition("\n")[0]


def _count(tree: Any) -> int:
    """Bound the number of terms of an operator tree without expanding it."""
    if not hasattr(tree, "operator"):
        return 1
    symbol, args = tree.operator.symbol, list(tree.args)
    if symbol in ("**", "^"):
        power = str(args[1])
        if not power.isdigit() or not 1 <= int(power) <= _MOST_POWER:
            raise ValueError(
                f"formula: a power of terms must be a whole number from 1 to {_MOST_POWER}, got "
                f"{power}; write I(x ** 2) for the square of a column"
            )
        made = _count(args[0]) ** int(power)
    else:
        counts = [_count(one) for one in args]
        made = sum(counts) + (math.prod(counts) if symbol in ("*", ":") else 0)
    return min(int(made), _MOST_TERMS + 1)


def _formulaic() -> tuple[Any, Any, Any]:
    """Return formulaic's parser, its tokenizer, and its errors."""
    try:
        names = ("formulaic.parser", "formulaic.parser.algos.tokenize", "formulaic.errors")
        parsers, tokenizer, errors = map(importlib.import_module, names)
    except ImportError as error:
        raise ImportError(
            "formulas need formulaic, which is not installed: pip install 'dpglm[formula]'"
        ) from error
    return parsers.DefaultFormulaParser(feature_flags=set()), tokenizer, errors
