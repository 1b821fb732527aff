"""Formulas that are refused: they would learn from the rows, run code, or never end."""

import builtins
import sys
import types

import formulaic
import numpy as np
import pytest

from tests.slowly import together
from tests.tables.formula.formulas import SCHEMA, table_of

LEARNING = ["center(x)", "scale(x)", "standardize(x)", "poly(x, 2)", "cr(x, df=4)", "cc(x, df=4)",
            "cs(x, df=4)", "lag(x)", "hashed(g, levels=4)"]  # fmt: skip

UNKNOWN = ["np.mean(x)", "I(x - np.mean(x))", "I(x - x.mean())", "x.mean()", "np.cumsum(x)",
           "np.sort(x)", "np.random.normal(x)", "np.where(x, 1, 0)", "Q('x')", "np.load('f')",
           "loess(x, df=4)", "np.linalg.norm(x)", "numpy.log(age)", "f(x)", "np.log(age, out=x)",
           "np.log(age, age)", "np.log(*age)", "sum(x)", "rank(x)"]  # fmt: skip

FIRE = "__import__('tripwire').fire()"
HOSTILE = [
    FIRE,
    f"I({FIRE})",
    f"np.log({FIRE})",
    f"bs({FIRE}, df=5)",
    f"bs(x, df={FIRE})",
    f"bs(x, knots=[{FIRE}])",
    f"C(sex, {FIRE})",
    f"C({FIRE})",
    f"C(g, Treatment({FIRE}))",
    f"lag({FIRE})",
    f"poly({FIRE}, 2)",
    f"{{{FIRE}}}",
    f"{{x + {FIRE}}}",
    f"x[{FIRE}]",
    f"I((lambda: {FIRE})())",
    f"I([{FIRE} for _ in x])",
    f"I((t := {FIRE}))",
    f"I(f'{{{FIRE}}}')",
    f"I(x if {FIRE} else x)",
    f"I({FIRE} and x)",
    f"I(x ** {FIRE})",
    "I(x.__class__.__base__.__subclasses__())",
    "x.__class__",
    "np.log.__class__(x)",
    "I(np)",
    "I(open('file'))",
    "eval('1')(x)",
    "I(x is 1)",
    "I(x in [1])",
    "I(not x)",
    "I('x')",
    "I(x @ x)",
    "I(x // 2)",
    "I(x % 2)",
    "I(x << 1)",
    "I(~x)",
    "I(x, x)",
    "I(True * x)",
    "I(1j * x)",
    "I(None)",
    "I(...)",
    "I()",
    "C()",
    "bs()",
    "np()",
    "f'{x}'",
    "%fire%",
]


@pytest.fixture
def tripwire(monkeypatch):
    """Count fired, evaluated or executed code."""
    # Importing modules executes them.
    SCHEMA.with_formula("y ~ bs(x, df=5)").encode(table_of(10))
    fired = []
    module = types.ModuleType("tripwire")
    module.fire = lambda: fired.append("fired") or 1.0
    monkeypatch.setitem(sys.modules, "tripwire", module)
    for name in ("eval", "exec"):
        own = getattr(builtins, name)
        monkeypatch.setattr(
            builtins, name, lambda *args, own=own, name=name: fired.append(name) or own(*args)
        )
    return fired


class TestNothingRuns:
    @together("term", HOSTILE)
    def test_on_the_right(self, tripwire, term):
        for formula in (f"y ~ {term}", f"y ~ x + {term}:sex", term):
            with pytest.raises(ValueError, match=r"formula|one '~'"):
                SCHEMA.with_formula(formula)
        assert tripwire == []

    @together("term", HOSTILE)
    def test_on_the_left(self, tripwire, term):
        with pytest.raises(ValueError, match="formula"):
            SCHEMA.with_formula(f"{term} ~ x")
        assert tripwire == []

    def test_nor_where_all_is_well(self, tripwire):
        schema = SCHEMA.with_formula("y ~ np.log(age) + bs(x, df=5) * C(sex)")
        schema.encode(table_of(10))
        assert tripwire == []

    def test_the_tripwire_works(self, tripwire):
        with pytest.raises(formulaic.errors.FormulaicError):
            formulaic.model_matrix(f"bs({FIRE}, df=5)", table_of(10))
        assert "fired" in tripwire
        assert "eval" in tripwire


@pytest.mark.parametrize("term", LEARNING)
def test_learning_steps_are_named(term):
    function = term.partition("(")[0]
    with pytest.raises(ValueError, match=rf"term .*{function}\(.*{function} would learn"):
        SCHEMA.with_formula(f"y ~ age + {term}")


@pytest.mark.parametrize("term", UNKNOWN)
def test_steps_not_known_to_be_row_wise_are_named(term):
    with pytest.raises(ValueError, match="formula term"):
        SCHEMA.with_formula(f"y ~ age + {term}")


@together(
    ("formula", "words"),
    [
        ("y ~ bs(x)", r"'bs\(x\)': bs needs df= or knots="),
        ("y ~ bs(x, df=5, knots=[0])", "bs needs df= or knots="),
        ("y ~ bs(x, df=2)", "bs needs df from 3 to 100 here, got 2"),
        ("y ~ bs(x, df=3, include_intercept=True)", "df from 4"),
        ("y ~ bs(x, df=10**9)", "not a literal"),
        ("y ~ bs(x, df=1000000000)", "df from 3 to 100"),
        ("y ~ bs(x, df=5.0)", "df from 3"),
        ("y ~ bs(x, knots=[5])", "within the declared range, between -2 and 3"),
        ("y ~ bs(x, knots=[1, 0])", "knots that increase"),
        ("y ~ bs(x, knots=['a'])", "within the declared range"),
        ("y ~ bs(x, df=5, degree=0)", "degree from 1 to 5"),
        ("y ~ bs(x, df=5, lower_bound=0)", "got 'lower_bound'"),
        ("y ~ bs(sex, df=5)", "'sex' is categorical"),
        ("y ~ C(age)", r"'C\(age\)': levels of 'age' must be public"),
        ("y ~ C(age, levels=[16, 17])", "declare the column as categorical"),
        ("y ~ C(unknown)", "C takes a categorical column"),
        ("y ~ C(sex, contr.sum)", "must be Treatment"),
        ("y ~ C(sex, contr.treatment(base='neither'))", "'neither' is not among the categories"),
        ("y ~ wage", "term 'wage' is not a column of the schema: age, x"),
        ("y ~ np.log(wage)", "column 'wage' is not in the schema: age, x"),
        ("y ~ np.log(x)", "log is defined above 0, but its argument can be -2"),
        ("y ~ np.sqrt(x)", "sqrt is defined at least 0, but"),
        ("y ~ I(1 / x)", "its divisor can be 0: by the schema's bounds it is between -2 and 3"),
        ("y ~ I(x ** 0.5)", "the power 0.5 is defined from 0"),
        ("y ~ I(x ** -1)", "not defined at 0"),
        ("y ~ I(x ** x)", "a power must be a number"),
        ("y ~ I(age ** 99)", "must stay within"),
        ("y ~ np.exp(age)", "must stay within"),
        ("y ~ I(x * 1e400)", "must stay within"),
        ("y ~ I(x ** 9 ** 9 ** 9)", "a power must be a number between -100 and 100"),
        ("y ~ I(0 * x)", "the same value in every row"),
        ("y ~ I(3)", "the same value in every row"),
        ("y ~ np.log(sex)", "'sex' is categorical"),
        ("y ~ np.log(", "formula"),
        ("y ~ x +", "formula 'y ~ x .'"),
        ("y ~ x x", "Missing operator between `x` and `x`"),
        ("y ~ (x]", "brackets that do not match"),
        ("y ~ g:h:sex:C(g):C(h):C(sex):x", "an interaction of more than 6 factors"),
        ("y ~ x | g", "formula"),
        ("y ~ 2", "formula"),
        ("y ~ 2:x", "numbers cannot scale terms"),
        ("y ~ 'x'", "formula"),
        ("y ~ x ~ g", "one '~'"),
        ("y ~~ x", "formula"),
        ("y ~ + ~x", "one '~'"),
        ("y x", "must have '~' after the target 'y'"),
        ("y + x", "must have '~' after the target 'y'"),
        ("y ~ log(x", "Expected: \\)$"),
        ("y ~ bs(x, 5, df=5)", "a setting twice"),
        ("y ~ bs(x, df=5, **g)", "got '\\*\\*'"),
        ("y ~ bs(x, 5, None, 3, False, 1)", "bs takes one number, and df, knots, degree, inc"),
        ("y ~ te(bs(x, df=5), bs(z, df=5))", r"write it as one, bs\(x, df=5\):bs\(z, df=5\)"),
        ("y ~ poly(age, 2)", r"write x \+ I\(x\*\*2\)"),
        ("y ~ cr(age, df=4)", r"write ns\(x, df=4\) or bs\(x, df=5\), .* or s\(x\)"),
        ("y ~ x + offset(log(age))", r"fit\(table, exposure=...\).* --exposure COLUMN"),
        ("y ~ C(g, Sum)", "compares categories to their mean"),
        ("y ~ C(g, levels=['c', 'b', 'a'])", "come from the schema's categories"),
        ("y ~ np.maximum(x)", "maximum takes two numbers"),
        ("y ~ pow(2, x)", "a power must be a number"),
        ("y ~ I(age > 90)", "the same value in every row"),
        ("y ~ s(g)", "s takes a numeric column"),
        ("y ~ s(np.log(age))", "s takes a numeric column"),
        ("y ~ s(x, segments=0)", "segments must be an integer of at least 1"),
        ("y ~ s(x, segments='many')", "segments must be an integer"),
        ("y ~ s(x, reach=2)", "got 'reach'"),
        ("x ~ age", "the schema's target 'y' before '~'"),
        ("log(y) ~ age", "the schema's target 'y' before '~'"),
        ("y + x ~ age", "the schema's target 'y' before '~'"),
        ("y ~ y", "is not a column of the schema"),
        ("y ~ 1", "must name a column besides the intercept"),
        ("y ~ -x", "must name a column besides the intercept"),
        ("", "formula"),
        ("y ~ x ** 2.5", "whole number from 1 to 6"),
        ("y ~ (x + g) ** 99", "whole number from 1 to 6"),
        ("y ~ x ** g", "whole number from 1 to 6"),
        (17, "formula must be text"),
    ],
)
def test_other_mistakes_are_named(formula, words):
    with pytest.raises(ValueError, match=words):
        SCHEMA.with_formula(formula)


@pytest.mark.parametrize(
    "formula",
    [
        "y ~ " + " * ".join(f"({a} + {b})" for a, b in [("x", "age"), ("g", "h")] * 40),
        "y ~ " + " : ".join(["(x + age + z + sex + g + h)"] * 8),
        "y ~ (((x + age + z) ** 6) ** 6) ** 6",
        "y ~ I(" + "-" * 1500 + "x)",
        "y ~ I(" + "x+" * 900 + "x)",
        "y ~ " + "x + " * 1000 + "x",
        "y ~ g*h*C(g)*C(h)*C(g, Treatment('b'))*C(h, Treatment('q'))*bs(x, df=99)",
    ],
    ids=range(7),
)
def test_formulas_that_grow_without_end_are_refused_at_once(formula):
    with pytest.raises(ValueError, match="formula"):
        SCHEMA.with_formula(formula)


@pytest.mark.parametrize("formula", ["y ~ " + "(" * 400 + "x" + ")" * 400, "y ~ I(((((((x)))))))"])
def test_parentheses_may_be_many(formula):
    assert len(SCHEMA.with_formula(formula).feature_names) == 1


SIGNS = tuple("+-*/:^()~|`'{}[].,=%#@\\\n ")
PIECES = (*SIGNS, "x", "age", "sex", "g", "y", "1", "0", "2", "**", "in", "np", "C", "bs", "I", "é",
          "np.log(age)", "C(g)", "I(x**2)", "{x+1}", "df=5", "lambda")  # fmt: skip


def test_text_of_any_kind_is_read_or_refused(tripwire):
    rng = np.random.default_rng(0)
    read, refused = 0, []
    for _ in range(3000):
        text = "".join(rng.choice(PIECES, size=rng.integers(1, 12)))
        formula = f"y ~ {text}" if rng.random() < 0.7 else text
        try:
            SCHEMA.with_formula(formula)
            read += 1
        except ValueError as error:
            refused.append(str(error))
    assert read > 20
    assert all("formula" in message for message in refused)
    assert tripwire == []


@pytest.mark.parametrize(
    ("formula", "says"),
    [
        ("y ~ x | g", r"only in a random intercept, \(1 \| g\).* groups= \(--groups COLUMN\)"),
        ("y ~ x + (x | g)", "slopes cannot be random"),
        ("y ~ (x || g)", "slopes cannot be random"),
        ("y ~ (1 | x)", r"'\(1 \| x\)': a random intercept takes a categorical column"),
        ("y ~ x:(1 | g)", "must not be in an interaction: only intercepts can be random"),
        ("y ~ C(g) + (1 | g)", "either pooled or fixed, not both"),
        ("y ~ is.na(x)", "missing values of 'x' are an error: declare a number for them"),
        ("y ~ is.na(g)", "missing values of 'g' are an error: list them as \"\" among the cat"),
        ("y ~ is.na(x + 1)", "isna takes a column of the schema"),
        ("y ~ is.na(x, z)", "isna takes one number"),
    ],
)
def test_refusals_name_an_alternative(formula, says):
    with pytest.raises(ValueError, match=says):
        SCHEMA.with_formula(formula)
