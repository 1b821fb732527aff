"""
Pipeline, certificate, check
============================

Private preprocessing and a private model under one budget, and a certificate that others can check
without the data.
"""

# %%
# Rows of California housing lie far from the origin compared with their spread, so subtracting a
# private mean gains accuracy. ``PrivatePipeline`` divides one budget between the steps.

import numpy as np

from dpglm import PrivatePipeline, Ridge
from dpglm.datasets import load_california_housing
from dpglm.preprocessing import Center, Scale, SchemaEncoder

housing = load_california_housing()
encoder = SchemaEncoder(housing.schema).fit(housing.data)
X, y = encoder.transform(housing.data), np.asarray(housing.target)
train, test = housing.train, housing.test

model = PrivatePipeline(
    [Center(), Scale(), Ridge(row_norm=encoder.row_norm_, target_bounds=(0.0, 5.00001))],
    epsilon=1.0,
    delta=1e-5,
)
model.fit(X[train], y[train])
print(f"R squared on the test rows: {model.score(X[test], y[test]):.3f}")

# %%
# The budget of each stage. Squares of mu add up for Gaussian releases, so the shares sum to one.

import matplotlib.pyplot as plt

spending = model.privacy_.spending()
figure, axes = plt.subplots(figsize=(6, 2))
axes.barh([one.stage for one in spending], [one.share for one in spending])
axes.invert_yaxis()
axes.set_xlabel("share of mu squared")
figure.tight_layout()
plt.show()

# %%
# The certificate is a JSON file. ``verify`` recomputes epsilon from the events in it, with
# accountants other than those of the fit, and checks every noise scale against its sensitivity.

import tempfile
from pathlib import Path

from dpglm.report import Certificate, verify

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "certificate.json"
    model.privacy_.to_json(path)
    verification = verify(Certificate.from_json(path))
print(verification.summary())

# %%
# ``verify`` detects a certificate that claims more privacy than its noise gives:

import dataclasses

forged = dataclasses.replace(model.privacy_, epsilon=0.5)
print(verify(forged).summary())
