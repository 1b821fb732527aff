"""The page is complete, true to the certificate, safe, and needs nothing from outside."""

import base64
import copy
import dataclasses
import re
import sys
from html.parser import HTMLParser
from xml.etree import ElementTree

import numpy as np
import pytest

from dpglm import from_formula
from dpglm.estimators import LogisticRegression
from dpglm.exceptions import PublicInformationWarning
from dpglm.report import html
from dpglm.report.page import coefficient_table
from examples.epsilons import accuracy_against_epsilon
from tests.fits import fit_classifier, make_rows
from tests.inference.planted import given

pytest.importorskip("matplotlib")
pytest.importorskip("jinja2")


class Page(HTMLParser):
    """Elements with their attributes, and the text between them."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.words, self.open = [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag not in {"meta", "img", "br", "link", "input", "source"}:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] != "style":
            self.words.append(data)

    @property
    def text(self):
        return re.sub(r"\s+", " ", " ".join(self.words))

    @property
    def images(self):
        return [attributes for tag, attributes in self.elements if tag == "img"]


def references(text):
    """Everything in a page that a browser would fetch, or could be made to run."""
    page = Page(text)
    found = [tag for tag, _ in page.elements if tag in {"script", "link", "iframe", "object"}]
    for tag, attributes in page.elements:
        for name, value in attributes.items():
            if name in {"src", "href", "srcset", "data", "poster", "action"}:
                found += [] if value.startswith("data:") else [f"{tag} {name}={value}"]
            if name.startswith("on"):
                found.append(f"{tag} {name}")
    without_images = re.sub(r"data:image/[a-z+]+;base64,[A-Za-z0-9+/=]+", "", text)
    found += re.findall(r"(?:https?:)?//[\w.-]+|url\([^)]*\)|@import", without_images)
    return found


@pytest.fixture(scope="module")
def page(binary):
    return html.report_page(binary, feature_names=["age", "height", "weight"])


@pytest.fixture
def no_pictures(monkeypatch, undrawn):
    """Leave out the pictures, which take most of the time."""
    monkeypatch.setattr(html, "_pictures", lambda solution: {})


def test_refers_to_nothing_outside_itself(page):
    assert references(page) == []
    assert Page(page).open == []


@pytest.mark.parametrize("name", ["multinomial", "regression", "sampled", "last_iterate"])
@pytest.mark.usefixtures("no_pictures")
def test_refers_to_nothing_whatever_the_estimator(request, name):
    text = html.report_page(request.getfixturevalue(name))
    assert references(text) == []
    assert Page(text).open == []


@pytest.mark.parametrize(
    "planted",
    [
        '<link rel="stylesheet" href="style.css">',
        '<img src="picture.png">',
        "<style>body { background: url(x.png) }</style>",
        "<p>see http://example.org</p>",
        '<script>alert("x")</script>',
        '<p onclick="x()">x</p>',
    ],
)
def test_the_check_for_references_sees_planted_ones(page, planted):
    assert references(page.replace("</main>", planted + "</main>"))


def test_pictures_are_inside_and_refer_to_nothing_either(page):
    images = Page(page).images
    assert len(images) == 2
    for image in images:
        assert image["alt"]
        prefix = "data:image/svg+xml;base64,"
        assert image["src"].startswith(prefix)
        root = ElementTree.fromstring(base64.b64decode(image["src"][len(prefix) :]))
        assert root.tag.endswith("svg")
        for element in root.iter():
            assert element.tag.rpartition("}")[2] not in {"script", "image", "foreignObject"}
            for name, value in element.attrib.items():
                if name.rpartition("}")[2] == "href":
                    assert value.startswith("#")


def test_text_equals_certificate(page, binary):
    text = Page(page).text
    certificate = binary.privacy_
    for heading, sentences in certificate.sections():
        # A table has the cost of each part.
        for sentence in () if heading == "Budget by stage" else sentences:
            # Public facts are in a table, one cell for each part.
            for part in re.split(r" = |: (?=declared|public under)", sentence):
                assert re.sub(r"\s+", " ", part).strip(".") in text
    assert certificate.model_digest in text
    assert "Private." in text


def test_has_every_coefficient(page, binary):
    text = Page(page).text
    for name in ("age", "height", "weight", "intercept"):
        assert name in text
    table = coefficient_table(binary)
    assert table.noise is None
    assert "unknown for this solver" in text
    for value in binary.coef_[0]:
        assert f"{value:.3g}" in text


@pytest.mark.usefixtures("no_pictures")
def test_known_noise_is_next_to_its_coefficient():
    model = fit_classifier(solver="newton")
    table, text = coefficient_table(model), Page(html.report_page(model)).text
    for value, noise in zip(model.coef_[0], table.noise[0, :-1], strict=True):
        decimals = 1 - int(np.floor(np.log10(noise)))
        assert f"{value:.{decimals}f} {noise:.{decimals}f}" in text


@pytest.mark.usefixtures("no_pictures")
def test_intervals_come_first():
    model = fit_classifier(solver=given((0.7, -90.0, 0.2, 0.1)), inference=True)
    text = Page(html.report_page(model, feature_names=["age", "height", "weight"])).text
    summary = model.inference_.summary()
    for row, name in zip(summary.cells(), ["intercept", "age", "height", "weight"], strict=True):
        assert " ".join([name, *row[1:]]) in text
    for note in summary.notes:
        assert note in text
    assert text.index("Odds ratios") < text.index("P>|z|")
    assert "Confidence intervals were not requested" not in text
    assert text.index("P>|z|") < text.index("Guarantee")


@pytest.fixture(scope="module")
def of_formula():
    rng = np.random.default_rng(0)
    table = {
        "age": rng.uniform(20, 80, size=8000),
        "ward": rng.choice(["a", "b", "c"], 8000),
    }
    score = (table["ward"] == "b") - np.cos(table["age"] / 10.0)
    table["ill"] = (score + rng.logistic(size=8000) > 0).astype(int)
    columns = {
        "age": {"type": "numeric", "low": 20, "high": 80},
        "ward": {"type": "categorical", "categories": ["a", "b", "c"]},
    }
    target = {"name": "ill", "type": "binary", "classes": [0, 1]}
    schema = {"columns": columns, "target": target, "provenance": "made up"}
    estimator = LogisticRegression(inference=True)
    return from_formula(
        "ill ~ C(ward) + bs(age, df=4)", schema, estimator, epsilon=4.0, random_state=0
    ).fit(table)


@pytest.mark.usefixtures("no_pictures")
def test_odds_ratios_have_reference_rows(of_formula):
    text = Page(html.report_page(of_formula)).text
    ratio = float(np.exp(of_formula.inference_.params[1]))
    assert "C(ward) a 1 (reference) b" in text
    assert f"b {ratio:.2f} (" in text
    assert "bs(age, df=4), joint test p < 0.001 (4 df)" in text
    first = text.index("1 (reference)")
    assert text.index("Odds ratios") < first < text.index("std err")
    assert first < text.index("Effect of each column")


@pytest.mark.usefixtures("no_pictures")
def test_random_intercepts_are_one_line(of_formula):
    rng = np.random.default_rng(0)
    table = {"age": rng.uniform(20, 80, size=8000), "ward": rng.choice(["a", "b", "c"], 8000)}
    table["ill"] = (rng.logistic(size=8000) + table["age"] / 20.0 > 2.5).astype(int)
    model = from_formula(
        "ill ~ (1 | ward) + age",
        of_formula.transformers_[0][1].schema,
        LogisticRegression(inference=True),
        epsilon=4.0,
        random_state=0,
    ).fit(table)
    text = Page(html.report_page(model)).text
    ((scale, low, high),) = model.inference_.variance_components.values()
    assert f"Random intercepts: (1 | ward): SD {scale:.3g} ({low:.3g} to {high:.3g})." in text
    cells = {row[0]: row[1] for row in model.inference_.summary().cells()}
    assert set(cells) == {"intercept", "age"}
    assert f"intercept {cells['intercept']} " in text
    assert f"age {cells['age']} " in text
    assert "(1 | ward)[" not in text[text.index("std err") : text.index("SD")]


@pytest.mark.usefixtures("no_pictures")
def test_panels_have_their_own_scale_or_a_common_one(of_formula):
    def limits(figure):
        wide = {"age": "get_ylim", "ward": "get_xlim"}
        return {
            axes.get_title(loc="left"): getattr(axes, wide[axes.get_title(loc="left")])()
            for axes in figure.axes
        }

    own, common = (limits(of_formula.plot_shapes(common_scale=one)) for one in (False, True))
    assert own["age"] != own["ward"]
    assert common["age"] == common["ward"]
    pages = [html.report_page(of_formula, common_scale=one) for one in (False, True)]
    assert "each panel has its own scale" in pages[0]
    assert "on a common scale" in pages[1]
    with pytest.raises(ValueError, match="common_scale"):
        html.report_page(of_formula, common_scale="yes")


@pytest.mark.usefixtures("no_pictures")
def test_shows_scores_figures_and_title(binary):
    figure = accuracy_against_epsilon([0.5, 1.0], [0.7, 0.8])
    page = Page(
        html.report_page(
            binary,
            title="Who buys",
            scores={"accuracy on test rows": 0.8125},
            figures={"Accuracy against epsilon": figure},
        )
    )
    assert "Who buys" in page.text
    assert "0.8125 accuracy on test rows" in page.text
    assert [one["alt"] for one in page.images] == [
        "The largest coefficients.",
        "Accuracy against epsilon",
    ]


def test_steps_that_stay_secret_are_not_drawn(last_iterate):
    alts = [image["alt"] for image in Page(html.report_page(last_iterate)).images]
    assert not any("step" in alt for alt in alts)


@pytest.mark.usefixtures("no_pictures")
def test_seeded_noise_is_the_first_thing_said():
    text = Page(html.report_page(fit_classifier(random_state=0))).text
    assert "NOT PRIVATE" in text
    assert text.index("NOT PRIVATE") < text.index("Guarantee")
    assert "Private." not in text


@pytest.mark.usefixtures("no_pictures")
def test_expectation_and_remedies_are_stated(binary):
    text = Page(html.report_page(binary)).text
    assert "Expectation (a rule of thumb, not a promise)" in text
    assert "400 rows and epsilon 1 for 4 coefficients." in text
    assert "There are no confidence intervals (inference=True)" in text
    few = Page(html.report_page(fit_classifier(epsilon=0.05))).text
    assert "Remedies About" in few


@pytest.mark.usefixtures("no_pictures")
def test_leaks_are_marked():
    with pytest.warns(PublicInformationWarning):
        estimator = fit_classifier(classes=None)
    page = html.report_page(estimator)
    assert "WEAKER THAN STATED" in Page(page).text
    assert '<span class="tag leak">taken from the private data</span>' in page


@pytest.mark.usefixtures("no_pictures")
def test_a_certificate_that_does_not_hold_is_called_so(binary):
    forged = copy.copy(binary)
    forged.privacy_ = dataclasses.replace(binary.privacy_, epsilon=0.5)
    text = Page(html.report_page(forged)).text
    assert "The certificate does not hold." in text
    assert "Private." not in text


@pytest.mark.usefixtures("no_pictures")
def test_names_cannot_smuggle_in_markup():
    X, y = make_rows()
    labels = np.array(["<script>alert(1)</script>", "<img src=x onerror=alert(1)>"])
    estimator = LogisticRegression(classes=list(labels), row_norm=2.0).fit(X, labels[y])
    names = ['<script src="http://x">', "a&b", "\"'><b>"]
    text = html.report_page(
        estimator, title="</title><script>", feature_names=names, scores={"<i>": "<u>"}
    )
    # Text may contain an address; it must not become an element.
    found = [entry for entry in references(text) if not entry.endswith("//x")]
    assert found == []
    assert "a&b" in Page(text).text
    assert names[0] in Page(text).text


@pytest.mark.usefixtures("no_pictures")
def test_names_that_cannot_be_seen_or_written_are_marked(binary, tmp_path):
    """A lone surrogate could not be written; a change of direction would turn words around."""
    names = ["\ud800 age", "\u202eheight", "we\x00ight\nx"]
    html.write_report(binary, tmp_path / "page.html", title="\udfff", feature_names=names)
    text = Page((tmp_path / "page.html").read_text("utf-8")).text
    for name in ("\ufffd age", "\ufffdheight", "we\ufffdight x"):
        assert name in text


@pytest.mark.usefixtures("no_pictures")
def test_many_classes_and_features_stay_readable():
    X, y = make_rows(n_features=60, n_classes=15)
    estimator = LogisticRegression(classes=range(15), row_norm=8.0).fit(X, y)
    text = html.report_page(estimator)
    assert "The 40 largest of 60" in text
    assert "The first 12 of 15 classes" in text
    assert len(text) < 3_000_000


@pytest.mark.usefixtures("no_pictures")
def test_file_is_written_whole_or_not_at_all(binary, tmp_path, monkeypatch):
    path = tmp_path / "report.html"
    html.write_report(binary, path, title="First")
    assert "First" in path.read_text("utf-8")
    monkeypatch.setattr("dpglm.report.page.verify", lambda certificate: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        html.write_report(binary, path, title="Second")
    assert "First" in path.read_text("utf-8")
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(("module", "extra"), [("jinja2", "report"), ("matplotlib", "plot")])
def test_error_names_the_missing_extra(binary, monkeypatch, module, extra):
    for name in [name for name in sys.modules if name.partition(".")[0] == module]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=rf"pip install 'dpglm\[{extra}\]'"):
        html.report_page(binary)
