"""A certificate states releases and cost of a fit, also after writing and reading."""

import copy
import dataclasses
import json
import math
import pickle

import numpy as np
import pytest

from dpglm.certificate import Certificate, PublicFact, model_digest
from dpglm.exceptions import PublicInformationWarning
from dpglm.privacy import Adjacency, Gaussian, LastIterate, PoissonSampled, Repeated, gdp
from dpglm.privacy.budget import ApproximateDP, GaussianDP, ZeroConcentratedDP, default_delta
from tests.fits import N_ROWS, fit_classifier

FITS = ["binary", "multinomial", "regression", "sampled", "last_iterate"]


@pytest.fixture(params=FITS)
def certificate(request):
    return request.getfixturevalue(request.param).privacy_


MENTIONED = r"epsilon|delta|adjacency|noise|release|fact|provenance"


class TestContent:
    def test_cost_is_within_the_budget_and_uses_it_up(self, certificate):
        assert certificate.budget == ApproximateDP(1.0, default_delta(N_ROWS))
        assert 0.99 < certificate.epsilon <= 1.0
        assert certificate.delta == certificate.budget.delta

    def test_events(self, binary, sampled, last_iterate):
        steps = binary.n_iter_
        (noise,) = {event.noise_multiplier for event, _ in binary.privacy_.event.terms}
        assert binary.privacy_.event == Repeated(Gaussian(noise), steps)
        assert sampled.privacy_.event.event == PoissonSampled(
            0.1, Gaussian(sampled.privacy_.releases[0].noise_multiplier)
        )
        event = last_iterate.privacy_.event
        assert isinstance(event, LastIterate)
        assert last_iterate.privacy_.mechanisms == Repeated(Gaussian(event.noise_multiplier), 40)

    @pytest.mark.parametrize("adjacency", [one.value for one in Adjacency])
    def test_noise_is_multiplier_times_sensitivity(self, adjacency):
        certificate = fit_classifier(adjacency=adjacency, n_rows=N_ROWS, weight_bound=2.0).privacy_
        (release,) = certificate.releases
        factor = 2.0 if adjacency == "replace_one" else 1.0
        assert release.contribution_bound == certificate.plan["method"]["clipping"]["bound"] * 2.0
        exact = release.noise_multiplier * factor * release.contribution_bound
        # If n is private, the bound on the rounding of a sum is loose.
        assert exact < release.scale.std < (1.02 if adjacency == "add_remove" else 1.001) * exact

    def test_public_facts_and_where_they_came_from(self):
        with pytest.warns(PublicInformationWarning):
            certificate = fit_classifier(classes=None).privacy_
        provenance = {fact.name: fact.provenance for fact in certificate.public_facts}
        assert provenance == {
            "classes": "from the data",
            "n_rows": "by relation",
            "feature_bounds": "declared",
        }
        (caveat,) = certificate.caveats()
        assert "classes" in caveat
        assert "n_rows" not in caveat
        assert certificate.is_private

    def test_missing_fact_is_none(self, binary):
        assert binary.privacy_.fact("target_bounds") is None

    def test_seeded_noise_is_called_not_private(self):
        certificate = fit_classifier(random_state=0).privacy_
        assert not certificate.noise_is_private
        assert not certificate.is_private
        assert certificate.statement().startswith("Warning\n  - NOT PRIVATE")

    def test_system_noise_has_no_warning(self, binary):
        assert binary.privacy_.is_private
        assert binary.privacy_.caveats() == ()
        assert "NOT PRIVATE" not in binary.privacy_.statement()

    @pytest.mark.parametrize("budget", [GaussianDP(0.5), ZeroConcentratedDP(0.125)])
    def test_other_currencies_are_reported_at_the_default_delta(self, budget):
        certificate = fit_classifier(budget=budget).privacy_
        assert certificate.budget == budget
        assert certificate.delta == default_delta(N_ROWS)
        assert certificate.epsilon == pytest.approx(gdp.epsilon(certificate.delta, 0.5), rel=1e-6)

    def test_names_relation_libraries_and_accountant(self, sampled):
        certificate = sampled.privacy_
        assert certificate.adjacency is Adjacency.ZERO_OUT
        assert certificate.accountant == "fourier"
        assert certificate.accountant_version.startswith("dpglm ")
        assert certificate.versions["numpy"] == np.__version__


class TestStatement:
    def test_text_names_the_facts_for_readers(self, certificate):
        text = certificate.statement()
        for part in (
            "epsilon = ",
            "delta = 1e-05",
            "relation 'zero_out'",
            Adjacency.ZERO_OUT.describe(),
            f"n_rows = {N_ROWS}: public under the relation, unless a private condition selected",
            "Not covered",
        ):
            assert part in text

    def test_epsilon_is_never_rounded_down(self, binary):
        odd = dataclasses.replace(binary.privacy_, epsilon=0.90001)
        assert "epsilon = 0.9001" in odd.statement()

    def test_facts_from_private_rows_are_stated(self):
        with pytest.warns(PublicInformationWarning):
            text = fit_classifier(classes=None).privacy_.statement()
        assert "values taken from the private data: classes." in text


class TestFiles:
    def test_comes_back_equal(self, certificate, tmp_path):
        path = tmp_path / "certificate.json"
        certificate.to_json(path)
        assert Certificate.from_json(path) == certificate
        assert [entry.name for entry in tmp_path.iterdir()] == ["certificate.json"]

    def test_is_strict_json(self, certificate):
        json.dumps(certificate.to_dict(), allow_nan=False)

    def test_pickles_and_copies(self, certificate):
        assert pickle.loads(pickle.dumps(certificate)) == certificate
        assert copy.deepcopy(certificate) == certificate

    def test_other_files_are_refused(self, binary, tmp_path):
        path = tmp_path / "file.json"
        for text in ("", "[]", "{}", '{"format": "dpglm model"}', '{"epsilon": NaN}'):
            path.write_text(text)
            with pytest.raises(ValueError, match=r"file\.json"):
                Certificate.from_json(path)

    def test_other_versions_are_refused(self, binary, tmp_path):
        path = tmp_path / "file.json"
        path.write_text(json.dumps({**binary.privacy_.to_dict(), "version": 7}))
        with pytest.raises(ValueError, match="must have version 6, got 7"):
            Certificate.from_json(path)
        with pytest.raises(ValueError, match=r"was written by dpglm 0\.1"):
            Certificate.from_dict({**binary.privacy_.to_dict(), "version": 3})

    @pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(Certificate)])
    def test_each_field_is_needed_and_checked(self, binary, name):
        document = binary.privacy_.to_dict()
        with pytest.raises(ValueError, match=name):
            Certificate.from_dict({k: v for k, v in document.items() if k != name})
        with pytest.raises(ValueError, match=name):
            Certificate.from_dict({**document, name: 3 if document[name] is None else None})

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("epsilon", -1.0),
            ("epsilon", "1"),
            ("delta", 1.0),
            ("delta", math.nan),
            ("plan", {"adjacency": "neighbours"}),
            ("noise_is_private", 1),
            ("releases", [{"quantity": "gradient"}]),
            ("public_facts", [{"name": "n_rows", "value": 3}]),
            ("public_facts", [{"name": "n_rows", "value": 3, "provenance": "hearsay"}]),
        ],
    )
    def test_wrong_values_are_refused(self, binary, name, value):
        with pytest.raises(
            ValueError, match=r"epsilon|delta|adjacency|noise|release|fact|provenance"
        ):
            Certificate.from_dict({**binary.privacy_.to_dict(), name: value})

    def test_unknown_keys_are_refused(self, binary):
        with pytest.raises(ValueError, match="comment"):
            Certificate.from_dict({**binary.privacy_.to_dict(), "comment": ""})


class TestPublicFact:
    @pytest.mark.parametrize(
        ("value", "plain"),
        [
            (np.float64(0.5), 0.5),
            (np.array([[1, 2]]), [[1, 2]]),
            ((np.int8(1), "a", True), [1, "a", True]),
            ({1: np.array([2.0])}, {"1": [2.0]}),
            ([-math.inf, math.inf], ["-inf", "inf"]),
            (np.datetime64("2020-01-01"), "2020-01-01"),
            (None, None),
        ],
    )
    def test_values_are_plain_json(self, value, plain):
        fact = PublicFact("x", value, "declared")
        assert fact.value == plain
        assert json.loads(json.dumps(fact.value, allow_nan=False)) == plain

    def test_unknown_provenance(self):
        with pytest.raises(ValueError, match="provenance"):
            PublicFact("x", 1, "guessed")


class TestDigest:
    def test_is_that_of_the_coefficients(self, certificate, request):
        name = request.node.callspec.params["certificate"]
        estimator = request.getfixturevalue(name)
        assert certificate.model_digest == model_digest(estimator.coef_, estimator.intercept_)

    def test_changes_with_any_bit_and_with_the_shape(self):
        base = model_digest([1.0, 2.0], 0.0)
        assert base == model_digest(np.array([1.0, 2.0], dtype=">f8"), np.float64(0.0))
        others = [
            model_digest([1.0, np.nextafter(2.0, 3.0)], 0.0),
            model_digest([1.0, 2.0], 1.0),
            model_digest([[1.0, 2.0]], 0.0),
            model_digest([1.0], [2.0, 0.0]),
            model_digest([1.0, 2.0], -0.0),
        ]
        assert len({base, *others}) == 6
