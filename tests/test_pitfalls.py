"""Privacy bugs seen in real libraries, by name: this library is free of them, and would notice."""

from __future__ import annotations

import dataclasses
import math
import pickle
from concurrent.futures import ThreadPoolExecutor
from unittest import mock

import numpy as np
import pytest
from scipy import integrate, sparse
from scipy.special import log_ndtr

from dpglm import LogisticRegression, NoisyGD, PrivateGridSearchCV, Ridge
from dpglm.data.prepare import column_scaling, prepare_rows
from dpglm.data.spec import DataSpec
from dpglm.exceptions import PublicInformationWarning
from dpglm.oracle.clipping import FlatClipping
from dpglm.oracle.gradients import clipped_gradient_sum
from dpglm.oracle.rounding import sum_rounding
from dpglm.privacy import mechanisms
from dpglm.privacy.accountants import accountant_for
from dpglm.privacy.budget import ApproximateDP, GaussianDP
from dpglm.privacy.events import Composed, Gaussian, Laplace, LastIterate, PoissonSampled, Repeated
from dpglm.privacy.noise import SeededNoise, SystemNoise
from dpglm.privacy.unit import Adjacency
from dpglm.problem import L2, Logistic, Problem, Softmax
from dpglm.selection import BestIterate, ConfidenceBoosting, NormGridSearch
from dpglm.solvers import Constant, run
from dpglm.solvers.defaults import steps as default_steps
from tests.audit.attack import planted_noise, released_sums, scripted_releases, views
from tests.planted import unclipped

SHORT = NoisyGD(n_steps=3, step_size=0.5, clip=0.5)
PLANNED = DataSpec(n_rows=20, n_features=3, row_norm=2.0, intercept=2.0)


def small(n=20, d=3):
    rng = np.random.default_rng(0)
    return rng.uniform(-1, 1, size=(n, d)), np.arange(n) % 2


def model(**options):
    return LogisticRegression(**{"classes": [0, 1], "row_norm": 2.0, "solver": SHORT, **options})


def first_sum(estimator, X, y, **fit):
    with released_sums() as sums:
        estimator.fit(X, y, **fit)
    return sums[0][0]


# 1. Bounds misread: lower bound used twice, so that a statistic was released exactly.


@pytest.mark.parametrize("bounds", [(-1.0, 3.0), (0.0, 4.0), (-4.0, 0.0), (2.0, 3.0), (-3.0, -2.0)])
def test_pitfall_01_asymmetric_bounds_use_both_ends(bounds):
    low, high = bounds
    scaling = column_scaling(bounds, 1)
    inside = np.array([[low], [high], [(low + high) / 2], [low - 9.0], [high + 9.0]])
    np.testing.assert_allclose(scaling.apply(inside).ravel(), [-1, 1, 0, -1, 1], atol=1e-12)
    wrong = dataclasses.replace(scaling, high=scaling.low)
    assert not np.allclose(wrong.apply(inside).ravel(), [-1, 1, 0, -1, 1], atol=1e-12)
    # Nothing is released without noise: two fits differ in every number.
    X = np.linspace(low - 1, high + 1, 20)[:, np.newaxis]
    y = np.arange(20) % 2
    fits = [model(row_norm=None, feature_bounds=bounds).fit(X, y) for _ in range(2)]
    assert fits[0].coef_ != fits[1].coef_
    assert fits[0].intercept_ != fits[1].intercept_
    ridge = Ridge(row_norm=2.0, target_bounds=bounds, solver=SHORT)
    assert ridge.fit(X, X.ravel()).intercept_ != ridge.fit(X, X.ravel()).intercept_


# 2. The curvature of a row's loss is c R^2, not c R.


def test_pitfall_02_curvature_grows_with_the_square_of_the_row_norm():
    for norm in (0.01, 1.0, 100.0):
        spec = DataSpec(n_rows=100, n_features=1, row_norm=norm)
        largest = 2.0 / (0.25 * norm**2)
        for factor, holds in ((1.0 - 1e-9, True), (1.0 + 1e-6, False)):
            solver = NoisyGD(
                n_steps=5,
                step_size=largest * factor,
                clip=norm,
                momentum=0.0,
                schedule=Constant(),
            )
            plan = solver.plan(Problem(Logistic(), L2(0.1 * norm**2)), GaussianDP(1.0), spec)
            assert (plan.method.amplified is not None) is holds


def exact_delta(epsilon, norm, sigma, eta, penalty):
    """Hockey-stick divergence of two noisy steps on one row of that norm, against none, in 1-D."""
    clip = norm
    shrink = 1.0 / (1.0 + eta * penalty)

    def log_density(w, present):
        # w2 = shrink (w1 - eta (g(w1) + noise)), w1 likewise from zero; integrate over w1.
        scale = shrink * eta * sigma * clip

        def g(u):
            return np.where(present, -norm / (1.0 + np.exp(np.clip(norm * u, -700, 700))), 0.0)

        grid = np.linspace(-9 * scale, 9 * scale + shrink * eta * clip, 4001)
        first = -0.5 * ((grid + shrink * eta * g(0.0)) / scale) ** 2
        mean = shrink * (grid - eta * g(grid))
        second = -0.5 * ((w[:, np.newaxis] - mean) / scale) ** 2
        total = first + second
        top = total.max(axis=1)
        step = grid[1] - grid[0]
        inner = np.exp(total - top[:, np.newaxis]).sum(axis=1) * step
        return top + np.log(inner) - math.log(2 * math.pi * scale**2)

    reach = 20 * shrink * eta * sigma * clip
    w = np.linspace(-reach, reach, 801)
    p, q = log_density(w, True), log_density(w, False)
    one = integrate.trapezoid(np.maximum(np.exp(p) - np.exp(epsilon + q), 0.0), w)
    other = integrate.trapezoid(np.maximum(np.exp(q) - np.exp(epsilon + p), 0.0), w)
    return max(float(one), float(other))


@pytest.mark.parametrize("norm", [0.01, 1.0, 100.0])
def test_pitfall_02_exact_densities_stay_under_the_claim_at_any_scale(norm):
    penalty, eta = 0.5 * norm**2, 1.0 / norm**2
    spec = DataSpec(n_rows=1, n_features=1, row_norm=norm)
    solver = NoisyGD(n_steps=2, step_size=eta, clip=norm, momentum=0.0, schedule=Constant())
    plan = solver.plan(Problem(Logistic(), L2(penalty)), ApproximateDP(1.0, 1e-3), spec)
    assert isinstance(plan.event, LastIterate)
    sigma = plan.method.noise_multiplier
    assert exact_delta(1.0, norm, sigma, eta, penalty) <= 1e-3
    # With a fraction of the noise, the same computation refutes the claim.
    assert exact_delta(1.0, norm, 0.4 * sigma, eta, penalty) > 1e-3


# 3. An intercept without a penalty breaks strong convexity.


def test_pitfall_03_a_free_intercept_is_never_amplified():
    solver = NoisyGD(n_steps=9, step_size=0.1, clip=0.5, momentum=0.0, schedule=Constant())
    X, y = small()
    free = model(solver=solver, C=0.1, fit_intercept=True).fit(X, y)
    tied = model(solver=solver, C=0.1, fit_intercept=True, penalize_intercept=True).fit(X, y)
    assert isinstance(free.privacy_.event, Repeated)
    assert isinstance(tied.privacy_.event, LastIterate)


# 4. One path that never clips: tests/estimators/test_privacy_of_options.py covers all options.


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("layout", ["dense", "csr"])
def test_pitfall_04_a_row_of_1e6_without_an_intercept_is_clipped_too(fit_intercept, layout):
    X, y = small()
    X[3] = 1e6
    other = X.copy()
    other[3] = -1e6

    def total(data):
        stored = sparse.csr_array(data) if layout == "csr" else data
        return first_sum(model(fit_intercept=fit_intercept), stored, y)

    def distance():
        return float(np.linalg.norm(total(X) - total(other)))

    assert distance() <= 1.0 + 1e-9
    with unclipped():
        assert distance() > 1.0 + 1e-9


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("norm", [1e-15, 1.0, 1e15])
@pytest.mark.parametrize("ratio", [1e-15, 1.0])
def test_pitfall_04_clipping_holds_where_squares_and_factors_underflow(dtype, norm, ratio):
    # Slopes from 1e-40 to 1: squares of small ones underflow, and so may factors.
    clip = ratio * norm
    spec = DataSpec(n_rows=1, n_features=2, n_outputs=3, row_norm=norm, dtype=dtype)
    bound = clip + sum_rounding(spec, Adjacency.ZERO_OUT, clip)
    for gap in np.linspace(0.0, 90.0, 46):
        X = np.array([[0.1 * norm, 0.9 * norm]], dtype=dtype)
        rows = prepare_rows(X, np.array([0]), spec)
        w = np.array([[gap / (0.1 * norm), 0.0, 0.0], [0.0, 0.0, 0.0]])
        total = clipped_gradient_sum(rows, Softmax(), FlatClipping(clip), w)
        assert np.linalg.norm(total) <= bound


# 5. NaN and infinity as distinguishing events.


def test_pitfall_05_values_that_are_not_finite_never_reach_a_sum():
    X, y = small()
    for bad in (np.nan, np.inf, -np.inf):
        broken = X.copy()
        broken[2, 1] = bad
        with pytest.raises(ValueError, match="X contains"):
            model().fit(broken, y)
    # Predictions that overflow become zero slopes, so that one row cannot spoil the sum.
    spec = DataSpec(n_rows=3, n_features=1, dtype="float32")
    rows = prepare_rows(np.ones((3, 1), dtype=np.float32), np.ones(3), spec)
    for w in (1e300, -1e300):
        total = clipped_gradient_sum(rows, Logistic(), FlatClipping(1.0), np.array([w]))
        assert np.isfinite(total).all()


# 7. Facts taken silently from the data; step sizes from un-noised quantities.


def test_pitfall_07_no_setting_depends_on_the_rows():
    X, y = small()
    plans = [
        model(random_state=0).fit(data, labels).solution_.plan
        for data, labels in ((X, y), (X * 1e3, y), (X * 0.0, 1 - y))
    ]
    assert plans[0] == plans[1] == plans[2] == model().plan(20, 3)
    for missing, fact in (("row_norm", "row_norm"), ("classes", "classes")):
        with pytest.warns(PublicInformationWarning, match=fact):
            fitted = model(**{missing: None}).fit(X, y)
        taken = [f.name for f in fitted.privacy_.public_facts if f.provenance == "from the data"]
        assert taken == [fact]
    with pytest.warns(PublicInformationWarning, match="n_rows"):
        model(adjacency="add_remove").fit(X, y)


# 8. Fixed, tiny or shared seeds.


def draw(_):
    return SystemNoise().words(4).tobytes()


def test_pitfall_08_no_two_draws_share_noise():
    X, y = small()
    one, two = (model().fit(X, y).coef_ for _ in range(2))
    assert not np.isin(one, two).any()
    assert model().random_state is None
    with ThreadPoolExecutor(4) as pool:
        draws = list(pool.map(draw, range(64)))
    # Copies do not repeat the original (processes: tests/privacy/test_noise.py).
    draws += [pickle.loads(pickle.dumps(SystemNoise())).words(4).tobytes() for _ in range(2)]
    assert len(set(draws)) == len(draws)


def repeated_draws(shown):
    """Whether noise repeats between steps, coordinates or classes of one run."""
    return len(np.unique(shown)) < shown.size


def test_pitfall_08_steps_and_classes_have_noise_of_their_own():
    spec = DataSpec(n_rows=4, n_features=2, n_outputs=3, intercept=1.0)
    rows = prepare_rows(np.zeros((4, 2)), np.array([0, 1, 2, 0]), spec)
    plan = SHORT.plan(Problem(Softmax()), GaussianDP(1.0), spec)
    assert not repeated_draws(views(plan, rows, range(1)).gradients[:, :, :2])

    def same_key(add):
        return lambda value, std, k, source: add(value, std, k, SeededNoise(1))

    def same_for_classes(add):
        def planted(value, std, k, source):
            return value + add(np.zeros_like(value[:, :1]), std, k, source)

        return planted

    for bug in (same_key, same_for_classes):
        with planted_noise(bug):
            assert repeated_draws(views(plan, rows, range(1)).gradients[:, :, :2])


# 9. Noise that grows with epsilon.


@pytest.mark.parametrize("rate", [1.0, 0.3])
def test_pitfall_09_noise_falls_as_epsilon_grows(rate):
    solver = NoisyGD(n_steps=5, step_size=0.1, clip=0.5, sampling_rate=rate)
    spec = DataSpec(n_rows=10, n_features=2)
    stds = [
        solver.plan(Problem(Logistic()), ApproximateDP(e, 1e-5), spec).method.noise_std
        for e in (0.1, 1.0, 10.0)
    ]
    assert stds[0] > stds[1] > stds[2]


# 10. Poisson accounting of other batches; division by the realised batch size.


def test_pitfall_10_batches_are_divided_by_their_expected_size():
    spec = DataSpec(n_rows=8, n_features=1)
    rows = prepare_rows(np.ones((8, 1)), np.ones(8), spec)
    solver = NoisyGD(n_steps=50, step_size=1e-12, clip=0.1, sampling_rate=0.2, momentum=0.0)
    plan = solver.plan(Problem(Logistic()), ApproximateDP(20.0, 1e-2), spec)
    with released_sums() as sums:
        history = run(plan, rows, SeededNoise(0)).history
    counts = np.array([round(-value[0] / 0.1) for value, _ in sums])
    assert len(counts) == 50
    assert {0, 1, 2} <= set(counts.tolist())
    shown = [info.gradient_norm for info in history]
    np.testing.assert_allclose(shown, counts * 0.1 / 1.6, atol=1e-12)
    realised = counts * 0.1 / np.maximum(counts, 1)
    assert not np.allclose(shown, realised)


# 11. Softmax gradients are up to sqrt(2) |x| long; an intercept without noise.


def test_pitfall_11_softmax_slopes_are_clipped_at_their_true_length():
    spec = DataSpec(n_rows=1, n_features=1, n_outputs=3)
    rows = prepare_rows(np.ones((1, 1)), np.array([0]), spec)
    w = np.array([[-60.0, 60.0, 0.0]])
    free = clipped_gradient_sum(rows, Softmax(), FlatClipping(9.0), w)
    clipped = clipped_gradient_sum(rows, Softmax(), FlatClipping(1.0), w)
    assert np.linalg.norm(free) == pytest.approx(math.sqrt(2.0))
    assert np.linalg.norm(clipped) == pytest.approx(1.0)
    assert Softmax().slope_bound == pytest.approx(math.sqrt(2.0))


@pytest.mark.parametrize("n_classes", [2, 3])
def test_pitfall_11_intercepts_get_noise(n_classes):
    X, _ = small()
    y = np.arange(20) % n_classes
    options = {"classes": list(range(n_classes))}
    fits = [model(**options).fit(X, y).intercept_ for _ in range(2)]
    assert not np.isin(*fits).any()

    def without_last(add):
        def planted(value, std, k, source):
            noisy = add(value, std, k, source)
            noisy[-1] = value[-1]
            return noisy

        return planted

    with planted_noise(without_last):
        one = model(**options, solver=NoisyGD(n_steps=1)).fit(X, y).intercept_
        two = model(**options, solver=NoisyGD(n_steps=1)).fit(X, y).intercept_
    np.testing.assert_array_equal(one, two)


# 12. Replace-one treated as add/remove.


def test_pitfall_12_replace_one_has_twice_the_sensitivity_everywhere():
    X, y = small()
    stds = {}
    for adjacency in ("zero_out", "replace_one"):
        with released_sums() as sums:
            fitted = model(adjacency=adjacency).fit(X, y)
        stds[adjacency] = sums[0][1]
        assert fitted.privacy_.releases[0].noise_scale == pytest.approx(sums[0][1])
    assert stds["replace_one"] == pytest.approx(2.0 * stds["zero_out"], rel=1e-5)
    # Inside the accountant of samples: no smaller than one exact pair of mixtures.
    q, sigma, epsilon = 0.5, 0.7, 1.0
    event = PoissonSampled(q, Gaussian(sigma))
    accountant = accountant_for(event, Adjacency.REPLACE_ONE)
    s = 2.0 * sigma
    x = np.linspace(-20.0, 20.0, 400_001)

    def density(shift):
        return (1 - q) * normal(x, 0.0, s) + q * normal(x, shift, s)

    gap = np.maximum(density(1.0) - math.exp(epsilon) * density(-1.0), 0.0)
    exact = integrate.trapezoid(gap, x)
    assert exact > 1e-3
    assert accountant.delta(event, Adjacency.REPLACE_ONE, epsilon) >= exact


def normal(x, mean, std):
    return np.exp(-0.5 * ((x - mean) / std) ** 2) / (std * math.sqrt(2 * math.pi))


# 13. Accountants that forget counts, or break at the ends.


@pytest.mark.parametrize("adjacency", list(Adjacency))
@pytest.mark.parametrize(
    "event", [Gaussian(3.0), Laplace(5.0), PoissonSampled(0.2, Gaussian(2.0))], ids=repr
)
def test_pitfall_13_a_count_is_never_forgotten(event, adjacency):
    deltas = []
    for count in (1, 4):
        repeated, listed = Repeated(event, count), Composed((event,) * count)
        accountant = accountant_for(repeated, adjacency)
        a = accountant.delta(repeated, adjacency, 0.3)
        assert a == pytest.approx(accountant.delta(listed, adjacency, 0.3), rel=1e-6, abs=1e-12)
        deltas.append(a)
    assert deltas[1] > deltas[0]


@pytest.mark.parametrize("delta", [1e-18, 1e-5, 0.1])
@pytest.mark.parametrize("epsilon", [0.001, 0.01, 1.0, 100.0])
def test_pitfall_13_exact_accounting_holds_at_the_ends(epsilon, delta):
    mu = ApproximateDP(epsilon, delta).gdp_mu()
    assert 0.0 < mu < math.inf
    spent = math.exp(log_ndtr(-epsilon / mu + mu / 2)) - math.exp(
        epsilon + log_ndtr(-epsilon / mu - mu / 2)
    )
    assert spent <= delta * (1 + 1e-6) + 1e-18
    assert accountant_for(Gaussian(1 / mu), Adjacency.ZERO_OUT).epsilon(
        Gaussian(1 / mu), Adjacency.ZERO_OUT, delta
    ) <= epsilon * (1 + 1e-9)


# 14. Data clipped, then the unclipped data used. Centring from a slice that something else spends
# too: tests/estimators/test_pipeline.py shows that it is charged once, and not asked for twice.


def test_pitfall_14_what_was_clipped_is_what_is_summed():
    X, y = small()
    outside, clipped = X * 10.0, np.clip(X * 10.0, -1.0, 1.0)
    options = {"row_norm": None, "feature_bounds": (-1.0, 1.0)}
    np.testing.assert_array_equal(
        first_sum(model(**options), outside, y), first_sum(model(**options), clipped, y)
    )
    assert not np.allclose(
        first_sum(model(**options), X, y), first_sum(model(**options), outside, y)
    )
    ridge = Ridge(row_norm=2.0, target_bounds=(0.0, 1.0), solver=SHORT)
    np.testing.assert_array_equal(first_sum(ridge, X, y * 99.0), first_sum(ridge, X, y * 1.0))


# 15. A crash as a free look: tests/solvers/test_run.py shows that releases are recorded first,
# tests/ledger that a ledger has them on the disk before, whoever is killed or races.


def test_pitfall_15_a_crash_after_a_release_returns_nothing():
    X, y = small()
    calls = []

    def crash(info):
        calls.append(info)
        raise KeyboardInterrupt

    fitted = model(callback=crash)
    with pytest.raises(KeyboardInterrupt):
        fitted.fit(X, y)
    assert len(calls) == 1
    assert not hasattr(fitted, "coef_")
    assert not hasattr(fitted, "solution_")


# 16. Sums in another order; noise whose low bits reveal the value.


def test_pitfall_16_rounding_is_in_the_sensitivity_and_noise_is_on_a_grid():
    X, y = small()
    spec = DataSpec(n_rows=20, n_features=3, row_norm=2.0, intercept=2.0, dtype="float32")
    assert sum_rounding(spec, Adjacency.ZERO_OUT, 0.5) > 0.0
    with released_sums() as sums:
        fitted = model().fit(X.astype(np.float32), y)
    multiplier = fitted.solution_.plan.method.noise_multiplier
    assert sums[0][1] > multiplier * (0.5 + sum_rounding(spec, Adjacency.ZERO_OUT, 0.5))
    # Whatever the data, what is released are multiples of one public power of two.
    plan = SHORT.plan(Problem(Logistic()), GaussianDP(1.0), DataSpec(n_rows=4, n_features=2))
    shown = []
    for scale in (0.1, 0.7):
        rows = prepare_rows(np.full((4, 2), scale / 3.0), np.ones(4), plan.data)
        shown.append(views(plan, rows, range(5)).gradients * 4.0)
    step = 2.0 ** (math.floor(math.log2(plan.method.noise_std * 4.0)) - 25)
    for sums_shown in shown:
        np.testing.assert_array_equal(sums_shown % step, 0.0)

    def naive(add):
        return lambda value, std, k, source: value + add(np.zeros_like(value), std, k, source)

    with planted_noise(naive):
        rows = prepare_rows(np.full((4, 2), 0.1 / 3.0), np.ones(4), plan.data)
        assert (views(plan, rows, range(5)).gradients * 4.0 % step != 0.0).any()


# 17. Private selection that reports the winner's true score.


SELECTING = [
    BestIterate(n_steps=2),
    NormGridSearch(SHORT, bounds=(1.0, 2.0)),
    ConfidenceBoosting(SHORT, n_models=2),
]


def shown_by(solver, X):
    """All that a fit shows where noise and choices happen to be the same whatever the data."""
    with (
        planted_noise(lambda add: lambda value, *_: np.full_like(value, 0.1)),
        mock.patch.object(mechanisms, "permute_and_flip", return_value=1),
        mock.patch.object(mechanisms, "generalized_exponential_mechanism", return_value=1),
    ):
        fitted = model(solver=solver, random_state=0).fit(X, small()[1])
    seen = fitted.solution_
    return fitted.coef_.tolist(), repr(seen.history), repr(fitted.privacy_.to_dict())


@pytest.mark.parametrize("solver", SELECTING, ids=lambda solver: type(solver).__name__)
def test_pitfall_17_the_score_of_the_winner_is_not_shown(solver):
    X, _ = small()
    assert shown_by(solver, X) == shown_by(solver, -2.0 * X)
    # What would show it: the norm, or the mean loss, of what was chosen, as a diagnostic.
    method = type(solver.plan(Problem(Logistic()), ApproximateDP(1.0, 1e-5), PLANNED).method)
    honest = method.step

    def telling(self, state, oracle):
        new, info = honest(self, state, oracle)
        if new.chosen is None:
            return new, info
        score = clipped_gradient_sum(oracle.rows, Logistic(), FlatClipping(1.0), new.chosen)
        return new, dataclasses.replace(info, gradient_norm=float(np.linalg.norm(score)))

    with mock.patch.object(method, "step", telling):
        assert shown_by(solver, X) != shown_by(solver, -2.0 * X)


@pytest.mark.parametrize("method", ["repeated", "held_out"])
def test_pitfall_17_a_search_shows_no_score(method):
    X, y = small()

    def shown(X):
        with (
            planted_noise(lambda add: lambda value, *_: np.full_like(value, 0.1)),
            mock.patch.object(mechanisms, "permute_and_flip", return_value=1),
        ):
            search = PrivateGridSearchCV(model(random_state=0), {"C": [0.1, 1.0]}, method=method)
            search.fit(X, y)
        found = {name: value for name, value in vars(search).items() if name.endswith("_")}
        solution, best = found.pop("solution_"), found.pop("best_estimator_")
        return repr((found, best.coef_.tolist(), solution.history, solution.coefficient_noise))

    assert shown(X) == shown(-2.0 * X)
    # What would show it: a mean over the rows, as scores are.
    honest = PrivateGridSearchCV.fit

    def telling(self, X, y):
        self.best_score_ = float(honest(self, X, y).decision_function(X).mean())
        return self

    with mock.patch.object(PrivateGridSearchCV, "fit", telling):
        assert shown(X) != shown(-2.0 * X)


# 18. Odd sizes: tests/estimators/test_bad_input.py; here what privacy needs of them.


@pytest.mark.parametrize("n", [1, 2, 255, 256, 257])
def test_pitfall_18_sensitivity_holds_for_odd_n(n):
    rng = np.random.default_rng(n)
    X = rng.uniform(-1, 1, size=(n, 2))
    other = X.copy()
    X[-1], other[-1] = 1e6, -1e6
    y = np.ones(n)
    spec = DataSpec(n_rows=n, n_features=2)
    a, b = (
        clipped_gradient_sum(prepare_rows(m, y, spec), Logistic(), FlatClipping(0.3), np.zeros(2))
        for m in (X, other)
    )
    assert 0.599 < np.linalg.norm(a - b) <= 0.6 + sum_rounding(spec, Adjacency.REPLACE_ONE, 0.3)


# 19. y of shape (n, 1) against predictions of shape (n,).


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.DataConversionWarning")
@pytest.mark.parametrize("shape", [(20,), (20, 1)])
@pytest.mark.parametrize("kind", [np.array, list, tuple])
def test_pitfall_19_every_shape_of_y_keeps_the_clip(shape, kind):
    X, y = small()
    labels = y.reshape(shape)
    given = labels if kind is np.array else kind(labels.tolist())
    with scripted_releases(seed=0, size=3.0) as sums:
        model().fit(X, given)
    with scripted_releases(seed=0, size=3.0) as expected:
        model().fit(X, y)
    for (a, _), (b, _) in zip(sums, expected, strict=True):
        assert a.shape == (4,)
        np.testing.assert_array_equal(a, b)
        assert np.linalg.norm(a) <= 20 * 0.5
    for wrong in ((1, 20), (20, 2), (20, 1, 1)):
        with pytest.raises(ValueError, match=r"1d|dim|array"):
            model().fit(X, np.resize(y, wrong))


# 20. Approximations that report an epsilon below the true one.


def test_pitfall_20_sampled_epsilon_is_above_an_exact_lower_bound():
    # One step is known in closed form; the central-limit value of many steps is below it.
    q, sigma, epsilon = 0.1, 0.8, 1.0
    event = PoissonSampled(q, Gaussian(sigma))
    x = np.linspace(-20.0, 20.0, 400_001)
    mixture = (1 - q) * normal(x, 0.0, sigma) + q * normal(x, 1.0, sigma)
    exact = integrate.trapezoid(
        np.maximum(mixture - math.exp(epsilon) * normal(x, 0.0, sigma), 0.0), x
    )
    claimed = accountant_for(event, Adjacency.ADD_REMOVE).delta(
        event, Adjacency.ADD_REMOVE, epsilon
    )
    assert exact <= claimed <= exact * 1.05
    mu = q * math.sqrt(math.exp(sigma**-2) - 1.0)
    limit = math.exp(log_ndtr(-epsilon / mu + mu / 2)) - math.exp(
        epsilon + log_ndtr(-epsilon / mu - mu / 2)
    )
    assert limit < exact


def test_step_sizes_are_functions_of_public_numbers_alone():
    # Pitfall 7 again, at the level of the function that decides them.
    options = {"clip": 0.5, "momentum": 0.9, "schedule": Constant()}
    spec = DataSpec(n_rows=100, n_features=2)
    decided = [
        default_steps(Logistic(), spec, mu=0.3, n_steps=None, step_size=None, **options)
        for _ in range(2)
    ]
    assert decided[0] == decided[1]
