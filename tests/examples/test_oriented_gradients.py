"""OrientedGradients: its features, its invariances, and independence of rows."""

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.pipeline import make_pipeline

from dpglm import LogisticRegression
from examples.oriented_gradients import OrientedGradients

SMALL = OrientedGradients((8, 10), n_orientations=4, cells=(2, 3))


def images(n=6, height=8, width=10, dtype=np.float64, seed=0):
    return np.random.default_rng(seed).random((n, height * width)).astype(dtype)


def lengths(features):
    return np.linalg.norm(features.astype(np.float64), axis=1)


class TestPrivacy:
    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_a_row_does_not_see_the_others(self, dtype):
        # Bit by bit, alone or among others, wherever it stands.
        X = np.random.default_rng(1).random((300, 784)).astype(dtype)
        features = OrientedGradients().transform(X)
        order = np.random.default_rng(2).permutation(300)
        assert np.array_equal(OrientedGradients().transform(X[order]), features[order])
        assert np.array_equal(OrientedGradients().transform(np.asfortranarray(X)), features)
        for row in (0, 57, 299):
            assert np.array_equal(OrientedGradients().transform(X[[row]])[0], features[row])

    def test_learns_nothing_from_the_rows_it_is_fitted_on(self):
        one, other = clone(SMALL).fit(images(seed=1)), clone(SMALL).fit(images(2, seed=2))
        assert vars(one) == vars(other)
        assert np.array_equal(one.transform(images()), other.transform(images()))
        assert np.array_equal(one.transform(images()), clone(SMALL).transform(images()))

    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_no_row_is_longer_than_the_bound(self, dtype):
        rng = np.random.default_rng(3)
        limits = np.finfo(dtype)
        X = np.concatenate(
            [
                images(dtype=dtype),
                (images(dtype=dtype) > 0.9).astype(dtype),
                images(dtype=dtype) * (limits.max / 1e6),
                rng.choice([-limits.max / 1e6, limits.max / 1e6], (2, 80)),
                rng.choice([0.0, limits.smallest_subnormal], (2, 80)),
                1.0 + limits.eps * rng.integers(0, 2, (2, 80)),
                np.eye(2, 80) * limits.tiny,
                np.indices((8, 10)).sum(0).reshape(1, 80) % 2,
            ]
        ).astype(dtype)
        features = SMALL.fit(X).transform(X)
        assert SMALL.row_norm_ == 1.0
        assert np.isfinite(features).all()
        assert lengths(features).max() <= 1.0 + 8 * limits.eps
        assert np.allclose(lengths(features[:14]), 1.0)

    @pytest.mark.parametrize("value", [0.0, 0.1, -7.3, 255.0, 1e30])
    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_an_image_of_one_brightness_becomes_zeros(self, value, dtype):
        features = SMALL.transform(np.full((2, 80), value, dtype))
        assert np.array_equal(features, np.zeros_like(features))


class TestFeatures:
    @pytest.mark.parametrize(
        ("dx", "dy", "degrees"), [(1, 0, 0), (0, 1, 90), (-1, 0, 180), (0, -1, 270), (1, 1, 45)]
    )
    def test_the_strongest_direction_is_where_it_gets_brighter(self, dx, dy, degrees):
        rows, columns = np.indices((12, 12))
        maps = OrientedGradients(n_orientations=8, cells=(3,))
        ((strengths),) = maps.fit_transform((dx * columns + dy * rows).reshape(1, -1))
        (top,) = {
            name.split("_")[1]
            for name, value in zip(maps.get_feature_names_out(), strengths, strict=True)
            if value == strengths.reshape(8, 9)[:, 4].max()
        }
        assert top == f"{degrees}deg"

    def test_an_edge_shows_where_it_is(self):
        image = np.zeros((24, 24))
        image[1:7, 20:] = 1.0
        features = OrientedGradients(n_orientations=4, cells=(3,)).transform(image.reshape(1, -1))
        energy = np.square(features.reshape(4, 3, 3)).sum(axis=0)
        assert energy[0, 2] > 0.1
        assert np.allclose(energy[:, 0], 0.0)
        assert np.allclose(energy[2], 0.0, atol=1e-4)

    def test_a_quarter_turn_moves_directions_and_cells(self):
        image = images(1, 12, 12)[0].reshape(12, 12)
        maps = OrientedGradients(n_orientations=8, cells=(3,))
        before, after = (
            maps.transform(one.reshape(1, -1)).reshape(8, 3, 3) for one in (image, np.rot90(image))
        )
        # Counter-clockwise on the screen is towards smaller angles, as rows count downwards.
        turned = np.roll(np.rot90(before, axes=(1, 2)), -2, axis=0)
        assert np.allclose(after, turned, atol=1e-6)

    def test_brightness_and_contrast_do_not_matter(self):
        assert np.allclose(SMALL.transform(images()), SMALL.transform(9.0 + 255.0 * images()))

    def test_names_and_shape(self):
        names = SMALL.fit(images()).get_feature_names_out()
        assert names.tolist()[:2] == ["grid2_0deg_row0_column0", "grid2_0deg_row0_column1"]
        assert names[-1] == "grid3_270deg_row2_column2"
        assert len(set(names)) == SMALL.transform(images()).shape[1] == 4 * (4 + 9)
        assert OrientedGradients().fit_transform(np.eye(2, 784)).shape == (2, 780)


class TestScikitLearn:
    @pytest.mark.parametrize(
        ("given", "expected"),
        [(np.float32, np.float32), (np.float64, np.float64), (np.uint8, np.float32)],
    )
    def test_dtypes(self, given, expected):
        features = SMALL.transform((255 * images()).astype(given))
        assert features.dtype == expected
        assert np.allclose(
            features, SMALL.transform((255 * images()).astype(given) / 255), atol=1e-6
        )

    def test_blocks_do_not_show(self, monkeypatch):
        whole = SMALL.transform(images(9))
        monkeypatch.setattr("examples.oriented_gradients._BLOCK_ENTRIES", 700)
        assert np.array_equal(SMALL.transform(images(9)), whole)

    def test_clones_pickles_and_names_columns(self):
        again = pickle.loads(pickle.dumps(clone(SMALL)))
        assert again.get_params() == SMALL.get_params()
        frame = again.set_output(transform="pandas").fit_transform(images())
        assert isinstance(frame, pd.DataFrame)
        assert frame.columns.tolist() == SMALL.get_feature_names_out().tolist()

    def test_goes_before_an_estimator(self):
        X = np.zeros((400, 64))
        X[:200] += np.tile(np.arange(8.0), 8)
        X[200:] += np.repeat(np.arange(8.0), 8)
        X += np.random.default_rng(0).random(X.shape)
        y = np.repeat([0, 1], 200)
        features = OrientedGradients(cells=(2,)).fit(X)
        model = LogisticRegression(
            epsilon=1.0, delta=1e-5, classes=[0, 1], row_norm=features.row_norm_, random_state=0
        )
        assert make_pipeline(features, model).fit(X, y).score(X, y) > 0.99

    def test_width_is_remembered(self):
        fitted = clone(SMALL).fit(images())
        assert fitted.n_features_in_ == 80
        with pytest.raises(ValueError, match="64 features"):
            fitted.transform(np.eye(64))


@pytest.mark.parametrize(
    ("settings", "X", "message"),
    [
        ({}, np.eye(80), r"image_shape .* = 80, .*got None"),
        ({"image_shape": (8, 9)}, np.eye(80), r"image_shape .* = 80, .*got \(8, 9\)"),
        ({"image_shape": (1, 80)}, np.eye(80), "image_shape must be .* at least 2, got 1"),
        ({"image_shape": (8, 10, 1)}, np.eye(80), r"image_shape .*got \(8, 10, 1\)"),
        ({"image_shape": 8}, np.eye(64), r"image_shape must be \(height, width\) .*got 8"),
        ({"n_orientations": 2}, np.eye(64), "n_orientations must be .* at least 3, got 2"),
        ({"cells": ()}, np.eye(64), r"cells must be a sequence of integers, got \(\)"),
        ({"cells": 4}, np.eye(64), "cells must be a sequence of integers, got 4"),
        ({"cells": (4, 1)}, np.eye(64), "cells must be .* at least 2, got 1"),
        ({"cells": (4, 9)}, np.eye(64), r"cells must be at most 8, .*got \(4, 9\)"),
        ({"cells": (4,)}, np.full((2, 64), np.nan), "NaN"),
        ({"cells": (4,)}, np.full((2, 64), np.inf), "infinity"),
        ({"cells": (4,)}, np.zeros((2, 8, 8)), "dim 3"),
    ],
)
def test_refuses(settings, X, message):
    with pytest.raises(ValueError, match=message):
        OrientedGradients(**settings).fit(X)
    with pytest.raises(ValueError, match=message):
        OrientedGradients(**settings).transform(X)
