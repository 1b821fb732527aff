"""Certificates of fits with stages: true ones hold, and parts that do not exist are found out."""

from __future__ import annotations

import json

import pytest

from dpglm import NoisyGD, RobustClassifier
from dpglm.certificate import Certificate, verify
from dpglm.certificate.stages import check_parts, happened, plain_settings, stage_of
from dpglm.data.spec import DataSpec
from dpglm.privacy.events import Composed, Gaussian, Parallel, Pure, Repeated
from dpglm.privacy.releases import Release
from dpglm.selection import BestIterate, ConfidenceBoosting, NormGridSearch
from dpglm.solvers import Constant
from tests.certificate.test_verify import both, put
from tests.fits import fit_classifier, make_rows

GD = NoisyGD(n_steps=5)
PLAIN = NoisyGD(n_steps=40, momentum=0.0, step_size=0.5, schedule=Constant())
RIDGE = {"C": 0.01, "penalize_intercept": True}
SOLVERS = {
    "best": (BestIterate(n_steps=5), {}),
    "grid": (NormGridSearch(GD, bounds=(1.0, 4.0)), {}),
    "boosting": (ConfidenceBoosting(GD, n_models=3), {}),
    "last iterates on one part": (NormGridSearch(PLAIN, bounds=(1.0, 4.0)), RIDGE),
    "last iterates on several": (ConfidenceBoosting(PLAIN, n_models=2), RIDGE),
    "sampled": (ConfidenceBoosting(NoisyGD(n_steps=5, sampling_rate=0.3), n_models=2), {}),
    "boosting of best": (ConfidenceBoosting(BestIterate(n_steps=3), n_models=2), {}),
}


@pytest.fixture(scope="module")
def fits():
    return {name: fit_classifier(solver=s, **options) for name, (s, options) in SOLVERS.items()}


@pytest.mark.parametrize("name", SOLVERS)
def test_true_certificates_hold_also_when_read_from_a_file(fits, name, tmp_path):
    fits[name].privacy_.to_json(tmp_path / "c.json")
    verification = verify(Certificate.from_json(tmp_path / "c.json"))
    assert verification.ok, verification.summary()
    assert fits[name].privacy_.epsilon <= 1.0
    assert fits[name].n_iter_ == fits[name].solution_.n_steps


@pytest.mark.parametrize("name", ["best", "grid", "boosting"])
def test_true_certificates_hold_for_replaced_rows_and_with_weights(name):
    solver, _ = SOLVERS[name]
    options = {"adjacency": "replace_one", "class_weight": {0: 3.0}}
    verification = verify(fit_classifier(solver=solver, **options).privacy_)
    assert verification.ok, verification.summary()


def test_a_private_number_of_rows_is_fine_without_parts():
    fitted = fit_classifier(solver=BestIterate(n_steps=3), adjacency="add_remove", n_rows=500)
    assert verify(fitted.privacy_).ok


def test_non_convex_classifiers_are_certified():
    X, y = make_rows()
    solver = BestIterate(n_steps=3)
    fitted = RobustClassifier(classes=[0, 1], feature_bounds=(-1.0, 1.0), solver=solver).fit(X, y)
    assert verify(fitted.privacy_).ok


def moved(name, part):
    return put(f"settings.stages.{name}.part", part)


SPREAD = both(
    moved("candidate 2", 1),
    put("settings.part_sizes", lambda sizes: [sizes[0] // 2, sizes[0] - sizes[0] // 2, sizes[1]]),
)

FORGERIES = [
    ("boosting", moved("model 1", 1)),
    ("boosting", moved("model 1", -4)),
    ("boosting", moved("model 1", 9)),
    ("boosting", put("settings.part_sizes", lambda sizes: [2 * size for size in sizes])),
    ("boosting", put("settings.part_sizes", lambda sizes: [*sizes, 0])),
    ("boosting", put("settings.part_sizes", lambda sizes: sizes[::-1])),
    ("boosting", put("settings.stages.model 2.data.n_rows", 10**6)),
    ("boosting", put("settings.stages.model 2.data.row_norm", 1e-3)),
    ("boosting", put("settings.stages.model 2.clip", lambda clip: clip / 2)),
    ("boosting", put("settings.stages.model 2.noise_multiplier", lambda sigma: 2 * sigma)),
    ("boosting", put("settings.choice_epsilon", lambda epsilon: epsilon / 2)),
    ("boosting", put("settings.loss_bound", lambda bound: bound / 2)),
    ("boosting", put("releases.3.noise_scale", lambda scale: 0.9 * scale)),
    ("boosting", put("releases.0.noise_scale", lambda scale: 0.9 * scale)),
    ("boosting", put("releases.0.quantity", "model 2: clipped gradient sum")),
    ("boosting", put("releases.0.quantity", "model 9: clipped gradient sum")),
    ("boosting", put("adjacency", "replace_one")),
    ("boosting", put("adjacency", "add_remove")),
    ("boosting", put("epsilon", lambda epsilon: 0.99 * epsilon)),
    ("grid", moved("candidate 1", 1)),
    ("grid", SPREAD),
    ("grid", put("settings.loss_bounds", lambda bounds: [bound / 2 for bound in bounds])),
    ("last iterates on one part", put("settings.stages.candidate 1.momentum", 0.9)),
    ("last iterates on several", put("settings.stages.model 2.output", "UniformAverage()")),
    ("last iterates on several", put("settings.stages.model 2.n_steps", 39)),
    ("last iterates on several", put("settings.problem.convex", False)),
    ("best", put("settings.choice_epsilon", 0.01)),
    ("best", put("releases.1.noise_scale", lambda scale: 0.9 * scale)),
    ("best", put("releases.1.contribution_bound", lambda bound: 0.9 * bound)),
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


def test_trainings_on_the_same_rows_sold_as_disjoint_are_found(fits):
    """All sums of a grid search, each paid for as if it had rows of its own."""
    honest = fits["grid"].privacy_
    document = honest.to_dict()
    (noise,) = {one.noise_multiplier for one in honest.releases[:-1]}
    choice = honest.releases[-1].event
    split = Parallel((Repeated(Gaussian(noise), 5), Repeated(Gaussian(noise), 5), choice))
    document["event"] = document["mechanisms"] = split.to_dict()
    verification = verify(Certificate.from_dict(document))
    assert any("the releases make" in finding for finding in verification.findings)


def test_one_method_sold_as_two_parts_is_found(fits):
    """Without stages nothing is parallel, whatever the certificate says."""
    document = fits["best"].privacy_.to_dict()
    gaussian, choice = document["mechanisms"]["events"]
    document["event"] = document["mechanisms"] = {"type": "parallel", "events": [gaussian, choice]}
    verification = verify(Certificate.from_dict(document))
    assert any("the releases make" in finding for finding in verification.findings)


def release(quantity, event, count=1):
    return Release(quantity, event, count, 1.0, 1.0, 1.0, 1)


INNER = {"data": {"n_rows": 4, "n_features": 1}, "part": 0, "noise_multiplier": 1.0}
NESTED = {
    "data": {"n_rows": 9, "n_features": 1},
    "part_sizes": [6, 3],
    "stages": {
        "candidate 1": {
            "data": {"n_rows": 6, "n_features": 1},
            "part": 0,
            "part_sizes": [4, 2],
            "stages": {"model 1": INNER},
        }
    },
}


def test_stages_may_have_stages():
    inner = stage_of("candidate 1: model 1: clipped gradient sum", NESTED)
    assert inner.quantity == "clipped gradient sum"
    assert inner.settings is INNER
    assert inner.data == DataSpec(4, 1)
    assert stage_of("candidate 1: least clipped loss", NESTED).data == DataSpec(2, 1)
    assert stage_of("least clipped loss for its norm", NESTED).data == DataSpec(3, 1)
    assert list(plain_settings(NESTED)) == [INNER]
    assert check_parts(NESTED) is None
    releases = [
        release("candidate 1: model 1: clipped gradient sum", Gaussian(2.0), 3),
        release("candidate 1: least clipped loss", Pure(1.0)),
        release("least clipped loss for its norm", Pure(2.0)),
    ]
    nested = Parallel((Repeated(Gaussian(2.0), 3), Pure(1.0)))
    assert happened(releases, NESTED) == Parallel((nested, Pure(2.0)))
    assert happened(releases, INNER) == Composed((Repeated(Gaussian(2.0), 3), Pure(1.0), Pure(2.0)))


def test_what_is_wrong_with_parts_is_said():
    wrong = json.loads(json.dumps(NESTED))
    wrong["stages"]["candidate 1"]["stages"]["model 1"]["data"]["n_rows"] = 5
    assert check_parts(wrong) == "the public facts of model 1 are not those of its part"
    wrong = json.loads(json.dumps(NESTED))
    wrong["part_sizes"] = [6, 4]
    assert check_parts(wrong) == "parts of [6, 4] rows do not make up 9 rows"
