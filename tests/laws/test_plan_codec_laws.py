"""Every plan is data: it comes back from JSON, and certificates are rebuilt from their files."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, final, get_args

import numpy as np
import pytest
from sklearn.preprocessing import Normalizer

from dpglm import estimators
from dpglm._codec import decode, encode, type_name
from dpglm.certificate import Certificate, verify
from dpglm.certificate.certificate import PublicFact, certify
from dpglm.data.prepare import prepare_rows
from dpglm.data.rows import DataSpec, Protection
from dpglm.estimators import (
    PrivateGridSearchCV,
    PrivatePipeline,
    PrivateRandomizedSearchCV,
)
from dpglm.preprocessing import Center
from dpglm.preprocessing.base import PlannedStep
from dpglm.privacy import Adjacency, ApproximateDP
from dpglm.privacy.budget import PrivacyBudget
from dpglm.privacy.events import Event
from dpglm.privacy.noise import SystemNoise
from dpglm.privacy.selection.repetitions import Repetitions
from dpglm.problem import (
    L2,
    L2Ball,
    Link,
    Logistic,
    Loss,
    Poisson,
    Problem,
    Softmax,
    Sparsemax,
    Squared,
)
from dpglm.problem.problem import Constraint, Regularizer
from dpglm.report import load_model, save_model
from dpglm.selection.choices import Choice
from dpglm.solvers import SOLVERS as NAMED
from dpglm.solvers import Method, NoisyGD, Outcome, Plan, Solver, run
from tests.fits import admitted_targets
from tests.forgeries import part_of
from tests.laws.asked import SOLVERS
from tests.laws.test_loss_laws import CASES

pytestmark = pytest.mark.one_in(3)

BUDGET = ApproximateDP(1.0, 1e-5)
PURE = ApproximateDP(1.0, 0.0)
DATA = DataSpec(n_rows=60, n_features=3, intercept=1.0)
IN_UNITS = dataclasses.replace(DATA, target_low=0.0, target_high=1.0)
PROBLEMS = (
    (Problem(Logistic()), DATA),
    (Problem(Squared()), IN_UNITS),
    (Problem(Softmax()), dataclasses.replace(DATA, n_outputs=3)),
    (Problem(Sparsemax()), dataclasses.replace(DATA, n_outputs=3)),
    (Problem(Poisson()), IN_UNITS),
    (Problem(Logistic(), L2(0.1), L2Ball(1.0)), DATA),
)
FACTS = {"row_norm": 1.0, "classes": [0, 1], "target_bounds": [0.0, 1.0]}
EVERY = {
    **{f"{i} {type(one).__name__}": one for i, one in enumerate(SOLVERS)},
    **{name: solver() for name, solver in NAMED.items()},
}


def plans_of(solver: Solver, relation: Adjacency = Adjacency.ZERO_OUT) -> Iterator[Plan]:
    """Plan the solver for every problem that it takes."""
    for (problem, data), budget in itertools.product(PROBLEMS, (BUDGET, PURE)):
        with contextlib.suppress(ValueError):
            yield solver.plan(problem, budget, data, relation)


def through_json(value: Any) -> Any:
    return json.loads(json.dumps(value, allow_nan=False))


def comes_back(plan: Plan) -> None:
    """The law of plans."""
    again = Plan.from_document(through_json(plan.document))
    assert again == plan
    assert again.document == plan.document
    assert again.method.releases == plan.method.releases


@pytest.mark.parametrize("position", range(len(EVERY)), ids=list(EVERY))
def test_every_plan_comes_back_from_json(position):
    relation = list(Adjacency)[position % len(Adjacency)]
    for plan in plans_of(list(EVERY.values())[position], relation):
        comes_back(plan)


@pytest.mark.slow
@pytest.mark.parametrize("name", EVERY)
def test_every_plan_comes_back_from_json_under_every_relation(name):
    for relation in Adjacency:
        for plan in plans_of(EVERY[name], relation):
            comes_back(plan)


@pytest.mark.parametrize("name", NAMED)
def test_every_named_solver_has_a_plan(name):
    assert next(plans_of(NAMED[name]()))


def certified(plan: Plan) -> Certificate:
    """Run a plan on a few rows, and certify the run."""
    rng = np.random.default_rng(0)
    data, loss = plan.data, plan.problem.loss
    X = rng.uniform(-0.5, 0.5, (data.n_rows, data.n_features))
    y = rng.integers(0, 2, data.n_rows)
    targets = np.where(y > 0, 1.0, -1.0) if isinstance(loss, Logistic) else y
    noise = SystemNoise()
    solution = run(plan, prepare_rows(X, targets, data), noise)
    facts = [PublicFact(name, value, "declared") for name, value in FACTS.items()]
    facts.append(PublicFact("n_rows", data.n_rows, "by relation"))
    return certify("Law", solution, noise, tuple(facts), solution.w, 0.0)


def is_rebuilt(certificate: Certificate) -> None:
    """The law of certificates."""
    again = Certificate.from_dict(through_json(certificate.to_dict()))
    assert again == certificate
    assert again.rebuild().document == certificate.plan
    assert again.statement() == certificate.statement()
    verification = verify(again)
    assert verification.ok, verification.summary()


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", EVERY)
def test_every_certificate_is_rebuilt_from_its_file_and_verifies(name):
    # Hostile settings do not have a plan.
    for plan in itertools.islice(plans_of(EVERY[name]), 1):
        is_rebuilt(certified(plan))


# Estimators, pipelines, transformers and searches, and the models that they save.


def rows(n_classes: int = 2) -> tuple[Any, Any]:
    rng = np.random.default_rng(1)
    X = rng.uniform(-1.0, 1.0, (120, 3))
    return X, (X @ rng.normal(size=(3, n_classes))).argmax(axis=1)


def estimator(kind: Any, **options: Any) -> Any:
    """Make one with the public facts that it needs."""
    given = {"row_norm": 2.0, "target_bounds": (0.25, 1.0), "max_target": 1.0, "classes": [0, 1]}
    named = kind._get_param_names()
    return kind(**{key: value for key, value in given.items() if key in named}, **options)


LINEAR = [
    getattr(estimators, name)
    for name in estimators.__all__
    if not name.startswith(("Private", "Additive"))
]


def logistic(**options: Any) -> Any:
    return estimators.LogisticRegression(
        classes=[0, 1], row_norm=2.0, solver=NoisyGD(n_steps=3), **options
    )


GRID = {"C": [0.1, 1.0]}
COMPOSED = {
    "pipeline": lambda: PrivatePipeline([Normalizer(), Center(), logistic()]),
    "grid search": lambda: PrivateGridSearchCV(logistic(), GRID),
    "grid search, held out": lambda: PrivateGridSearchCV(logistic(), GRID, method="held_out"),
    "randomized search": lambda: PrivateRandomizedSearchCV(logistic(), GRID, n_iter=2),
    "search of a pipeline": lambda: PrivateGridSearchCV(
        PrivatePipeline([Center(), logistic()]), {"logisticregression__C": [0.1, 1.0]}
    ),
}


@pytest.mark.parametrize("kind", LINEAR, ids=lambda kind: kind.__name__)
def test_certificates_and_models_survive_a_round_trip(kind, tmp_path):
    X, y = rows()
    model = estimator(kind)
    model.fit(X, admitted_targets(model, y))
    is_rebuilt(model.privacy_)
    predicts_alike(model, X, tmp_path / "model.json")


@pytest.mark.parametrize("name", COMPOSED)
def test_certificates_of_composed_estimators_are_rebuilt(name):
    X, y = rows()
    is_rebuilt(COMPOSED[name]().fit(X, y).privacy_)


def predicts_alike(model: Any, X: Any, path: Any) -> None:
    """The law of model files."""
    save_model(model, path)
    saved = load_model(path)
    assert saved.certificate == model.privacy_
    assert saved.link == model.solution_.plan.problem.loss.link
    for name in ("predict", "decision_function", "predict_proba", "predict_log_proba"):
        if hasattr(model, name):
            np.testing.assert_array_equal(getattr(saved, name)(X), getattr(model, name)(X))


@pytest.mark.parametrize("loss", [case.loss for case in CASES], ids=repr)
def test_losses_and_their_links_come_back(loss):
    assert decode(Loss, through_json(encode(loss, Loss))) == loss
    assert loss.link is None or decode(Link, through_json(encode(loss.link, Link))) == loss.link


# An unknown solver.


@final
@dataclass(frozen=True)
class Scaled(Solver):
    """Scales the result of another solver."""

    factor: float = 2.0

    def decide(self, facts):
        inner = NoisyGD(n_steps=3).decide(facts)
        return facts.plan(ScaledMethod(facts.problem, facts.data, inner, self.factor))


@dataclass(frozen=True)
class ScaledMethod(Method[Any]):
    problem: Problem
    data: DataSpec
    inner: Plan
    factor: float

    n_steps = 3
    gradient_evaluations = coefficient_noise = 0.0

    @property
    def releases(self):
        return self.inner.method.releases

    def init(self, seed):
        return self.inner.method.init(seed)

    def step(self, state, oracle):
        return self.inner.method.step(state, oracle)

    def finish(self, state):
        return Outcome(self.factor * self.inner.method.finish(state).w)


def test_a_new_solver_gets_certificates_that_verify():
    for relation in Adjacency:
        comes_back(next(plans_of(Scaled(), relation)))
    certificate = certified(next(plans_of(Scaled())))
    is_rebuilt(certificate)
    assert certificate.plan["method"]["type"] == f"{__name__}.ScaledMethod"
    # Whoever has not imported it is told what to do, and can read all the same.
    document = through_json(certificate.to_dict())
    part_of(document)["plan"]["method"]["type"] = "elsewhere.ScaledMethod"
    stranger = Certificate.from_dict(document)
    assert stranger.data == DATA
    (finding,) = verify(stranger).findings
    assert "import elsewhere first" in finding


@dataclass(frozen=True)
class Forgetful(ScaledMethod):
    """A planted bug: a setting that is not an argument of the constructor."""

    secret: float = field(default=1.0, init=False)


@dataclass(frozen=True)
class Unwritten(ScaledMethod):
    """A planted bug: a setting that is not data."""

    made_by: Any = None


def test_planted_non_data_settings_break_the_law():
    plan = next(plans_of(Scaled()))
    assert isinstance(plan.method, ScaledMethod)
    parts = (plan.method.problem, plan.method.data, plan.method.inner, 2.0)
    forgetful = Forgetful(*parts)
    object.__setattr__(forgetful, "secret", 3.0)
    with pytest.raises(AssertionError):
        comes_back(dataclasses.replace(plan, method=forgetful))
    unwritten = dataclasses.replace(plan, method=Unwritten(*parts, made_by=len))
    with pytest.raises(ValueError, match=r"method\.made_by must be a JSON value"):
        comes_back(unwritten)


# The class tree is the registry.


BASES = (
    Choice,
    Constraint,
    Event,
    Link,
    Loss,
    Method,
    PlannedStep,
    PrivacyBudget,
    Regularizer,
    Repetitions,
)


def below(base: Any) -> Iterator[type]:
    for one in get_args(base) or base.__subclasses__():
        yield one
        yield from below(one)


@pytest.mark.parametrize("base", BASES, ids=str)
def test_classes_of_this_library_have_names_of_their_own(base):
    own = {one for one in below(base) if one.__module__.startswith("dpglm.")}
    concrete = [one for one in own if dataclasses.is_dataclass(one)]
    assert len({type_name(one) for one in concrete}) == len(concrete)
    for one in concrete:
        assert all(each.init and each.compare for each in dataclasses.fields(one)), one


# Forged plans: refused, found out, or no other as far as anything is released.


def numbers_in(document: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Places of numbers; of a long array, the first and the last."""
    if isinstance(document, dict):
        for key, value in document.items():
            yield from numbers_in(value, (*place, key))
    elif isinstance(document, list):
        for position in dict.fromkeys((0, len(document) - 1)) if document else ():
            yield from numbers_in(document[position], (*place, position))
    elif isinstance(document, int | float) and not isinstance(document, bool):
        yield place


def changed(document: Any, place: tuple[Any, ...], factor: float) -> Any:
    forged = through_json(document)
    part = forged
    for key in place[:-1]:
        part = part[key]
    value = part[place[-1]]
    part[place[-1]] = value + 1 if isinstance(value, int) else value * factor
    return forged


def leaks(plan: Plan, factor: float) -> list[str]:
    """Say which changes of a number make another plan that is taken for this one."""
    found = []
    honest = certified(plan)
    for place in numbers_in(plan.document):
        if place[0] == "version":
            continue
        try:
            forged = honest.with_part(plan=changed(plan.document, place, factor))
            again = forged.rebuild()
        except ValueError:
            continue
        data = again.data
        stated = Protection(again.adjacency, again.budget, data.n_rows, data.groups)
        forged = dataclasses.replace(forged, protection=stated)
        same = (
            again.event == plan.event
            and again.method.mechanisms == plan.method.mechanisms
            and again.method.releases == plan.method.releases
        )
        if same and (again.data, again.adjacency) == (plan.data, plan.adjacency):
            # No other, as far as anything is released; its budget may be another.
            continue
        if verify(forged).ok:
            found.append(".".join(map(str, place)))
    return found


FORGED = {
    "noisy_gd": NoisyGD(n_steps=4),
    "sampled": NoisyGD(n_steps=4, sampling_rate=0.2),
    **{
        name: NAMED[name]()
        for name in (
            "accelerated_mirror_descent",
            "d2p2",
            "frank_wolfe",
            "johnson_lindenstrauss",
            "local_sgd",
            "newton",
            "newton_raphson",
            "objective_perturbation",
            "output_perturbation",
            "prototypes",
            "pure_gd",
            "sufficient_statistics",
            "svrg",
        )
    },
}


@pytest.mark.filterwarnings("ignore:steps overflowed:RuntimeWarning")
@pytest.mark.one_in(1)
@pytest.mark.parametrize("name", FORGED)
def test_numbers_of_forged_plans_are_found_out(name):
    plans = plans_of(FORGED[name])
    # The second is for pure differential privacy.
    for plan in itertools.islice(plans, 2 if name == "objective_perturbation" else 1):
        for factor in (0.5, 2.0):
            assert leaks(plan, factor) == []


def test_planted_a_check_that_does_not_compare_releases_leaks(monkeypatch):
    plan = next(plans_of(NoisyGD(n_steps=4)))
    monkeypatch.setattr(importlib.import_module("dpglm.certificate.verify"), "_CHECKS_OF_PLAN", {})
    assert "method.noise.noise_multiplier" in leaks(plan, 2.0)
