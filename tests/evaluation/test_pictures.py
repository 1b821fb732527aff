"""Pictures of evaluations show the curves and stay within their range."""

import numpy as np
import pytest

from dpglm.evaluation import evaluate_predictions
from dpglm.privacy import GaussianDP

pytest.importorskip("matplotlib")


@pytest.fixture(scope="module")
def made(binary):
    y, scores, _ = binary
    return evaluate_predictions(y, scores, classes=["well", "ill"], budget=GaussianDP(0.3))


def test_the_band_is_around_the_curve(made):
    false, true, _ = made.roc_curve()
    band = made.all_rows.roc_band()
    assert len(band) == len(false)
    # Noisy counts may be negative, and the curve is kept increasing.
    assert [one.estimate for one in band] == pytest.approx(true.tolist(), abs=0.03)
    assert band[0].estimate == band[0].population_high == 0.0
    assert band[-1].estimate == band[-1].population_low == 1.0
    inner = [one.population_high - one.population_low for one in band[1:-1]]
    assert 0.0 < min(inner) <= max(inner) < 0.2


def test_every_picture_is_drawn(made, numbers):
    y, predictions = numbers
    of_numbers = evaluate_predictions(y, predictions, target_bounds=(0.0, 5.0))
    for figure in (
        made.plot_roc(),
        made.plot_calibration(),
        made.plot_thresholds(),
        of_numbers.plot_residuals(),
    ):
        (axes,) = figure.axes
        drawn = [line.get_xydata() for line in axes.lines]
        assert max(map(len, drawn)) >= 4
        assert all(np.isfinite(points).all() for points in drawn)


def test_a_curve_of_each_class(classes):
    from sklearn.metrics import roc_auc_score

    y, probabilities = classes
    names = np.array(["$a_1$", "_b", "c", "d"])
    found = evaluate_predictions(
        names[y], probabilities, classes=names, budget=GaussianDP(1e5), random_state=0
    )
    for place, name in enumerate(names):
        false, true = found.all_rows.roc_curve(name)
        assert np.trapezoid(true, false) == pytest.approx(
            roc_auc_score(y == place, probabilities[:, place]), abs=0.01
        )
    figure = found.plot_roc()
    (axes,) = figure.axes
    assert [len(line.get_xdata()) >= 4 for line in axes.lines] == [True] * 4 + [False]
    assert [one.get_text() for one in axes.get_legend().get_texts()] == [
        f"class {name}" for name in names
    ]
    figure.canvas.draw()  # names are not formulas
    with pytest.raises(ValueError, match="label must be one of"):
        found.all_rows.roc_curve("e")


def test_pictures_of_another_task_are_refused(made, numbers):
    y, predictions = numbers
    of_numbers = evaluate_predictions(y, predictions, target_bounds=(0.0, 5.0))
    with pytest.raises(ValueError, match=r"picture must be one of \['residuals'\], got 'roc'"):
        of_numbers.plot_roc()
    with pytest.raises(ValueError, match="got 'residuals'"):
        made.plot_residuals()
    with pytest.raises(ValueError, match="confusion_matrix requires classes"):
        of_numbers.confusion_matrix()


def test_d2_and_the_confusion_matrix(binary):
    from sklearn.metrics import confusion_matrix, d2_log_loss_score

    y, scores, _ = binary
    exact = evaluate_predictions(
        y, scores, classes=["well", "ill"], budget=GaussianDP(1e5), random_state=0
    )
    ill = y == "ill"
    assert exact.number("d2").estimate == pytest.approx(d2_log_loss_score(ill, scores), abs=1e-3)
    assert exact.confusion_matrix() == pytest.approx(confusion_matrix(ill, scores >= 0.5), abs=0.5)
