"""Certificates of fits with stages: true ones hold, and parts that do not exist are found out."""

from __future__ import annotations

import dataclasses
import json

import pytest

from dpglm import NoisyGD, RobustClassifier
from dpglm.certificate import Certificate, verify
from dpglm.privacy.events import Gaussian, Parallel, Repeated
from dpglm.selection import BestIterate, ConfidenceBoosting, NormGridSearch
from dpglm.solvers import Constant
from tests.fits import fit_classifier, make_rows
from tests.forgeries import both, double, everywhere, half, part_of, put

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
def test_true_certificates_hold_under_replace_one_with_weights(name):
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


def moved(number, part):
    return put(f"plan.method.trainings.{number}.part", part)


SPREAD = both(
    moved(1, 1),
    put(
        "plan.method.part_sizes", lambda sizes: [sizes[0] // 2, sizes[0] - sizes[0] // 2, sizes[1]]
    ),
)
SECOND = "plan.method.trainings.1.plan"

FORGERIES = [
    ("boosting", moved(0, 1)),
    ("boosting", moved(0, -4)),
    ("boosting", moved(0, 9)),
    ("boosting", put("plan.method.part_sizes", lambda sizes: [2 * size for size in sizes])),
    ("boosting", put("plan.method.part_sizes", lambda sizes: [*sizes, 0])),
    ("boosting", put("plan.method.part_sizes", lambda sizes: sizes[::-1])),
    ("boosting", put("plan.method.part_sizes", [])),
    ("boosting", put(f"{SECOND}.data.n_rows", 10**6)),
    ("boosting", put(f"{SECOND}.data.row_norm", 1e-3)),
    ("boosting", put(f"{SECOND}.method.clipping.bound", half)),
    ("boosting", put(f"{SECOND}.method.noise.noise_multiplier", double)),
    ("boosting", put(f"{SECOND}.method.noise.noise_multiplier", half)),
    ("boosting", put(f"{SECOND}.adjacency", "replace_one")),
    ("boosting", put("plan.method.choice.epsilon", half)),
    ("boosting", put("plan.method.choice.loss_bound", half)),
    ("boosting", put("noise_scales.3", lambda scale: 0.9 * scale)),
    ("boosting", put("noise_scales.0", lambda scale: 0.9 * scale)),
    ("boosting", put("releases.0.quantity", "model 2: clipped gradient sum")),
    ("boosting", put("releases.0.quantity", "model 9: clipped gradient sum")),
    ("boosting", put("plan.adjacency", "replace_one")),
    ("boosting", everywhere("adjacency", "replace_one")),
    ("boosting", everywhere("adjacency", "add_remove")),
    ("boosting", put("epsilon", lambda epsilon: 0.99 * epsilon)),
    ("boosting", put("plan.method.problem.loss", {"type": "savage"})),
    ("grid", moved(0, 1)),
    ("grid", SPREAD),
    ("grid", put("plan.method.choice.loss_bounds", lambda bounds: [one / 2 for one in bounds])),
    ("last iterates on one part", put("plan.method.trainings.0.plan.method.momentum", 0.9)),
    ("last iterates on several", put(f"{SECOND}.method.output", {"type": "uniform_average"})),
    ("last iterates on several", put(f"{SECOND}.method.step_sizes", lambda sizes: sizes[1:])),
    ("last iterates on several", everywhere("loss", {"type": "savage"})),
    ("last iterates on several", everywhere("strength", 1e-6)),
    ("best", put("plan.method.choice_epsilon", 0.01)),
    ("best", put("plan.method.descent.data.n_features", 2)),
    ("best", put("noise_scales.1", lambda scale: 0.9 * scale)),
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
    document = json.loads(json.dumps(honest.to_dict()))
    (noise,) = {one.noise_multiplier for one in honest.releases[:-1]}
    choice = honest.releases[-1].event
    split = Parallel((Repeated(Gaussian(noise), 5), Repeated(Gaussian(noise), 5), choice))
    part_of(document)["event"] = part_of(document)["mechanisms"] = split.to_dict()
    verification = verify(Certificate.from_dict(document))
    assert any("was planned" in finding for finding in verification.findings)


def test_one_method_sold_as_two_parts_is_found(fits):
    """Without stages nothing is parallel, whatever the certificate says."""
    document = fits["best"].privacy_.to_dict()
    gaussian, choice = part_of(document)["mechanisms"]["events"]
    parallel = {"type": "parallel", "events": [gaussian, choice]}
    part_of(document)["event"] = part_of(document)["mechanisms"] = parallel
    verification = verify(Certificate.from_dict(document))
    assert any("was planned" in finding for finding in verification.findings)


def test_errors_of_parts_are_stated(fits):
    method = fits["boosting"].solution_.plan.method
    sizes = method.part_sizes
    with pytest.raises(ValueError, match="part_sizes must make up 400 rows"):
        dataclasses.replace(method, part_sizes=(*sizes, 1))
    with pytest.raises(ValueError, match="model 1 must be for the rows of one of the first parts"):
        dataclasses.replace(method, part_sizes=(sizes[0] - 1, sizes[1] + 1, *sizes[2:]))


def test_stages_may_have_stages(fits):
    plan = fits["boosting of best"].solution_.plan
    first, second, choice = plan.method.stages
    assert [one.name for one in (first, second, choice)] == ["model 1", "model 2", "choice"]
    assert [one.part for one in (first, second, choice)] == [0, 1, 2]
    assert first.releases == plan.method.trainings[0].plan.method.releases
    assert Parallel((first.event, second.event, choice.event)) == plan.event
