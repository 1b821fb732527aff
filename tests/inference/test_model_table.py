"""Tables of models as text, Markdown, HTML and LaTeX."""

from __future__ import annotations

import html.parser
import re

import numpy as np
import pytest

import dpglm
from dpglm.inference.layout import ModelTable
from tests.inference.test_comparisons import FORMULA, SCHEMA, fitted, table

pytestmark = pytest.mark.filterwarnings("ignore::dpglm.exceptions.LowSignalWarning")


def row(text: str, name: str) -> str:
    return next(line for line in text.splitlines() if line.strip().startswith(name))


def test_table_has_references_ratios_and_the_budget():
    spline = fitted("ill ~ bs(age, df=5) + C(dose)")
    made = dpglm.table({"linear": fitted(), "spline": spline})
    text = str(made)
    assert row(text, "low").split() == ["low", "1", "(reference)", "1", "(reference)"]
    value, low, high = map(float, re.findall(r"[\d.]+", row(text, "high"))[:3])
    place = fitted().inference_.names.index("C(dose)[T.high]")
    expected = np.exp([fitted().inference_.params[place], *fitted().inference_.conf_int()[place]])
    np.testing.assert_allclose([value, low, high], expected, atol=0.006)
    assert "p < 0.001 (5 df)" in row(text, "bs(age, df=5), joint test")
    assert row(text, "epsilon").split() == ["epsilon", "8", "8"]
    assert "together at most epsilon 16, delta 2e-06" in " ".join(text.split())
    assert "Odds ratios with 95 % intervals" in text
    plain = str(dpglm.table([fitted()], exponentiate=False, level=0.9))
    assert row(plain, "low").split() == ["low", "0", "(reference)"]
    assert "Coefficients with 90 % intervals" in plain
    assert "together" not in plain


def test_one_study_is_counted_once():
    assert "together" not in str(dpglm.table({"a": fitted(), "b": fitted()}))


def test_ratios_need_a_link_that_has_them():
    schema = SCHEMA | {"target": {"name": "age", "type": "numeric", "low": 20, "high": 80}}
    schema["columns"] = {name: one for name, one in SCHEMA["columns"].items() if name != "age"}
    model = dpglm.from_formula("age ~ C(dose)", schema, epsilon=8.0, inference=True).fit(table())
    assert "Coefficients" in str(dpglm.table([model]))
    assert "Coefficients" in str(dpglm.table([fitted(), model]))
    with pytest.raises(ValueError, match="exponentiate"):
        dpglm.table([model], exponentiate=True)


@pytest.mark.parametrize("models", [[], [3], 3, {"a": None}, {}])
def test_models_without_inference_are_refused(models):
    with pytest.raises(ValueError, match="models must be"):
        dpglm.table(models)


HOSTILE = ModelTable(
    "A & B <i> 100 % $x_1$ {#}",
    (("a|b", "c\\d"),),
    ("", "x^2"),
    ((("  [0, 1] ~ *bold*", "a|b"), ("<script>", "\u202e5 %")),),
    ("see_this",),
)


def test_latex_escapes_every_special_character():
    text = HOSTILE.to_latex()
    body = re.sub(r"\\(?:textbackslash|textasciitilde|textasciicircum|textless|textgreater"
                  r"|textbar)\{\}|\\[&%$#_{}]", "", text)  # fmt: skip
    assert not re.search(r"[%$#^~<>|]", body)
    assert r"\quad {[}0, 1]" in text
    assert text.count("&") - text.count(r"\&") == 3
    assert text.count(r"\begin{tabular}") == text.count(r"\end{tabular}") == 1


def test_html_escapes_cells():
    text = HOSTILE.to_html()
    assert "<script>" not in text
    assert "<i>" not in text
    found: list[str] = []

    class Reader(html.parser.HTMLParser):
        def handle_data(self, data: str) -> None:
            found.append(data)

    Reader().feed(text)
    assert "<script>" in found
    assert "padding-left" in text


def test_markdown_keeps_its_columns():
    lines = [line for line in HOSTILE.to_markdown().splitlines() if line.startswith("|")]
    assert len(lines) == 4
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in lines} == {3}
    assert "\u202e" not in HOSTILE.to_markdown()


def test_summary_has_every_format():
    summary = fitted().inference_.summary(exponentiate=True)
    assert summary.to_latex().count(r"\\") == 1 + len(fitted().inference_.names)
    assert FORMULA in summary.to_html()
    assert summary.to_markdown().startswith("**LogisticRegression: coefficients**")
    assert "odds ratio" in str(summary)


def test_random_intercepts_are_one_row_and_not_tested():
    mixed, fixed = fitted("ill ~ age + (1 | dose)"), fitted("ill ~ age + C(dose)")
    text = str(dpglm.table([mixed, fixed]))
    ((name, scales),) = mixed.inference_.variance_components.items()
    assert name == "(1 | dose)"
    found = row(text, "(1 | dose), SD")
    assert list(map(float, re.findall(r"[\d.]+", found)[1:])) == pytest.approx(scales, rel=0.06)
    assert "(1 | dose)[" not in text
    assert "1 (reference)" in text
    assert list(mixed.inference_.anova()) == ["age"]
    assert list(fixed.inference_.anova()) == ["age", "C(dose)"]
