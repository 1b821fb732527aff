"""A table with declared facts, formulas over it, and the check that rows are encoded alone."""

import numpy as np
import pandas as pd

from dpglm.tables.schema import Schema

SCHEMA = Schema.from_dict(
    {
        "columns": {
            "age": {"type": "numeric", "low": 16, "high": 90},
            "x": {"type": "numeric", "low": -2, "high": 3},
            "z": {"type": "numeric", "low": 1, "high": 2, "missing": 1.5},
            "sex": {"type": "categorical", "categories": ["female", "male"]},
            "g": {"type": "categorical", "categories": ["a", "b", "c"]},
            "h": {"type": "categorical", "categories": ["p", "q", "r"], "other": "r"},
            "hours-per week": {"type": "numeric", "low": 1, "high": 99},
        },
        "target": {"name": "y", "type": "numeric", "low": 0, "high": 1},
        "provenance": "made up",
    }
)


def table_of(n, seed=0):
    """Rows within the bounds, some at their ends."""
    rng = np.random.default_rng(seed)
    table = pd.DataFrame(
        {
            "age": rng.uniform(16, 90, n),
            "x": rng.uniform(-2, 3, n),
            "z": rng.uniform(1, 2, n),
            "sex": rng.choice(["female", "male"], n),
            "g": rng.choice(list("abc"), n),
            "h": rng.choice(list("pqr"), n),
            "hours-per week": rng.uniform(1, 99, n),
            "y": rng.random(n),
        }
    )
    table.loc[:1, ["age", "x", "z", "hours-per week"]] = [[16, -2, 1, 1], [90, 3, 2, 99]]
    return table


FORMULAS = """
y ~ age
y ~ age + sex
y ~ 0 + sex + age
y ~ g*x
y ~ x + g:x
y ~ g:h
y ~ g:h + g
y ~ 0 + g:h
y ~ g*h*x
y ~ x*age*z
y ~ (x+g+sex)**2
y ~ (x + g)^2 - x:g
y ~ g/x
y ~ x:age
y ~ C(sex) + C(g) + I(x**2) + np.log(age) + log(z)
y ~ C(g, contr.treatment(base='b'))*x
y ~ C(sex, contr.treatment("male"))*C(g)
y ~ sex*x
y ~ x + sex:x
y ~ x*sex + age:x + age
y ~ sex*g
y ~ sex:g + x:g + x
y ~ sex*x*age
y ~ np.log1p(x + 3):g + {x + 1}
y ~ `hours-per week`*x + np.sqrt(`hours-per week`)
y ~ I((x-1)**3) + I(x/age) + np.exp(x) + np.abs(x) + np.tanh(x) + np.arctan(x)
y ~ I(-x) + I(2*x*z - age/10) + I(z**-1.5) + np.log2(z + 1) + np.log10(age) + np.expm1(z)
y ~ bs(x, knots=[0.5, 1.5])
y ~ 0 + bs(x, knots=[0.5,1.5], include_intercept=True)
y ~ bs(x, knots=[0.5,1.5], include_intercept=True)
y ~ bs(x, knots=[0.5], degree=2)*sex
y ~ bs(np.log(age), knots=[3.5, 4], degree=1) + h
~ x - 1
y ~ -1 + x
y ~ - 1 + sex + x
y ~-1+x
y ~ +x + sex
~-1 + g:x
y ~ x*I(x > 0.5) + I(16 < age)
y ~ I(age >= 40):sex + I(z < 1.5) + I(x <= 0)*g
y ~ np.maximum(x, 0) + np.minimum(age, 65)*sex
y ~ np.maximum(x, z - 1) + pow(age, 2) + np.power(z, -1)
y ~ bs(x, None, [0.5, 1.5], 2)
""".strip().splitlines()
"""Formulas with columns that depend on one row only, here and in formulaic."""

OWN_FORMULAS = """
y ~ bs(x, df=6) + . - x
y ~ C(g, Treatment(reference='c')):bs(age, df=4, degree=1)
y ~ bs(age, 5, degree=2) + s(x)
y ~ s(age, 3) * sex + s(x, segments=4, smoothness=0.1):g
y ~ z + is.na(z)*x + g
""".strip().splitlines()
"""Formulas that formulaic reads otherwise, or learns from the rows."""


def learned_from_others(encode, table, other):
    """Whether a row's encoding depends on others: in value, in place, or in number.

    Every row is encoded among others, with another neighbour, and shifted by the removal of
    one; bits count.
    """
    row = len(table) // 2
    kept = np.delete(np.arange(len(table)), row)
    among = encode(table)
    changed = encode(pd.concat([table.iloc[:row], other, table.iloc[row + 1 :]], ignore_index=True))
    fewer = encode(table.drop(index=row).reset_index(drop=True))
    same = np.array_equal(among[kept], changed[kept]) and np.array_equal(among[kept], fewer)
    return not same
