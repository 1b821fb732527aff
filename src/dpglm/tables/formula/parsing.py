"""Formulas in Wilkinson notation, read with formulaic; nothing in them is evaluated."""

from __future__ import annotations

import ast
import importlib
import math
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dpglm._validation import in_one_line
from dpglm.tables.columns import Column
from dpglm.tables.formula.aliased import check_not_aliased
from dpglm.tables.formula.design import FormulaEncoding, coded_terms
from dpglm.tables.formula.factors import Factor, read_factor

__all__ = ["read_formula"]

_MOST_LETTERS = 2000
_MOST_TERMS = 1000
_MOST_POWER = _MOST_FACTORS = 6
_QUOTED = re.compile(r"`([^`]*)`")
# As R writes it, which Python cannot parse; not within backquotes.
_IS_NA = re.compile(r"(`[^`]*`)|(?<![\w.])is[._]na(?=\s*\()")


def read_formula(formula: str, columns: Sequence[Column], target: str | None) -> FormulaEncoding:
    """Read a formula such as ``"y ~ age + C(sex)"`` over declared columns.

    formulaic splits it into tokens and multiplies terms out; it sees placeholders where names and
    Python stand, as it would evaluate some of the latter even while it parses. These are read by
    ``read_factor``, which knows a list of row-wise functions and evaluates no Python. An error
    names the term.
    """
    if type(formula) is not str or len(formula) > _MOST_LETTERS:
        raise ValueError(
            f"formula must be text of at most {_MOST_LETTERS} characters, got "
            f"{in_one_line(formula)}"
        )
    try:
        encoding = FormulaEncoding(tuple(columns), coded_terms(_terms(formula, columns, target)))
        check_not_aliased(encoding)
    except RecursionError:
        raise ValueError(f"formula {in_one_line(formula)} is nested too deeply") from None
    return encoding


def _terms(formula: str, columns: Sequence[Column], target: str | None) -> Iterator[list[Factor]]:
    parser, tokenizer, errors = _formulaic()
    try:
        tokens = list(tokenizer.tokenize(formula))
    except errors.FormulaParsingError as error:
        raise ValueError(f"formula {formula!r}: {_plain(error)}") from None
    operators = [token.token if token.kind.value == "operator" else "" for token in tokens]
    if any("|" in operator for operator in operators):
        raise ValueError(
            f"formula {formula!r}: '|' is not read, neither for random effects nor for parts of a "
            "model. Possible instead: C(g), a level for each category of g, which a penalty (C= or "
            "alpha=) shrinks as random effects are; and groups= (--groups COLUMN), which protects "
            "all rows of a person together"
        )
    tildes = [i for i, operator in enumerate(operators) if "~" in operator]
    # formulaic joins the signs that follow.
    if len(tildes) > 1 or any(operators[i].strip("+-")[1:] for i in tildes):
        raise ValueError(f"formula {formula!r} must have one '~'")
    split = tildes[0] if tildes else -1
    left, right = tokens[: max(split, 0)], tokens[split + 1 :]
    sign = operators[split][1:] if tildes else ""
    if not tildes and any((one.token, one.kind.value) == (target, "name") for one in tokens):
        raise ValueError(f"formula {formula!r} has no '~' after the target {target!r}")
    if left and [(one.token, one.kind.value) for one in left] != [(target, "name")]:
        raise ValueError(
            f"formula {formula!r} must have the schema's target {target!r} before '~', and nothing "
            "else"
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
        # As formulaic 1.2 fails where one kind of bracket ends another.
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
    """Return what stands for a token while formulaic parses; a name or Python becomes a factor."""
    kind, text = token.kind.value, token.token
    if text == ".":
        return f"({' + '.join(_named(name, columns, factors) for name in columns)})"
    if kind == "name":
        return _named(text, columns, factors)
    return _called(text, columns, factors) if kind == "python" else str(text)


def _named(name: str, columns: Mapping[str, Column], factors: dict[str, Factor]) -> str:
    if name not in columns:
        raise ValueError(
            f"formula term {name!r}: the schema has no such column, but {', '.join(columns)}"
        )
    tree = ast.Name("_")
    return _kept(name, tree, {"_": columns[name]}, factors)


def _called(text: str, columns: Mapping[str, Column], factors: dict[str, Factor]) -> str:
    """Read Python as a factor, in the spelling that makes equal ones equal."""
    aliases: dict[str, str] = {}
    # Longer than any name that could be confused with it.
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
    """Keep the factor that is written in some way; return its placeholder."""
    known = {factor.name: key for key, factor in factors.items()}
    key = known.get(written, f"factor {len(factors)}")
    if written not in known:
        try:
            factors[key] = read_factor(written, tree, columns)
        except ValueError as error:
            raise ValueError(f"formula term {written!r}: {error}") from None
    return f"`{key}`"


def _plain(error: Exception) -> str:
    """Return what formulaic says of a mistake, without the excerpt that it colours."""
    return str(error).partition("\n")[0]


def _count(tree: Any) -> int:
    """Bound the number of terms that an operator tree makes, without making them."""
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
