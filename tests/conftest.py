"""Settings for all tests."""

import gc
import os
import warnings
from pathlib import Path

import pytest
from hypothesis import settings

# Ledgers and checkpoints wait for the disk whenever they write; memory does not keep them waiting.
if os.access("/dev/shm", os.W_OK):
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", "/dev/shm")
# Time limits of single examples would fail on a busy machine; examples are the same each time.
settings.register_profile("dpglm", deadline=None, derandomize=True, max_examples=30)
# Other examples each time, and as many as fit into minutes: `make laws`.
settings.register_profile("long", deadline=None, max_examples=5000)
settings.load_profile("dpglm")


# So many cases of a test are always quick.
FEW = 12
# By measured time, where others of the kind are quick.
SLOW = frozenset((Path(__file__).parent / "slow_tests.txt").read_text().splitlines())


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Search for garbage rarely, and not among collected tests, which live to the end."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(20_000)
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_collect_file():
    """Search the library and the examples for doctests, and not the tests."""
    found = yield
    return [one for one in found if type(one) is pytest.Module]


@pytest.hookimpl(wrapper=True)
def pytest_generate_tests(metafunc):
    """Leave to `make slow` all but one in n of many cases; a quick run makes no slow ones."""
    yield
    cases, one_in = metafunc._calls, metafunc.definition.get_closest_marker("one_in")
    if one_in is not None and len(cases) > FEW:
        for number, case in enumerate(cases):
            if number % one_in.args[0]:
                case.marks.append(pytest.mark.slow.mark)
    if metafunc.config.option.markexpr == "not slow":
        quick = [case for case in cases if all(mark.name != "slow" for mark in case.marks)]
        cases[:] = quick or cases[:1]


def pytest_itemcollected(item):
    """Mark tests that are listed as slow."""
    if item.nodeid in SLOW:
        item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session", autouse=True)
def _sums_that_are_not_compiled_were_warned_of():
    """Tests that count warnings or read output must pass without a C compiler, too."""
    from dpglm.estimators._private import warn_of_slow_sums
    from dpglm.exceptions import SlowSumsWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SlowSumsWarning)
        warn_of_slow_sums()


@pytest.fixture(autouse=True)
def _no_rows_were_fitted_before(monkeypatch):
    """Whether a fit warns of earlier ones must not depend on the order of tests."""
    from dpglm.estimators import _private as _family

    monkeypatch.setattr(_family, "_FITS", type(_family._FITS)())


def _fitted(name):
    """Return a fixture: the fit of this function of ``tests.fits``, made once."""

    @pytest.fixture(scope="session")
    def fitted():
        from tests import fits

        return getattr(fits, name)()

    return fitted


binary = _fitted("fit_classifier")
last_iterate = _fitted("fit_last_iterate")
multinomial = _fitted("fit_multinomial")
regression = _fitted("fit_regression")
sampled = _fitted("fit_sampled")


@pytest.fixture
def undrawn(monkeypatch):
    """Pages of the same text, with an empty picture for each that would take long to draw."""
    for module in ("html", "page", "evaluation_page"):
        monkeypatch.setattr(
            f"dpglm.report.{module}.as_data_uri", lambda figure: "data:image/svg+xml;"
        )
    for name in ("html.draw_table", "page.draw_shape", "evaluation_page.draw_panel"):
        monkeypatch.setattr(f"dpglm.report.{name}", lambda *_, **__: None)
