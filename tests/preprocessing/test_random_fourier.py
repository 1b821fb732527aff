"""RandomFourierFeatures: the kernel it meets, its bounds, and that each row is mapped alone."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

from dpglm import LogisticRegression
from dpglm.preprocessing import RandomFourierFeatures


def rows(n=20, d=5, dtype=np.float64, seed=0):
    return np.random.default_rng(seed).uniform(-1.0, 1.0, (n, d)).astype(dtype)


def lengths(features):
    return np.linalg.norm(features.astype(np.float64), axis=1)


@parametrize_with_checks([RandomFourierFeatures(10)])
def test_scikit_learn_accepts_it(estimator, check):
    check(estimator)


class TestPrivacy:
    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    @pytest.mark.parametrize("d", [1, 13, 200])
    def test_a_row_does_not_see_the_others(self, dtype, d):
        # Bit by bit, alone or among others, wherever it stands.
        X = rows(301, d, dtype)
        maps = RandomFourierFeatures(75)
        features = maps.transform(X)
        order = np.random.default_rng(2).permutation(301)
        assert np.array_equal(maps.transform(X[order]), features[order])
        assert np.array_equal(maps.transform(np.asfortranarray(X)), features)
        for row in (0, 57, 300):
            assert np.array_equal(maps.transform(X[[row]])[0], features[row])

    def test_learns_nothing_from_the_rows_it_is_fitted_on(self):
        one, other = (RandomFourierFeatures(10).fit(rows(n, seed=n)) for n in (5, 9))
        assert vars(one) == vars(other)
        assert np.array_equal(one.transform(rows()), RandomFourierFeatures(10).transform(rows()))

    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_every_row_has_length_one_and_every_entry_is_bounded(self, dtype):
        limits = np.finfo(dtype)
        X = np.concatenate([s * rows(dtype=dtype) for s in (0.0, limits.tiny, 1.0, 1e30)])
        X[-1] = np.tile([limits.max, limits.min], 3)[:5]
        features = RandomFourierFeatures(25).fit_transform(X)
        assert RandomFourierFeatures(25).fit(X).row_norm_ == 1.0
        assert np.allclose(lengths(features), 1.0, atol=8 * limits.eps)
        assert np.abs(features).max() <= 0.2 * (1.0 + 4 * limits.eps)

    def test_the_default_scale_depends_on_the_number_of_columns_alone(self):
        by_hand = RandomFourierFeatures(10, length_scale=0.25 * 7**0.5)
        for scale in (0.1, 10.0):
            X = scale * rows(d=7)
            assert np.array_equal(RandomFourierFeatures(10).transform(X), by_hand.transform(X))


class TestKernel:
    @pytest.mark.parametrize("n_directions", [3, 5, 6, 40])
    def test_inner_products_are_unbiased(self, n_directions):
        X = rows(8)
        kernel = np.exp(-np.square(X[:, None] - X).sum(2) / (2 * 0.8**2))
        products = []
        for seed in range(400):
            maps = RandomFourierFeatures(n_directions, length_scale=0.8, seed=seed)
            features = maps.fit_transform(X)
            products.append(features @ features.T)
        error = np.mean(products, axis=0) - kernel
        spread = np.std(products, axis=0) / 400**0.5
        assert (np.abs(error) <= 4.5 * spread + 1e-12).all()

    def test_orthogonal_directions_are_nearer_than_independent_ones(self):
        from sklearn.kernel_approximation import RBFSampler

        X = rows(100, 8)
        kernel = np.exp(-np.square(X[:, None] - X).sum(2) / (2 * 2.0**2))

        def error(make):
            features = [make(seed).fit_transform(X) for seed in range(20)]
            return np.mean([np.square(one @ one.T - kernel) for one in features])

        ours = error(lambda s: RandomFourierFeatures(32, length_scale=2.0, seed=s))
        theirs = error(lambda s: RBFSampler(gamma=0.125, n_components=64, random_state=s))
        assert ours < 0.5 * theirs

    def test_a_linear_model_becomes_nonlinear(self):
        X = rows(2000, 2)
        y = np.sin(3.0 * X[:, 0]) * X[:, 1]
        features = RandomFourierFeatures(50, length_scale=0.7).fit_transform(X)
        assert Ridge(1e-3).fit(X, y).score(X, y) < 0.1
        assert Ridge(1e-3).fit(features, y).score(features, y) > 0.98

    def test_a_private_one_too(self):
        X = rows(4000, 2)
        y = (X[:, 0] * X[:, 1] > 0).astype(int)
        maps = RandomFourierFeatures(50, length_scale=0.5).fit(X)
        model = LogisticRegression(
            epsilon=1.0, delta=1e-5, classes=[0, 1], row_norm=maps.row_norm_, random_state=0
        )
        assert make_pipeline(maps, model).fit(X, y).score(X, y) > 0.85


def test_seeds_give_other_directions():
    one, other, again = (RandomFourierFeatures(10, seed=s).transform(rows()) for s in (0, 1, 0))
    assert np.array_equal(one, again)
    assert not np.allclose(one, other)


def test_blocks_do_not_show(monkeypatch):
    whole = RandomFourierFeatures(10).transform(rows())
    monkeypatch.setattr("dpglm.preprocessing.features._BLOCK_ENTRIES", 70)
    assert np.array_equal(RandomFourierFeatures(10).transform(rows()), whole)


def test_clones_and_names_columns():
    maps = clone(RandomFourierFeatures(2, length_scale=2.0, seed=3)).set_output(transform="pandas")
    assert maps.get_params() == {"n_directions": 2, "length_scale": 2.0, "seed": 3}
    names = maps.fit_transform(rows()).columns.tolist()
    assert names == [f"randomfourierfeatures{k}" for k in range(4)]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_directions": 0}, "n_directions must be .* at least 1, got 0"),
        ({"length_scale": 0.0}, "length_scale must be .* at least 1e-.*, got 0.0"),
        ({"length_scale": np.inf}, "length_scale must be a finite number .*, got inf"),
        ({"seed": -1}, "seed must be .* at least 0, got -1"),
        ({"seed": None}, "seed must be .* at least 0, got None"),
    ],
)
def test_refuses(settings, message):
    with pytest.raises(ValueError, match=message):
        RandomFourierFeatures(**settings).fit(rows())
    with pytest.raises(ValueError, match=message):
        RandomFourierFeatures(**settings).transform(rows())
