"""The page about an evaluation: complete, escaped, and made of releases only."""

import re

import numpy as np
import pytest

from dpglm.evaluation import BinaryTask, evaluate_predictions, plan_evaluation
from dpglm.evaluation.picture import draw_panel
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


@pytest.mark.usefixtures("undrawn")
def test_display_contains_releases_only(made):
    shown = shown_evaluation(made)
    tiles = {name: (estimate, ends) for name, estimate, ends in shown["tiles"]}
    assert list(tiles) == [
        "prevalence",
        "AUC",
        "lift of the top tenth",
        "mean prediction",
        "calibration intercept",
        "calibration slope",
    ]
    assert float(tiles["AUC"][0]) == pytest.approx(made.auc, abs=6e-3)
    assert all(ends.count(" to ") == 1 for _, ends in tiles.values())
    matrix = made.confusion_matrix(0.5)
    found = [[float(count) for *_, count in cells] for _, cells in shown["confusion"]["rows"]]
    assert np.array(found) == pytest.approx(matrix, abs=0.5)
    (table,) = shown["tables"]
    # A level without rows is left out.
    assert [label for label, _ in table["rows"]] == ["<north>", "south", "all"]


@pytest.mark.usefixtures("undrawn")
def test_confusion_shares_add_up_to_one():
    # With few positives, noisy counts are negative now and then.
    rng = np.random.default_rng(3)
    for seed in range(6):
        made = evaluate_predictions(
            (rng.uniform(size=N) < 0.03).astype(int),
            rng.uniform(0.01, 0.06, size=N),
            classes=(0, 1),
            random_state=seed,
        )
        for _, cells in shown_evaluation(made)["confusion"]["rows"]:
            shares = [float(text.removesuffix(" %")) for text, *_ in cells]
            assert all(0.0 <= one <= 100.0 for one in shares)
            assert sum(shares) == pytest.approx(100.0, abs=0.2)


def test_panels_of_a_rare_class_show_the_range_of_scores():
    rng = np.random.default_rng(2)
    score = rng.beta(1.0, 30.0, size=20_000).clip(0.0, 0.2)
    ill = (rng.uniform(size=20_000) < score).astype(int)
    rows = evaluate_predictions(ill, score, classes=(0, 1), random_state=0).all_rows
    low, high = rows.range_of_scores
    assert 0.0 <= low < 0.01 < 0.08 < high <= 0.2
    for name in ("calibration", "thresholds"):
        (axes,) = draw_panel(name, rows).axes
        left, right = axes.get_xlim()
        assert left <= low
        assert high <= right < 0.25
    shown = draw_panel("calibration", rows).axes[0]
    assert shown.get_ylim() == shown.get_xlim()
    cells = rows.calibration_curve()
    assert len(cells) >= 3
    assert all(left <= one.mean_score <= right for one in cells)


@pytest.mark.usefixtures("undrawn")
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


def test_scores_other_than_probabilities_lack_calibration(rows):
    # A support vector machine's, which a study evaluates after everything was spent.
    task = BinaryTask(("well", "<ill>"), probabilities=False)
    made = plan_evaluation(task, N, GaussianDP(1.0)).run(rows[0], rows[1])
    assert [name for name, *_ in shown_evaluation(made)["panels"]] == [
        "ROC curve",
        "Decisions by threshold",
    ]
