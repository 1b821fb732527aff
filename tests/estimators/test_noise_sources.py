"""``random_state`` as a source of noise: draws of a fit, and text of its certificate."""

import pickle
from typing import ClassVar, final

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.utils import get_tags

from dpglm import (
    GaussianDP,
    LogisticRegression,
    NoisyGD,
    PrivacyLedger,
    PrivateGridSearchCV,
    PrivatePipeline,
    Ridge,
)
from dpglm.certificate import verify
from dpglm.certificate.certificate import Certificate
from dpglm.preprocessing import Center
from dpglm.privacy import OpenDPNoise
from dpglm.privacy.noise import NoiseSource, SeededNoise, SystemNoise

SHORT = NoisyGD(n_steps=3)


def rows():
    X = np.random.default_rng(0).uniform(-1.0, 1.0, size=(60, 3))
    return X, (X[:, 0] > 0.0).astype(int)


def logistic(source, **changes):
    options = {"solver": SHORT, "row_norm": 2.0, "budget": GaussianDP(0.4), "classes": [0, 1]}
    return LogisticRegression(random_state=source, **options, **changes)


@final
class Unknown(NoiseSource):
    """A source that says of itself that it is private."""

    name: ClassVar[str] = "radium"
    is_private: ClassVar[bool] = True

    def words(self, count):
        return SystemNoise().words(count)


@pytest.mark.parametrize("source", [OpenDPNoise(), SystemNoise()])
def test_a_private_source_is_used_named_and_verified(source, tmp_path, monkeypatch):
    drawn = []
    original = type(source).rounded_gaussian

    def counting(self, size, scale):
        drawn.append(size)
        return original(self, size, scale)

    monkeypatch.setattr(type(source), "rounded_gaussian", counting)
    ledger = PrivacyLedger.create(tmp_path / "ledger", data="rows", budget=GaussianDP(1.0))
    model = clone(logistic(source, ledger=ledger)).fit(*rows())
    assert len(drawn) == 3
    certificate = Certificate.from_dict(model.privacy_.to_dict())
    assert certificate.noise_source == source.name
    assert certificate.noise_is_private
    assert certificate.caveats() == ()
    assert verify(certificate).ok
    assert f"Noise source: {source.name} (cannot be reproduced)" in model.privacy_.statement()
    assert ("opendp" in certificate.versions) == (source.name == "opendp")
    assert len(ledger.contents().entries) == 1
    again = pickle.loads(pickle.dumps(model)).fit(*rows())
    assert (again.coef_ != model.coef_).all()


def test_seeded_source_is_not_private_and_ledgers_refuse_it(tmp_path):
    model = logistic(SeededNoise(3)).fit(*rows())
    assert not model.privacy_.noise_is_private
    assert "NOT PRIVATE" in model.privacy_.statement()
    np.testing.assert_array_equal(model.coef_, logistic(3).fit(*rows()).coef_)
    ledger = PrivacyLedger.create(tmp_path / "ledger", data="rows", budget=GaussianDP(1.0))
    with pytest.raises(ValueError, match="random_state must be None or a private NoiseSource"):
        logistic(SeededNoise(3), ledger=ledger).fit(*rows())
    assert ledger.contents().entries == ()


def test_unknown_source_is_named_and_not_verified():
    certificate = logistic(Unknown()).fit(*rows()).privacy_
    assert certificate.noise_source == "radium"
    (finding,) = verify(certificate).findings
    assert "'radium' is declared private" in finding


@pytest.mark.parametrize("source", [SystemNoise, "opendp", 0.5])
def test_invalid_source_is_refused(source):
    with pytest.raises(ValueError, match=r"random_state must be None .* a NoiseSource or an"):
        logistic(source).fit(*rows())


def test_everything_that_fits_takes_a_source():
    X, y = rows()
    source, declared = OpenDPNoise(), {"row_norm": 2.0, "random_state": OpenDPNoise()}
    plain = logistic(None).set_params(budget=None)
    fitted = (
        Ridge(epsilon=1.0, solver=SHORT, target_bounds=(0, 1), **declared).fit(X, y),
        PrivatePipeline([Center(), plain], epsilon=1.0, random_state=source).fit(X, y),
        PrivateGridSearchCV(clone(plain).set_params(random_state=source), {"C": [0.1, 1.0]}).fit(
            X, y
        ),
    )
    assert {model.privacy_.noise_source for model in fitted} == {"opendp"}


def test_only_a_seed_makes_a_fit_deterministic():
    for source, deterministic in ((None, False), (OpenDPNoise(), False), (7, True)):
        assert get_tags(logistic(source)).non_deterministic is not deterministic
