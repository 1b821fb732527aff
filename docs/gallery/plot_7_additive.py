"""
Additive models
===============

A private additive model of house prices in California, with a curve for each column and a map. The
training rows are treated as private, the test rows as public.
"""

# %%
# The schema has bounds from public knowledge. The number of knots between them depends on rows and
# budget: ``resolve`` states it before a row is read.

from dpglm import AdditiveRegressor
from dpglm.datasets import load_california_housing

housing = load_california_housing(as_frame=True)
train, test = housing.train, housing.test
model = AdditiveRegressor(
    housing.schema, interactions=[("Longitude", "Latitude")], epsilon=1.0, delta=1e-5
)
print(model.resolve(n_rows=len(train)))

# %%
# The fit is that of a linear model of fixed features, at the same privacy cost.

model.fit(housing.data.iloc[train], housing.target[train])
print(
    f"R squared on the test rows: {model.score(housing.data.iloc[test], housing.target[test]):.3f}"
)

# %%
# For comparison, the linear model of the same table, with the same budget:

from dpglm import PrivatePipeline, Ridge
from dpglm.preprocessing import SchemaEncoder

target = housing.schema["target"]
line = PrivatePipeline(
    [SchemaEncoder(housing.schema), Ridge(target_bounds=(target["low"], target["high"]))],
    epsilon=1.0,
    delta=1e-5,
).fit(housing.data.iloc[train], housing.target[train])
print(f"a linear model: {line.score(housing.data.iloc[test], housing.target[test]):.3f}")

# %%
# The curves of the model, each on its own scale. The shading is the band.
# Income has the largest effect; the map shows the coast.

model.plot_shapes(most=6)

# %%
# Request a direction if you know it: released curves are projected, which costs no privacy.

rising = AdditiveRegressor(
    housing.schema, monotone={"MedInc": 1, "AveOccup": -1}, epsilon=1.0, delta=1e-5
).fit(housing.data.iloc[train], housing.target[train])
print(rising.shapes_table().query("term == 'AveOccup'")[["value", "effect"]])
