"""`--reference` and `--formula`: how a table's columns become features."""

import re

import pytest

from dpglm.report.model_file import load_model
from dpglm.report.page import coefficient_table


def names(path="model.json"):
    return load_model(path).feature_names


def test_a_reference_leaves_its_category_out(fit, frame):
    done = fit("--reference", "smoker=no")
    assert done.exit_code == 0, done.output
    assert names() == ("age", "smoker=yes")
    model = load_model("model.json")
    assert (model.predict(frame) == frame["ill"]).mean() > 0.75
    assert model.certificate.problem is not None
    assert model.certificate.fact("schema").value["columns"]["smoker"]["reference"] == "no"


def test_first_is_every_columns_first(fit):
    assert fit("--reference", "first").exit_code == 0
    assert names() == ("age", "smoker=yes")


def test_formula_defines_the_model(fit, frame, run):
    done = fit("--formula", "ill ~ age * C(smoker)", "--report", "report")
    assert done.exit_code == 0, done.output
    assert names() == ("age", "C(smoker)[T.yes]", "age:C(smoker)[T.yes]")
    assert "Not in the formula, and therefore not used: id" in done.stderr
    predicted = run("predict", "people.csv", "--model", "model.json", "-o", "out.csv")
    assert predicted.exit_code == 0, predicted.output
    assert run("verify", "report/certificate.json").exit_code == 0


def test_the_page_shows_effects_per_unit_of_the_table(fit, files, monkeypatch):
    """With certainty ill from 70 years on, the effect of a year is about a tenth."""
    tables = []

    def kept(*arguments, **options):
        tables.append(coefficient_table(*arguments, **options))
        return tables[-1]

    monkeypatch.setattr("dpglm.report.html.coefficient_table", kept)
    done = fit("--reference", "first", "--report", "report", "--set", "random_state=0", epsilon=100)
    assert done.exit_code == 0, done.output
    (table,) = tables
    assert table.features == ("age", "smoker=yes vs no")
    encoded = load_model("model.json").coef_[0]
    assert table.values[0].tolist() == pytest.approx([encoded[0] / 50.0, encoded[1]])
    page = (files / "report" / "report.html").read_text()
    assert "Per unit of the columns of the table" in page
    (shown,) = re.findall(r'<td class="feature">age</td><td class="n"[^>]*>([-\d.]+)</td>', page)
    assert float(shown) == pytest.approx(encoded[0] / 50.0, rel=0.1)


def test_a_formula_without_intercept(fit):
    assert fit("--formula", "~ 0 + smoker").exit_code == 0
    assert load_model("model.json").intercept_ == [0.0]


def test_plans_include_them_too(run, files):
    size = {"--n-rows": 1000, "--schema": "schema.json"}
    options = [str(one) for pair in size.items() for one in pair]
    done = run("plan", *options, "--formula", "ill ~ bs(age, df=5)", "--reference", "first")
    assert done.exit_code == 0, done.output
    assert "1000 rows, 5 features" in done.stdout


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--reference", "smoker=perhaps"], "'perhaps' is not among the categories of column"),
        (["--reference", "smokers=no"], "'smokers'"),
        (["--reference", "age=3"], "'age' has no categories"),
        (["--reference", "smoker"], "--reference smoker: must be COLUMN=CATEGORY, or 'first'"),
        (["--formula", "ill ~ center(age)"], "center would learn the mean of the rows"),
        (["--formula", "ill ~ __import__('os').getcwd()"], "formula term"),
        (["--formula", "id ~ age"], "the schema's target 'ill' before '~'"),
    ],
)
def test_mistakes_leave_nothing_behind(fit, files, options, words):
    done = fit(*options)
    assert done.exit_code != 0
    assert words in " ".join(done.stderr.split())
    assert not (files / "model.json").exists()
