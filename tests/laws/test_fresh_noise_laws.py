"""No two things that are released share noise: steps, classes, fits, copies, workers."""

from __future__ import annotations

import copy
import itertools
import multiprocessing
import pickle
from concurrent.futures import ThreadPoolExecutor
from unittest import mock

import dask
import numpy as np
import pytest
from joblib import Parallel, delayed
from sklearn.base import clone

from dpglm import LogisticRegression, NoisyGD, PrivatePipeline
from dpglm.data.prepare import prepare_rows
from dpglm.preprocessing import Center
from dpglm.privacy import ApproximateDP
from dpglm.privacy.noise import NoiseSource, SeededNoise, SystemNoise, additive
from dpglm.solvers import run
from tests.laws.mechanisms import CASES
from tests.laws.test_solver_laws import PROBLEMS, SOLVERS, make_data
from tests.laws.transcripts import listening

LEAST, MOST_ASKED = 4, 8
"""Numbers that two releases cannot share by chance; number of compared releases of a run."""


def plan_of(name):
    """With several classes where the solver takes them."""
    problem = [one for one in PROBLEMS if SOLVERS[name].takes(one)]
    problem = next((one for one in problem if one.loss.target.value == "class"), problem[0])
    X, y, spec = make_data(problem, n=130)
    plan = SOLVERS[name].solver.plan(problem, ApproximateDP(1.0, 1e-5), spec)
    return plan, prepare_rows(X, y, spec)


def noises(plan, rows, source):
    """Noise in each release of a run, class by class."""
    with listening(most=MOST_ASKED, own_noise=True) as seen:
        run(plan, rows, source)
    drawn = [
        one.answer - one.exact for one in seen.asked if CASES[type(one.declared.mechanism)].way.adds
    ]
    columns = [column for noise in drawn for column in np.atleast_2d(noise.T)]
    # Five digits are enough, and those that values have cut off do not matter.
    return [
        (column / abs(column).max()).round(5).tobytes()
        for column in columns
        if len(column) >= LEAST
    ]


def repeats(pieces):
    return len(set(pieces)) < len(pieces)


@pytest.mark.parametrize("name", SOLVERS)
def test_steps_classes_and_runs_have_fresh_noise(name):
    plan, rows = plan_of(name)
    first, second = (noises(plan, rows, SystemNoise()) for _ in range(2))
    assert not repeats(first + second)
    if not first:
        return
    # The pattern of a fixed seed, and of a draw shared by all classes or steps.
    assert repeats(noises(plan, rows, SeededNoise(1)) + noises(plan, rows, SeededNoise(1)))


def test_noise_that_steps_or_classes_share_is_caught():
    plan, rows = plan_of("noisy_gd")
    add = additive.add_gaussian

    def same_key(value, std, k, source):
        return add(value, std, k, SeededNoise(1))

    def same_for_classes(value, std, k, source):
        return value + add(np.zeros_like(value[:, :1]), std, k, source)

    for bug in (same_key, same_for_classes):
        with mock.patch.object(additive, "add_gaussian", bug):
            assert repeats(noises(plan, rows, SystemNoise()))


# Whole fits, by whoever does them.

SHORT = NoisyGD(n_steps=2, clip=0.5, step_size=1.0)
MODELS = {
    "estimator": LogisticRegression(classes=[0, 1, 2], row_norm=2.0, solver=SHORT),
    "pipeline": PrivatePipeline(
        [Center(), LogisticRegression(classes=[0, 1, 2], row_norm=2.0, solver=SHORT)]
    ),
}
X = np.random.default_rng(0).uniform(-1.0, 1.0, size=(60, 3))
Y = np.arange(60) % 3


def shown(model):
    """The visible results of a fit, as bytes."""
    return model.fit(X, Y).coef_.tobytes()


def fitted_again(model):
    return [shown(model) for _ in range(2)]


def copies(model):
    return [shown(make(model)) for make in (clone, copy.deepcopy, repickled) for _ in range(2)]


def repickled(model):
    return pickle.loads(pickle.dumps(model))


def on_threads(model):
    with ThreadPoolExecutor(4) as pool:
        return list(pool.map(lambda _: shown(clone(model)), range(8)))


def in_forks(model):
    with multiprocessing.get_context("fork").Pool(2) as pool:
        return pool.map(shown, [model] * 4, chunksize=1)


def by_joblib(model):
    return Parallel(n_jobs=2, backend="multiprocessing")(delayed(shown)(model) for _ in range(4))


def by_dask(model):
    tasks = [dask.delayed(shown, pure=False)(clone(model)) for _ in range(4)]
    return list(dask.compute(*tasks, scheduler="threads"))


HERE = [fitted_again, copies, on_threads]
ELSEWHERE = [in_forks, by_joblib, by_dask]


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
@pytest.mark.parametrize(
    ("way", "model"),
    [*itertools.product(HERE, MODELS), *((way, "estimator") for way in ELSEWHERE)],
    ids=lambda one: getattr(one, "__name__", one),
)
def test_no_two_fits_share_noise(way, model):
    assert not repeats([*way(MODELS[model]), *way(MODELS[model])])


def test_fits_that_share_noise_are_caught():
    seeded = clone(MODELS["estimator"]).set_params(random_state=1)
    for way in (*HERE, by_dask):
        assert repeats(way(seeded))


class Generator(NoiseSource):
    """A user's own generator, with a state."""

    name = "generator"
    is_private = True

    def __init__(self):
        self.bits = np.random.PCG64()

    def words(self, count):
        return np.asarray(self.bits.random_raw(count), dtype=np.uint64)


class Seeding(Generator):
    """One that pickles to another of its kind, with a state of its own."""

    def __reduce__(self):
        return (Seeding, ())


def test_copies_of_a_source_with_a_state_do_not_repeat_its_noise():
    model = clone(MODELS["estimator"]).set_params(random_state=Generator())
    copied = [make(model) for make in (clone, copy.copy, copy.deepcopy) for _ in range(2)]
    assert not repeats([shown(one) for one in (model, *copied)])
    with pytest.raises(TypeError, match=r"Generator has a state.*__reduce__"):
        pickle.dumps(model)
    model.set_params(random_state=Seeding())
    assert not repeats([shown(one) for one in (model, repickled(model), repickled(model))])
    assert isinstance(repickled(SystemNoise()), SystemNoise)
