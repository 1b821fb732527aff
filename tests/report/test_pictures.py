"""Every picture is fit to be published, whatever names are in it."""

import os
import pickle
import subprocess
import sys
import warnings

import numpy as np
import pytest

from dpglm.report import plots
from dpglm.report import plots as _training_picture
from dpglm.report.page import NARROW, coefficient_table
from dpglm.solvers.base import StepInfo
from examples.epsilons import accuracy_against_epsilon
from tests.fits import fit_classifier, make_rows
from tests.slowly import some_quickly

pytest.importorskip("matplotlib")

HOSTILE = (
    "gain (in $) of $ last year",
    "<b>bold</b> & co",
    "under_score^{2}",
    r"back\slash \frac{1}{2}",
    "100 % of\nnew line",
    "$x^{$",
    "tab\there",
    "\x1b[31mred\x1b[0m",
    "\u202egnorw",
    "\ud800",
    "x" * 500,
    "W" * 60,
    "",
    " ",
    "{brace}",
    "occupation: " + "very " * 12 + "long",
    "-1",
    "Größe ∑",
    "#hash~",
    "\"quotes'",
)


def written(figure):
    """All texts that are drawn; ticks outside the axes are not."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.text import Text

    drawn, draw = {}, Text.draw

    def listen(text, renderer):
        drawn[text] = None
        draw(text, renderer)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Text, "draw", listen)
        FigureCanvasAgg(figure).draw()
    return [text for text in drawn if text.get_text().strip()]


def faults(figure):
    """Errors in the texts of a picture, in words."""
    texts = written(figure)
    renderer = figure.canvas.get_renderer()
    boxes = [text.get_window_extent(renderer) for text in texts]
    found = []
    for text, box in zip(texts, boxes, strict=True):
        if (box.extents < -1.0).any() or box.x1 > figure.bbox.x1 + 1 or box.y1 > figure.bbox.y1 + 1:
            found.append(f"cut: {text.get_text()!r}")
        if "$" in text.get_text() and text.get_parse_math():
            found.append(f"mathematics: {text.get_text()!r}")
    for i, one in enumerate(boxes):
        for j in range(i):
            # Boxes have room around letters.
            other = boxes[j]
            wide = min(one.x1, other.x1) - max(one.x0, other.x0)
            tall = min(one.y1, other.y1) - max(one.y0, other.y0)
            if wide > 2.0 and tall > 0.35 * min(one.height, other.height):
                found.append(
                    f"on top of each other: {texts[i].get_text()!r} {texts[j].get_text()!r}"
                )
    return found


def named(estimator, outputs):
    """Give an estimator's table hostile names of outputs."""
    table = coefficient_table(estimator)
    return type(table)(**{**vars(table), "outputs": tuple(outputs)})


@pytest.fixture(scope="module")
def wide():
    """A model of 20 columns."""
    X, y = make_rows(n_features=20)
    return fit_classifier_of(X, y, 2)


@pytest.fixture(scope="module")
def ten():
    """A model of 20 columns and 10 classes."""
    X, y = make_rows(n_features=20, n_classes=10)
    return fit_classifier_of(X, y, 10)


def fit_classifier_of(X, y, n_classes):
    from dpglm import LogisticRegression
    from dpglm.exceptions import LowSignalWarning

    model = LogisticRegression(
        classes=range(n_classes), feature_bounds=(-1.0, 1.0), solver="noisy_gd"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LowSignalWarning)
        return model.fit(X, y)


class TestCoefficients:
    def test_hostile_names_of_columns(self, wide):
        assert faults(plots.coefficients(wide, HOSTILE)) == []

    def test_a_hundred_columns(self):
        X, y = make_rows(n_features=100)
        model = fit_classifier_of(X, y, 2)
        assert faults(plots.coefficients(model)) == []
        assert faults(plots.coefficients(model, HOSTILE * 5, most=100)) == []

    def test_issue_14_labels_of_pictures_of_many_classes_are_whole(self, ten):
        """They were cut at the edge and ran into each other."""
        figure = plots.coefficients(ten, HOSTILE)
        assert faults(figure) == []
        (label,) = [one for one in written(figure) if one.get_text().startswith("coefficient")]
        assert label.get_text() == "coefficient"

    @pytest.mark.parametrize(
        "names", [HOSTILE[:10], HOSTILE[10:], *([one] for one in HOSTILE[5:14:2])]
    )
    def test_hostile_names_of_classes(self, ten, wide, monkeypatch, names):
        from dpglm.report import plots as module

        table = named(wide if len(names) == 1 else ten, names)
        monkeypatch.setattr(module, "coefficient_table", lambda *_: table)
        assert faults(plots.coefficients(None, most=2)) == []

    def test_one_column(self):
        X, y = make_rows(n_features=1)
        assert faults(plots.coefficients(fit_classifier_of(X, y, 2))) == []

    def test_long_names_that_begin_alike_stay_different(self, wide):
        names = [f"marital status of the person and of all others: kind {i}" for i in range(20)]
        drawn = plots.coefficients(wide, names).axes[0].get_yticklabels()
        assert len({label.get_text() for label in drawn}) == 20


class TestTraining:
    @pytest.mark.parametrize("n_steps", [1, 2, 3, 60, 61, 2000])
    def test_any_number_of_steps(self, n_steps):
        rng = np.random.default_rng(n_steps)
        history = [
            StepInfo(step, 1.0, float(rng.uniform(0.01, 50.0)), 0.3)
            for step in range(1, n_steps + 1)
        ]
        figure = (
            _training_picture._one_step(history[0], 7.2)
            if n_steps == 1
            else _training_picture._several_steps(history, 7.2)
        )
        assert faults(figure) == []
        ticks = [tick for tick in figure.axes[-1].get_xticks() if 1 <= tick <= n_steps]
        assert n_steps == 1 or all(float(tick).is_integer() for tick in ticks)

    def test_issue_14_one_step_is_two_bars(self):
        """It was a dot."""
        from dpglm import NoisyGD

        solution = fit_classifier(solver=NoisyGD(n_steps=1)).solution_
        figure = plots.training_history(solution)
        (axes,), (info,) = figure.axes, solution.history
        lengths = [info.noise_norm, info.gradient_norm]
        assert [bar.get_width() for bar in axes.patches] == pytest.approx(lengths)
        assert [one.get_text() for one in axes.get_yticklabels()] == list(_training_picture._BARS)
        assert faults(figure) == []

    @pytest.mark.parametrize(("length", "noise"), [(0.0, 0.0), (1.0, 0.0), (0.0, 1.0), (1e-9, 1e9)])
    def test_one_step_of_any_length(self, length, noise):
        assert faults(_training_picture._one_step(StepInfo(1, 1.0, length, noise), 7.2)) == []


class TestOthers:
    @pytest.mark.parametrize("text", some_quickly(HOSTILE, 4))
    def test_hostile_titles(self, text):
        figure = accuracy_against_epsilon(
            [0.1, 0.3, 1.0],
            [[0.6, 0.7], [0.7, 0.75], [0.78, 0.79]],
            without_privacy=0.83,
            without_features=0.5,
            chosen=0.3,
            metric=text,
            title=text,
            subtitle=f"{text} {text} {text}",
        )
        assert faults(figure) == []

    @pytest.mark.parametrize("chosen", [0.01, 0.011, 1.0, 100.0])
    def test_the_chosen_epsilon_is_readable_wherever_it_is(self, chosen):
        figure = accuracy_against_epsilon(
            [0.01, 0.011, 0.012, 1.0, 1.1, 100.0],
            [0.5, 0.51, 0.52, 0.8, 0.8, 0.81],
            without_privacy=0.811,
            without_features=0.809,
            chosen=chosen,
        )
        assert faults(figure) == []

    def test_pictures_for_narrow_screens(self):
        steps = [StepInfo(step, 1.0, 2.0, 0.3) for step in range(1, 60)]
        accuracy = {"without_privacy": 0.85, "without_features": 0.7, "chosen": 1.0}
        for figure in (
            _training_picture._several_steps(steps, NARROW),
            _training_picture._one_step(steps[0], NARROW),
            accuracy_against_epsilon([0.1, 1.0], [0.8, 0.82], width=NARROW, **accuracy),
        ):
            assert faults(figure) == []

    def test_issue_14_title_is_drawn_once_as_plain_text(self):
        """It was drawn twice, the first time as mathematics: a dollar sign broke it."""
        figure = accuracy_against_epsilon([1.0], [0.5], title="Income in $x^{$")
        assert [one.get_text() for one in written(figure)].count("Income in $x^{$") == 1


class TestTheCheckItself:
    def picture(self):
        return accuracy_against_epsilon([0.1, 1.0], [0.5, 0.6], title="A title")

    def test_sees_a_title_that_is_drawn_twice(self):
        figure = self.picture()
        title = next(one for one in written(figure) if one.get_text() == "A title")
        figure.text(*title.get_position(), "A title", size=14, va="top")
        assert any("on top of each other" in fault for fault in faults(figure))

    def test_sees_text_that_is_cut(self):
        figure = self.picture()
        figure.text(0.95, 0.97, "much too long for this place")
        assert any(fault.startswith("cut") for fault in faults(figure))

    def test_sees_mathematics(self):
        figure = self.picture()
        figure.text(0.7, 0.97, "$x$")
        assert faults(figure) == ["mathematics: '$x$'"]


class TestNotebooks:
    def test_issue_14_a_picture_shows_itself(self, binary):
        """IPython knows a plain figure only where pyplot was set up for it."""
        data, size = plots.coefficients(binary)._repr_png_()
        assert data.startswith(b"\x89PNG\r\n")
        # Pixels are stated in the header, big-endian; shown at their size on paper.
        pixels = int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")
        assert size["width"] == 518
        for pixel, shown in zip(pixels, size.values(), strict=True):
            assert pixel == pytest.approx(shown * 150 / 72, abs=3)

    def test_it_is_a_figure_that_can_be_kept(self, binary):
        from matplotlib.figure import Figure

        figure = plots.coefficients(binary)
        assert isinstance(figure, Figure)
        assert pickle.loads(pickle.dumps(figure))._repr_png_()[1] == figure._repr_png_()[1]

    def test_showing_needs_no_pyplot(self):
        code = (
            "import sys; from dpglm.report import plots; from dpglm.solvers.base import StepInfo; "
            "drawn = plots._one_step(StepInfo(1, 1.0, 2.0, 0.3), 7.2); "
            "drawn._repr_png_(); drawn.savefig('/dev/null'); "
            "print('matplotlib.pyplot' in sys.modules)"
        )
        done = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PYTHONPATH": ":".join(sys.path), "PATH": ""},
        )
        assert done.stdout == "False\n", done.stderr
