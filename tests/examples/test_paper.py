"""The analysis of the gallery's paper agrees with the same analysis without privacy."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from dpglm import LogisticRegression, Study
from dpglm.datasets import load_adult

FORMULA = "income ~ ns(age, df=4) + sex * `education-num` + `hours-per-week`"


def maximum_likelihood(X, y):
    beta = np.zeros(X.shape[1])
    for _ in range(30):
        p = 1.0 / (1.0 + np.exp(-X @ beta))
        beta = beta + np.linalg.solve((X * (p * (1.0 - p))[:, np.newaxis]).T @ X, X.T @ (y - p))
    return beta


def is_near(ends, exact):
    """Whether a number is within three standard errors, where a 95 % interval has these ends."""
    low, high = ends
    return abs(exact - 0.5 * (low + high)) < 0.75 * (high - low)


@pytest.mark.slow
def test_paper_agrees_with_the_analysis_without_privacy():
    adult = load_adult()
    table = {**adult.data, "income": adult.target}
    study = (
        Study(adult.schema, epsilon=1.0)
        .explore(["age", "education-num", "hours-per-week", "income"], by="sex")
        .fit(LogisticRegression(C=float("inf"), inference=True), formula=FORMULA)
        .effects("sex")
        .evaluate()
    )
    result = study.run(table, random_state=0)
    inference = result.model.inference_
    features, y = inference.scores.features, (table["income"] == ">50K").astype(float)
    designs = [
        np.insert(np.asarray(features({**table, "sex": sex}), dtype=float), 0, 1.0, axis=1)
        for sex in (table["sex"], *(np.full(len(y), one) for one in ("Female", "Male")))
    ]
    beta = maximum_likelihood(designs[0], y)
    own = inference.scores.estimates
    z = np.abs(beta - own.params) / own.standard_errors()
    # Income is not exactly logistic in these columns, and long rows count less in the private fit
    # (a note of the summary says so): coefficients may be a little further apart than noise.
    assert np.median(z) < 1.0
    assert z.max() < 3.0
    female, male = (float((1.0 / (1.0 + np.exp(-X @ beta))).mean()) for X in designs[1:])
    for found, exact in (
        (result.effects.differences, male - female),
        (result.effects.ratios, male / female),
    ):
        assert is_near(found.intervals[0], exact)
    assert is_near(result.evaluation.conf_int("auc"), roc_auc_score(y, designs[0] @ beta))
    for label in ("Female", "Male"):
        group, rows = result.exploration.by_level[label], table["sex"] == label
        for name in ("age", "education-num", "hours-per-week"):
            mean = group.columns[name].mean
            assert is_near((mean.low, mean.high), np.mean(table[name][rows]))
