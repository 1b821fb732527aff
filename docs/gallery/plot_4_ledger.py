"""
The ledger of a study
=====================

Several analyses of one data set under one total budget. Each is recorded on disk before it releases
anything, and the one that would exceed the budget is refused.
"""

# %%
# The ledger fixes the data set, the neighbouring relation and the total budget.

import tempfile
from pathlib import Path

import numpy as np

from dpglm import ApproximateDP, LogisticRegression, PrivacyLedger, Ridge
from dpglm.datasets import load_california_housing
from dpglm.exceptions import BudgetExceededError
from dpglm.preprocessing import SchemaEncoder

folder = tempfile.TemporaryDirectory()
path = Path(folder.name) / "housing.ledger"
ledger = PrivacyLedger.create(
    path, data="California housing", budget=ApproximateDP(epsilon=1.0, delta=1e-5)
)

# %%
# Each analysis has a label and its own epsilon; the ledger adds up the charges.

housing = load_california_housing()
encoder = SchemaEncoder(housing.schema).fit(housing.data)
X, y = encoder.transform(housing.data), np.asarray(housing.target)
bounds = {"row_norm": encoder.row_norm_, "delta": 1e-5}

studies = {
    "price": Ridge(target_bounds=(0.0, 5.00001), **bounds),
    "above 200000": LogisticRegression(classes=[False, True], **bounds),
    "above 400000": LogisticRegression(classes=[False, True], **bounds),
    "price, again": Ridge(target_bounds=(0.0, 5.00001), **bounds),
}
targets = [y, y > 2.0, y > 4.0, y]
names, together = [], []
for (label, model), target in zip(studies.items(), targets, strict=True):
    model.set_params(epsilon=0.5, ledger=PrivacyLedger(path, label=label))
    try:
        model.fit(X, target)
    except BudgetExceededError as error:
        print(f"{label}: refused. {error}")
        break
    names.append(label)
    together.append(ledger.contents().spent()["epsilon"])
    print(f"{label}: {together[-1]:.2f} spent in total")

# %%
# Three fits of epsilon 0.5 cost less than 1.5 together: for Gaussian noise, squares of mu add up.

import matplotlib.pyplot as plt

figure, axes = plt.subplots(figsize=(6, 3.5))
axes.plot(names, 0.5 * np.arange(1, len(names) + 1), "o--", label="sum of epsilons")
axes.plot(names, together, "o-", label="spent, as the ledger accounts")
axes.axhline(1.0, color="black", linewidth=1)
axes.annotate("budget", (0, 1.0), textcoords="offset points", xytext=(0, 4))
axes.set_ylabel("epsilon at delta 1e-5")
axes.set_ylim(0)
axes.legend(loc="lower right")
plt.show()

# %%
# The record is a chain of digests. ``verify`` recomputes it and the cost of every entry, and
# returns the errors that it finds.

assert ledger.verify() == ()
folder.cleanup()
