"""Releases: the declaration fixes the question, the cost and the noise."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from dpglm._codec import decode, encode
from dpglm.exceptions import PlanMismatchError
from dpglm.privacy import releases as module
from dpglm.privacy.budget import Adjacency, Unit
from dpglm.privacy.events import (
    Composed,
    Gaussian,
    Parallel,
    PoissonSampled,
    ProjectedGaussian,
    Pure,
    Repeated,
    canonical,
)
from dpglm.privacy.noise import NoiseSource, SeededNoise, SystemNoise
from dpglm.privacy.noise.additive import (
    CalibratedNoise,
    GaussianLinearTerm,
    GaussianNoise,
    L2LinearTerm,
    L2Noise,
    LocalGaussianNoise,
)
from dpglm.privacy.noise.source import Observer
from dpglm.privacy.releases import Bounded, Curator, Mechanism, Release, check_can_be_asked
from tests.laws.mechanisms import CASES, SUM, mechanisms_of_dpglm

ZERO_OUT, REPLACE_ONE = Adjacency.ZERO_OUT, Adjacency.REPLACE_ONE


every_case = pytest.mark.parametrize("case", CASES.values(), ids=[kind.__name__ for kind in CASES])


class Silent(NoiseSource):
    """A source that nothing may be drawn from."""

    name, is_private = "silent", False

    def words(self, count):
        raise AssertionError("something was drawn")


def declare(mechanism, adjacency=ZERO_OUT, bound=1.5, **facts):
    return Release("answer", mechanism, adjacency, bound, 3, magnitude=100.0, **facts)


def curator(adjacency=ZERO_OUT, noise=None):
    return Curator(adjacency, SeededNoise(0) if noise is None else noise)


def test_every_mechanism_is_here():
    assert mechanisms_of_dpglm() == set(CASES)


# Declarations


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("contribution_bound", (-1.0, math.inf, math.nan, "1")),
        ("rounding", (-1e-300, math.inf, math.nan)),
        ("magnitude", (-1.0, math.inf, math.nan)),
        ("coordinates", (0, -1, 1.5, True)),
        ("count", (0, -1, 1.5, True)),
        ("sampling_rate", (0.0, -0.5, 1.0 + 1e-9, math.nan)),
    ],
)
def test_settings_are_validated(field, values):
    honest = declare(GaussianNoise(1.0))
    for value in values:
        with pytest.raises(ValueError, match=field):
            dataclasses.replace(honest, **{field: value})


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
@every_case
def test_a_mechanism_that_cannot_be_is_refused(case, bad):
    for name in ("noise_multiplier", "epsilon", "curvature_ratio", "failure"):
        if hasattr(case.mechanism, name):
            with pytest.raises(ValueError, match=name):
                declare(dataclasses.replace(case.mechanism, **{name: bad}))


@every_case
@pytest.mark.parametrize("adjacency", list(Adjacency), ids=str)
def test_the_event_and_the_noise_are_those_of_the_formulas(case, adjacency):
    declared = declare(case.mechanism, adjacency, rounding=0.25, count=4)
    if isinstance(case.event, Pure) and isinstance(declared.event, Pure):
        assert case.event.epsilon <= declared.event.epsilon <= case.event.epsilon * (1 + 1e-15)
    else:
        assert declared.event == case.event
    # Erasing a row moves the value by its bound plus rounding; replacing it, by twice that.
    sensitivity = {ZERO_OUT: 1.75, Adjacency.ADD_REMOVE: 1.75, REPLACE_ONE: 3.5}[adjacency]
    assert declared.sensitivity == sensitivity
    assert declared.noise_multiplier == case.multiplier
    least = case.multiplier * sensitivity
    # Values snapped to a grid need a little more.
    assert least <= declared.scale.std <= least * (1.0 + 1e-6)
    assert declared.noise_std == pytest.approx(case.std * declared.scale.std, rel=1e-12)


@every_case
def test_only_amplified_events_can_be_sampled(case):
    if isinstance(case.event, Gaussian | ProjectedGaussian | Pure):
        declared = declare(case.mechanism, sampling_rate=0.25)
        if isinstance(case.event, Pure):
            amplified = math.log1p(0.25 * math.expm1(case.event.epsilon))
            assert amplified <= declared.event.epsilon <= amplified * (1.0 + 1e-13)
        else:
            assert declared.event == PoissonSampled(0.25, case.event)
        assert declared.sensitivity == declare(case.mechanism).sensitivity
        assert declared.scale == declare(case.mechanism).scale
    else:
        with pytest.raises(ValueError, match="event must be Gaussian or ProjectedGaussian"):
            declare(case.mechanism, sampling_rate=0.25)


@every_case
def test_multipliers_can_be_changed_where_they_decide_the_cost(case):
    if not isinstance(case.mechanism, CalibratedNoise | L2Noise):
        with pytest.raises(ValueError, match="cannot be calibrated"):
            case.mechanism.with_multiplier(8.0)
        return
    changed = case.mechanism.with_multiplier(8.0)
    assert type(changed) is type(case.mechanism)
    assert declare(changed).noise_multiplier == 8.0
    (first, *others) = (field.name for field in dataclasses.fields(case.mechanism))
    assert getattr(changed, first) == (0.125 if isinstance(changed, L2Noise) else 8.0)
    for other in others:
        assert getattr(changed, other) == getattr(case.mechanism, other)


@pytest.mark.parametrize("bound", [0.0, 5e-324, 2.0**-462, 2.0**460, 1e300])
@every_case
def test_noise_that_floats_cannot_hold_is_refused(case, bound):
    honest = declare(GaussianNoise(1.0))
    # So that it is the bound over which the scale is a multiple.
    least = bound / case.multiplier
    declared = Release("extreme", case.mechanism, ZERO_OUT, least, magnitude=least)
    with pytest.raises(ValueError, match=r"release 'extreme' must be from|std must be a"):
        check_can_be_asked([honest, declared])
    check_can_be_asked([honest])


def test_a_magnitude_too_large_for_a_grid_is_refused():
    declared = dataclasses.replace(declare(GaussianNoise(1e-3)), magnitude=2.0**90)
    assert declared.scale.std == math.inf
    with pytest.raises(ValueError, match="no grid exists"):
        check_can_be_asked([declared])


# Questions


@every_case
def test_a_release_is_recorded_and_answered(case):
    asked = curator(REPLACE_ONE)
    for _ in range(2):
        answer = asked.release(declare(case.mechanism, REPLACE_ONE), Bounded(case.value, 1.5))
    assert asked.event == Repeated(declare(case.mechanism).event, 2)
    if case.way is not None and not case.way.adds:
        assert isinstance(answer, int)
    else:
        assert np.isfinite(getattr(answer, "value", answer)).all()


@every_case
def test_a_value_that_was_not_declared_is_refused(case):
    declared, asked = declare(case.mechanism), curator(noise=Silent())
    for bound in (math.nextafter(1.5, 2.0), 3.0, math.inf, math.nan):
        with pytest.raises(PlanMismatchError, match=r"declared for contributions up to 1\.5"):
            asked.release(declared, Bounded(case.value, bound))
    for adjacency in (REPLACE_ONE, Adjacency.ADD_REMOVE):
        other = curator(adjacency, asked.noise)
        with pytest.raises(PlanMismatchError, match=f"'zero_out', but asked under '{adjacency}"):
            other.release(declared, Bounded(case.value, 1.5))
        assert other.event == Composed(())
    with pytest.raises(PlanMismatchError, match=r"rate 1\.0, but asked with one of rate 0\.5"):
        asked.release(declared, Bounded(case.value, 1.5, sampling_rate=0.5))
    assert asked.event == Composed(())


def test_amplification_is_for_values_of_samples_only():
    # The planted bug: a solver declares a sample, but asks about all rows.
    for mechanism in (GaussianNoise(1.0), L2Noise(0.5)):
        declared, asked = declare(mechanism, sampling_rate=0.1), curator()
        with pytest.raises(PlanMismatchError, match=r"rate 0\.1, but asked with one of rate 1\.0"):
            asked.release(declared, Bounded(np.zeros(3), 1.5))
        assert asked.event == Composed(())
        asked.release(declared, Bounded(np.zeros(3), 1.5, sampling_rate=0.1))
        assert asked.event == declared.event


def test_smaller_bound_is_declared_too():
    # The noise is that of the declared bound.
    declared = declare(GaussianNoise(1.0))
    first, second = (
        curator().release(declared, Bounded(np.zeros(3), bound)) for bound in (1.5, 0.1)
    )
    np.testing.assert_array_equal(first, second)


def test_a_check_left_out_is_seen(monkeypatch):
    # The planted bug: with half of the noise, unless the curator compares.
    monkeypatch.setattr(module.Release, "check", lambda *_: None)
    with pytest.raises(AssertionError, match="something was drawn"):
        test_a_value_that_was_not_declared_is_refused(CASES[GaussianNoise])


def test_a_private_value_is_not_shown():
    for value in (SUM, (SUM, 4), (SUM, SUM)):
        assert "0.5" not in repr(Bounded(value, 1.5))
        assert "-1" not in repr(Bounded(value, 1.5))
    assert repr(Bounded(SUM, 1.5)) == "Bounded(<private>, contribution_bound=1.5)"


@pytest.mark.parametrize("senders", [1, 4, 5])
def test_local_noise_adds_up(senders):
    declared = Release("sum", LocalGaussianNoise(3.0, 5), ZERO_OUT, 1.0, 20_000, magnitude=10.0)
    value = Bounded((np.zeros(20_000), senders), 1.0)
    noise = curator().release(declared, value)
    # Two per cent are four standard deviations of this estimate.
    assert noise.std() == pytest.approx(3.0 * math.sqrt(senders), rel=0.02)


def test_terms_that_stay_secret_have_the_noise_that_was_declared():
    for mechanism in (GaussianLinearTerm(2.0, 0.5), L2LinearTerm(2.0, 0.5)):
        declared = Release("term", mechanism, ZERO_OUT, 1.5, 3)
        asked = curator()
        drawn = [asked.release(declared, Bounded((3,), 1.5)) for _ in range(3000)]
        lengths = np.array([np.linalg.norm(one.value) for one in drawn])
        assert math.sqrt(np.mean(lengths**2) / 3) == pytest.approx(declared.noise_std, rel=0.05)
        exponent = declared.scale.exponent
        for one in drawn[:50]:
            assert (one.value * 2.0**-exponent % 1.0 == 0.0).all()
            assert one.rounding >= 0.5 * math.sqrt(3.0) * 2.0**exponent


# Files


@every_case
@pytest.mark.parametrize("adjacency", list(Adjacency), ids=str)
def test_a_mechanism_comes_back_from_json(case, adjacency):
    document = encode(case.mechanism, Mechanism)
    assert decode(Mechanism, document) == case.mechanism
    declared = declare(case.mechanism, adjacency, rounding=1e-9, count=7)
    again = decode(Release, encode(declared))
    assert again == declared
    assert again.scale == declared.scale
    assert again.event == declared.event


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("contribution_bound", -1.0),
        ("sampling_rate", 1.5),
        ("mechanism", {"type": "gaussian_noise", "noise_multiplier": 1.0}),
        ("mechanism", {"type": "l2_noise", "epsilon": 0.0}),
        ("mechanism", {"type": "no_noise"}),
    ],
)
def test_a_document_of_no_release_is_refused(place, value):
    document = encode(declare(L2Noise(0.5)))
    assert decode(Release, document) == declare(L2Noise(0.5))
    document[place] = value
    if place == "mechanism" and value["type"] == "gaussian_noise":
        assert decode(Release, document) == declare(GaussianNoise(1.0))
    else:
        with pytest.raises(ValueError, match=f"{place}|event must be|epsilon"):
            decode(Release, document)


# Who watches


class Watched(Observer):
    """Answers with the position of the question, and says who asked."""

    name = "watched"

    def __init__(self):
        self.seen = []

    def begins(self, plan, rows):
        raise AssertionError("nothing is run")

    def words(self, count):
        raise AssertionError("nothing is drawn")

    def answer(self, declared, value):
        self.seen.append((declared, value))
        return len(self.seen)

    def sample(self, n_rows, sampling_rate):
        self.seen.append((n_rows, sampling_rate))
        return np.arange(n_rows) % 2 == 0


def test_sources_lack_an_observer_unless_declared():
    assert SystemNoise().observer is None
    assert SeededNoise(0).observer is None
    for kind in NoiseSource.__subclasses__():
        if kind.is_private and kind.__module__.startswith("dpglm."):
            assert kind.observer is NoiseSource.observer


@every_case
def test_observer_answers_and_records_everything(case):
    noise = Watched()
    asked, declared = curator(noise=noise), declare(case.mechanism)
    (part,) = asked.parts(1)
    assert asked.release(declared, Bounded(case.value, 1.5)) == 1
    assert part.release(declared, Bounded(case.value, 1.5)) == 2
    assert all(told is declared and value is case.value for told, value in noise.seen)
    assert asked.event == Composed((Parallel((declared.event,)), declared.event)) or (
        asked.event == Repeated(declared.event, 2)
    )
    np.testing.assert_array_equal(asked.sample(3, 0.25), [True, False, True])
    assert noise.seen[2] == (3, 0.25)
    # It sees nothing that was not declared.
    with pytest.raises(PlanMismatchError):
        asked.release(declared, Bounded(case.value, 2.0))
    assert len(noise.seen) == 3


def test_without_an_observer_samples_are_drawn():
    drawn = curator().sample(20_000, 0.25)
    assert drawn.dtype == bool
    assert drawn.mean() == pytest.approx(0.25, abs=0.015)


@pytest.mark.parametrize("declared", list(Unit))
@pytest.mark.parametrize("bounded", list(Unit))
@pytest.mark.parametrize("protected", list(Unit))
def test_a_release_is_about_the_unit_that_is_protected(
    declared: Unit, bounded: Unit, protected: Unit
) -> None:
    one = Release("sum", GaussianNoise(1.0), Adjacency.ZERO_OUT, 1.0, magnitude=1.0, unit=declared)
    curator = Curator(Adjacency.ZERO_OUT, SeededNoise(0), protected)
    value = Bounded(np.zeros(1), 1.0, unit=bounded)
    if declared is bounded is protected:
        curator.release(one, value)
        assert curator.parts(1)[0].unit is protected
    else:
        with pytest.raises(PlanMismatchError, match="is protected"):
            curator.release(one, value)
        assert canonical(curator.event) == canonical(Composed(()))
