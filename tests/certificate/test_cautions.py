"""Cautions appear next to every claim, and such claims are never called private."""

import math
import re

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer, StandardScaler

from dpglm import GaussianDP, LogisticRegression, PrivateGridSearchCV, PrivatePipeline
from dpglm._words import weak
from dpglm.certificate import Certificate, PublicFact, verify
from dpglm.certificate.statement import SCOPE, cautions
from dpglm.certificate.verify import Check, Verification
from dpglm.exceptions import PublicInformationWarning
from dpglm.report import html, save_model
from dpglm.report.page import coefficient_table, step_cautions
from tests.fits import N_ROWS, fit_classifier, make_rows
from tests.forgeries import changed


def leaking(certificate):
    fact = PublicFact("row_norm", 1.0, "from the data")
    return changed(certificate, public_facts=(*certificate.public_facts, fact))


BREAKS = {
    "seeded noise": (lambda one: changed(one, noise_is_private=False), "NOT PRIVATE"),
    "facts from the data": (leaking, "WEAKER THAN STATED, because of .* row_norm"),
    "weak epsilon": (lambda one: changed(one, epsilon=10.001), "WEAK GUARANTEE: epsilon 10.01"),
    "large delta": (lambda one: changed(one, delta=1 / N_ROWS), f"at least 1/{N_ROWS}"),
}


class TestRules:
    @pytest.mark.parametrize(("change", "says"), BREAKS.values(), ids=BREAKS)
    def test_each_weakness_has_one_sentence(self, binary, change, says):
        assert cautions(binary.privacy_) == ()
        broken = change(binary.privacy_)
        (said,) = cautions(broken)
        assert re.search(says, said)
        assert broken.statement().startswith(f"Warning\n  - {said}")

    def test_issue_14_huge_delta_and_epsilon_get_cautions(self):
        """They had no caveat, and a green page."""
        said = fit_classifier(epsilon=1e5, delta=0.5).privacy_.caveats()
        assert [one.split()[2] for one in said] == ["epsilon", "delta"]

    @pytest.mark.parametrize("n_rows", [1, 2, 49, 100, 5000, 10**6, 10**300])
    def test_one_over_n_is_too_much_however_it_is_rounded(self, n_rows):
        assert len(weak(1.0, 1 / n_rows, n_rows)) == 1
        assert weak(1.0, min(0.009, 0.99 / n_rows), n_rows) == ()

    def test_few_rows_or_none_known_do_not_allow_a_large_delta(self):
        assert len(weak(1.0, 0.01, 3)) == 1
        assert len(weak(1.0, 0.01, None)) == 1
        assert weak(1.0, 0.0, None) == ()

    def test_ten_is_allowed_and_more_is_not(self):
        assert weak(10.0, 0.0, None) == ()
        assert len(weak(math.nextafter(10.0, 11.0), 0.0, None)) == 1

    def test_budgets_in_other_currencies_are_judged_by_their_epsilon(self):
        assert "epsilon" in fit_classifier(budget=GaussianDP(4.0)).privacy_.caveats()[0]

    @pytest.mark.parametrize("value", [2**64 - 1, 1.5, True, None, "400", [400], {"n": 1}, -1, 0])
    def test_a_number_of_rows_that_is_none_breaks_nothing(self, binary, value):
        fact = PublicFact("n_rows", value, "declared")
        odd = changed(binary.privacy_, public_facts=(fact,))
        assert len(cautions(odd)) == (value == 2**64 - 1)
        assert cautions(changed(odd, public_facts=())) == ()

    def test_number_beyond_certificates_is_not_a_fact(self):
        with pytest.raises(ValueError, match="n_rows must be an integer of at most 64 bits"):
            PublicFact("n_rows", 10**400, "declared")


def private_by_definition(certificate):
    """Whether a page may be green; written down a second time, without the table."""
    data = certificate.data.n_rows
    return (
        certificate.noise_is_private
        and all(fact.provenance != "from the data" for fact in certificate.public_facts)
        and certificate.epsilon <= 10.0
        and certificate.delta < min(0.01, 1 / data)
    )


def law_of_green_pages(certificate, phases=tuple(Phase)):
    """A page is green just if its certificate holds and nothing weakens it."""

    @settings(phases=phases, max_examples=100)
    @given(
        wrong=st.sets(st.sampled_from(["noise", "facts", "epsilon", "delta", "claim", "step"])),
        epsilon=st.floats(0.0, 10.0),
        exponent=st.floats(-6.0, -2.7),
        more=st.floats(1.5, 50.0),
    )
    def law(wrong, epsilon, exponent, more):
        one = changed(
            leaking(certificate) if "facts" in wrong else certificate,
            noise_is_private="noise" not in wrong,
            epsilon=epsilon + 10.0 * more if "epsilon" in wrong else epsilon,
            delta=more / 60.0 if "delta" in wrong else 10.0**exponent,
        )
        checks = (Check("claim", "claim" not in wrong, ""),)
        steps = ["a step learned"] if "step" in wrong else []
        found = Verification(checks, (), one.caveats()).beside(steps)
        fine = private_by_definition(one) and not wrong & {"claim", "step"}
        assert found.unqualified == fine == (not wrong)
        assert bool(found.findings) == ("claim" in wrong)

    law()


class TestVerdict:
    def test_badge_is_green_only_for_valid_claims_without_cautions(self, binary):
        law_of_green_pages(binary.privacy_)

    @pytest.mark.parametrize(
        "beginning",
        ["NOT PRIVATE", "WEAKER", "WEAK GUARANTEE: epsilon", "WEAK GUARANTEE: delta"],
    )
    def test_the_law_sees_a_forgotten_weakness(self, binary, monkeypatch, beginning):
        def rest(one):
            return tuple(said for said in cautions(one) if not said.startswith(beginning))

        monkeypatch.setattr(Certificate, "caveats", rest)
        with pytest.raises(AssertionError):
            # Any example will do; the smallest takes long to find.
            law_of_green_pages(binary.privacy_, [Phase.generate])

    def test_assumptions_are_stated_everywhere(self, binary):
        assert SCOPE in binary.privacy_.statement()
        assert SCOPE in html.report_page(binary)
        assert SCOPE in verify(binary.privacy_).summary()
        assert "step that learned from the same rows" in SCOPE


@pytest.fixture
def fast_page(monkeypatch, undrawn):
    monkeypatch.setattr(html, "_pictures", lambda solution: {})


GREEN = "<strong>Private.</strong>"


@pytest.mark.usefixtures("fast_page")
class TestPages:
    def test_good_fit_is_green_with_its_assumptions(self, binary):
        page = html.report_page(binary)
        top = page[: page.index('class="tiles"')]
        assert GREEN in top
        assert "step that learned from the same rows" in top

    @pytest.mark.parametrize("settings", [{"epsilon": 11.0}, {"delta": 0.1}, {"random_state": 0}])
    def test_a_weak_fit_is_not_green(self, settings):
        estimator = fit_classifier(**settings)
        page = html.report_page(estimator)
        assert GREEN not in page
        top = page[: page.index('class="tiles"')]
        assert 'class="banner bad"' in top
        assert "WEAK GUARANTEE" in top or "NOT PRIVATE" in top
        assert "Caution</h3>" not in page

    def test_a_leaking_fit_is_not_green(self):
        with pytest.warns(PublicInformationWarning):
            estimator = fit_classifier(classes=None)
        assert GREEN not in html.report_page(estimator)


@pytest.mark.usefixtures("fast_page")
class TestSteps:
    def fit(self, *steps):
        X, y = make_rows()
        model = LogisticRegression(classes=[0, 1], row_norm=1.0, solver="noisy_gd")
        return make_pipeline(*steps, model).fit(X, y)

    def test_issue_14_a_scaler_before_the_model_is_not_green(self):
        """The scaler learned from the rows, and the page said: Private."""
        pipeline = self.fit(StandardScaler(), Normalizer())
        page = html.report_page(pipeline)
        assert GREEN not in page
        (said,) = step_cautions(pipeline)
        assert said.startswith("NOT COVERED: the step 'standardscaler' (StandardScaler)")
        assert "&#39;standardscaler&#39;" in page

    def test_fixed_steps_are_not_a_reason(self):
        pipeline = self.fit(Normalizer(), "passthrough", None)
        assert step_cautions(pipeline) == ()
        assert GREEN in html.report_page(pipeline)

    def test_pipelines_in_pipelines_are_looked_through(self):
        X, y = make_rows()
        inner = make_pipeline(
            StandardScaler(), LogisticRegression(classes=[0, 1], row_norm=1.0, solver="noisy_gd")
        )
        outer = make_pipeline(make_pipeline(Normalizer(), StandardScaler()), inner).fit(X, y)
        first, second = step_cautions(outer)
        assert "'pipeline-1' (Pipeline)" in first
        assert "'standardscaler'" in second

    def test_private_pipelines_and_searches_need_no_caution(self):
        X, y = make_rows()
        last = LogisticRegression(classes=[0, 1], solver="noisy_gd")
        pipeline = PrivatePipeline([Normalizer(), last]).fit(X, y)
        model = LogisticRegression(classes=[0, 1], row_norm=2.0, solver="noisy_gd")
        search = PrivateGridSearchCV(model, {"regularizer": [None]}).fit(X, y)
        for one in (pipeline, search, make_pipeline(Normalizer(), search)):
            assert step_cautions(one) == ()
            assert coefficient_table(one).values.shape == (1, 3)

    @pytest.mark.parametrize("make", [StandardScaler, lambda: GridSearchCV(StandardScaler(), {})])
    def test_only_private_estimators_are_accepted(self, make):
        with pytest.raises(ValueError, match="estimator must be a fitted linear model of dpglm"):
            html.report_page(make())

    def test_a_model_file_of_a_pipeline_of_scikit_learn_is_refused(self, tmp_path):
        with pytest.raises(ValueError, match="estimator must be a linear model of dpglm or a Priv"):
            save_model(self.fit(StandardScaler(), Normalizer()), tmp_path / "model.json")
        assert list(tmp_path.iterdir()) == []
