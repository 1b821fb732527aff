"""
Confidence intervals
====================

Standard errors, tests and intervals that include sampling error and privacy noise.
"""

# %%
# A model from a formula, without a penalty, with one row for each of 48,842 people. The releases
# for intervals use the same budget.

import numpy as np

import dpglm
from dpglm import LogisticRegression
from dpglm.datasets import load_adult

adult = load_adult()
table = {**adult.data, "income": adult.target}
model = dpglm.from_formula(
    "income ~ age + C(sex) + C(relationship) + `education-num` + `hours-per-week`",
    adult.schema,
    LogisticRegression(C=np.inf, inference=True),
    epsilon=1.0,
).fit(table)
inference = model.inference_
print(inference.summary())

# %%
# Odds ratios, with their intervals.

print(inference.summary(exponentiate=True))

# %%
# The figure of the report page, with intervals as bars.

from dpglm.report.plots import coefficients

coefficients(model)

# %%
# Intervals of probabilities, for people of each age who are otherwise alike.

import matplotlib.pyplot as plt

ages = np.arange(20, 81)
person = {name: np.full(len(ages), values[0]) for name, values in adult.data.items()}
person["age"] = ages
low, high = inference.prediction_interval(person).T

figure, axes = plt.subplots(figsize=(6, 3))
axes.fill_between(ages, low, high, alpha=0.3, linewidth=0)
axes.plot(ages, model.predict_proba(person)[:, 1])
axes.set_xlabel("age")
axes.set_ylabel("probability of more than 50K")
figure.tight_layout()
plt.show()

# %%
# A joint test: no category of ``relationship`` differs from the first one.

print(inference.wald_test([name for name in inference.names if "relationship" in name]))
