"""
Quick start
===========

A private logistic regression on Adult: does a person earn over 50000 dollars a year? The training
rows are treated as private, the test rows as public.
"""

# %%
# A schema states the public facts: the range of every number and the list of every category. The
# encoder uses only these facts and learns nothing from the rows. ``row_norm_`` is the bound on the
# L2 norm of an encoded row, and determines the sensitivity.

from dpglm import LogisticRegression
from dpglm.datasets import load_adult
from dpglm.preprocessing import SchemaEncoder

adult = load_adult()
encoder = SchemaEncoder(adult.schema).fit(adult.data)
X, y = encoder.transform(adult.data), adult.target
train, test = adult.train, adult.test

# %%
# The plan states every release and its noise before any row is read; ``fit`` executes it.

model = LogisticRegression(
    epsilon=1.0, delta=1e-5, classes=["<=50K", ">50K"], row_norm=encoder.row_norm_
)
for release in model.plan(n_rows=len(y[train]), n_features=X.shape[1]).method.releases:
    print(release.count, "x", release.quantity)

model.fit(X[train], y[train])
print(f"accuracy on the test rows: {model.score(X[test], y[test]):.3f}")

# %%
# The guarantee in words, as the certificate states it:

print(model.privacy_.statement())

# %%
# Compared with the same model without privacy:

import matplotlib.pyplot as plt
import sklearn.linear_model
from sklearn.metrics import RocCurveDisplay

public = sklearn.linear_model.LogisticRegression(max_iter=1000).fit(X[train], y[train])
figure, axes = plt.subplots(figsize=(5, 4.5))
for name, fitted in {"epsilon 1": model, "without privacy": public}.items():
    scores = fitted.decision_function(X[test])
    RocCurveDisplay.from_predictions(y[test], scores, pos_label=">50K", name=name, ax=axes)
axes.set_title("Adult, test rows")
plt.show()
