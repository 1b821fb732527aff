"""Pictures show the numbers they are given, and nothing that did not release gradients."""

import sys

import numpy as np
import pytest

from dpglm import from_formula
from dpglm.estimators import LinearRegression, LogisticRegression
from dpglm.pictures import as_data_uri
from dpglm.report import plots
from dpglm.report.page import coefficient_table
from examples.epsilons import accuracy_against_epsilon, spread
from tests.fits import fit_classifier, make_rows
from tests.inference.planted import given

pytest.importorskip("matplotlib")
EPSILONS = [1.0, 0.1, 10.0]
SCORES = [[0.8, 0.82], [0.6, 0.7], [0.84, 0.84]]


def texts(figure):
    from matplotlib.text import Text

    return " | ".join(text.get_text() for text in figure.findobj(Text))


def drawn(figure, tmp_path):
    path = tmp_path / "picture.png"
    figure.savefig(path)
    return path.stat().st_size


class TestAccuracyAgainstEpsilon:
    def test_draws_means_in_order_and_the_lines_that_bound_them(self, tmp_path):
        figure = accuracy_against_epsilon(
            EPSILONS, SCORES, without_privacy=0.85, without_features=0.5, chosen=1.0
        )
        (axes,) = figure.axes
        curve = next(line for line in axes.lines if len(line.get_xdata()) == 3)
        np.testing.assert_allclose(curve.get_xdata(), [0.1, 1.0, 10.0])
        np.testing.assert_allclose(curve.get_ydata(), [0.65, 0.81, 0.84])
        heights = [line.get_ydata()[0] for line in axes.lines if len(line.get_xdata()) == 2]
        assert heights == [0.85, 0.5]
        for part in ("without privacy\n0.850", "constant prediction\n0.500", "epsilon 1: 0.810"):
            assert part in texts(figure)
        assert axes.get_xscale() == "log"
        assert drawn(figure, tmp_path) > 10_000

    def test_shades_the_range_of_the_runs(self):
        figure = accuracy_against_epsilon(EPSILONS, SCORES)
        (band,) = figure.axes[0].collections
        corners = band.get_paths()[0].vertices[:, 1]
        assert (corners.min(), corners.max()) == (0.6, 0.84)
        assert "mean of 2 runs" in texts(figure)

    def test_one_run_and_one_epsilon_are_enough(self, tmp_path):
        figure = accuracy_against_epsilon([1.0], [0.8])
        assert "mean of" not in texts(figure)
        assert drawn(figure, tmp_path) > 10_000

    @pytest.mark.parametrize(
        ("epsilons", "scores", "options", "message"),
        [
            ([0.0, 1.0], [0.5, 0.6], {}, "epsilons"),
            ([1.0, 1.0], [0.5, 0.6], {}, "epsilons"),
            ([1.0, 2.0], [0.5], {}, "scores"),
            ([1.0], [np.nan], {}, "scores"),
            ([1.0], [0.5], {"chosen": 2.0}, "chosen"),
        ],
    )
    def test_bad_input(self, epsilons, scores, options, message):
        with pytest.raises(ValueError, match=message):
            accuracy_against_epsilon(epsilons, scores, **options)


class TestTrainingHistory:
    def test_draws_each_step_and_the_length_of_noise(self, binary, tmp_path):
        figure = plots.training_history(binary.solution_)
        curve, floor = figure.axes[0].lines
        norms = [info.gradient_norm for info in binary.solution_.history]
        np.testing.assert_array_equal(curve.get_ydata(), norms)
        plan = binary.solution_.plan
        noise = plan.method.noise_std * np.sqrt(plan.data.n_coefficients)
        assert floor.get_ydata()[0] == pytest.approx(noise)
        assert drawn(figure, tmp_path) > 10_000

    def test_noise_norm_equals_observed_norm(self, binary):
        """At the end of this run the gradient is almost only noise."""
        figure = plots.training_history(binary.solution_)
        curve, floor = figure.axes[0].lines
        late = np.sqrt(np.mean(curve.get_ydata()[-50:] ** 2))
        assert 0.7 < late / floor.get_ydata()[0] < 1.5

    def test_secret_steps_are_not_drawn(self, last_iterate):
        with pytest.raises(ValueError, match="did not release gradients"):
            plots.training_history(last_iterate.solution_)


class TestCoefficients:
    def test_draws_no_bars_without_intervals(self, binary):
        figure = plots.coefficients(binary, ["a", "b", "c"])
        (axes,) = figure.axes
        assert not [part for bars in axes.collections for part in bars.get_segments()]
        assert "Confidence intervals were not requested" in texts(figure)
        points = {x for line in axes.lines for x in np.atleast_1d(line.get_xdata()).tolist()}
        assert set(binary.coef_[0].tolist()) <= points
        assert [label.get_text() for label in axes.get_yticklabels()][::-1] == [
            name for _, name in sorted(zip(-abs(binary.coef_[0]), "abc", strict=True))
        ]

    @pytest.mark.parametrize("inside", [False, True])
    def test_bars_are_confidence_intervals(self, inside):
        w = (0.7, -0.4, 0.001, 0.1) if inside else (70.0, -60.0, 50.0, 0.1)
        model = fit_classifier(solver=given(w), inference=True)
        figure = plots.coefficients(model, most=3)
        (axes,) = figure.axes
        ends = [part[:, 0] for bars in axes.collections for part in bars.get_segments()]
        expected = model.inference_.conf_int()[1:]
        np.testing.assert_allclose(np.sort(ends, axis=0), np.sort(expected, axis=0))
        assert "95 % confidence intervals with sampling error and privacy noise" in texts(figure)
        marks = {
            float(value): line.get_markerfacecolor()
            for line in axes.lines
            if line.get_marker() == "o"
            for value in line.get_xdata()
        }
        for value, (low, high) in zip(model.coef_[0], expected, strict=True):
            assert (marks[value] == "white") == (low <= 0.0 <= high)

    def test_explained_variance_ranks_and_priors_are_left_out(self):
        rng = np.random.default_rng(0)
        X = rng.uniform(size=(10_000, 4))
        X[:, 1] = rng.uniform(size=10_000) < 0.01
        X[:, 3] = 0.0
        y = X @ [1.0, 4.0, 0.1, 0.0] - 0.5 + rng.logistic(size=10_000)
        options = {"target_bounds": (-8, 8), "feature_bounds": (-1, 1), "random_state": 0}
        model = LinearRegression(epsilon=4.0, inference=True, **options).fit(X, y)
        assert model.inference_.of_prior == ("x3",)
        figure = plots.coefficients(model)
        (axes,) = figure.axes
        names = [label.get_text() for label in axes.get_yticklabels()][::-1]
        # Variances 4^2 * 0.01 * 0.99, 1 / 12 and 0.1^2 / 12; x3 has the interval of its prior.
        assert names == ["x1", "x0", "x2"]
        assert "1 with the interval of their prior are not shown" in texts(figure)

    def test_noisy_levels_and_splines_do_not_lead(self):
        rng = np.random.default_rng(1)
        columns = {
            "age": {"type": "numeric", "low": 0, "high": 1},
            "dose": {"type": "numeric", "low": -1, "high": 1},
            "ward": {"type": "categorical", "categories": list("abcdefghij")},
        }
        target = {"name": "ill", "type": "binary", "classes": [0, 1]}
        table = {
            "age": rng.beta(2.0, 8.0, size=20_000),
            "dose": rng.uniform(-1, 1, size=20_000),
            "ward": rng.choice(list("abcdefghij"), 20_000, p=[0.9, *[0.1 / 9] * 9]),
        }
        table["ill"] = (table["dose"] + rng.logistic(size=20_000) > 0).astype(int)
        model = from_formula(
            "ill ~ C(ward) + bs(age, df=5) + dose",
            {"columns": columns, "target": target, "provenance": "made up"},
            LogisticRegression(inference=True),
            epsilon=1.0,
            random_state=0,
        ).fit(table)
        table = coefficient_table(model)
        largest = np.abs(table.values[0] * table.reach).argmax()
        assert table.features[largest] != "dose"
        figure = plots.coefficients(model)
        (axes,) = figure.axes
        names = [label.get_text() for label in axes.get_yticklabels()][::-1]
        assert names[0] == "dose"
        assert not [name for name in names if "bs(" in name]
        assert "5 of splines are shown as curves only" in texts(figure)
        # Positions are log odds ratios; ticks are odds ratios.
        ticks = {
            label.get_text(): at
            for at, label in zip(axes.get_xticks(), axes.get_xticklabels(), strict=True)
        }
        assert ticks["2"] == pytest.approx(np.log(2.0))
        plain = plots.coefficients(model, exponentiate=False)
        assert "Estimated coefficients" in texts(plain)
        with pytest.raises(ValueError, match="exponentiate requires"):
            plots.coefficients(fit_classifier(), exponentiate=True)

    def test_one_panel_for_each_class(self, multinomial, tmp_path):
        figure = plots.coefficients(multinomial, most=2)
        shown = [axes for axes in figure.axes if axes.get_visible()]
        assert [axes.get_title(loc="left") for axes in shown] == ["class 0", "class 1", "class 2"]
        assert "The 2 largest of 3" in texts(figure)
        assert drawn(figure, tmp_path) > 10_000

    def test_names_and_number_are_checked(self, binary):
        with pytest.raises(ValueError, match="feature_names must have 3 names, got 1"):
            plots.coefficients(binary, ["a"])
        with pytest.raises(ValueError, match="most"):
            plots.coefficients(binary, most=0)

    def test_names_are_shown_as_they_are(self, binary, tmp_path):
        figure = plots.coefficients(binary, ["<b>", "gain (in $)", "$x^{$"])
        assert "gain (in $)" in texts(figure)
        assert drawn(figure, tmp_path) > 10_000


class TestCoefficientTable:
    def test_unknown_noise_is_not_reported(self):
        X, y = make_rows()
        estimator = LogisticRegression(classes=[0, 1], solver="noisy_gd", feature_bounds=(-1, 1))
        assert coefficient_table(estimator.fit(X, y > y.mean())).noise is None

    def test_noise_follows_the_range_of_the_target(self):
        X, _ = make_rows()
        narrow, wide = (
            LinearRegression(feature_bounds=(-1, 1), target_bounds=bounds, random_state=0).fit(
                X, np.interp(X[:, 0], (-1, 1), bounds)
            )
            for bounds in ((-1.0, 1.0), (-10.0, 30.0))
        )
        ratio = coefficient_table(wide).noise / coefficient_table(narrow).noise
        np.testing.assert_allclose(ratio, 20.0, rtol=1e-6)

    def test_reach_is_half_of_the_declared_range(self, regression):
        table = coefficient_table(regression)
        np.testing.assert_array_equal(table.reach, [1.0, 4.0, 2.0])
        assert table.outputs == ("target",)

    def test_largest_is_by_comparable_size(self, regression):
        table = coefficient_table(regression)
        sizes = np.abs(table.values[0] * table.reach)
        assert table.largest(0, 2).tolist() == np.argsort(-sizes)[:2].tolist()


class TestDrawing:
    def test_same_figure_gives_the_same_bytes(self, binary):
        first, second = (as_data_uri(plots.coefficients(binary)) for _ in range(2))
        assert first == second
        assert first.startswith("data:image/svg+xml;base64,")

    @pytest.mark.parametrize("ys", [[3.0, 1.0, 2.0], [0.0, 0.0, 0.0], [0.0, 0.1, 5.0], [1.0]])
    def test_spread_keeps_order_center_and_distance(self, ys):
        moved = np.array(spread(ys, 1.0))
        assert (np.diff(np.sort(moved)) >= 1.0 - 1e-12).all()
        assert moved.mean() == pytest.approx(np.mean(ys))
        assert np.argsort(moved, kind="stable").tolist() == np.argsort(ys, kind="stable").tolist()


@pytest.mark.parametrize(
    "draw",
    [
        lambda _: accuracy_against_epsilon([1.0], [0.5]),
        lambda fit: plots.training_history(fit.solution_),
        lambda fit: plots.coefficients(fit),
    ],
)
def test_error_names_matplotlib(binary, monkeypatch, draw):
    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=r"pip install 'dpglm\[plot\]'"):
        draw(binary)
