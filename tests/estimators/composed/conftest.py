"""Settings for tests of pipelines and searches."""

import pytest

from dpglm.estimators import _private


@pytest.fixture(autouse=True)
def _costs_of_repeated_fits_are_not_added_up(monkeypatch):
    """``tests/estimators/test_unpaid_releases.py`` reads them; here each takes as long as a fit."""
    monkeypatch.setattr(_private, "_total", lambda plans: f"the cost of {len(plans)} fits")
