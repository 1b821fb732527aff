"""
Solvers compared
================

Four solvers for the same logistic regression, at equal privacy. :doc:`Solvers </solvers/index>`
has the rule by which the default is chosen; this script illustrates it.
"""

# %%
# Adult has 32561 training rows and 108 columns.

from sklearn.metrics import roc_auc_score

from dpglm import LogisticRegression
from dpglm.datasets import load_adult
from dpglm.preprocessing import SchemaEncoder

adult = load_adult()
encoder = SchemaEncoder(adult.schema).fit(adult.data)
X, y = encoder.transform(adult.data), adult.target
train, test = adult.train, adult.test

# %%
# Every solver gets the same budget, the same public facts, and its default settings. Noise differs
# from fit to fit: :doc:`Solvers compared </evidence/comparison>` has means over ten fits of each.

solvers = ["newton", "noisy_gd", "objective_perturbation", "output_perturbation"]
epsilons = [0.1, 0.5, 2.0]


def area(solver, epsilon):
    """Fit once, and return the area under the ROC curve on the test rows."""
    model = LogisticRegression(
        epsilon=epsilon,
        delta=1e-5,
        classes=["<=50K", ">50K"],
        row_norm=encoder.row_norm_,
        solver=solver,
    )
    model.fit(X[train], y[train])
    return roc_auc_score(y[test] == ">50K", model.decision_function(X[test]))


areas = {solver: [area(solver, epsilon) for epsilon in epsilons] for solver in solvers}
for solver, found in areas.items():
    print(f"{solver:25s}", *(f"{one:.3f}" for one in found))

# %%
# ``solver="auto"``, the default, takes ``newton`` here.

import matplotlib.pyplot as plt

figure, axes = plt.subplots(figsize=(6, 4))
for solver, found in areas.items():
    axes.semilogx(epsilons, found, marker="o", label=solver)
axes.set_xticks(epsilons, [f"{epsilon:g}" for epsilon in epsilons])
axes.set_xlabel("epsilon")
axes.set_ylabel("area under the ROC curve, test rows")
axes.legend()
plt.show()
