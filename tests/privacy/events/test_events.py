"""Events: JSON, canonical form, refusal of nonsense, the last-iterate formula."""

import json
import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpglm.privacy.events import (
    BoundedRange,
    Composed,
    Gaussian,
    Laplace,
    LastIterate,
    Parallel,
    PerturbedObjective,
    PoissonSampled,
    ProjectedGaussian,
    Pure,
    Repeated,
    canonical,
    event_from_dict,
)

multipliers = st.floats(1e-50, 1e50)
projected = st.builds(ProjectedGaussian, multipliers, st.integers(1, 10**9))
gaussians = st.one_of(st.builds(Gaussian, multipliers), projected)
basic_events = st.one_of(
    gaussians,
    st.builds(Laplace, multipliers),
    st.builds(PoissonSampled, st.floats(1e-50, 1.0), gaussians),
    st.builds(LastIterate, multipliers, st.floats(0.0, 1.0), st.integers(1, 10**9)),
    st.builds(Pure, multipliers),
    st.builds(BoundedRange, multipliers),
    st.builds(PerturbedObjective, multipliers, multipliers),
)
events = st.recursive(
    basic_events,
    lambda inner: st.one_of(
        st.builds(Repeated, inner, st.integers(0, 1000)),
        st.builds(Composed, st.lists(inner, max_size=4).map(tuple)),
        st.builds(Parallel, st.lists(inner, min_size=1, max_size=3).map(tuple)),
    ),
    max_leaves=8,
)


@settings(max_examples=50, deadline=None)
@given(events)
def test_json_round_trip_is_exact(event):
    assert event_from_dict(json.loads(json.dumps(event.to_dict()))) == event


@settings(max_examples=50, deadline=None)
@given(events)
def test_canonical_keeps_every_basic_event_and_is_idempotent(event):
    def counts(anything):
        total = {}
        for basic, count in anything.terms:
            if isinstance(basic, PoissonSampled) and basic.sampling_rate == 1.0:
                basic = basic.event
            total[basic] = total.get(basic, 0) + count
        return total

    flat = canonical(event)
    assert counts(flat) == counts(event)
    assert canonical(flat) == flat
    assert len(counts(flat)) == len(flat.terms)


def test_planned_equals_happened_and_a_missing_step_does_not():
    step, mean = PoissonSampled(0.1, Gaussian(2.0)), Gaussian(7.0)
    planned = Composed((mean, Repeated(step, 3)))
    assert canonical(Composed((mean, step, step, step))) == canonical(planned)
    assert canonical(Composed((mean, step, step))) != canonical(planned)
    assert canonical(Composed((mean, step, step, Gaussian(2.0)))) != canonical(planned)


def test_canonical_of_interleaved_and_empty_events():
    a, b = Gaussian(1.0), Gaussian(2.0)
    interleaved = Composed((a, b, a, b))
    assert canonical(interleaved) == Composed((Repeated(a, 2), Repeated(b, 2)))
    assert canonical(Repeated(Composed((a, b)), 2)) == canonical(interleaved)
    assert canonical(Repeated(a, 0)) == Composed(()) == canonical(Composed((Composed(()),)))
    assert canonical(Repeated(a, 1)) == a
    assert canonical(PoissonSampled(1.0, a)) == a


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf, "1.0", True, None, 1j])
@pytest.mark.parametrize(
    "make", [Gaussian, Laplace, lambda value: LastIterate(value, 0.5, 3)], ids=["g", "l", "i"]
)
def test_bad_multiplier_is_refused(make, value):
    with pytest.raises(ValueError, match="noise_multiplier"):
        make(value)


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: PoissonSampled(0.0, Gaussian(1.0)), "sampling_rate"),
        (lambda: PoissonSampled(1.0 + 1e-15, Gaussian(1.0)), "sampling_rate"),
        (lambda: PoissonSampled(0.5, Laplace(1.0)), "event"),
        (lambda: Pure(0.0), "epsilon"),
        (lambda: BoundedRange(math.inf), "epsilon"),
        (lambda: PerturbedObjective(1.0, 0.0), "curvature_ratio"),
        (lambda: PerturbedObjective(0.0, 1.0), "noise_multiplier"),
        (lambda: ProjectedGaussian(1.0, 0), "dimension"),
        (lambda: ProjectedGaussian(-1.0, 3), "noise_multiplier"),
        (lambda: Parallel(()), "events"),
        (lambda: LastIterate(1.0, -0.1, 3), "contraction"),
        (lambda: LastIterate(1.0, 1.1, 3), "contraction"),
        (lambda: LastIterate(1.0, math.nan, 3), "contraction"),
        (lambda: LastIterate(1.0, 0.5, 0), "steps"),
        (lambda: LastIterate(1.0, 0.5, 2.0), "steps"),
        (lambda: Repeated(Gaussian(1.0), -1), "count"),
        (lambda: Repeated(Gaussian(1.0), True), "count"),
        (lambda: Repeated("gaussian", 1), "event"),
        (lambda: Composed((Gaussian(1.0), None)), "events"),
    ],
)
def test_bad_event_is_refused(make, name):
    with pytest.raises(ValueError, match=name):
        make()


@pytest.mark.parametrize(
    "mapping",
    [
        {"type": "cauchy", "noise_multiplier": 1.0},
        {"noise_multiplier": 1.0},
        {"type": ["gaussian"], "noise_multiplier": 1.0},
        {"type": "gaussian"},
        {"type": "gaussian", "noise_multiplier": 1.0, "count": 3},
        {"type": "gaussian", "noise_multiplier": "1.0"},
        {"type": "gaussian", "noise_multiplier": float("nan")},
        {
            "type": "poisson_sampled",
            "sampling_rate": 0.1,
            "event": {"type": "laplace", "noise_multiplier": 1},
        },
        {"type": "composed", "events": "gaussian"},
        {"type": "parallel", "events": []},
        {"type": "parallel", "events": "gaussian"},
        {"type": "pure", "noise_multiplier": 1.0},
        {"type": "objective_perturbation", "noise_multiplier": 1.0},
        {"type": "projected_gaussian", "noise_multiplier": 1.0, "dimension": 2.5},
        {"type": "composed", "events": [3]},
        [],
        None,
    ],
)
def test_malformed_certificate_is_refused(mapping):
    with pytest.raises(ValueError, match=r"must"):
        event_from_dict(mapping)


def test_numpy_numbers_become_plain_ones():
    event = Repeated(Gaussian(np.float32(0.5)), np.int64(3))
    assert json.loads(json.dumps(event.to_dict()))["count"] == 3
    assert type(event.event.noise_multiplier) is float


@pytest.mark.parametrize("contraction", [0.0, 1e-300, 0.3, 0.99, 1 - 1e-9, 1 - 2**-53])
@pytest.mark.parametrize("steps", [1, 2, 100, 10**9])
def test_last_iterate_formula_against_many_digits(contraction, steps):
    with mpmath.workdps(60):
        c = mpmath.mpf(contraction)
        power = c**steps
        exact = mpmath.sqrt((1 - power) / (1 + power) * (1 + c) / (1 - c)) / 3
        assert LastIterate(3.0, contraction, steps).mu == pytest.approx(float(exact), rel=1e-14)


@settings(max_examples=50, deadline=None)
@given(st.floats(0.0, 1.0), st.integers(1, 10**12))
def test_last_iterate_is_between_one_step_and_composition(contraction, steps):
    mu = LastIterate(1.0, contraction, steps).mu
    assert 1.0 - 1e-15 <= mu <= math.sqrt(steps)


def test_last_iterate_at_the_ends():
    assert LastIterate(4.0, 1.0, 100).mu == 2.5
    assert LastIterate(4.0, 0.0, 100).mu == 0.25
    assert LastIterate(4.0, 0.7, 1).mu == pytest.approx(0.25, rel=1e-15)
