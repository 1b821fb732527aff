"""Certificates of private preprocessing: true ones hold, and forged ones are found out."""

from __future__ import annotations

import dataclasses
import json

import pytest

from dpglm.certificate import Certificate, verify
from dpglm.preprocessing import (
    Center,
    ClipToQuantile,
    InstanceOptimalCenter,
    RandomProjection,
    Scale,
    Whiten,
)
from dpglm.selection import ConfidenceBoosting
from dpglm.solvers import NoisyGD, NoisySGD, Preprocessed, pure_gd
from tests.fits import N_ROWS, fit_classifier
from tests.forgeries import both, double, everywhere, half, part_of, put

GD = NoisyGD(n_steps=5)
SOLVERS = {
    "center": Preprocessed([Center()], GD),
    "center twice": Preprocessed([Center(), ClipToQuantile(), Center()], GD),
    "unbounded": Preprocessed([ClipToQuantile(unbounded=True)], GD),
    "medians": Preprocessed([InstanceOptimalCenter(), ClipToQuantile()], GD),
    "scale and whiten": Preprocessed([Scale(), Whiten()], GD),
    "projection": Preprocessed([RandomProjection(2), Center()], GD),
    "pure": Preprocessed([Center()], pure_gd(n_steps=3)),
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
def test_true_certificates_hold_under_all_relations_with_weights(name, adjacency):
    options = {"adjacency": adjacency, "n_rows": N_ROWS, "class_weight": {0: 3.0}}
    verification = verify(fit_classifier(solver=SOLVERS[name], **options).privacy_)
    assert verification.ok, verification.summary()


def step(number, name):
    return f"plan.method.steps.{number}.{name}"


FORGERIES = [
    ("center", put(step(0, "data.row_norm"), half)),
    ("center", put(step(0, "mu"), double)),
    ("center", put(step(0, "mu"), half)),
    ("center", put(step(0, "adjacency"), "replace_one")),
    ("center", put("noise_scales.0", lambda scale: 0.9 * scale)),
    ("center", put("releases.0.contribution_bound", half)),
    ("center", put("releases.0.quantity", "model: row sum")),
    ("center", put("releases.0.quantity", "row sum")),
    ("center", put("plan.adjacency", "replace_one")),
    ("center", everywhere("adjacency", "replace_one")),
    ("center", put("epsilon", lambda epsilon: 0.99 * epsilon)),
    ("center", put("plan.method.model.data.n_rows", 10**6)),
    ("center", put("plan.method.model.data.weight_bound", 0.5)),
    ("center", put("plan.method.model.method.problem.loss", {"type": "savage"})),
    ("center", put("plan.method.steps", [])),
    # A smaller row norm for the step, with matching noise: only the order of stages reveals it.
    (
        "center",
        both(
            put(step(0, "data.row_norm"), half),
            put("releases.0.contribution_bound", half),
            put("noise_scales.0", half),
        ),
    ),
    ("center twice", put(step(2, "mu"), double)),
    ("center twice", put(step(1, "mu"), half)),
    ("center twice", put(step(1, "data.n_rows"), 10**6)),
    ("unbounded", put(step(0, "mu"), half)),
    ("unbounded", put(step(0, "step.unbounded"), False)),
    ("unbounded", put("releases.0.quantity", "clip to quantile: radius of rows")),
    ("medians", put("releases.0.count", 1)),
    ("medians", put(step(0, "mu"), half)),
    ("medians", put(step(1, "mu"), double)),
    ("medians", put("noise_scales.2", half)),
    ("scale and whiten", put("releases.0.contribution_bound", 1.0)),
    ("scale and whiten", put("releases.0.coordinates", 1)),
    ("scale and whiten", put(step(1, "mu"), double)),
    ("one in another", put("plan.method.model.method.steps.0.data.row_norm", half)),
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
    document = json.loads(json.dumps(fits["center"].privacy_.to_dict()))
    model = fits["center"].privacy_.releases[1].event.to_dict()
    part_of(document)["event"] = {"type": "repeated", "event": model, "count": 5}
    verification = verify(Certificate.from_dict(document))
    assert any("accounted for" in finding for finding in verification.findings)


def test_inconsistent_stages_are_reported(fits):
    method = fits["center twice"].solution_.plan.method
    with pytest.raises(ValueError, match="center 2 must be for the rows of the step before it"):
        dataclasses.replace(method, steps=method.steps[::2] + method.steps[1:2])
