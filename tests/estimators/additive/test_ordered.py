"""Ordered categories in additive models: fused, monotone on request, in files and certificates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from dpglm import AdditiveClassifier
from dpglm.certificate import verify
from dpglm.report import load_model, save_model

BANDS = [f"band {i}" for i in range(12)]


def make(*, ordered: bool, **parameters: Any) -> AdditiveClassifier:
    schema = {
        "columns": {
            "band": {"type": "categorical", "categories": BANDS, "ordered": ordered},
            "sex": {"type": "categorical", "categories": ["f", "m"]},
        },
        "target": {"name": "ill", "type": "binary", "classes": [0, 1]},
        "provenance": "made up",
    }
    return AdditiveClassifier(schema, **{"epsilon": 1.0, "random_state": 0} | parameters)


def rows(n: int = 4000) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    band = rng.integers(0, len(BANDS), n)
    ill = rng.random(n) < 1.0 / (1.0 + np.exp(2.0 - 0.3 * band))
    return {"band": np.array(BANDS)[band], "sex": rng.choice(["f", "m"], n), "ill": 1 * ill}


def test_neighbours_help_each_other_where_there_is_little_to_see() -> None:
    given, found = rows(), {True: 0.0, False: 0.0}
    for ordered in found:
        for seed in range(5):
            model = make(ordered=ordered, epsilon=0.1, random_state=seed).fit(given)
            found[ordered] += roc_auc_score(given["ill"], model.decision_function(given)) / 5
    assert found[True] > found[False] + 0.004


def test_levels_may_be_asked_to_rise(tmp_path: Path) -> None:
    model = make(ordered=True, epsilon=0.1, monotone={"band": 1}).fit(rows())
    assert (np.diff(model.shapes_["band"].values[0]) >= -1e-12).all()
    assert verify(model.privacy_).ok
    save_model(model, tmp_path / "model.json")
    again = load_model(tmp_path / "model.json")
    np.testing.assert_allclose(again.predict_proba(rows()), model.predict_proba(rows()))
    with pytest.raises(ValueError, match="numeric or ordered columns"):
        make(ordered=False, monotone={"band": 1}).fit(rows())
