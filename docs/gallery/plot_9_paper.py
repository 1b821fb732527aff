"""
A paper's analysis
==================

From a private table to the tables, tests, curves and methods section of a paper, within epsilon 1:
is a high income associated with sex, given age, education and hours of work?
"""

# %%
# One study: a baseline table by sex, a logistic regression with an interaction and a spline of age,
# its predictions averaged over all rows with sex set to each value, and an evaluation on held-out
# rows. Knots are at frequent ages: with knots at the bounds, 17 and 90, few rows would
# determine coefficients, and would be downweighted. ``inference="robust"`` downweights fewer rows
# and does not assume that the model is right. Nothing is spent until ``run``.

import matplotlib.pyplot as plt

import dpglm
from dpglm import LogisticRegression, Study
from dpglm.datasets import load_adult

adult = load_adult()
table = {**adult.data, "income": adult.target}
columns = ["age", "education-num", "hours-per-week", "income"]
study = (
    Study(adult.schema, epsilon=1.0)
    .explore(columns, by="sex")
    .fit(
        LogisticRegression(C=float("inf"), inference="robust"),
        formula=(
            "income ~ rcs(age, knots=[25, 40, 55, 70]) + sex * `education-num` + `hours-per-week`"
        ),
    )
    .effects("sex")
    .evaluate()
)
print(study.plan(n_rows=len(adult.target)))

# %%
result = study.run(table)

# %%
# Table 1: both groups, and standardised differences.

for label in ("Female", "Male"):
    group = result.exploration.by_level[label]
    for name in ("age", "education-num", "hours-per-week"):
        column = group.columns[name]
        print(f"{label:<7} {name:<15} {column.mean.estimate:5.1f} ({column.spread.estimate:.1f})")
for name, gap in result.exploration.standardized_differences("Male", "Female").items():
    print(f"{name:<20} {gap.estimate:6.2f} [{gap.population_low:.2f}, {gap.population_high:.2f}]")

# %%
# Table 2: odds ratios with both kinds of uncertainty, and a test of each term.

inference = result.model.inference_
print(inference.summary(exponentiate=True))
print(inference.anova())

# %%
# The adjusted risk difference and risk ratio, by standardisation.

print(result.effects.differences)
print(result.effects.ratios)

# %%
# Figure 1: odds of a high income by age, compared with age 40.

inference.curve("age", reference=40).plot()
plt.show()

# %%
# Performance on rows that the model did not see.

print(result.evaluation.summary())

# %%
# The regression table for LaTeX, and the paragraph for the methods section.

print(dpglm.table([result.model]).to_latex())
print(result.methods())
