"""Pitfalls of facts and randomness: facts from the data, and reused noise."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from unittest import mock

import numpy as np
import pytest

from dpglm import NoisyGD
from dpglm.data.memory import ArrayRows
from dpglm.data.prepare import prepare_rows
from dpglm.data.rows import DataSpec
from dpglm.estimators._private import PrivateEstimator
from dpglm.estimators.linear import _base
from dpglm.exceptions import PublicInformationWarning
from dpglm.oracle import gradients
from dpglm.oracle.gradients import Oracle
from dpglm.privacy import releases as mechanisms
from dpglm.privacy.budget import ApproximateDP, GaussianDP
from dpglm.privacy.noise import SeededNoise, SystemNoise, additive
from dpglm.problem import Logistic, Problem, Softmax
from dpglm.solvers import run
from tests.laws.transcripts import listening
from tests.pitfalls.support import SHORT, caught, model, small

# 7. Facts taken silently from the data; step sizes from un-noised quantities.


def no_setting_depends_on_the_rows():
    X, y = small()
    fits = [
        model(random_state=0).fit(data, labels)
        for data, labels in ((X, y), (X * 1e3, y), (X * 0.0, 1 - y))
    ]
    plans = [fit.solution_.plan for fit in fits]
    assert plans[0] == plans[1] == plans[2] == model().plan(20, 3)


def facts_from_the_data_are_warned_about():
    X, y = small()
    for missing in ("row_norm", "classes"):
        with pytest.warns(PublicInformationWarning, match=missing):
            fitted = model(**{missing: None}).fit(X, y)
        taken = [f.name for f in fitted.privacy_.public_facts if f.provenance == "from the data"]
        assert taken == [missing]
    with pytest.warns(PublicInformationWarning, match="n_rows"):
        model(adjacency="add_remove").fit(X, y)


def step_sizes_are_public():
    X, y = small()
    steps = []
    for data in (X, X * 0.0):
        spec = DataSpec(n_rows=20, n_features=3, row_norm=2.0)
        plan = NoisyGD(n_steps=3, clip=0.5).plan(Problem(Logistic()), GaussianDP(1.0), spec)
        with mock.patch.object(additive, "add_gaussian", lambda value, *_: np.ones_like(value)):
            solution = run(plan, prepare_rows(data, 2.0 * y - 1.0, spec), SeededNoise(0))
        steps.append((solution.w.tolist(), [info.step_size for info in solution.history]))
    assert steps[0] == steps[1]


def test_pitfall_07_no_setting_depends_on_the_rows():
    honest = PrivateEstimator._row_facts

    def measured(self, rows, facts):
        n_rows, groups, _, scaling = honest(self, rows, facts)
        return n_rows, groups, max(rows.longest_row(), 1e-9), scaling

    bug = mock.patch.object(PrivateEstimator, "_row_facts", measured)
    caught(bug, no_setting_depends_on_the_rows)


def test_pitfall_07_facts_from_the_data_are_warned_about():
    bug = mock.patch("dpglm.estimators._private.warnings.warn")
    caught(bug, facts_from_the_data_are_warned_about)


def test_pitfall_07_step_sizes_follow_public_numbers_only():
    # A gradient that is normalised before noise is added has a step size of the data's making.
    honest = Oracle.noisy_gradient

    def normalised(self, declared, w, clip):
        length = np.linalg.norm(gradients.clipped_gradient_sum(self.rows, self.loss, clip, w))
        return honest(self, declared, w, clip) / max(length, 1.0)

    caught(mock.patch.object(Oracle, "noisy_gradient", normalised), step_sizes_are_public)


# 8. Fixed, tiny or shared seeds. Workers, copies and every solver: tests/laws.


def draw(_):
    return SystemNoise().words(4).tobytes()


def fits_differ():
    X, y = small()
    one, two = (model().fit(X, y).coef_ for _ in range(2))
    assert not np.isin(one, two).any()
    assert model().random_state is None


def draws_differ():
    with ThreadPoolExecutor(4) as pool:
        draws = list(pool.map(draw, range(64)))
    draws += [pickle.loads(pickle.dumps(SystemNoise())).words(4).tobytes() for _ in range(2)]
    assert len(set(draws)) == len(draws)


def steps_and_classes_differ():
    spec = DataSpec(n_rows=4, n_features=2, n_outputs=3, intercept=1.0)
    rows = prepare_rows(np.zeros((4, 2)), np.array([0, 1, 2, 0]), spec)
    plan = SHORT.plan(Problem(Softmax()), GaussianDP(1.0), spec)
    with listening(own_noise=True) as seen:
        run(plan, rows, SystemNoise())
    # Sums are zero but for the intercept's.
    shown = np.array([one.answer[:2] for one in seen.asked])
    assert len(np.unique(shown)) == shown.size


def test_pitfall_08_no_two_fits_share_noise():
    bug = mock.patch.object(_base, "noise_source", side_effect=lambda _: SeededNoise(1))
    caught(bug, fits_differ)


def test_pitfall_08_one_byte_of_entropy_is_not_enough():
    honest = SystemNoise.words

    def from_one_byte(self, count):
        return SeededNoise(int(honest(self, 1)[0]) % 256).words(count)

    # Two of 66 draws from 256 seeds agree with probability 1 - 10^-4; of 16 times as many, always.
    def check():
        for _ in range(16):
            draws_differ()

    caught(mock.patch.object(SystemNoise, "words", from_one_byte), check)


def same_key(add):
    return lambda value, std, k, source: add(value, std, k, SeededNoise(1))


def same_for_classes(add):
    def planted(value, std, k, source):
        return value + add(np.zeros_like(value[:, :1]), std, k, source)

    return planted


@pytest.mark.parametrize("bug", [same_key, same_for_classes], ids=lambda bug: bug.__name__)
def test_pitfall_08_steps_and_classes_have_noise_of_their_own(bug):
    planted = bug(additive.add_gaussian)
    caught(mock.patch.object(additive, "add_gaussian", planted), steps_and_classes_differ)


# 10. Poisson accounting of other batches; division by the realised batch size. Statistics of
# samples, for every solver that samples: tests/laws/test_sampler_laws.py.


def batches_are_divided_by_their_expected_size():
    spec = DataSpec(n_rows=8, n_features=1)
    rows = prepare_rows(np.ones((8, 1)), np.ones(8), spec)
    solver = NoisyGD(n_steps=50, step_size=1e-12, clip=0.1, sampling_rate=0.2, momentum=0.0)
    plan = solver.plan(Problem(Logistic()), ApproximateDP(20.0, 1e-2), spec)
    sums = []

    def silent(value, *_):
        sums.append(np.array(value))
        return np.array(value)

    with mock.patch.object(additive, "add_gaussian", silent):
        history = run(plan, rows, SeededNoise(0)).history
    counts = np.array([round(-value[0] / 0.1) for value in sums])
    assert len(counts) == 50
    assert {0, 1, 2} <= set(counts.tolist())
    shown = [info.gradient_norm for info in history]
    np.testing.assert_allclose(shown, counts * 0.1 / 1.6, atol=1e-12)


def by_the_realised_size():
    honest, sizes = Oracle.noisy_gradient, []
    take = ArrayRows.take

    def taking(self, indices):
        sizes.append(len(indices))
        return take(self, indices)

    def divided(self, *args, **options):
        mean = honest(self, *args, **options)
        return mean * 1.6 / max(sizes[-1], 1)

    return mock.patch.multiple(ArrayRows, take=taking), mock.patch.object(
        Oracle, "noisy_gradient", divided
    )


def test_pitfall_10_batches_are_divided_by_their_expected_size():
    counting, dividing = by_the_realised_size()
    with counting:
        caught(dividing, batches_are_divided_by_their_expected_size)


def test_pitfall_10_batches_may_be_empty():
    honest = mechanisms.bernoulli

    def never_empty(source, size, probability):
        entered = honest(source, size, probability)
        entered[0] |= not entered.any()
        return entered

    caught(
        mock.patch.object(mechanisms, "bernoulli", never_empty),
        batches_are_divided_by_their_expected_size,
    )
