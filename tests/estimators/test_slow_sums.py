"""Without compiled sums the first fit warns, as pip's warning is easily missed."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch

import dpglm
from dpglm import LogisticRegression, NoisyGD
from dpglm.data.compiled import kernels
from dpglm.data.stream.stored import MappedRows
from dpglm.estimators import _private


@pytest.fixture
def no_compiler(monkeypatch):
    """As in a package that was built without one, in a new process."""
    monkeypatch.setattr(kernels, "_library", None)
    monkeypatch.setattr(_private, "COMPILED", False)
    _private.warn_of_slow_sums.cache_clear()
    yield
    _private.warn_of_slow_sums.cache_clear()


def rows():
    X = np.random.default_rng(0).uniform(-1.0, 1.0, size=(50, 3))
    return X, (X[:, 0] > 0.0).astype(int)


def model(**settings):
    return LogisticRegression(
        classes=[0, 1], row_norm=2.0, solver=NoisyGD(n_steps=3), random_state=1, **settings
    )


def fits(count, *arguments):
    """All warnings of some fits."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        for _ in range(count):
            model().fit(*arguments)
    return [one for one in found if one.category is dpglm.SlowSumsWarning]


def test_only_the_first_fit_gives_advice(no_compiler):
    (said,) = fits(3, *rows())
    text = str(said.message)
    assert "\n" not in text
    assert "the same, but fits take longer" in text
    assert "C compiler" in text
    assert "--force-reinstall" in text
    assert said.filename == __file__
    assert fits(1, *rows()) == []


def test_rows_in_storage_likewise(no_compiler):
    assert len(fits(2, MappedRows(*rows()))) == 1


def test_compiled_or_foreign_sums_give_no_warning(no_compiler, monkeypatch):
    X, y = rows()
    assert fits(1, torch.tensor(X), torch.tensor(y)) == []
    monkeypatch.setattr(_private, "COMPILED", True)
    assert fits(1, X, y) == []


def test_no_compiler_is_advised_where_none_helps(no_compiler, monkeypatch):
    monkeypatch.setattr(_private.sys, "platform", "win32")
    (said,) = fits(1, *rows())
    assert "none" not in str(said.message)
    assert "Install" not in str(said.message)
    assert "no compiled ones for Windows" in str(said.message)


def test_it_can_be_silenced_as_it_says(no_compiler):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", dpglm.SeededNoiseWarning)
        warnings.simplefilter("ignore", dpglm.SlowSumsWarning)
        model().fit(*rows())


def test_as_an_error_it_comes_before_anything_is_spent(no_compiler, tmp_path):
    ledger = dpglm.PrivacyLedger.create(
        tmp_path / "rows.ledger", data="rows", budget=dpglm.ApproximateDP(5.0, 1e-4)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error", dpglm.SlowSumsWarning)
        with pytest.raises(dpglm.SlowSumsWarning):
            model(ledger=ledger).fit(*rows())
    assert not ledger.contents().entries


def test_results_are_the_same_without(no_compiler):
    slow = model().fit(*rows())
    kernels_there = kernels._load()
    if kernels_there is None:
        pytest.skip("this package was built without a compiler")
    kernels._library = kernels_there
    fast = model().fit(*rows())
    np.testing.assert_allclose(slow.coef_, fast.coef_, rtol=1e-9)
    assert slow.privacy_.event == fast.privacy_.event
