"""Pictures of shapes: one scale, few panels, names that fit; and the section of the report."""

import re

import numpy as np
import pytest

from dpglm import LogisticRegression, PrivatePipeline
from dpglm.pictures import told_apart, width_of
from dpglm.preprocessing import SchemaEncoder
from dpglm.report.html import report_page
from dpglm.shapes.picture import draw_shape, reach_of
from dpglm.shapes.shape import Shape, terms_of, weights_of
from dpglm.tables.additive import Additive
from dpglm.tables.schema import Schema

pytest.importorskip("matplotlib")
LEVELS = [f"level {i} with $a long name$" for i in range(20)]
COLUMNS = {
    **{f"x{i}": {"type": "numeric", "low": -1, "high": 1} for i in range(13)},
    "dose": {"type": "numeric", "low": 0, "high": 99999, "scale": "log", "missing": 0},
    "level": {"type": "categorical", "categories": LEVELS},
    "sex": {"type": "categorical", "categories": ["", "f", "m"]},
}
PAIRS = (("x0", "x1"), ("x0", "level"), ("level", "sex"))
SCHEMA = Schema.from_dict({"columns": COLUMNS, "provenance": "made up"}).with_additive(
    Additive(segments=3, reach=1.0, interactions=PAIRS, pair_segments=2)
)


def shape_of(term, values, *more, **options):
    weights = weights_of(term, None).reshape(term.shape)
    return Shape(term.axes, ("y",), values, weights, *more, **options)


def fitted(n_classes=2):
    rng = np.random.default_rng(0)
    X = {name: rng.uniform(-1, 1, 400) for name in COLUMNS}
    X["dose"] = np.where(X["dose"] > 0, 1000 * X["dose"], np.nan)
    X["level"] = rng.choice(LEVELS, 400)
    X["sex"] = rng.choice(["", "f", "m"], 400)
    model = LogisticRegression(classes=range(n_classes))
    pipeline = PrivatePipeline([SchemaEncoder(SCHEMA), model], epsilon=20.0, random_state=0)
    return pipeline.fit(X, rng.integers(0, n_classes, 400))


@pytest.fixture(scope="module")
def model():
    return fitted()


def panels(figure):
    return [axes for axes in figure.axes if axes.get_title(loc="left") and axes.get_visible()]


def test_all_panels_have_one_scale(model):
    shapes = model.shapes_
    figure = model.plot_shapes(most=19, common_scale=True)
    reach = 1.06 * reach_of(shapes.by_importance)
    for axes in panels(figure):
        name = axes.get_title(loc="left")
        if name in shapes and len(shapes[name].axes) == 1:
            limits = axes.get_xlim() if name in ("level", "sex") else axes.get_ylim()
            assert limits == pytest.approx((-reach, reach))


def test_ordered_levels_are_drawn_in_their_order():
    column = {"type": "categorical", "categories": ["low", "", "middle", "high"]}
    for ordered, expected in ((True, ["low", "missing", "middle", "high"]), (False, None)):
        entry = {"columns": {"band": column | {"ordered": ordered}}, "provenance": "made up"}
        (term,) = terms_of(Schema.from_dict(entry).with_additive(Additive(2, 1.0)))
        values = np.array([[0.1, 0.5, -0.7, 0.3]])
        shape = shape_of(term, values)
        figure = draw_shape(shape, 1.0)
        names = [tick.get_text() for tick in figure.axes[0].get_yticklabels()][::-1]
        assert names == (expected or ["missing", "high", "low", "middle"])
        if ordered:
            rising = shape.monotone(1).values[0]
            assert (np.diff(rising[[0, 2, 3]]) >= 0.0).all()
            assert rising[1] == 0.5


def test_the_largest_are_drawn(model):
    titles = [axes.get_title(loc="left") for axes in panels(model.plot_shapes(most=3))]
    assert titles == [one.term for one in model.shapes_.by_importance[:3]]
    assert len(panels(model.plot_shapes())) == 12


def test_every_shape_can_be_drawn(model):
    reach = reach_of(model.shapes_.by_importance)
    for shape in model.shapes_.values():
        draw_shape(shape, reach).savefig("/dev/null", format="svg")


def test_panels_leave_room_for_each_others_names(model):
    figure = model.plot_shapes()
    figure.savefig("/dev/null", format="png")
    rows = sorted({round(axes.get_position().y0, 6) for axes in panels(figure)})
    assert len(rows) == 4
    boxes = [axes.get_tightbbox() for axes in panels(figure)]
    assert not any(one.overlaps(other) for i, one in enumerate(boxes) for other in boxes[:i])


def test_the_report_folds_small_shapes_and_names_edits(model):
    page = report_page(model.with_shape("x3", {-1: -9.0, 1: 9.0}))
    assert "7 smaller effects" in page
    assert re.search(r"Edited after the fit:</strong>\s*x3 \(through", page)
    low, high = re.search(r'alt="x3: effects from (\S+) to (\S+)"', page).groups()
    assert float(high) - float(low) == pytest.approx(18.0, abs=0.1)


def test_models_of_lines_have_no_such_section():
    schema = Schema.from_dict(
        {"columns": {"x0": COLUMNS["x0"]}, "provenance": "made up"},
    )
    model = PrivatePipeline([SchemaEncoder(schema), LogisticRegression(classes=[0, 1])])
    X = {"x0": np.linspace(-1, 1, 300)}
    assert "Effect of each column" not in report_page(model.fit(X, np.arange(300) % 2))


def test_several_classes_are_drawn():
    assert len(panels(fitted(n_classes=7).plot_shapes(most=4))) == 4


def labels(axes, which):
    return [one.get_text() for one in getattr(axes, f"get_{which}ticklabels")()]


def drawn(column, **more):
    facts = {"columns": {"x": {"type": "numeric"} | column}, "provenance": "made up"}
    (term,) = terms_of(Schema.from_dict(facts).with_additive(Additive(2, 1.0)))
    values = np.linspace(-1.0, 1.0, term.shape[0])[np.newaxis]
    return draw_shape(shape_of(term, values, **more), 1.0).axes[0]


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        ({"low": 1990, "high": 2010}, ["1990", "2000", "2010"]),
        ({"low": 0, "high": 80_000}, ["0", "20k", "40k", "60k", "80k"]),
        ({"low": -10, "high": 10}, ["\N{MINUS SIGN}10", "0", "10"]),
        ({"low": 1, "high": 100_000, "scale": "log"}, ["1", "10", "1000", "100000"]),
    ],
)
def test_ticks_are_round_numbers(column, expected):
    assert set(expected) <= set(labels(drawn(column), "x"))


def test_ticks_do_not_touch_each_other():
    axes = drawn({"low": 0, "high": 0.0103, "missing": 0})
    places, texts = axes.get_xticks(), labels(axes, "x")
    assert "missing" in texts
    order = np.argsort(places)
    widths = np.array([width_of(texts[one], 8.5) for one in order])
    gaps = np.diff(np.sort(places)) * 2.3 / 1.12
    assert (gaps > 0.5 * (widths[1:] + widths[:-1])).all()


def test_units_are_on_axes():
    axes = drawn({"low": 0, "high": 9, "unit": "kg of $CO_2$"})
    assert axes.get_xlabel() == "kg of $CO_2$"


def test_maps_name_their_columns_and_have_their_own_scale(model):
    shape = model.shapes_["x0 x x1"]
    axes, bar = draw_shape(shape, 1000.0).axes
    assert axes.get_xlabel().startswith("x0")
    assert axes.get_ylabel() == "x1"
    assert bar.get_ylim()[1] == pytest.approx(np.abs(shape.values).max())


def test_levels_with_most_rows_are_drawn():
    column = {"type": "categorical", "categories": [f"l{i:02}" for i in range(20)]}
    schema = Schema.from_dict({"columns": {"ward": column}, "provenance": "made up"})
    (term,) = terms_of(schema.with_additive(Additive(2, 1.0)))
    values = np.linspace(-0.1, 3.0, 20)[np.newaxis]  # Rare levels have the largest effects.
    for weights, kind in ((np.arange(20.0, 0.0, -1.0), "most frequent"), (np.ones(20), "largest")):
        shape = Shape(term.axes, ("y",), values, weights / weights.sum())
        axes = draw_shape(shape, 1.0).axes[0]
        names = {tick.get_text() for tick in axes.get_yticklabels()}
        first = 0 if kind == "most frequent" else 8
        assert names == {f"l{i:02}" for i in range(first, first + 12)}
        assert axes.get_xlabel() == f"the 12 {kind} of 20 levels"


def test_levels_of_maps_are_few_and_told_apart():
    names = [f"Area number {i} of the very far north" for i in range(40)]
    columns = {
        name: {"type": "categorical", "categories": [f"{one}{name}" for one in names]}
        for name in ("home", "work")
    }
    settings = Additive(2, 1.0, (("home", "work"),), 2)
    facts = {"columns": columns, "provenance": "made up"}
    *_, term = terms_of(Schema.from_dict(facts).with_additive(settings))
    values = np.random.default_rng(0).normal(size=(1, 40, 40))
    axes = draw_shape(shape_of(term, values), 1.0).axes[0]
    for which in "xy":
        shown = labels(axes, which)
        assert len(shown) == len(set(shown)) == 12


def test_shortened_texts_stay_different():
    areas = [f"Area number {i} of the north" for i in range(30)]
    twins = ["a" * 60 + str(i) + "b" * 60 + c for i in (0, 1) for c in ("", "c" * 60)]
    for texts in (areas, twins, ["one", "two"]):
        short = told_apart(texts, 8.5, 1.15)
        assert len(set(short)) == len(texts)
        assert max(width_of(one, 8.5) for one in short) <= 1.16
    assert told_apart(["one", "two"], 8.5, 1.15) == ["one", "two"]


def test_legends_are_below_all_axes():
    figure = fitted(n_classes=3).plot_shapes(most=2)
    assert all(axes.get_legend() is None for axes in figure.axes)
    (legend,) = figure.legends
    assert [one.get_text() for one in legend.get_texts()] == ["0", "1", "2"]


@pytest.mark.parametrize(("end", "reach"), [(1.2, 2.2), (4.0, 5.0), (np.inf, 1.5)])
def test_panels_hold_most_ends_of_wide_bands(end, reach):
    (term, *_) = terms_of(SCHEMA)
    signs = np.where(np.arange(term.shape[0]) % 2, 1.0, -1.0)[np.newaxis]
    shape = shape_of(term, signs, np.stack([signs - end, signs + end], axis=-1))
    assert reach_of([shape]) == pytest.approx(reach)


def test_arrows_mark_bands_beyond_the_panel():
    """Bands used to be cut at one and a half times the largest effect, with no mark."""
    (term, *_) = terms_of(SCHEMA)
    values = np.linspace(-1.0, 1.0, term.shape[0])[np.newaxis]
    ends = np.array([0.1] * (term.shape[0] - 1) + [9.0])
    shape = shape_of(term, values, np.stack([values - ends, values + ends], axis=-1))
    assert reach_of([shape]) == 1.5

    def arrows(reach):
        (axes,) = draw_shape(shape, reach).axes
        found = {line.get_marker(): line.get_ydata() for line in axes.lines}
        return {marker: len(found.get(marker, ())) for marker in "^v"}

    assert arrows(1.5) == {"^": 1, "v": 1}
    assert arrows(12.0) == {"^": 0, "v": 0}


@pytest.mark.parametrize(("name", "which"), [("x0", "y"), ("level", "x")])
def test_bands_without_an_end_leave_the_panel(name, which):
    """Matplotlib leaves out values that are not finite, as if a value had no band."""
    (term,) = [one for one in terms_of(SCHEMA) if one.name == name]
    values = np.zeros((1, *term.shape))
    band = np.stack([values - np.inf, values + np.inf], axis=-1)
    axes = draw_shape(shape_of(term, values, band), 1.0).axes[0]
    (drawn,) = axes.collections
    ends = np.concatenate([one.vertices[:, "xy".index(which)] for one in drawn.get_paths()])
    low, high = getattr(axes, f"get_{which}lim")()
    assert ends.min() < low
    assert ends.max() > high
