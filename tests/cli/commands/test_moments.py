"""`dpglm moments` and `dpglm regress`: one release, and models without the table."""

import pytest

import dpglm
from dpglm.certificate.verify import verify

BASE = ("moments", "people.csv", "--schema", "schema.json", "--epsilon", "5", "-o", "moments.json")


def test_models_follow_from_the_file(run, files):
    done = run(*BASE, "--term", "bs(age, df=4)")
    assert done.exit_code == 0, done.output
    assert "further terms: bs(age, df=4)" in done.stdout
    (files / "people.csv").unlink()
    found = run("regress", "moments.json", "ill ~ age + smoker", "--penalty", "auto")
    assert found.exit_code == 0, found.output
    assert "smoker[T.yes]" in found.stdout
    made = dpglm.load_moments("moments.json").privacy_
    assert verify(made).ok
    assert made.epsilon <= 5.0


def test_existing_file_is_kept_and_nothing_spent(run, files):
    (files / "moments.json").write_text("precious")
    assert run(*BASE).exit_code == 2
    assert (files / "moments.json").read_text() == "precious"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("y ~ x",), "not a column of the schema"),
        (("ill ~ age", "--penalty", "some"), "--penalty some: give a number"),
        (("ill ~ age", "--level", "2"), "level"),
    ],
)
def test_wrong_model_is_refused(run, files, options, message):
    assert run(*BASE).exit_code == 0
    done = run("regress", "moments.json", *options)
    assert done.exit_code == 2
    assert message in done.stderr
