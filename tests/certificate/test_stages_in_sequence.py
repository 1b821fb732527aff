"""Certificates of private preprocessing: true ones hold, and forged ones are found out."""

from __future__ import annotations

import json

import pytest

from dpglm.certificate import Certificate, verify
from dpglm.certificate.stages import check_parts
from dpglm.preprocessing import (
    Center,
    ClipToQuantile,
    InstanceOptimalCenter,
    RandomProjection,
    Scale,
    Whiten,
)
from dpglm.selection import ConfidenceBoosting
from dpglm.solvers import NoisyGD, NoisySGD, Preprocessed, PureGD
from tests.certificate.test_verify import both, put
from tests.fits import N_ROWS, fit_classifier

GD = NoisyGD(n_steps=5)
SOLVERS = {
    "center": Preprocessed([Center()], GD),
    "center twice": Preprocessed([Center(), ClipToQuantile(), Center()], GD),
    "unbounded": Preprocessed([ClipToQuantile(unbounded=True)], GD),
    "medians": Preprocessed([InstanceOptimalCenter(), ClipToQuantile()], GD),
    "scale and whiten": Preprocessed([Scale(), Whiten()], GD),
    "projection": Preprocessed([RandomProjection(2), Center()], GD),
    "pure": Preprocessed([Center()], PureGD(n_steps=3)),
    "sampled": Preprocessed([Center()], NoisySGD(n_steps=5, sampling_rate=0.3)),
    "in parts": ConfidenceBoosting(Preprocessed([Center()], GD), n_models=2),
    "one in another": Preprocessed([Center()], Preprocessed([Scale()], GD)),
}


@pytest.fixture(scope="module")
def fits():
    return {name: fit_classifier(solver=solver) for name, solver in SOLVERS.items()}


@pytest.mark.parametrize("name", SOLVERS)
def test_true_certificates_hold_also_when_read_from_a_file(fits, name, tmp_path):
    fits[name].privacy_.to_json(tmp_path / "c.json")
    verification = verify(Certificate.from_json(tmp_path / "c.json"))
    assert verification.ok, verification.summary()
    assert fits[name].privacy_.epsilon <= 1.0


@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
@pytest.mark.parametrize("name", ["center twice", "medians", "scale and whiten", "unbounded"])
def test_true_certificates_hold_under_every_relation_and_with_weights(name, adjacency):
    options = {"adjacency": adjacency, "n_rows": N_ROWS, "class_weight": {0: 3.0}}
    verification = verify(fit_classifier(solver=SOLVERS[name], **options).privacy_)
    assert verification.ok, verification.summary()


def half(value):
    return value / 2.0


FORGERIES = [
    ("center", put("settings.stages.center.data.row_norm", half)),
    ("center", put("settings.stages.center.noise_multiplier", half)),
    ("center", put("releases.0.noise_scale", lambda scale: 0.9 * scale)),
    ("center", put("releases.0.contribution_bound", half)),
    ("center", put("releases.0.quantity", "model: row sum")),
    ("center", put("releases.0.quantity", "row sum")),
    ("center", put("adjacency", "replace_one")),
    ("center", put("epsilon", lambda epsilon: 0.99 * epsilon)),
    ("center", put("settings.stages.model.data.n_rows", 10**6)),
    ("center", put("settings.stages.model.data.weight_bound", 0.5)),
    # A shorter row norm for the step, with noise to match: what only the order of stages shows.
    (
        "center",
        both(
            put("settings.stages.center.data.row_norm", half),
            put("releases.0.contribution_bound", half),
            put("releases.0.noise_scale", half),
        ),
    ),
    ("center twice", put("settings.stages.center 2.noise_multiplier", half)),
    ("center twice", put("settings.stages.clip to quantile.choice_epsilon", half)),
    ("center twice", put("settings.stages.clip to quantile.data.n_rows", 10**6)),
    ("unbounded", put("settings.stages.clip to quantile.choice_epsilon", half)),
    ("unbounded", put("releases.0.quantity", "clip to quantile: radius of rows")),
    ("medians", put("releases.0.count", 1)),
    ("medians", put("settings.stages.instance-optimal center.median_epsilon", half)),
    ("medians", put("settings.stages.instance-optimal center.radius_epsilon", half)),
    ("medians", put("releases.2.noise_scale", half)),
    ("scale and whiten", put("releases.0.contribution_bound", 1.0)),
    ("scale and whiten", put("releases.0.coordinates", 1)),
    ("scale and whiten", put("settings.stages.whiten.first_noise_multiplier", half)),
    ("one in another", put("settings.stages.model.stages.scale.data.row_norm", half)),
]


@pytest.mark.parametrize(
    ("name", "forge"),
    FORGERIES,
    ids=[f"{i}-{name}-{forge.__name__}"[:80] for i, (name, forge) in enumerate(FORGERIES)],
)
def test_forgeries_are_found(fits, name, forge):
    document = json.loads(json.dumps(fits[name].privacy_.to_dict()))
    forge(document)
    assert not verify(Certificate.from_dict(document)).ok


def test_a_step_that_was_left_out_of_the_account_is_found(fits):
    document = fits["center"].privacy_.to_dict()
    model = document["releases"][1]["event"]
    document["event"] = {"type": "repeated", "event": model, "count": 5}
    verification = verify(Certificate.from_dict(document))
    assert any("accounted for" in finding for finding in verification.findings)


def test_stages_one_after_the_other_need_no_part():
    rows = {"n_rows": 10, "n_features": 2, "n_outputs": 1, "weight_bound": 1.0}
    shorter = {**rows, "n_features": 1}
    settings = {"data": rows, "stages": {"a": {"data": rows}, "b": {"data": shorter}}}
    assert check_parts(settings) is None
    settings["stages"]["a"] = {"data": shorter}
    assert "public facts of a" in check_parts(settings)
    settings["stages"] = {"a": {"data": rows}, "b": {"data": {**shorter, "n_rows": 5}}}
    assert "public facts of b" in check_parts(settings)
