"""The page of a pipeline or a search: who spent what, and columns by their names."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder

from dpglm import (
    LogisticRegression,
    PrivateGridSearchCV,
    PrivatePipeline,
    PrivateRandomizedSearchCV,
)
from dpglm.preprocessing import Center
from dpglm.report.html import report_page, write_report
from dpglm.solvers import NoisyGD

pytest.importorskip("jinja2")
pytest.importorskip("matplotlib")

pytestmark = pytest.mark.usefixtures("undrawn")

N = 2000
NAMES = ["sex__sex_f", "sex__sex_m", "pay__pay", "remainder__age"]


def table():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(
        {
            "age": rng.uniform(0.0, 1.0, N),
            "sex": rng.choice(["f", "m"], N),
            "pay": rng.uniform(0.0, 2.0, N),
        }
    )
    return X, (X["age"] > 0.5).astype(int)


def columns(**settings):
    log = FunctionTransformer(np.log1p, feature_names_out="one-to-one")
    sex = OneHotEncoder(categories=[["f", "m"]], sparse_output=False)
    parts = [("sex", sex, ["sex"]), ("pay", log, ["pay"])]
    return ColumnTransformer(parts, remainder="passthrough", **settings)


def classifier():
    return LogisticRegression(classes=[0, 1], row_norm=2.0, solver=NoisyGD(n_steps=4))


def pipeline():
    return PrivatePipeline([columns(), Center(), classifier()])


GRID = {"logisticregression__C": [0.1, 1.0]}
MODELS = {
    "pipeline": pipeline,
    "grid": lambda: PrivateGridSearchCV(pipeline(), GRID, method="held_out"),
    "random": lambda: PrivateRandomizedSearchCV(pipeline(), GRID, n_iter=2, method="held_out"),
}


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_page_of_pipeline_or_search_lists_charges(make, tmp_path):
    X, y = table()
    model = make().fit(X, y)
    write_report(model, tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text("utf-8")
    for one in model.privacy_.spending():
        assert re.search(rf"<td[^>]*>\s*{re.escape(one.stage)}\s*</td>", page), one.stage
    assert "Budget by stage" in page
    assert all(name in page for name in NAMES)
    # A search shows its best pipeline.
    best = getattr(model, "best_estimator_", model)
    assert re.sub(r"data:image[^\"]*", "", report_page(best)) == re.sub(
        r"data:image[^\"]*", "", page
    )


def test_scikit_learn_pipeline_has_names_and_counts_entries():
    X, y = table()
    page = report_page(make_pipeline(columns(sparse_threshold=0), classifier()).fit(X, y))
    assert all(name in page for name in NAMES)
    assert "NOT COVERED" not in page
    page = report_page(make_pipeline(columns(), classifier()).fit(X, y))
    assert "counted the nonzero entries" in page
