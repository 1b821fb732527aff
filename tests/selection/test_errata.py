"""The papers' defects by exact probabilities, and the same for the corrections."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dpglm.data.prepare import prepare_rows
from dpglm.data.rows import DataSpec
from dpglm.oracle.choices import choose_least_generalized, generalized_choice_release
from dpglm.oracle.gradients import Oracle, clipped_loss_sums
from dpglm.privacy import Adjacency
from dpglm.privacy.budget import ApproximateDP
from dpglm.privacy.noise import SeededNoise
from dpglm.privacy.releases import Curator
from dpglm.privacy.selection import choices as selections
from dpglm.privacy.selection.choices import generalized_scores
from dpglm.problem import Problem, Squared
from dpglm.selection import BestIterate


def chance_of_second(gap, scale):
    """Probability that the larger of two scores, ``gap`` apart, is the less with Laplace noise."""
    t = gap / scale
    return 0.5 * math.exp(-t) * (1.0 + t / 2.0)


@pytest.mark.parametrize("epsilon", [0.01, 0.1, 0.25])
def test_song2021_theorem_4_1_does_not_depend_on_epsilon(epsilon):
    # Under its replace-one definition a norm moves by 2 L / n, two norms apart by twice that.
    lipschitz, n = 1.0, 50
    scale, sensitivity = 4.0 * lipschitz / n, 2.0 * lipschitz / n
    tied, apart = chance_of_second(0.0, scale), chance_of_second(2.0 * sensitivity, scale)
    assert math.log(tied / apart) > 2.0 * epsilon
    # Far more than the delta that the theorem has: (2 epsilon, delta) is claimed for everything.
    assert tied - math.exp(2.0 * epsilon) * apart > 0.04
    # Far from a tie the loss of the choice alone comes close to 1, whatever epsilon is.
    far = chance_of_second(40.0 * scale, scale) / chance_of_second(41.0 * scale, scale)
    assert 0.97 < math.log(far) < 1.0


@pytest.mark.parametrize("epsilon", [0.01, 0.1, 0.25, 3.0])
def test_iterate_choice_depends_on_epsilon_and_keeps_it(epsilon):
    # The two probabilities of permute-and-flip for two candidates, in closed form.
    sensitivity = 2.0 / 50

    def chance(gap):
        return 0.5 * math.exp(-epsilon * gap / (2.0 * sensitivity))

    for gap in np.linspace(0.0, 20.0 * sensitivity, 50):
        loss = math.log(chance(gap) / chance(gap + 2.0 * sensitivity))
        assert loss == pytest.approx(epsilon)
        other_way = math.log((1.0 - chance(gap + 2.0 * sensitivity)) / (1.0 - chance(gap)))
        assert other_way <= epsilon
    plan = BestIterate(n_steps=2, clip=1.0, choice_share=0.5).plan(
        Problem(Squared()),
        ApproximateDP(2.0 * epsilon, 1e-5),
        DataSpec(50, 3, target_low=0.0, target_high=1.0),
        Adjacency.REPLACE_ONE,
    )
    choice = plan.method.releases[-1]
    assert choice.event.epsilon == epsilon
    assert choice.scale.std == pytest.approx(2.0 * 1.0 / epsilon, rel=1e-9)


def law_of(scores, sensitivities, epsilon):
    """Probabilities of the generalised exponential mechanism."""
    weights = np.exp(-epsilon * generalized_scores(scores, sensitivities, epsilon, 0.1) / 2.0)
    return weights / weights.sum()


def laws(bounds, epsilon):
    """Laws of the choice with and without a row with an enormous loss at the larger model."""
    data = DataSpec(10, 1, target_low=-1.0, target_high=1.0)
    X = np.vstack([[1.0], np.zeros((9, 1))])
    models = [np.array([0.5]), np.array([20.0])]
    found = []
    for weight in (1.0, 0.0):
        rows = prepare_rows(X, np.ones(10), data, weights=np.array([weight, *np.ones(9)]))
        sums = clipped_loss_sums(rows, Squared().value, models, bounds)
        found.append(law_of([10.0, *sums], [0.0, 2.0, 4.0], epsilon))
    return found


def test_arora2022_algorithm_4_fails_for_losses_above_delta():
    epsilon = 1.0
    # Delta(B) = 2 and 4 bound the losses with high probability.
    present, absent = laws([math.inf, math.inf], epsilon)
    assert np.abs(np.log(present / absent)).max() > 10.0 * epsilon
    present, absent = laws([2.0, 4.0], epsilon)
    assert np.abs(np.log(present / absent)).max() <= epsilon


def test_our_grid_search_clips_losses_to_its_delta(monkeypatch):
    data = DataSpec(10, 1, target_low=-1.0, target_high=1.0)
    models = [np.array([0.5]), np.array([1e150])]
    told, honest = [], selections.generalized_exponential_mechanism

    def listening(scores, sensitivities, epsilon, failure, source):
        told.append((np.array(scores), np.array(sensitivities)))
        return honest(scores, sensitivities, epsilon, failure, source)

    monkeypatch.setattr(selections, "generalized_exponential_mechanism", listening)
    declared = generalized_choice_release(data, Adjacency.ZERO_OUT, [2.0, 4.0], 1.0, 0.1)
    for x in (1.0, -1.0, 0.0):
        rows = prepare_rows(np.vstack([[x], np.zeros((9, 1))]), np.ones(10), data)
        oracle = Oracle(rows, Squared(), Curator(Adjacency.ZERO_OUT, SeededNoise(0)))
        choose_least_generalized(oracle, declared, models, [2.0, 4.0], 1.0, [0.0, 0.0])
    scores, (sensitivities, *_) = (np.array(part) for part in zip(*told, strict=True))
    assert (np.ptp(scores, axis=0) <= sensitivities).all()
    np.testing.assert_allclose(sensitivities, [0.0, 2.0, 4.0], rtol=1e-9)
