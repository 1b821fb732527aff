"""`dpglm plan`: what a fit will do, in words, before any data."""

import json
import re

import pytest

from dpglm import LogisticRegression, Ridge
from dpglm.cli.expectation import cautions, expectation, is_hopeless, signal_to_noise
from dpglm.report.words import plain_number


def test_says_what_the_estimators_own_plan_says(run):
    done = run("plan", "--rows", "5000", "--columns", "20", "--epsilon", "0.5", "--delta", "1e-6")
    model = LogisticRegression(epsilon=0.5, delta=1e-6, row_norm=20**0.5)
    plan = model.plan(5000, 20)
    assert done.exit_code == 0
    assert "epsilon 0.5, delta 1e-06, relation zero_out" in done.stdout
    assert re.search(rf"Steps +{plan.n_steps}\n", done.stdout)
    for release in plan.method.releases:
        noise = plain_number(release.noise_multiplier)
        assert f"{noise} ({release.quantity})" in " ".join(done.stdout.split())
    assert f"{plan.coefficient_noise:.2g} (standard deviation" in done.stdout


def test_a_schema_says_how_many_features_and_classes(run, files, sample):
    classes = {"name": "ill", "type": "classes", "classes": ["a", "b", "c"]}
    (files / "schema.json").write_text(json.dumps(sample.schema | {"target": classes}))
    done = run("plan", "--rows", "5000", "--schema", "schema.json")
    assert done.stdout.startswith("Plan for LogisticRegression: 5000 rows, 3 features, 3 classes")


@pytest.mark.parametrize(
    ("estimator", "name"),
    [("svm", "LinearSVC"), ("ridge", "Ridge"), ("poisson", "PoissonRegressor"), ("lasso", "Lasso")],
)
def test_every_kind_of_estimator_has_a_plan(run, estimator, name):
    done = run("plan", "--rows", "5000", "--columns", "9", "--estimator", estimator)
    assert done.stdout.startswith(f"Plan for {name}: 5000 rows, 9 features")


def test_the_relation_that_hides_n_plans_with_the_public_n(run):
    done = run("plan", "--rows", "5000", "--columns", "9", "--adjacency", "add_remove")
    assert (done.exit_code, done.stderr) == (0, "")
    assert "relation add_remove" in done.stdout


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--rows", "10"), "--columns or --schema must say"),
        (("--rows", "10", "--columns", "3", "--schema", "schema.json"), "--schema already says"),
        (("--rows", "10", "--schema", "schema.json", "--estimator", "ridge"), "logistic, svm"),
        (("--rows", "10", "--columns", "3", "--classes", "2", "--estimator", "ridge"), "--classes"),
        (("--rows", "10", "--columns", "3", "--epsilon", "-1"), "epsilon must be .* got -1.0"),
        (("--rows", "10", "--columns", "3", "--delta", "-1"), "delta must be"),
        (("--rows", "10", "--columns", "3", "--delta", "x"), "neither a number nor 'auto'"),
        (("--rows", "10", "--columns", "3", "--set", "C"), "--set C: must be NAME=VALUE"),
        (("--rows", "10", "--columns", "3", "--set", "epsilon=9"), "--set epsilon=9: must be"),
        (("--rows", "10", "--columns", "3", "--set", "C=-1"), "C must be"),
    ],
)
def test_wrong_options_are_named(run, fails, files, options, says):
    assert re.search(says, fails(run("plan", *options)))


class TestExpectation:
    def plan(self, n_rows, epsilon=1.0, n_features=100, adjacency="zero_out"):
        model = LogisticRegression(
            epsilon=epsilon, delta=1e-5, row_norm=10.0, adjacency=adjacency, n_rows=n_rows
        )
        return model.plan(n_rows, n_features)

    def test_more_rows_or_epsilon_promise_more(self):
        ratios = [signal_to_noise(self.plan(n)) for n in (50, 500, 5000)]
        assert ratios == sorted(ratios)
        assert signal_to_noise(self.plan(500, epsilon=2.0)) > ratios[1]
        assert signal_to_noise(self.plan(500, n_features=10)) > ratios[1]

    def test_replacing_a_row_needs_twice_the_rows(self):
        twice = signal_to_noise(self.plan(1000, adjacency="replace_one"))
        assert twice == pytest.approx(signal_to_noise(self.plan(500)))

    def test_hopeless_numbers_are_called_so_with_cures_that_cure(self):
        plan = self.plan(100)
        assert is_hopeless(plan)
        verdict, cure = expectation(plan)
        assert "do not fit" in verdict
        rows = int(re.search(r"about (\d+) rows", cure)[1])
        assert expectation(self.plan(rows))[0].startswith("Expect a good model")

    def test_a_larger_epsilon_and_fewer_features_are_cures_too(self):
        verdict, cure = expectation(self.plan(800))
        assert "weaker" in verdict
        epsilon = float(re.search(r"epsilon ([\d.]+)", cure)[1])
        assert signal_to_noise(self.plan(800, epsilon=epsilon)) == pytest.approx(30.0, rel=0.05)
        features = int(re.search(r"about (\d+) features", cure)[1])
        assert expectation(self.plan(800, n_features=features))[0].startswith("Expect a good")

    @pytest.mark.parametrize(
        ("options", "says"),
        [
            (("--epsilon", "11"), "epsilon 11 protects hardly anything"),
            (("--delta", "1e-3"), "delta 0.001 is at least 1/5000"),
        ],
    )
    def test_what_speaks_against_a_plan_is_said(self, run, options, says):
        done = run("plan", "--rows", "5000", "--columns", "20", *options)
        assert done.exit_code == 0
        assert f"Warning: {says}" in done.stderr

    def test_nothing_speaks_against_usual_numbers(self):
        assert cautions(self.plan(5000)) == []
        assert not is_hopeless(self.plan(5000))

    def test_plenty_of_rows_need_no_cure(self):
        plan = Ridge(row_norm=2.0, target_bounds=(0, 1)).plan(10**6, 4)
        assert expectation(plan) == ["Expect a model close to the one without privacy."]


def test_a_delta_of_zero_is_planned_with_l2_noise(run):
    done = run("plan", "--rows", "100", "--columns", "20", "--delta", "0")
    assert done.exit_code == 0
    assert "delta 0" in done.stdout
    assert "L2 noise" in done.stdout
    assert "A delta above 0 would allow Gaussian noise" in " ".join(done.stdout.split())
