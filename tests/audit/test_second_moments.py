"""Attacks on second moments and later releases: below the claim, near it, and above it for bugs."""

from __future__ import annotations

import dataclasses
from unittest import mock

import numpy as np

from dpglm.data.rows import DataSpec
from dpglm.oracle import linear as shells_module
from dpglm.oracle import linear as weighted_module
from dpglm.oracle import moments as moments_module
from dpglm.oracle import projection as preconditioned_module
from dpglm.oracle.clipping import BalancedClipping
from dpglm.oracle.gradients import Oracle, clipped_gradient_sum
from dpglm.oracle.moments import constant_column, noisy_second_moments, normalized_second_moments
from dpglm.oracle.targets import near_sum, noisy_near_counts, target_sums
from dpglm.privacy import GaussianDP
from dpglm.privacy.budget import Adjacency
from dpglm.privacy.noise import SeededNoise, additive
from dpglm.privacy.noise.additive import GaussianNoise
from dpglm.privacy.releases import Curator
from dpglm.problem import Logistic, Problem, Squared
from dpglm.solvers import Newton, SufficientStatistics
from dpglm.solvers.second_order import newton as newton_module
from dpglm.solvers.second_order import sufficient_statistics_method as solver_module
from tests.audit.attack import mu_at_least, one_row, planted_noise

MU = 2.0
RUNS, FEW = 400, 120
ROW = np.array([1e6, 0.0])
LEAST_SQUARES = DataSpec(3, 2, row_norm=10.0, target_low=-1.0, target_high=1.0)
LOGISTIC = DataSpec(3, 2, row_norm=10.0)


def plan_of(solver, data, adjacency=Adjacency.ZERO_OUT):
    loss = Logistic() if data is LOGISTIC else Squared()
    return solver.plan(Problem(loss), GaussianDP(MU), data, adjacency)


def released(plan, rows, seed):
    """Run a plan; every noisy vector with its noise, and the basis, or how rows were looked at."""
    seen = []
    original = additive.add_gaussian

    def listening(value, std, k, source):
        noisy = original(value, std, k, source)
        seen.append((noisy, std))
        return noisy

    oracle = Oracle(rows, plan.problem.loss, Curator(plan.adjacency, SeededNoise(seed)))
    points, questions = [], []

    def noting(ask, kernel):
        def asked(oracle, declared, view, how):
            # The present rule: an attacker knows the code.
            questions.append((getattr(*kernel), view, how))
            return ask(oracle, declared, view, how)

        return asked

    with (
        mock.patch.object(additive, "add_gaussian", listening),
        mock.patch.multiple(
            solver_module,
            noisy_weighted_moments=noting(
                solver_module.noisy_weighted_moments, (weighted_module, "weighted_moments")
            ),
            noisy_shell_counts=noting(
                solver_module.noisy_shell_counts, (shells_module, "shell_counts")
            ),
        ),
    ):
        state = plan.method.init(0)
        for _ in range(plan.n_steps):
            points.append(state.w)
            state, _ = plan.method.step(state, oracle)
    return seen, questions or state.basis, points


def least_squares_sums(plan, rows, basis, points):
    """Each release without noise, computed by an attacker who knows the rows."""
    (block,) = rows.blocks()
    kernels = [
        target_sums(plan.data, plan.method.target_shares),
        normalized_second_moments(plan.data, constant_column(plan.data)),
        *(kernel(plan.data, view, how, False) for kernel, view, how in basis),
    ]
    return [kernel(block) for kernel in kernels]


def newton_sums(plan, rows, basis, points):
    (block,) = rows.blocks()
    oracle = Oracle(rows, plan.problem.loss, Curator(plan.adjacency, SeededNoise(0)))
    turned = preconditioned_module.rotated_rows(oracle, basis.vectors)
    gradients = [
        clipped_gradient_sum(
            turned, plan.problem.loss, BalancedClipping(plan.method.clip), basis.inverse @ w
        )
        for w in points
    ]
    return [normalized_second_moments(plan.data, constant_column(plan.data))(block), *gradients]


SUMS = {"least squares": least_squares_sums, "newton": newton_sums}
PLANS = {
    # The first matrix is told exactly by any row; the later ones only by rows at their bounds.
    "least squares": plan_of(SufficientStatistics(first_share=0.85), LEAST_SQUARES),
    "newton": plan_of(Newton(n_steps=2), LOGISTIC),
}


def attack(plan, name, runs, swollen=1.0):
    """Likelihood ratio of "the row is there" over "it is not", over all releases together.

    ``swollen``: how many times too long the attacker takes contributions to be.
    """
    present, absent = (one_row(plan.data, ROW, 1.0, present=here) for here in (True, False))
    guesses = []
    for rows, start in ((present, 0), (absent, runs)):
        ratios = []
        for seed in range(start, start + runs):
            seen, basis, points = released(plan, rows, seed)
            first, second = (SUMS[name](plan, one, basis, points) for one in (present, absent))
            ratios.append(
                sum(
                    float(np.vdot(a - b, noisy - b - swollen * (a - b) / 2.0)) / std**2
                    for (noisy, std), a, b in zip(seen, first, second, strict=True)
                )
            )
        guesses.append(np.array(ratios) > 0.0)
    return mu_at_least(*guesses)


def test_rows_in_single_precision_are_as_private_as_claimed(monkeypatch):
    monkeypatch.setattr(preconditioned_module, "_MANY_ENTRIES", 1)
    plan = plan_of(Newton(n_steps=2), LOGISTIC)
    assert plan.method.declared["gradients"].rounding > 1e-6
    assert 0.5 * MU <= attack(plan, "newton", FEW) <= MU


def matrix_attack(plan, runs):
    """Look at one diagonal entry of the first release, which has most of the budget."""
    present, absent = (one_row(plan.data, ROW, 1.0, present=here) for here in (True, False))
    guesses = []
    for rows, start in ((present, 0), (absent, runs)):
        shown = []
        for seed in range(start, start + runs):
            oracle = Oracle(rows, Squared(), Curator(plan.adjacency, SeededNoise(seed)))
            declared = plan.method.releases[1]
            matrix = noisy_second_moments(oracle, declared, constant_column(plan.data))
            shown.append(matrix[0, 0])
        guesses.append(np.array(shown) > 0.5)
    return mu_at_least(*guesses)


FIRST = plan_of(SufficientStatistics(first_share=0.98), LEAST_SQUARES)


def test_the_diagonal_of_the_matrix_is_as_private_as_claimed():
    assert 0.6 * MU <= matrix_attack(FIRST, RUNS) <= MU


def test_noise_averaged_with_a_second_draw_is_refuted():
    # As when a matrix of noise is made symmetric by adding an independent other one.
    def averaged(add):
        def planted(value, std, k, source):
            zero = np.zeros_like(value)
            noise = [add(zero, std, k, source) for _ in range(4)]
            return value + sum(noise) / 4.0

        return planted

    with planted_noise(averaged):
        assert matrix_attack(FIRST, FEW) > MU


def test_the_row_norm_in_place_of_its_square_is_refuted():
    # Rows that are not scaled to one length contribute up to R^2; noise is for 1, or for R.
    def raw(spec, constant, by=None):
        def block_sum(block):
            rows = moments_module.beside_constant(block, spec.intercept)
            rows = np.column_stack([rows, np.full(len(rows), constant)])
            weights = np.ones(len(rows)) if block.weights is None else block.weights
            return moments_module.pack_symmetric((rows * weights[:, None]).T @ rows / 10.0)

        return block_sum

    with mock.patch.object(moments_module, "normalized_second_moments", raw):
        assert matrix_attack(FIRST, FEW) > MU


def test_a_matrix_without_weights_is_refuted():
    # Rows count in full, in units of a cap that they exceed.
    plan = plan_of(SufficientStatistics(clip=1e-3), LEAST_SQUARES)
    original = weighted_module.weighted_moments

    def unweighted(spec, view, shares, row_by_row):
        larger = dataclasses.replace(view, cap=100.0 * view.cap)
        kernel = original(spec, larger, shares, row_by_row)
        return lambda block: 5.0 * kernel(block)

    with mock.patch.object(weighted_module, "weighted_moments", unweighted):
        assert attack(plan, "least squares", FEW // 2) > MU


HEAVY = plan_of(SufficientStatistics(clip=1e-3), dataclasses.replace(LEAST_SQUARES, weight_bound=5))


def test_weighted_rows_are_as_private_as_claimed():
    assert 0.4 * MU <= attack(HEAVY, "least squares", FEW) <= MU


def test_factors_that_ignore_weights_are_refuted():
    # As if the factor of a heavy row were that of one with a hundredth of its weight.
    original = weighted_module.coordinates_of

    def light(*given):
        z, squares = original(*given)
        return z, 0.01 * squares

    with mock.patch.object(weighted_module, "coordinates_of", light):
        assert attack(HEAVY, "least squares", FEW // 2) > MU


def test_residuals_without_their_bound_are_refuted():
    plan = plan_of(SufficientStatistics(), LEAST_SQUARES)
    original = weighted_module.weighted_moments

    def unbounded(spec, view, shares, row_by_row):
        kernel = original(spec, view, shares, row_by_row)
        return lambda block: 5.0 * kernel(block)

    with mock.patch.object(weighted_module, "weighted_moments", unbounded):
        assert attack(plan, "least squares", FEW // 2) > MU


def test_a_gradient_that_is_clipped_before_the_basis_is_refuted():
    original, turn = newton_module.noisy_preconditioned_gradient, newton_module.rotated_rows
    plan, bases = PLANS["newton"], []

    def turning(oracle, basis, dtype):
        bases.append(basis)
        return turn(oracle, basis, dtype)

    def before(oracle, declared, turned, v, clip):
        basis = bases[-1]

        def clipped_too_soon(rows, loss, clipping, v):
            return 20.0 * basis.T @ clipped_gradient_sum(oracle.rows, loss, clipping, basis @ v)

        planted = mock.patch.object(preconditioned_module, "clipped_gradient_sum", clipped_too_soon)
        with planted:
            return original(oracle, declared, turned, v, clip)

    with mock.patch.multiple(
        newton_module, noisy_preconditioned_gradient=before, rotated_rows=turning
    ):
        assert attack(plan, "newton", FEW // 2, swollen=5.0) > MU


def counts_attack(runs, centers, multiplier=1.0):
    """Look at the cells near the centers that the row would be in, one for each column."""
    data = DataSpec(3, 2, row_norm=1.0)
    present, absent = (one_row(data, CELLS, 1.0, present=here) for here in (True, False))
    noise = GaussianNoise(multiplier / MU)
    declared = near_sum(data).release(data, Adjacency.ZERO_OUT, noise)
    guesses = []
    for rows, start in ((present, 0), (absent, runs)):
        shown = []
        for seed in range(start, start + runs):
            oracle = Oracle(rows, Squared(), Curator(Adjacency.ZERO_OUT, SeededNoise(seed)))
            counts = noisy_near_counts(oracle, declared, centers, 1.0)
            shown.append(counts[0, 0].sum())
        guesses.append(np.array(shown) > 1.0)
    return mu_at_least(*guesses)


CELLS = np.array([0.7, 0.7])


def test_counts_near_a_center_are_as_private_as_claimed():
    assert 0.6 * MU <= counts_attack(RUNS, np.zeros(2)) <= MU


def test_counts_near_a_center_with_half_the_noise_are_refuted():
    assert counts_attack(RUNS, np.zeros(2), 0.5) > MU
