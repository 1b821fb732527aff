"""The page about an evaluation: whole, escaped, and nothing but what was released."""

import re

import numpy as np
import pytest

from dpglm.evaluation import BinaryTask, evaluate_predictions, plan_evaluation
from dpglm.privacy import GaussianDP
from dpglm.report.evaluation_page import evaluation_page, shown_evaluation, write_evaluation

pytest.importorskip("jinja2")
pytest.importorskip("matplotlib")

N = 2000


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    scores = rng.uniform(size=N)
    y = np.where(rng.uniform(size=N) < scores, "<ill>", "well")
    return y, scores, rng.choice(["<north>", "south"], N)


@pytest.fixture(scope="module")
def made(rows):
    y, scores, region = rows
    return evaluate_predictions(
        y,
        scores,
        classes=["well", "<ill>"],
        by=region,
        levels=["<north>", "south", "nowhere"],
        thresholds=(0.3, 0.5),
    )


def test_everything_is_there_and_escaped(made):
    text = evaluation_page(made, title="A <test>", by="region <r>")
    for shown in (
        "A &lt;test&gt;",
        "AUC",
        "accuracy at 0.3",
        "predicted &lt;ill&gt;",
        "By region &lt;r&gt;",
        "&lt;north&gt;",
        "Private.",
    ):
        assert shown in text
    for hidden in ("<ill>", "<north>"):
        assert hidden not in text
    assert not re.search(r"""(src|href)\s*=\s*["'](?!data:)""", text)
    assert text.count("data:image/svg+xml") == 3


def test_what_is_shown_is_what_was_released(made):
    shown = shown_evaluation(made)
    (name, estimate, ends), *_ = shown["tiles"]
    assert (name, float(estimate)) == ("AUC", pytest.approx(made.auc, abs=6e-3))
    assert ends.count(" to ") == 1
    matrix = made.confusion_matrix(0.5)
    found = [[float(count) for *_, count in cells] for _, cells in shown["confusion"]["rows"]]
    assert np.array(found) == pytest.approx(matrix, abs=0.5)
    (table,) = shown["tables"]
    # A level without rows is left out.
    assert [label for label, _ in table["rows"]] == ["<north>", "south", "all"]


def test_pages_of_other_tasks(rows, tmp_path):
    rng = np.random.default_rng(1)
    made = evaluate_predictions(
        rng.integers(3, size=N), rng.dirichlet(np.ones(3), N), classes=range(3), random_state=0
    )
    write_evaluation(made, tmp_path / "classes.html")
    text = (tmp_path / "classes.html").read_text()
    assert "NOT PRIVATE" in text
    assert "Each class" in text
    numbers = evaluate_predictions(rows[1], rows[1] ** 2, target_bounds=(0.0, 1.0))
    assert "Residuals" in evaluation_page(numbers)
    assert shown_evaluation(numbers)["confusion"] is None


def test_scores_that_are_no_probabilities_have_no_calibration(rows):
    # A support vector machine's, which a study evaluates after everything was spent.
    task = BinaryTask(("well", "<ill>"), probabilities=False)
    made = plan_evaluation(task, N, GaussianDP(1.0)).run(rows[0], rows[1])
    assert [name for name, *_ in shown_evaluation(made)["panels"]] == [
        "ROC curve",
        "Decisions by threshold",
    ]
