"""Evaluations in studies: of held-out rows, of any model, planned beforehand and paid for once."""

import numpy as np
import pytest

from dpglm import AdditiveClassifier, PrivacyLedger, PrivatePipeline, Study
from dpglm.certificate.execution import PartInput
from dpglm.data.rows import Protection
from dpglm.estimators import LinearSVC, LogisticRegression
from dpglm.preprocessing import SchemaEncoder
from dpglm.privacy import Adjacency, ApproximateDP, GaussianDP
from dpglm.privacy.noise import SeededNoise
from dpglm.study import Split
from dpglm.study.planning import ModelPart, evaluation_of, model_of
from dpglm.tables.schema import Schema
from tests.study.support import SCHEMA, table

N_ROWS = 600
TARGETS = {
    "binary": {"name": "ill", "type": "binary", "classes": ["yes", "no"]},
    "classes": {"name": "ill", "type": "classes", "classes": ["no", "bit", "yes"]},
    "numeric": {"name": "ill", "type": "numeric", "low": -1.0, "high": 4.0},
    "count": {"name": "ill", "type": "count", "high": 9},
}


def schema_of(kind):
    return {**SCHEMA, "target": TARGETS[kind]}


def rows_of(kind):
    rows = table(N_ROWS)
    third = (rows["age"] // 34.0).astype(int)
    words = {"binary": np.array(["no", "yes"]), "classes": np.array(["no", "bit", "yes"])}
    ill = words[kind][rows["ill"] if kind == "binary" else third] if kind in words else third
    return {**rows, "ill": ill}


@pytest.mark.parametrize("model", [None, "additive"])
@pytest.mark.parametrize(
    ("kind", "name"), [("binary", "accuracy"), ("classes", "accuracy"), ("numeric", "mae")]
)
def test_held_out_rows_are_evaluated(kind, name, model, monkeypatch):
    rows = rows_of(kind)
    # Those in the middle, where it is hard to tell.
    held_out = np.abs(rows["age"] - 50.0) < 15.0
    share = float(held_out.mean())
    monkeypatch.setattr(Split, "draw", lambda *_: held_out)
    made = Study(schema_of(kind), budget=GaussianDP(200.0)).fit(model).evaluate(test_share=share)
    result = made.run(rows)
    right = []
    for mask in (held_out, ~held_out):
        part = {key: one[mask] for key, one in rows.items()}
        told = result.model.predict(part)
        found = np.abs(told - part["ill"]) if kind == "numeric" else told == part["ill"]
        right.append(float(found.mean()))
    assert result.evaluation.number(name).estimate == pytest.approx(right[0], abs=0.002)
    # Planted bug: evaluated on the rows that were learned from.
    assert abs(right[0] - right[1]) > 0.01
    assert result.verify().ok


@pytest.mark.parametrize("adjacency", [one.value for one in Adjacency])
def test_every_kind_of_model(adjacency):
    settings = {"epsilon": 5.0, "delta": 1e-5, "adjacency": adjacency, "n_rows": N_ROWS}
    for kind, model in (("binary", "svm"), ("count", None), ("binary", LogisticRegression(C=0.1))):
        made = Study(schema_of(kind), **settings).explore().fit(model).evaluate(by="sex")
        result = made.run(rows_of(kind))
        assert result.privacy_.event == result.plan.event
        assert result.verify().ok
        assert list(result.evaluation.by_level) == ["f", "m", None]


def test_plans_state_expected_precision():
    made = Study(SCHEMA, delta=1e-5).fit().evaluate()
    plan = made.plan(20_000).planned["evaluation"]
    share, *means = plan.expected()
    assert share.quantity == "a share of rows"
    assert share.precision.endswith("with sampling, at most")
    assert "log loss" in {one.quantity for one in means}
    (_, reach), *_ = plan.precision()
    found = made.run(table(20_000)).evaluation.number("accuracy")
    assert 0.5 * (found.high - found.low) == pytest.approx(reach, rel=0.2)


def test_a_fifth_is_held_out_by_default():
    assert Study(SCHEMA).fit().evaluate().split.test_share == 0.2
    assert Study(SCHEMA).fit().evaluate(test_share=0.1).split.test_share == 0.1


def test_an_interrupted_study_evaluates_once(tmp_path):
    ledger = PrivacyLedger.create(tmp_path / "ledger", data="x", budget=ApproximateDP(1.0, 1e-5))
    made = Study(SCHEMA, delta=1e-5).fit("additive").evaluate()
    one, other = (made.run(table(), checkpoint=tmp_path / "kept", ledger=ledger) for _ in range(2))
    assert one.evaluation.to_dict() == other.evaluation.to_dict()
    assert len(ledger.contents().entries) == 1


def test_infinite_predictions_are_accepted():
    class Endless:
        def predict(self, X):
            return np.full(len(X["age"]), np.inf)

    schema = Schema.from_dict(schema_of("count"))
    model = ModelPart(model_of(schema, None, None, {}), schema)
    part = evaluation_of(model, None, None, 0.95)
    plan = part.plan(Protection(Adjacency.ZERO_OUT, GaussianDP(1.0), N_ROWS))
    given = PartInput(
        (rows_of("count"),), random_state=SeededNoise(0), earlier={"model": Endless()}
    )
    assert part.run(plan, given).mae > 5.0


def test_pipelines_need_not_repeat_the_schema():
    pipeline = PrivatePipeline([SchemaEncoder(SCHEMA), LogisticRegression()])
    model = Study(SCHEMA, delta=1e-5).fit(pipeline).evaluate().run(table()).model
    assert list(model.estimator_.classes) == [0, 1]
    assert pipeline.steps[-1].classes is None


class TestRefusals:
    @pytest.mark.parametrize(
        ("kind", "options", "said"),
        [
            ("binary", {"test_share": 1.0}, "test_share"),
            ("binary", {"thresholds": [0.0]}, "thresholds"),
            ("binary", {"level": 2.0}, "level"),
            ("binary", {"by": "age"}, "by must name a categorical column"),
            ("numeric", {"thresholds": [0.3]}, "two classes"),
            ("classes", {"thresholds": [0.3]}, "two classes"),
        ],
    )
    def test_evaluations(self, kind, options, said):
        with pytest.raises(ValueError, match=said):
            Study(schema_of(kind)).fit().evaluate(**options)

    def test_order(self):
        with pytest.raises(ValueError, match="call fit before evaluate"):
            Study(SCHEMA).evaluate()
        with pytest.raises(ValueError, match="declared once"):
            Study(SCHEMA).fit().evaluate().evaluate()
        with pytest.raises(ValueError, match="probabilities"):
            Study(schema_of("classes")).fit("svm").evaluate()

    @pytest.mark.parametrize(
        ("model", "options", "said"),
        [
            (AdditiveClassifier(schema_of("classes")), {}, "schema of the study"),
            (AdditiveClassifier(SCHEMA, classes=["a", "b"]), {}, "classes must be None or match"),
            (LogisticRegression(classes=["a", "b"]), {}, "classes must be None or match"),
            ("additive", {"formula": "ill ~ age"}, "formula must be None"),
            (PrivatePipeline([SchemaEncoder(SCHEMA), LinearSVC()]), {"formula": "x"}, "formula"),
            ("forest", {}, "estimator must be"),
            ("additive", {"interaction": []}, "interaction must be a parameter of Additive"),
            # Arguments that would spend, or record, outside the study.
            ("additive", {"epsilon": 3.0}, "epsilon must be set on the Study"),
            (LogisticRegression(ledger="mine"), {}, "ledger must be set on the Study"),
            (LinearSVC(random_state=0), {}, "random_state must be set on the Study"),
            ("PrivatePipeline", {}, "estimator must be"),
        ],
    )
    def test_models(self, model, options, said):
        with pytest.raises(ValueError, match=said):
            Study(SCHEMA).fit(model, **options)
