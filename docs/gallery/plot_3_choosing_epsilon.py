"""
Choosing epsilon
================

The accuracy to expect from a budget, computed from public facts before anything is spent.
"""

# %%
# A study has 5000 rows and 20 columns. How good a model can be expected at epsilon 0.5?

from dpglm import LogisticRegression
from dpglm.report import guidance

model = LogisticRegression(epsilon=0.5, delta=1e-6, feature_bounds=(-1, 1))
plan = model.plan(n_rows=5000, n_features=20)
print(guidance(plan))

# %%
# With four times the budget:

print(guidance(model.set_params(epsilon=2.0).plan(n_rows=5000, n_features=20)))

# %%
# A study of 500 rows needs a larger epsilon for the same columns, or fewer of them:

print(guidance(model.set_params(epsilon=0.5).plan(n_rows=500, n_features=20)))
