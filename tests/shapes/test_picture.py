"""Pictures of shapes: one scale, few panels, names that fit; and the section of the report."""

import re

import numpy as np
import pytest

from dpglm import LogisticRegression, PrivatePipeline
from dpglm.preprocessing import SchemaEncoder
from dpglm.report.html import report_page
from dpglm.shapes.picture import draw_shape, reach_of
from dpglm.shapes.shape import Shape
from dpglm.shapes.terms import terms_of
from dpglm.tables.additive.settings import Additive
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
    figure = model.plot_shapes(most=19)
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
        shape = Shape(term.axes, ("y",), values, None)
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


def test_the_report_folds_small_shapes_and_names_edits(model):
    page = report_page(model.with_shape("x3", {-1: -9.0, 1: 9.0}))
    assert "7 of smaller range" in page
    assert re.search(r"Edited after the fit:</strong>\s*x3 \(through", page)
    assert 'alt="x3: effects from -9 to 9"' in page


def test_models_of_lines_have_no_such_section():
    schema = Schema.from_dict(
        {"columns": {"x0": COLUMNS["x0"]}, "provenance": "made up"},
    )
    model = PrivatePipeline([SchemaEncoder(schema), LogisticRegression(classes=[0, 1])])
    X = {"x0": np.linspace(-1, 1, 300)}
    assert "What each column does" not in report_page(model.fit(X, np.arange(300) % 2))


def test_several_classes_are_drawn():
    assert len(panels(fitted(n_classes=7).plot_shapes(most=4))) == 4


def test_arrows_say_where_a_band_goes_on_beyond_the_panel():
    """Bands used to be cut at one and a half times the largest effect, with no mark."""
    (term, *_) = terms_of(SCHEMA)
    values = np.linspace(-1.0, 1.0, term.shape[0])[np.newaxis]
    ends = np.array([0.1] * (term.shape[0] - 1) + [9.0])
    shape = Shape(term.axes, ("y",), values, np.stack([values - ends, values + ends], axis=-1))
    assert reach_of([shape]) == 1.5

    def arrows(reach):
        (axes,) = draw_shape(shape, reach).axes
        found = {line.get_marker(): line.get_ydata() for line in axes.lines}
        return {marker: len(found[marker]) for marker in "^v"}

    assert arrows(1.5) == {"^": 1, "v": 1}
    assert arrows(12.0) == {"^": 0, "v": 0}
