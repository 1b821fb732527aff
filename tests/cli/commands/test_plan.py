"""`dpglm plan`: a fit in words, before any data."""

import json
import re

import pytest

from dpglm import LogisticRegression
from dpglm.cli.commands import app
from dpglm.cli.options import ESTIMATORS


@pytest.fixture
def wide(files):
    """Return how to write a schema of numeric columns in [-1, 1], for a kind of target."""

    def write(n_columns, *, classes=True):
        columns = {f"x{i}": {"type": "numeric", "low": -1, "high": 1} for i in range(n_columns)}
        target = {"type": "numeric", "low": 1e-3, "high": 1}
        target = {"type": "binary", "classes": [0, 1]} if classes else target
        document = {"columns": columns, "target": {"name": "y"} | target, "provenance": "made up"}
        (files / "wide.json").write_text(json.dumps(document))
        return "--schema", "wide.json"

    return write


def test_text_equals_the_estimators_plan(run, wide):
    done = run("plan", "--n-rows", "5000", *wide(20), "--epsilon", "0.5", "--delta", "1e-6")
    model = LogisticRegression(epsilon=0.5, delta=1e-6, row_norm=20**0.5)
    plan = model.plan(5000, 20)
    assert done.exit_code == 0
    assert "epsilon 0.5, delta 1e-06, relation zero_out" in done.stdout
    assert re.search(rf"Steps +{plan.n_steps}\n", done.stdout)
    for release in plan.method.releases:
        noise = f"standard deviation {release.noise_multiplier:.4g} x sensitivity"
        assert f"{noise} ({release.quantity})" in " ".join(done.stdout.split())
        assert f"{release.count} with {noise} (" in " ".join(done.stdout.split())
    assert done.stdout.count("sensitivity") == len(plan.method.releases)
    assert f"standard deviation about {plan.coefficient_noise:.2g}" in " ".join(done.stdout.split())


def test_schema_gives_numbers_of_features_and_classes(run, files, sample):
    classes = {"name": "ill", "type": "classes", "classes": ["a", "b", "c"]}
    (files / "schema.json").write_text(json.dumps(sample.schema | {"target": classes}))
    done = run("plan", "--n-rows", "5000", "--schema", "schema.json")
    assert done.stdout.startswith("Plan for LogisticRegression: 5000 rows, 3 features, 3 classes")


@pytest.mark.parametrize(
    ("estimator", "name"),
    [*ESTIMATORS.items()],
)
def test_every_kind_of_estimator_has_a_plan(run, wide, estimator, name):
    given = wide(9, classes=name.endswith(("Classifier", "SVC", "LogisticRegression")))
    done = run("plan", "--n-rows", "5000", *given, "--estimator", estimator)
    assert done.stdout.startswith(f"Plan for {name}: 5000 rows, 9 features")


def test_add_remove_plans_with_the_public_n(run, wide):
    done = run("plan", "--n-rows", "5000", *wide(9), "--adjacency", "add_remove")
    assert (done.exit_code, done.stderr) == (0, "")
    assert "relation add_remove" in done.stdout


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--estimator", "ridge"), "logistic, svm"),
        (("--epsilon", "-1"), "epsilon must be .* got -1.0"),
        (("--delta", "-1"), "delta must be"),
        (("--delta", "x"), "neither a number nor 'auto'"),
        (("--set", "C"), "--set C: must be NAME=VALUE"),
        (("--set", "epsilon=9"), "--set epsilon=9: must be"),
        (("--set", "C=-1"), "C must be"),
    ],
)
def test_wrong_options_are_named(run, fails, files, options, says):
    given = ("--n-rows", "10", "--schema", "schema.json")
    assert re.search(says, fails(run("plan", *given, *options)))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--epsilon", "11"), "epsilon 11 protects little"),
        (("--delta", "1e-3"), "delta 0.001 is at least 1/5000"),
    ],
)
def test_objections_to_a_plan_are_stated(run, wide, options, says):
    done = run("plan", "--n-rows", "5000", *wide(20), *options)
    assert done.exit_code == 0
    assert f"Caution - {says}" in " ".join(done.stdout.split())


def test_expectation_and_help_are_stated(run, wide):
    done = run("plan", "--n-rows", "100", *wide(50), "--epsilon", "0.1")
    text = " ".join(done.stdout.split())
    assert "Noise will dominate" in text
    assert "Remedies - About" in text


def test_a_delta_of_zero_is_planned_with_l2_noise(run, wide):
    done = run("plan", "--n-rows", "100", *wide(20), "--delta", "0")
    assert done.exit_code == 0
    assert "delta 0" in done.stdout
    assert "L2 noise" in done.stdout
    assert "A delta above 0, which allows Gaussian noise" in " ".join(done.stdout.split())


OF_FILES = {"data", "ledger", "label", "stream", "cache", "checkpoint", "model", "report", "force"}
OF_FILES |= {"part", "separator", "decimal", "thousands", "encoding", "where"}


def test_options_are_those_of_a_fit():
    known = {one.name: one for one in app.commands["plan"].params}
    for option in app.commands["fit"].params:
        if option.name not in OF_FILES:
            assert option.opts == known[option.name].opts, option.name
            assert option.type.name == known[option.name].type.name, option.name


def test_a_plan_takes_the_options_of_a_fit(run, fit, visits):
    options = (*("--schema", "schema.json", "--epsilon", "5"), *("--n-rows", "400"))
    options += ("--groups", "person", "--max-rows-per-group", "2", "--n-groups", "200")
    options += ("--target", "ill", "--set", "C=0.5")
    planned = run("plan", *options)
    assert planned.exit_code == 0, planned.output
    assert "400 rows of 200 groups" in planned.stdout
    done = run("fit", "visits.csv", *options, "--model", "model.json")
    assert done.exit_code == 0, done.output


def test_a_plan_with_exposures_is_that_of_a_fit_with_them(run, files, sample):
    schema = {**sample.schema, "target": {"name": "ill", "type": "count", "high": 3}}
    (files / "schema.json").write_text(json.dumps(schema))
    options = ("--schema", "schema.json", "--n-rows", "40000", "--inference", "model")
    done = run("plan", *options, "--exposure", "id", "--exposure-bounds", "1,9")
    assert done.exit_code == 0, done.output
    assert "needs --exposure-bounds" in run("plan", *options, "--exposure", "id").stderr
