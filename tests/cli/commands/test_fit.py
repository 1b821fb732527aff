"""`dpglm fit`: a released model, or nothing at all."""

import json
import math
import os
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dpglm import LogisticRegression, PoissonRegressor, from_formula
from dpglm.certificate import verify
from dpglm.certificate.certificate import Certificate
from dpglm.report.model_file import load_model, save_model
from dpglm.tables.files import write_table
from dpglm.tables.named import OffsetColumn
from dpglm.tables.schema import Schema

OUTPUTS = ["model.json", "report/certificate.json", "report/report.html"]


class TestRelease:
    def test_writes_model_certificate_and_report(self, fit, files, frame):
        done = fit("--target", "ill", "--report", "report", "--delta", "1e-5")
        assert done.exit_code == 0, done.output
        for name in OUTPUTS:
            assert f"Wrote {name}\n" in done.stdout
        certificate = Certificate.from_json("report/certificate.json")
        assert verify(certificate).ok
        assert certificate.is_private
        assert (certificate.budget.epsilon, certificate.delta) == (5.0, 1e-5)
        assert certificate.caveats() == ()
        model = load_model("model.json")
        assert model.certificate == certificate
        assert (model.predict(frame) == frame["ill"]).mean() > 0.75
        page = (files / "report" / "report.html").read_text()
        assert "smoker=yes" in page
        assert not any(path.name.startswith(".") for path in files.rglob("*"))

    def test_parquet_rows_give_the_same_model(self, fit):
        fit("--set", "random_state=1")
        fit("--set", "random_state=1", data="people.parquet", model="other.json")
        assert np.array_equal(load_model("model.json").coef_, load_model("other.json").coef_)

    def test_text_states_guarantee_and_not_model_quality(self, fit):
        done = fit()
        assert "Guarantee" in done.stdout
        assert "relation 'zero_out'" in done.stdout
        assert "accuracy" not in done.output.lower()

    def test_shows_progress_on_standard_error(self, fit):
        assert "Private fit: " in fit().stderr

    def test_the_schema_is_among_the_public_facts(self, fit, sample):
        fit()
        fact = load_model("model.json").certificate.fact("schema")
        assert fact.provenance == "declared"
        assert fact.value == sample.schema

    def test_formulas_have_the_plan_of_python(self, fit, run, frame, sample):
        for formula in ("ill ~ age + smoker", "ill ~ age + (1 | smoker)"):
            given = "--formula", formula, "--inference", "model"
            fit(*given, "--delta", "1e-5", "--force")
            model = from_formula(formula, sample.schema, LogisticRegression(inference=True))
            model.set_params(epsilon=5.0, delta=1e-5, random_state=0).fit(frame)
            assert load_model("model.json").certificate.plan == model.privacy_.plan
        done = run("plan", "--n-rows", "4000", "--schema", "schema.json", *given)
        assert "pooled terms" in done.stdout

    def test_noise_is_fresh_each_time(self, fit):
        fit()
        fit(model="other.json")
        one, other = load_model("model.json"), load_model("other.json")
        assert not np.array_equal(one.coef_, other.coef_)
        assert one.certificate.noise_source == other.certificate.noise_source == "system"

    def test_a_seed_is_reproducible_and_called_not_private(self, fit):
        done = fit("--set", "random_state=1")
        fit("--set", "random_state=1", model="other.json")
        assert "NOT PRIVATE" in done.stdout
        assert np.array_equal(load_model("model.json").coef_, load_model("other.json").coef_)
        assert not load_model("model.json").certificate.is_private

    def test_columns_that_are_not_used_are_named(self, fit):
        assert "Not in the schema, and therefore not used: id" in fit().stderr

    def test_settings_reach_the_estimator(self, fit):
        done = fit("--estimator", "svm", "--set", "loss=hinge", "--set", "C=10")
        assert done.exit_code == 0, done.output
        certificate = load_model("model.json").certificate
        assert (certificate.estimator, certificate.loss) == ("LinearSVC", "Hinge()")

    def test_few_rows_are_warned_about_before_the_fit(self, fit, files, frame):
        frame.head(20).to_csv("few.csv", index=False)
        done = fit(data="few.csv", epsilon="0.1")
        assert done.exit_code == 0
        assert (
            "Warning: 20 rows and epsilon 0.1 for 4 coefficients. Noise will dominate"
            in done.stderr
        )
        assert done.stderr.index("Warning") < done.stderr.index("Private fit")

    def test_expected_coefficient_noise_is_stated(self, fit):
        text = " ".join(fit().stdout.split())
        assert "Expectation (a rule of thumb, not a promise)" in text
        assert "no confidence intervals (inference=True)" in text

    @pytest.mark.parametrize("covariance", ["model", "robust"])
    def test_intervals_are_printed_and_kept(self, fit, covariance):
        done = fit("--inference", covariance, "--report", "report", epsilon="5")
        assert done.exit_code == 0, done.output
        loaded = load_model("model.json")
        assert loaded.inference.kind == covariance
        assert loaded.inference.names == ("intercept", *loaded.schema.units.names)
        assert str(loaded.inference) in done.stdout
        assert "95 % intervals" in Path("report/report.html").read_text()
        assert verify(loaded.certificate).ok

    def test_intervals_that_a_model_has_not_are_refused(self, fit):
        done = fit("--estimator", "svm", "--inference", "model")
        assert done.exit_code == 2
        assert "requires a loss that is a likelihood" in done.stderr
        assert not Path("model.json").exists()

    def test_a_budget_that_protects_little_is_said_before_the_fit(self, fit):
        said = fit(epsilon="11").stderr
        assert "Warning: epsilon 11 protects little" in said
        assert said.index("Warning") < said.index("Private fit")

    @pytest.mark.parametrize("relation", ["replace_one", "add_remove"])
    def test_other_relations(self, fit, relation):
        rows = ("--n-rows", "500") if relation == "add_remove" else ()
        done = fit("--adjacency", relation, *rows)
        assert done.exit_code == 0, done.output
        certificate = load_model("model.json").certificate
        assert certificate.adjacency == relation
        assert verify(certificate).ok
        assert certificate.fact("n_rows").value == (500 if rows else 400)

    def test_a_hidden_number_of_rows_is_in_no_file(self, fit, files):
        def mentioned(number):
            text = (files / "model.json").read_text()
            return re.search(rf"(?<![\w.]){number}(?![\w.])", text) is not None

        fit("--adjacency", "add_remove", "--n-rows", "512")
        assert mentioned(512)
        assert not mentioned(400)
        fit("--force")
        assert mentioned(400), "the check sees a number of rows that is written"

    @pytest.mark.parametrize(
        ("target", "estimator"),
        [
            ({"name": "age", "type": "numeric", "low": 0, "high": 100}, "Ridge"),
            ({"name": "age", "type": "count", "high": 100}, "PoissonRegressor"),
        ],
    )
    def test_numbers_can_be_predicted_too(self, fit, files, sample, frame, target, estimator):
        columns = {"ill": {"type": "categorical", "categories": ["no", "yes"]}}
        document = sample.schema | {"columns": columns, "target": target}
        (files / "schema.json").write_text(json.dumps(document))
        done = fit()
        assert done.exit_code == 0, done.output
        model = load_model("model.json")
        assert model.estimator == estimator
        predicted = model.predict(frame)
        assert predicted[frame["ill"] == "yes"].mean() > predicted[frame["ill"] == "no"].mean()


class TestExposures:
    @pytest.fixture
    def counts(self, files, sample):
        rng = np.random.default_rng(0)
        x, years = rng.uniform(0, 1, 3000), rng.uniform(0.5, 5.0, 3000)
        visits = rng.poisson(years * np.exp(x))
        table = {"x": x, "visits": visits.astype(float), "years": years}
        document = {
            "columns": {"x": {"type": "numeric", "low": 0, "high": 1}},
            "target": {"name": "visits", "type": "count", "high": 40},
            "provenance": "generated",
        }
        (files / "schema.json").write_text(json.dumps(document))
        for name in ("counts.csv", "counts.parquet"):
            write_table(table, files / name)
        return table

    @pytest.mark.parametrize("data", ["counts.csv", "counts.parquet"])
    @pytest.mark.parametrize("stream", [(), ("--stream",)])
    def test_counts_are_fitted_for_an_exposure_of_one(self, fit, counts, data, stream):
        if stream and data.endswith("csv"):
            return
        options = ("--exposure", "years", "--exposure-bounds", "0.5,5", "--inference", "model")
        done = fit(*options, "--set", "alpha=0", *stream, data=data)
        assert done.exit_code == 0, done.output
        assert "not used" not in done.stderr
        model = load_model("model.json")
        said = dict(model.inference.summary().facts)
        assert (said["Target"], said["Exposure"]) == ("visits", "years")
        assert said["Loss"] == "Poisson, log link"
        assert "Exposure:   years" in done.stdout
        assert model.certificate.fact("row_norm").provenance == "implied"
        assert verify(model.certificate).ok
        assert "WithOffset" in model.certificate.loss
        rates = model.predict({"x": np.array([0.0, 1.0])})
        np.testing.assert_allclose(rates, [1.0, math.e], rtol=0.15)

    def test_models_without_exposure_refuse_it(self, fit, counts, sample, files):
        done = fit("--exposure", "years", "--estimator", "ridge", data="counts.csv")
        assert done.exit_code == 2
        assert "subtract it from y" in done.stderr
        done = fit("--exposure", "nothing", data="counts.csv")
        assert done.exit_code == 2
        assert "nothing" in done.stderr
        assert "uses this column already" in fit("--exposure", "x", data="counts.csv").stderr
        (files / "schema.json").write_text(json.dumps(sample.schema))
        assert "--exposure is for counts and amounts" in fit("--exposure", "age").stderr

    @pytest.mark.parametrize("stream", [(), ("--stream",)])
    def test_predictions_are_for_the_exposures_of_rows(self, fit, run, counts, stream):
        """They were for an exposure of 1, silently."""
        done = fit("--exposure", "years", *stream, data="counts.parquet", epsilon="1000")
        assert done.exit_code == 0, done.output
        model = load_model("model.json")
        assert model.offset_column == OffsetColumn("exposure", "years")

        def predicted(*options, data="counts.csv"):
            command = ("predict", data, "--model", "model.json", "-o", "p.csv", "--force")
            done = run(*command, *options)
            assert done.exit_code == 0, done.output
            return pd.read_csv("p.csv")["prediction"]

        rates = model.predict(counts)
        np.testing.assert_allclose(predicted(), rates * counts["years"])
        np.testing.assert_allclose(predicted("--exposure", "x"), rates * counts["x"])
        np.testing.assert_allclose(predicted("--exposure", "1"), rates)

    def test_an_evaluation_is_of_the_exposures_of_rows(self, fit, run, counts):
        assert fit("--exposure", "years", data="counts.csv", epsilon="1000").exit_code == 0
        command = ("evaluate", "counts.csv", "--model", "model.json", "--epsilon", "1000")

        def r_squared(*options):
            done = run(*command, "--report", "out", "--force", *options)
            assert done.exit_code == 0, done.output
            return json.loads(Path("out/evaluation.json").read_text())["all_rows"]["r2"]["estimate"]

        assert r_squared() > r_squared("--exposure", "1") + 0.3

    @pytest.mark.parametrize("command", ["predict", "evaluate"])
    def test_unavailable_exposures_are_an_error(self, fit, run, fails, counts, files, command):
        more = ("-o", "p.csv") if command == "predict" else ("--epsilon", "1")
        assert fit("--exposure", "years", data="counts.csv").exit_code == 0
        of = {name: counts[name] for name in ("x", "visits")}
        write_table(of, files / "new.csv")
        asked = (command, "new.csv", "--model", "model.json", *more)
        said = fails(run(*asked))
        assert "the data lack the column 'years' of the model's exposure" in said
        assert "give --exposure 1 for means at an exposure of 1" in said
        assert "must not both be given" in fails(run(*asked, "--exposure", "1", "--offset", "0"))
        schema = Schema.from_json("schema.json")
        unnamed = PoissonRegressor(row_norm=1.0, target_bounds=(0, 40)).fit(
            schema.encode(counts), counts["visits"], exposure=counts["years"]
        )
        save_model(unnamed, "unnamed.json", schema)
        asked = (command, "new.csv", "--model", "unnamed.json", *more)
        assert "does not name the column" in fails(run(*asked))
        assert run(*asked, "--exposure", "1").exit_code == 0
        plain = PoissonRegressor(row_norm=1.0, target_bounds=(0, 40)).fit(
            schema.encode(counts), counts["visits"]
        )
        save_model(plain, "plain.json", schema)
        asked = (command, "new.csv", "--model", "plain.json", *more, "--exposure", "x")
        assert "the model was fitted without one" in fails(run(*asked))

    def test_intervals_need_bounds_on_exposures(self, fit, fails, counts):
        asked = ("--exposure", "years", "--inference", "model", "--set", "alpha=0")
        said = fails(fit(*asked, data="counts.csv", epsilon="1000"))
        assert "--exposure-bounds LOW,HIGH" in said
        bounds = ("--exposure-bounds", "0.5,5")
        done = fit(*asked, *bounds, data="counts.csv", epsilon="1000")
        assert done.exit_code == 0, done.output
        assert re.search(r"Exposure: +years", done.output)
        bounds = load_model("model.json").certificate.fact("offset_bounds").value
        np.testing.assert_allclose(bounds, np.log([0.5, 5.0]))
        assert "two numbers above 0" in fails(fit(*asked, "--exposure-bounds", "0,5"))
        assert "needs --exposure" in fails(fit("--exposure-bounds", "1,5"))


class TestShares:
    """Successes of trials, and two labelled classes under any link."""

    @pytest.fixture
    def successes(self, files):
        rng = np.random.default_rng(0)
        x, tries = rng.uniform(0, 1, 3000), rng.integers(0, 9, 3000)
        hits = rng.binomial(tries, 1 / (1 + np.exp(1.0 - 2.0 * x)))
        table = {"x": x, "hits": hits.astype(float), "tries": tries.astype(float)}
        document = {
            "columns": {"x": {"type": "numeric", "low": 0, "high": 1}},
            "target": {"name": "hits", "type": "count", "high": 8},
            "provenance": "generated",
        }
        (files / "schema.json").write_text(json.dumps(document))
        write_table(table, files / "hits.csv")
        write_table(table, files / "hits.parquet")
        return table

    @pytest.mark.parametrize("estimator", [(), ("--estimator", "binomial")])
    def test_a_column_of_trials(self, fit, run, successes, estimator):
        asked = ("--trials", "tries", "--inference", "model", *estimator)
        done = fit(*asked, data="hits.csv", epsilon="1000")
        assert done.exit_code == 0, done.output
        assert "not used" not in done.stderr
        model = load_model("model.json")
        assert model.estimator == "BinomialRegressor"
        assert model.certificate.fact("weight_bound").value == 8
        expected = [1 / (1 + math.e), 1 / (1 + math.exp(-1.0))]
        np.testing.assert_allclose(model.predict({"x": np.array([0.0, 1.0])}), expected, atol=0.03)
        # As many trials as 12,000 labels.
        assert 0.02 < model.inference.standard_errors[0] < 0.06
        asked = ("evaluate", "hits.csv", "--model", "model.json", "--epsilon", "100")
        assert run(*asked, "--trials", "tries").exit_code == 0
        assert "--trials COLUMN must be given" in run(*asked).stderr

    @pytest.mark.parametrize(
        ("options", "data", "says"),
        [
            (("--estimator", "binomial"), "hits.csv", "with --trials COLUMN"),
            (("--trials", "tries", "--estimator", "poisson"), "hits.csv", "is for --estimator bi"),
            (("--trials", "x"), "hits.csv", "uses this column already"),
            (
                ("--trials", "tries", "--additive"),
                "hits.csv",
                "--trials cannot be combined with --additive",
            ),
            (("--trials", "tries", "--stream"), "hits.parquet", "needs rows in memory"),
            (("--trials", "few"), "few.csv", "row 2: 1 is not a whole number of trials, at least"),
        ],
    )
    def test_invalid_trials_are_an_error(self, fit, fails, files, successes, options, data, says):
        table = {"x": [0.5, 0.5], "hits": [1, 2], "few": [1, 1]}
        write_table({name: np.array(one) for name, one in table.items()}, files / "few.csv")
        assert says in fails(fit(*options, data=data))

    @pytest.mark.parametrize("link", ["probit", "cloglog"])
    def test_two_classes(self, fit, run, files, frame, link):
        """`--estimator binomial` could not predict them."""
        asked = ("--estimator", "binomial", "--set", f"link={link}", "--inference", "model")
        done = fit(*asked, epsilon="1000")
        assert done.exit_code == 0, done.output
        assert "yes, against no" in done.output
        model = load_model("model.json")
        means = model.predict(frame)
        assert means[frame["ill"] == "yes"].mean() > 0.7 > 0.3 > means[frame["ill"] == "no"].mean()
        found = run(*("evaluate", "people.csv", "--model", "model.json", "--epsilon", "1000"))
        assert found.exit_code == 0, found.output
        assert "AUC" in found.output
        planned = ("plan", "--schema", "schema.json", "--n-rows", "400", "--epsilon", "1")
        assert run(*planned, *asked[:4]).exit_code == 0


class TestNothingIsReleased:
    @pytest.mark.parametrize(
        ("options", "says"),
        [
            (("--target", "age"), "--target age: the schema's target is 'ill'"),
            (("--estimator", "ridge"), "ridge cannot predict .*: choose among logistic, svm"),
            (("--adjacency", "add_remove"), "with --n-rows"),
            (("--n-rows", "7"), "n_rows must be the number of rows"),
            (("--delta", "1"), "delta must be"),
            (("--set", "alpha=1"), "--set alpha=1: must be NAME=VALUE with a name among C,"),
            (("--set", "row_norm=1"), "--set row_norm=1"),
            (("--set", "C=0"), "C must be"),
            (("--model", "people.parquet"), "people.parquet exists already"),
            (("--model", "people.csv"), "--model people.csv must be another file than DATA people"),
            (("--model", "."), "is a folder"),
            (("--model", "people.csv/m.json"), "people.csv is a file"),
            (("--model", "report/certificate.json"), "named for two outputs"),
            (("--report", "people.csv"), "people.csv is a file"),
            (("--schema", "people.csv"), "people.csv is not a JSON file"),
            (("--checkpoint", "no/kept"), "--checkpoint no/kept: must lie in a folder that exists"),
            (("--epsilon", "0"), "epsilon must be a finite number above 0"),
        ],
        ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
    )
    def test_after_wrong_options(self, fit, fails, files, listing, options, says):
        before = listing(files)
        assert re.search(says, fails(fit("--report", "report", *options)))
        assert listing(files) == before

    @pytest.mark.parametrize(
        ("column", "row", "cell", "says"),
        [
            ("smoker", 6, "sometimes", "people.csv: column 'smoker', row 7: 'sometimes' is not"),
            ("age", 2, "old", "people.csv: column 'age', row 3: 'old' is not a number"),
            ("age", 0, None, "people.csv: column 'age', row 1: the value is missing"),
            ("ill", 4, "perhaps", "people.csv: target 'ill', row 5: 'perhaps' is not"),
        ],
    )
    def test_after_a_bad_cell(self, fit, fails, files, frame, listing, column, row, cell, says):
        frame = frame.astype(object)
        frame.loc[row, column] = cell
        frame.to_csv("people.csv", index=False)
        before = listing(files)
        assert says in fails(fit("--report", "report"))
        assert listing(files) == before

    def test_after_a_missing_column(self, fit, fails, files, frame, listing):
        frame.drop(columns="smoker").to_csv("people.csv", index=False)
        before = listing(files)
        assert "there is no column 'smoker'; the file has" in fails(fit())
        assert listing(files) == before

    @pytest.mark.parametrize("error", [OSError("disk full"), RuntimeError, KeyboardInterrupt])
    def test_after_a_failure_while_writing(self, fit, files, listing, monkeypatch, error):
        def fail(estimator, schema, drafts, *, model, report):
            raise error

        monkeypatch.setattr("dpglm.cli.commands.models.write_release", fail)
        before = listing(files)
        assert fit("--report", "new/report").exit_code != 0
        assert listing(files) == before

    def test_after_a_failure_while_moving_files_into_place(self, fit, files, listing, monkeypatch):
        (files / "model.json").write_text("old")
        (files / "report").mkdir()
        (files / "report" / "certificate.json").write_text("older")
        before = listing(files)
        move, moves = os.replace, []

        def fail_at_the_report(source, target):
            if str(target) == os.path.join("report", "report.html"):
                raise OSError("no space left")
            moves.append(target)
            move(source, target)

        def write(estimator, schema, drafts, *, model, report):
            for draft in drafts.values():
                draft.write_text("new")

        monkeypatch.setattr("dpglm.cli.commands.models.write_release", write)
        monkeypatch.setattr("dpglm.cli.files.os.replace", fail_at_the_report)
        done = fit("--report", "report", "--force")
        assert done.exit_code == 3
        assert "no space left" in done.stderr
        assert moves
        (rescued,) = files.glob("dpglm-rescued-*")
        assert (rescued / "report" / "report.html").read_text() == "new"
        assert str(rescued.relative_to(files) / "model.json") in done.stderr
        shutil.rmtree(rescued)
        assert listing(files) == before
        assert (files / "model.json").read_text() == "old"
        assert (files / "report" / "certificate.json").read_text() == "older"

    def test_after_a_missing_extra(self, fit, fails, files, listing, monkeypatch):
        monkeypatch.setitem(sys.modules, "jinja2", None)
        before = listing(files)
        assert "pip install 'dpglm[report]'" in fails(fit("--report", "report"))
        assert listing(files) == before

    def test_files_are_kept_unless_forced(self, fit, fails, files):
        (files / "model.json").write_text("precious")
        assert "model.json exists already: choose another name, or add --force" in fails(fit())
        assert (files / "model.json").read_text() == "precious"
        assert fit("--force").exit_code == 0
        assert load_model("model.json").estimator == "LogisticRegression"
