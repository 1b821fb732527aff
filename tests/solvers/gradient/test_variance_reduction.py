"""SVRG and SVRG++: the textbook's steps, exactly the planned releases, noise that shrinks."""

from __future__ import annotations

import itertools
import math
from unittest import mock

import numpy as np
import pytest
from scipy import sparse, stats

from dpglm.data.prepare import prepare_rows
from dpglm.data.rows import DataSpec
from dpglm.privacy import Adjacency, ApproximateDP, GaussianDP, gdp
from dpglm.privacy.events import Gaussian, PoissonSampled, canonical
from dpglm.privacy.noise import SeededNoise
from dpglm.problem import (
    L1,
    L2,
    ElasticNetPenalty,
    Hinge,
    Huber,
    L1Ball,
    L2Ball,
    Logistic,
    NoPenalty,
    Poisson,
    Problem,
    Simplex,
    Softmax,
    Squared,
    SquaredHinge,
    Unconstrained,
)
from dpglm.solvers import (
    SVRG,
    Last,
    NoisyGD,
    RandomIterate,
    SVRGPlusPlus,
    TailAverage,
    UniformAverage,
    run,
)
from dpglm.solvers.gradient import svrg as module
from tests.audit.attack import planted_noise, released_sums, scripted_releases
from tests.planted import pythonic

pytestmark = pytest.mark.one_in(3)

BUDGET = ApproximateDP(1.0, 1e-5)
BOTH = [SVRG, SVRGPlusPlus]
SMALL = {"n_epochs": 3, "inner_steps": 4, "sampling_rate": 1.0, "clip": 0.4, "step_size": 0.3}


def make(loss=None, n_outputs=1, layout="dense", dtype="float64", *, n=60, d=3, intercept=1.0):
    loss = Logistic() if loss is None else loss
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(n, d)) / math.sqrt(d)
    score = X @ np.linspace(3.0, -2.0, d) + 0.3 * rng.normal(size=n)
    if n_outputs > 1:
        y = np.digitize(score, [-0.5, 0.5])
    elif loss.target.value == "binary":
        y = np.where(score > 0, 1, -1)
    else:
        y = np.clip(score / 4.0 + 0.5, 0.0, 1.0)
    spec = DataSpec(
        n,
        d,
        n_outputs=n_outputs,
        intercept=intercept,
        dtype=dtype,
        sparse=layout == "csr",
        target_low=0.0,
        target_high=1.0,
    )
    stored = X.astype(dtype)
    rows = prepare_rows(sparse.csr_array(stored) if layout == "csr" else stored, y, spec)
    full = np.column_stack([stored.astype(float), np.full(n, intercept)]) if intercept else X
    return full, y, spec, rows


# 1. Without noise, a run is the textbook's loop.


def clipped_gradients(loss, X, y, w, clip):
    slopes = loss.slope(X @ w, y)
    rows = np.einsum("nd,n...->nd...", X, slopes)
    lengths = np.sqrt((rows**2).reshape(len(X), -1).sum(axis=1))
    return (rows.T * np.minimum(1.0, clip / np.maximum(lengths, 1e-300))).T


def textbook(X, y, problem, solver, shape, free):
    """Johnson and Zhang's loop on clipped gradients, anchors and starts as each paper has them.

    With momentum it is Nitanda's: gradients are taken beyond the iterate.
    """
    doubling = isinstance(solver, SVRGPlusPlus)

    def feasible(w, eta):
        head = problem.regularizer.prox(w[: len(w) - free], eta)
        return np.concatenate([problem.constraint.project(head), w[len(w) - free :]])

    anchor = w = feasible(np.zeros(shape), 0.0)
    for epoch in range(solver.n_epochs):
        length = solver.inner_steps * (2**epoch if doubling else 1)
        g = clipped_gradients(problem.loss, X, y, anchor, solver.clip)
        if not doubling:
            w = anchor
        iterates, beyond = [], w
        for _ in range(length):
            h = clipped_gradients(problem.loss, X, y, beyond, solver.clip) - g
            before, w = w, beyond - solver.step_size * (g + h).mean(axis=0)
            w = feasible(w, solver.step_size)
            beyond = w + solver.momentum * (w - before)
            iterates.append(w)
        weights = solver.averaging.weights(length, 0.5)
        anchor = np.tensordot(weights, np.array(iterates), 1)
    return anchor


CASES = [
    (SVRG, (Logistic(), 1), NoPenalty(), Unconstrained(), Last(), ("dense", "float64")),
    (SVRG, (Logistic(), 1), L2(0.1), Unconstrained(), UniformAverage(), ("csr", "float64")),
    (SVRG, (Squared(), 1), L1(0.02), L2Ball(0.3), TailAverage(0.5), ("dense", "float32")),
    (SVRG, (Softmax(), 3), L2(0.1), Unconstrained(), Last(), ("csr", "float32")),
    (SVRG, (Huber(0.3), 1), NoPenalty(), Simplex(), Last(), ("dense", "float64")),
    (SVRGPlusPlus, (Logistic(), 1), NoPenalty(), L1Ball(0.4), Last(), ("dense", "float64")),
    (
        SVRGPlusPlus,
        (Squared(), 1),
        ElasticNetPenalty(0.05, 0.5),
        Unconstrained(),
        UniformAverage(),
        (
            "csr",
            "float32",
        ),
    ),
    (SVRGPlusPlus, (Softmax(), 3), L2(0.1), L2Ball(0.5), UniformAverage(), ("dense", "float64")),
]


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c[0].__name__}-{CASES.index(c)}")
@pytest.mark.parametrize(("whole", "momentum"), [(False, 0.0), (True, 0.0), (True, 0.6)])
def test_without_noise_it_is_the_textbook_loop(case, whole, momentum):
    kind, (loss, n_outputs), penalty, allowed, averaging, layout = case
    X, y, spec, rows = make(loss, n_outputs, *layout)
    problem = Problem(loss, penalty, allowed, penalize_intercept=whole)
    solver = kind(**SMALL, averaging=averaging, momentum=momentum)
    plan = solver.plan(problem, GaussianDP(1.0), spec)
    with released_sums():
        got = run(plan, rows, SeededNoise(5)).w
    expected = textbook(X, y, problem, solver, spec.coefficient_shape, 0 if whole else 1)
    np.testing.assert_allclose(got, expected, atol=2e-5 if spec.dtype == "float32" else 1e-9)


def test_a_random_iterate_is_drawn_anew_for_each_epoch_and_run():
    _, _, spec, _ = make()
    plan = SVRG(**{**SMALL, "n_epochs": 6}, averaging=RandomIterate()).plan(
        Problem(Logistic()), GaussianDP(1.0), spec
    )
    picks = [plan.method.init(seed).weights.reshape(6, 4).argmax(axis=1) for seed in range(40)]
    assert {tuple(p) for p in picks} != {tuple(picks[0])}
    assert len(set(np.concatenate(picks).tolist())) == 4
    assert all(plan.method.init(seed).weights.sum() == 6.0 for seed in range(3))


# 2. Releases and their cost.


@pytest.mark.parametrize(
    ("solver", "anchors", "differences"),
    [
        (SVRG(n_epochs=4, inner_steps=7, sampling_rate=0.3), 4, 4 * 6),
        (SVRG(n_epochs=4, inner_steps=1, sampling_rate=0.3), 4, 0),
        (SVRGPlusPlus(n_epochs=3, inner_steps=5, sampling_rate=0.3), 3, 5 + 10 + 20 - 1),
        (SVRGPlusPlus(n_epochs=1, inner_steps=2, sampling_rate=0.3), 1, 1),
    ],
    ids=["svrg", "anchors only", "svrg++", "one epoch"],
)
def test_steps_at_the_anchor_release_no_difference(solver, anchors, differences):
    _, _, spec, rows = make()
    plan = solver.plan(Problem(Logistic()), BUDGET, spec)
    method = plan.method
    terms = dict(canonical(plan.event).terms)
    assert terms.pop(Gaussian(method.anchor_noise_multiplier)) == anchors
    sampled = PoissonSampled(0.3, Gaussian(method.difference_noise_multiplier))
    assert terms == ({sampled: differences} if differences else {})
    run(plan, rows, SeededNoise(0))  # compares the run with this
    passes = anchors + 2 * 0.3 * differences
    assert method.gradient_evaluations == pytest.approx(passes * spec.n_rows)


@pytest.mark.parametrize("kind", BOTH)
def test_gradient_evaluations_are_those_that_happen(kind):
    _, _, spec, rows = make()
    plan = kind(**SMALL).plan(Problem(Logistic()), GaussianDP(1.0), spec)
    counted = []
    original = Logistic.slope

    def counting(self, z, y):
        counted.append(len(z))
        return original(self, z, y)

    with pythonic(), mock.patch.object(Logistic, "slope", counting):
        run(plan, rows, SeededNoise(0))
    assert sum(counted) == plan.method.gradient_evaluations


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize("share", [0.2, 0.8])
@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_full_batches_spend_the_budget_in_stated_shares(kind, share, adjacency):
    _, _, spec, _ = make()
    plan = kind(**SMALL, anchor_share=share).plan(
        Problem(Logistic()), GaussianDP(0.7), spec, adjacency
    )
    anchors, differences = plan.method.releases
    squares = [one.count / one.noise_multiplier**2 for one in (anchors, differences)]
    assert sum(squares) == pytest.approx(0.49, rel=1e-8)
    assert sum(squares) <= 0.49
    # The split takes the cheaper of two costs, which is the plain one here or just about.
    assert squares[0] == pytest.approx(share * 0.49, rel=0.05)


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize("epsilon", [0.1, 4.0])
def test_sampled_runs_are_within_budget_independently(kind, epsilon):
    from dp_accounting import dp_event
    from dp_accounting.rdp import RdpAccountant

    spec = DataSpec(n_rows=5000, n_features=3)
    solver = kind(n_epochs=3, inner_steps=6, sampling_rate=0.05)
    plan = solver.plan(Problem(Logistic()), ApproximateDP(epsilon, 1e-5), spec)
    accountant = RdpAccountant()
    for one in plan.method.releases:
        event = dp_event.GaussianDpEvent(one.noise_multiplier)
        if one.quantity == "gradient difference sum":
            event = dp_event.PoissonSampledDpEvent(0.05, event)
        accountant.compose(event, one.count)
    # Rényi accounting is looser than privacy-loss distributions, but not by much.
    assert plan.privacy()["epsilon"] <= epsilon
    assert 0.9 * epsilon <= accountant.get_epsilon(1e-5) <= 1.6 * epsilon


# 3. The noise.


def chi_square_rejects(samples, std):
    """Two-sided test at level 1e-6 of zero-mean normal samples against their claimed std."""
    p = stats.chi2.cdf(float(np.square(samples / std).sum()), samples.size)
    return min(p, 1.0 - p) < 5e-7


@pytest.mark.parametrize("rate", [1.0, 0.5])
@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_noise_of_anchors_and_differences_equals_plan(rate, adjacency):
    # Rows of zeros contribute nothing, so estimates are noise; 2 % off would be seen.
    spec = DataSpec(n_rows=7, n_features=20_000, row_norm=2.0, weight_bound=3.0)
    rows = prepare_rows(np.zeros((7, 20_000)), np.ones(7), spec)
    solver = SVRG(n_epochs=2, inner_steps=3, clip=0.3, step_size=1e-3, sampling_rate=rate)
    plan = solver.plan(Problem(Logistic()), BUDGET, spec, adjacency)
    method, shown = plan.method, {"anchor": [], "difference": []}
    anchors, differences = module.Oracle.noisy_gradient, module.noisy_difference

    def anchor(self, *args):
        shown["anchor"].append(anchors(self, *args))
        return shown["anchor"][-1]

    def difference(oracle, declared, w, at, clipping, bound):
        noise = differences(oracle, declared, w, at, clipping, bound)
        assert bound == method.difference_bound(np.linalg.norm(w - at))
        shown["difference"].append((noise, bound))
        return noise

    with (
        mock.patch.object(module.Oracle, "noisy_gradient", anchor),
        mock.patch.object(module, "noisy_difference", difference),
    ):
        run(plan, rows, SeededNoise(0))
    factor = 3.0 * (2.0 if adjacency is Adjacency.REPLACE_ONE else 1.0) / 7.0
    claimed = method.anchor_noise_multiplier * 0.3 * factor
    samples = np.concatenate(shown["anchor"])
    assert samples.size == 40_000
    assert not chi_square_rejects(samples, claimed)
    assert chi_square_rejects(samples, 1.03 * claimed)
    assert chi_square_rejects(samples, 0.97 * claimed)
    samples = np.concatenate([noise / bound for noise, bound in shown["difference"]])
    claimed = method.difference_noise_multiplier * factor / rate
    assert samples.size == 80_000
    assert not chi_square_rejects(samples, claimed)
    assert chi_square_rejects(samples, 1.03 * claimed)
    assert chi_square_rejects(samples, 0.97 * claimed)


def test_half_the_noise_is_noticed():
    spec = DataSpec(n_rows=7, n_features=1000)
    rows = prepare_rows(np.zeros((7, 1000)), np.ones(7), spec)
    plan = SVRG(**{**SMALL, "n_epochs": 1, "inner_steps": 1}).plan(
        Problem(Logistic()), GaussianDP(1.0), spec
    )
    claimed = 0.3 * plan.method.releases[0].scale.std / 7.0

    def half(add):
        return lambda value, std, k, source: add(value, std / 2.0, k, source)

    assert not chi_square_rejects(run(plan, rows, SeededNoise(0)).w, claimed)
    with planted_noise(half):
        assert chi_square_rejects(run(plan, rows, SeededNoise(0)).w, claimed)


@pytest.mark.parametrize("rate", [1.0, 0.5])
def test_noise_shrinks_with_anchor_distance_at_equal_multiplier(rate):
    _, _, spec, _ = make()
    method = SVRG(**{**SMALL, "sampling_rate": rate}).plan(Problem(Logistic()), BUDGET, spec).method
    smooth = 0.25 * 2.0  # of the loss, and the squared norm of a row with its intercept
    for distance in (1e-4, 0.01, 1.0):
        assert method.difference_bound(distance) == pytest.approx(smooth * distance)
    assert method.difference_bound(1e6) == 2.0 * method.clip
    assert method.difference_bound(0.0) == method.least_bound > 0.0
    # In a run with converging iterates, the noise falls by orders of magnitude.
    _, _, spec, rows = make()
    solver = SVRG(n_epochs=6, inner_steps=30, sampling_rate=rate, clip=2.0, step_size=2.0)
    plan = solver.plan(Problem(Logistic(), L2(0.3), penalize_intercept=True), BUDGET, spec)
    with released_sums() as sums:
        run(plan, rows, SeededNoise(0))
    anchors, differences = plan.method.releases
    stds = [std for _, std in sums]
    assert stds.count(anchors.scale.std) == 6
    assert sum(std < 1e-2 * differences.scale.std for std in stds) > 60
    assert max(stds[1:30]) <= differences.scale.std


@pytest.mark.parametrize("adjacency", list(Adjacency))
@pytest.mark.parametrize("layout", [("dense", "float64"), ("csr", "float32")], ids=str)
@pytest.mark.parametrize("kind", BOTH)
def test_along_a_run_no_sum_moves_by_more_than_its_noise_allows(kind, layout, adjacency):
    # The same random releases on two neighbours, so that their sums compare step by step.
    rng = np.random.default_rng(7)
    n = 40
    X = rng.normal(size=(n, 3))
    other = X.copy()
    X[5], other[5] = 1e6, -1e6
    y = rng.choice([-1, 1], n)
    spec = DataSpec(
        n, 3, intercept=1.0, dtype=layout[1], sparse=layout[0] == "csr", weight_bound=2.0
    )
    weights = rng.uniform(0, 2, n)
    weights[5] = 2.0
    absent = weights.copy()
    absent[5] = 0.0
    if adjacency is Adjacency.REPLACE_ONE:
        pair = [(X, weights), (other, weights)]
    else:
        pair = [(X, weights), (X, absent)]
    solver = kind(**{**SMALL, "clip": 1.0})
    plan = solver.plan(Problem(Logistic()), GaussianDP(1.0), spec, adjacency)
    seen = []
    for matrix, w in pair:
        stored = matrix.astype(layout[1])
        rows = prepare_rows(sparse.csr_array(stored) if spec.sparse else stored, y, spec, weights=w)
        with scripted_releases(3, 20.0) as sums:
            run(plan, rows, SeededNoise(0))
        seen.append(sums)
    anchors, differences = plan.method.releases
    nearest = {anchors: 0.0, differences: 0.0}
    for (one, std), (two, _) in zip(*seen, strict=True):
        release = anchors if std == anchors.scale.std else differences
        share = np.linalg.norm(one - two) * release.noise_multiplier / std
        assert share <= 1.0
        nearest[release] = max(nearest[release], share)
    # Not vacuous: attacks get closer still.
    assert nearest[anchors] > 0.4
    if adjacency is not Adjacency.REPLACE_ONE:
        assert nearest[differences] > 0.05


@pytest.mark.one_in(1)
def test_momentum_saves_steps_on_a_large_condition():
    """Remark 4.2 of wang2017, with next to no noise and a condition number of 500."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 5)) * np.logspace(0.0, -1.5, 5) / 3.0
    y = np.where(X @ [1.0, -2.0, 4.0, 8.0, -8.0] + 0.1 * rng.normal(size=400) > 0.0, 1.0, -1.0)
    spec, problem = DataSpec(400, 5), Problem(Logistic(), L2(5e-4))
    rows = prepare_rows(X, y, spec)

    def risk(w):
        return np.logaddexp(0.0, -y * (np.asarray(X) @ w)).mean() + 2.5e-4 * w @ w

    found = {}
    for momentum, n_epochs in ((0.0, 2), (0.8, 2), (0.0, 40)):
        solver = SVRG(n_epochs, 30, 4.0, 10.0, 1.0, momentum=momentum)
        plan = solver.plan(problem, GaussianDP(1e6), spec)
        found[momentum, n_epochs] = risk(run(plan, rows, SeededNoise(0)).w)
    least = found[0.0, 40]
    assert found[0.8, 2] - least < 0.25 * (found[0.0, 2] - least)


@pytest.mark.parametrize(
    "solver",
    [SVRG(**SMALL), SVRG(**SMALL, momentum=0.7), SVRGPlusPlus(**SMALL)],
    ids=repr,
)
@pytest.mark.parametrize("penalty", [NoPenalty(), L2(0.3)], ids=repr)
def test_coefficient_noise_is_an_upper_estimate(solver, penalty):
    d = 20_000
    spec = DataSpec(n_rows=500, n_features=d)
    rows = prepare_rows(np.zeros((500, d)), np.ones(500), spec)
    plan = solver.plan(Problem(Logistic(), penalty), GaussianDP(1.0), spec)
    shown = float(np.std(run(plan, rows, SeededNoise(1)).w))
    assert 0.5 * plan.coefficient_noise <= shown <= 1.02 * plan.coefficient_noise


# 4. The printed algorithm, and ours.


@pytest.mark.parametrize("sigma", [0.001, 0.01, 0.3, 3.0])
def test_printed_first_step_reveals_rows_despite_sampling_claim(sigma):
    # Algorithm 1's first step releases grad F(a) + u, u ~ N(0, (sigma G)^2), the difference being
    # zero: one row moves grad F by up to G / n. Theorem 4.1 accounts for a row that is seen with
    # probability 1/n only. Total variation (delta at epsilon 0), exact for both:
    n = 1000
    printed = 2.0 * stats.norm.cdf(1.0 / (2.0 * n * sigma)) - 1.0
    accounted = (2.0 * stats.norm.cdf(1.0 / (2.0 * sigma)) - 1.0) / n
    assert printed > accounted
    assert accounted <= 1.0 / n
    if sigma == 0.001:
        assert printed > 0.38
    # Ours is accounted for as a Gaussian release of a sum over all rows.
    spec = DataSpec(n_rows=n, n_features=1)
    plan = SVRG(n_epochs=1, inner_steps=1, sampling_rate=1.0 / n).plan(
        Problem(Logistic()), BUDGET, spec
    )
    assert plan.event == Gaussian(plan.method.anchor_noise_multiplier)
    assert gdp.delta(1.0, 1.0 / plan.method.anchor_noise_multiplier) <= 1e-5


def test_every_anchor_is_released_once_with_noise_of_its_own():
    # Every step uses releases only: the estimate is the sum of two releases.
    _, _, spec, rows = make()
    plan = SVRG(**SMALL).plan(Problem(Logistic()), GaussianDP(1.0), spec)
    released = []

    def keeping(add):
        def kept(*args):
            released.append(add(*args))
            return released[-1]

        return kept

    with planted_noise(keeping):
        w = run(plan, rows, SeededNoise(0)).w
    rebuilt, anchor = np.zeros(4), None
    for step, noisy in enumerate(released):
        anchor = noisy / 60.0 if step % 4 == 0 else anchor
        g = anchor if step % 4 == 0 else anchor + noisy / 60.0
        rebuilt = rebuilt - 0.3 * g
    np.testing.assert_allclose(w, rebuilt, atol=1e-9)


# 5. Settings.


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n_epochs", 0),
        ("n_epochs", 1.5),
        ("inner_steps", 0),
        ("step_size", 0.0),
        ("step_size", math.inf),
        ("clip", -1.0),
        ("clip", math.nan),
        ("sampling_rate", 0.0),
        ("sampling_rate", 1.1),
        ("anchor_share", 0.0),
        ("anchor_share", 1.0),
    ],
)
def test_bad_settings_are_named(kind, name, value):
    with pytest.raises(ValueError, match=name):
        kind(**{name: value})


def test_one_step_epoch_would_restart_at_its_anchor():
    assert SVRG(inner_steps=1).inner_steps == 1
    with pytest.raises(ValueError, match="inner_steps"):
        SVRGPlusPlus(inner_steps=1)


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize("loss", [Hinge(), Poisson()], ids=repr)
def test_losses_without_a_bounded_second_derivative_are_refused(kind, loss):
    _, _, spec, _ = make(loss)
    with pytest.raises(ValueError, match="loss must have a bounded second derivative"):
        kind().plan(Problem(loss), BUDGET, spec)


@pytest.mark.parametrize("clip", [1e-17, 1e-11, 1e17])
def test_clips_beyond_the_range_of_floats_are_refused(clip):
    with pytest.raises(ValueError, match="clip"):
        SVRG(clip=clip).plan(Problem(Logistic()), BUDGET, DataSpec(100, 3))


def test_budgets_without_sampling_accounting_are_refused():
    _, _, spec, _ = make()
    with pytest.raises(ValueError, match="budget"):
        SVRG(sampling_rate=0.5).plan(Problem(Logistic()), GaussianDP(1.0), spec)


@pytest.mark.parametrize("kind", BOTH)
def test_given_settings_are_kept_and_others_decided_publicly(kind):
    problem = Problem(SquaredHinge())
    for n, norm, epsilon in itertools.product((1, 50, 10**6), (1e-3, 1e3), (0.05, 5.0)):
        spec = DataSpec(n, 5, row_norm=norm, intercept=norm)
        method = kind(sampling_rate=1.0).plan(problem, ApproximateDP(epsilon, 1e-6), spec).method
        assert 10 <= method.n_steps <= 600
        assert 0.0 < method.step_size < math.inf
        assert 0.0 < method.coefficient_noise < math.inf
    method = kind(**SMALL).plan(problem, GaussianDP(1.0), spec).method
    assert (method.n_epochs, method.lengths[0], method.clip) == (3, 4, 0.4)
    assert (method.step_size, method.sampling_rate) == (0.3, 1.0)


def test_default_batches_cost_as_anchors_and_are_not_tiny():
    large = SVRG().plan(Problem(Logistic()), BUDGET, DataSpec(10**6, 5)).method
    assert large.sampling_rate == pytest.approx(5 / (2 * large.n_steps))
    assert large.gradient_evaluations <= 2.0 * 5 * 10**6
    small = SVRG().plan(Problem(Logistic()), BUDGET, DataSpec(1000, 5)).method
    assert small.sampling_rate == pytest.approx(0.256)
    tiny = SVRG().plan(Problem(Logistic()), BUDGET, DataSpec(100, 5)).method
    assert tiny.sampling_rate == 1.0


# 6. On a strongly convex problem it needs few gradients; certificates hold.


def test_fewer_gradients_reach_the_risk_of_noisy_gd():
    rng = np.random.default_rng(2)
    n, d = 8_000, 5
    X = rng.normal(size=(n, d)) * [1.0, 0.8, 0.6, 0.4, 0.2]
    X /= np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1.0)
    y = np.where(rng.random(n) < 1 / (1 + np.exp(-4.0 * X @ np.ones(d))), 1.0, -1.0)
    problem, spec = Problem(Logistic(), L2(0.005)), DataSpec(n, d)
    rows = prepare_rows(X, y, spec)

    def risk(w):
        return float(Logistic().value(X @ w, y).mean()) + problem.regularizer.value(w)

    def mean_risk(solver):
        plan = solver.plan(problem, BUDGET, spec)
        risks = [risk(run(plan, rows, SeededNoise(seed)).w) for seed in range(3)]
        return np.mean(risks), plan.method.gradient_evaluations

    best = risk(
        run(
            NoisyGD(n_steps=200, clip=5.0).plan(problem, GaussianDP(1e6), spec),
            rows,
            SeededNoise(0),
        ).w
    )
    theirs, many = mean_risk(NoisyGD())
    ours, few = mean_risk(SVRG())
    assert few <= many / 10.0
    assert ours - best <= 2.0 * (theirs - best)
