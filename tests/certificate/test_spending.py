"""Who spent what: by hand, for every shape of fit, in words, on the page and on the terminal."""

import dataclasses
import json
import math

import pytest

from dpglm.certificate import Certificate, Spending
from dpglm.certificate.statement import spending, spending_in_words
from dpglm.estimators import LogisticRegression
from dpglm.preprocessing import Center, ClipToQuantile
from dpglm.privacy import Adjacency, gdp
from dpglm.privacy.accounting.accountants import accountant_for
from dpglm.privacy.events import Composed, Repeated
from dpglm.selection import ConfidenceBoosting
from dpglm.solvers import LocalSGD, NoisyGD, Preprocessed, pure_gd
from tests.fits import LAST_ITERATE, fit_classifier, fit_last_iterate
from tests.forgeries import part_of

FEW = NoisyGD(n_steps=5)


def spent_by(solver, **settings):
    certificate = fit_classifier(solver=solver, **settings).privacy_
    found = spending(certificate)
    assert certificate.spending() == found
    return certificate, found


def test_a_plain_fit_has_one_stage():
    certificate, (only,) = spent_by(FEW)
    assert only.stage == "model"
    assert only.releases == certificate.releases
    assert only.epsilon == certificate.epsilon
    assert only.mu == pytest.approx(math.sqrt(5) / only.releases[0].noise_multiplier)
    assert (only.share, only.is_gaussian) == (1.0, True)


@pytest.mark.parametrize("adjacency", ["zero_out", "replace_one"])
def test_stages_one_after_the_other(adjacency):
    solver = Preprocessed([Center(), Center()], FEW, [0.1, 0.2])
    certificate, found = spent_by(solver, adjacency=adjacency)
    assert [one.stage for one in found] == ["center", "center 2", "model"]
    assert [one.releases[0].quantity for one in found] == [
        "row sum",
        "row sum",
        found[2].releases[0].quantity,
    ]
    mu = gdp.mu(1.0, certificate.delta)
    assert [one.share for one in found] == pytest.approx([0.1, 0.2, 0.7], rel=1e-9)
    for one in found:
        assert one.mu == pytest.approx(mu * math.sqrt(one.share), rel=1e-9)
        assert one.epsilon == pytest.approx(gdp.epsilon(certificate.delta, one.mu), rel=1e-9)
        assert one.is_gaussian
    assert math.fsum(one.mu**2 for one in found) == pytest.approx(mu**2, rel=1e-9)
    # Epsilons by themselves add up to more than the whole.
    assert sum(one.epsilon for one in found) > certificate.epsilon


def test_stages_of_stages():
    inner = Preprocessed([Center()], FEW)
    _, found = spent_by(Preprocessed([Center()], inner))
    assert [one.stage for one in found] == ["center", "model: center", "model: model"]
    assert sum(one.share for one in found) == pytest.approx(1.0)


def test_a_stage_that_is_not_gaussian_has_the_mu_of_its_epsilon():
    certificate, (center, model) = spent_by(Preprocessed([Center()], pure_gd(n_steps=3)))
    event = Composed(tuple(Repeated(one.event, one.count) for one in model.releases))
    epsilon = accountant_for(event, Adjacency.ZERO_OUT).epsilon(
        event, Adjacency.ZERO_OUT, certificate.delta
    )
    assert model.epsilon == epsilon
    assert model.mu == gdp.mu(epsilon, certificate.delta)
    assert (center.is_gaussian, model.is_gaussian) == (True, False)
    assert center.share + model.share == pytest.approx(1.0)


def test_a_delta_of_zero_has_no_mu():
    _, (only,) = spent_by(pure_gd(n_steps=3), delta=0.0)
    assert (only.mu, only.share, only.is_gaussian) == (None, None, False)
    assert only.epsilon == pytest.approx(1.0)


def test_a_last_iterate_is_charged_as_one():
    certificate = fit_last_iterate(
        solver=Preprocessed([Center()], LAST_ITERATE), epsilon=2.0
    ).privacy_
    assert certificate.event != certificate.mechanisms
    center, model = spending(certificate)
    assert center.mu**2 + model.mu**2 == pytest.approx(gdp.mu(2.0, certificate.delta) ** 2)
    assert model.mu < math.sqrt(40) / model.releases[0].noise_multiplier


def test_disjoint_parts_do_not_add_up():
    certificate, found = spent_by(ConfidenceBoosting(FEW, n_models=2))
    assert all(one.share is None for one in found)
    assert found[0].stage == "model 1, part 1"
    assert found[-1].stage.startswith("choice, part ")
    assert max(one.epsilon for one in found) == pytest.approx(certificate.epsilon, rel=1e-3)


def test_rows_with_noise_of_their_own_are_one_stage():
    certificate, (only,) = spent_by(LocalSGD())
    assert only.epsilon == certificate.epsilon


@pytest.mark.parametrize(
    "forge",
    [
        lambda record: part_of(record)["plan"]["method"]["steps"].clear(),
        lambda record: part_of(record)["plan"]["method"].update(steps="none"),
        lambda record: part_of(record)["plan"]["method"]["model"]["method"].update(
            type="elsewhere.Method"
        ),
    ],
    ids=["no stage", "no steps", "another name"],
)
def test_records_that_do_not_fit_together_are_refused(forge):
    certificate, _ = spent_by(Preprocessed([Center()], FEW))
    record = json.loads(json.dumps(certificate.to_dict()))
    forge(record)
    forged = Certificate.from_dict(record)
    with pytest.raises(ValueError, match="cost of each stage"):
        forged.spending()
    assert "does not state the cost of each stage" in forged.statement()


def test_in_words():
    solver = Preprocessed([Center()], FEW, [0.1])
    certificate, found = spent_by(solver)
    statement = certificate.statement()
    start = statement.index("Budget by stage")
    lines = statement[start : statement.index("Public facts")].strip().split("\n")
    assert len(lines) == 3
    assert lines[1].startswith("  - center: row sum (standard deviation ")
    assert lines[1].endswith(", 10 % of mu^2.")
    assert "5 times, standard deviation" in lines[2]
    # An epsilon is never written smaller than it is.
    shown = float(lines[1].partition("epsilon = ")[2].partition(" ")[0])
    assert shown >= found[0].epsilon
    nothing = Spending("random projection", (), 0.0, 0.0, True, 0.0)
    assert spending_in_words(nothing) == "random projection: no release"
    other = dataclasses.replace(found[1], is_gaussian=False, share=None)
    assert "mu = " in spending_in_words(other)
    assert spending_in_words(other).endswith("(of a Gaussian release with that epsilon)")


def test_on_the_page(monkeypatch, undrawn):
    pytest.importorskip("matplotlib")
    pytest.importorskip("jinja2")
    from dpglm.report import html
    from tests.report.test_html import Page, references

    monkeypatch.setattr(html, "_pictures", lambda solution: {})
    solver = Preprocessed([Center(), ClipToQuantile()], FEW, [0.1, None])
    page = html.report_page(fit_classifier(solver=solver))
    text = Page(page).text
    assert Page(page).open == []
    assert references(page) == []
    assert "Budget by stage" in text
    for shown in ("center", "clip to quantile", "radius of rows", "row sum", "is not Gaussian"):
        assert shown in text
    plain = Page(html.report_page(fit_classifier(solver=FEW))).text
    assert "100 %" in plain
    assert "is not Gaussian" not in plain


def test_on_the_terminal(tmp_path):
    testing = pytest.importorskip("click.testing")
    from dpglm.cli.commands import app

    certificate, found = spent_by(Preprocessed([Center()], FEW, [0.1]))
    path = tmp_path / "certificate.json"
    certificate.to_json(path)
    said = testing.CliRunner().invoke(app, ["verify", str(path)])
    assert said.exit_code == 0
    table = said.output[said.output.index("Budget by stage") :].splitlines()
    assert [line.split()[0] for line in table[1:3]] == ["center", "model"]
    assert table[1].endswith("10 %")
    dataclasses.replace(certificate, epsilon=0.5).to_json(path)
    said = testing.CliRunner().invoke(app, ["verify", str(path)])
    assert said.exit_code == 1
    assert "Budget by stage" not in said.output
    assert len(found) == 2


def test_a_model_of_three_classes_is_one_stage(multinomial):
    assert len(multinomial.privacy_.spending()) == 1
    assert isinstance(multinomial, LogisticRegression)
