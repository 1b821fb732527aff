"""Small fits with certificates, model files and pages for the tests."""

import numpy as np
from sklearn.base import is_regressor

from dpglm.estimators import LinearRegression, LogisticRegression
from dpglm.problem import L2
from dpglm.solvers.gradient.noisy_gd import NoisyGD
from dpglm.solvers.parts.schedules import Constant

N_ROWS = 400
LAST_ITERATE = NoisyGD(
    n_steps=40, step_size=0.5, clip=1.0, momentum=0.0, schedule=Constant(), sampling_rate=1.0
)
POISSON = NoisyGD(n_steps=20, sampling_rate=0.1)


def admitted_bounds(regressor, bounds):
    """Return bounds on targets, or others if the regressor's loss does not admit these."""
    admits = regressor._loss(1.0).target.admits(bounds).all()
    return bounds if admits else (0.25, 1.0)


def admitted_targets(estimator, y):
    """Return targets of at least 0, or larger ones if a regressor's loss does not admit these."""
    if not is_regressor(estimator):
        return y
    return y if estimator._loss(1.0).target.admits(y).all() else y + 1


def make_rows(n_features=3, n_classes=2):
    rng = np.random.default_rng(7)
    X = rng.uniform(-1.0, 1.0, size=(N_ROWS, n_features))
    scores = X @ rng.normal(size=(n_features, n_classes)) * 4.0
    return X, scores.argmax(axis=1)


def fit_classifier(**settings):
    X, y = make_rows()
    options = {"classes": [0, 1], "feature_bounds": (-1.0, 1.0), "solver": "noisy_gd"}
    return LogisticRegression(**{**options, **settings}).fit(X, y)


def fit_last_iterate(**settings):
    options = {"regularizer": L2(0.1), "penalize_intercept": True, "solver": LAST_ITERATE}
    return fit_classifier(**{**options, **settings})


def fit_multinomial():
    X, y = make_rows(n_classes=3)
    return LogisticRegression(classes=[0, 1, 2], feature_bounds=(-1.0, 1.0)).fit(X, y)


def fit_regression():
    X, _ = make_rows()
    bounds = ([-1.0, -2.0, -1.0], [1.0, 6.0, 3.0])
    return LinearRegression(feature_bounds=bounds, target_bounds=(-3.0, 5.0)).fit(X, X[:, 0])


def fit_sampled():
    return fit_classifier(solver=POISSON)
