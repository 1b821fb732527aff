"""What other slopes, and a second fit, would do for classes' codes where columns drown in noise.

``python -m experiments.slopes_of_codes [--mnist FOLDER]`` imitates noisy gradient descent in NumPy
on 2048 random features of Fashion-MNIST, or MNIST: 20,000 training rows with the noise in mean
gradients that 60,000 have at epsilon 0.1, and 10,000 other training rows to score. Nothing here is
private, and nothing was chosen by it. It prints the accuracy of each rule for slopes, and that of
the same parameters if second moments were known, each direction with the mean square s being
weighed by ``s / (s + t)`` for the best of some t; then that of least squares anew, in directions
that steps released.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpglm import RidgeClassifier
from dpglm.datasets import load_fashion_mnist, load_mnist
from dpglm.preprocessing import RandomFourierFeatures
from dpglm.privacy import ApproximateDP, GaussianDP
from dpglm.problem import Sparsemax
from dpglm.solvers import SufficientStatistics

__all__ = ["main"]

Floats: TypeAlias = NDArray[np.float32]
N_TRAIN, N_HELD, SEEDS, K = 20_000, 10_000, range(3), 10
N_MU = 60_000 * ApproximateDP(0.1, 1e-5).gdp_mu()
CENTER_SHARE, REFIT_SHARE, INTERCEPT = 0.1, 0.1, 0.25
N_STEPS, MOMENTUM, DECAY, N_BLOCKS = 200, 0.9, 0.3, 5
CODES = (np.eye(K) - 1.0 / K).astype(np.float32)


def least_squares(z: Floats, y: NDArray[np.int64]) -> Floats:
    """Slopes of ``SquaredCodes``."""
    return z - CODES[y]


def one_sided(z: Floats, y: NDArray[np.int64]) -> Floats:
    """Slopes of least squares, but none where a score is beyond its code."""
    r, c = z - CODES[y], CODES[y]
    r = np.where(c > 0.0, np.minimum(r, 0.0), np.maximum(r, 0.0))
    return r - r.mean(axis=1, keepdims=True)


def unsure(z: Floats, y: NDArray[np.int64]) -> Floats:
    """Least squares of the rows whose class is not ahead of all others by a half."""
    own, others = _apart(z, y)
    return np.where((own - others.max(axis=1) < 0.5)[:, None], z - CODES[y], 0.0)


def runner_up(z: Floats, y: NDArray[np.int64]) -> Floats:
    """Squared hinge of the class's lead over the best other one, up to a half."""
    own, others = _apart(z, y)
    second, rows = others.argmax(axis=1), np.arange(len(y))
    short = np.clip(1.0 - (own - others[rows, second]) / 0.5, 0.0, 1.0)
    return short[:, None] * (CODES[second] - CODES[y])


def sparsemax(z: Floats, y: NDArray[np.int64]) -> Floats:
    """Slopes of ``Sparsemax``: none where all scores are beyond their codes."""
    return np.asarray(Sparsemax().slope(z, y), dtype=np.float32)


def softmax(z: Floats, y: NDArray[np.int64]) -> Floats:
    """Slopes of the softmax loss."""
    p = np.exp(z - z.max(axis=1, keepdims=True))
    return p / p.sum(axis=1, keepdims=True) - 1.0 / K - CODES[y]


def _apart(z: Floats, y: NDArray[np.int64]) -> tuple[Floats, Floats]:
    rows, others = np.arange(len(y)), z.copy()
    others[rows, y] = -np.inf
    return z[rows, y], others


# Rule, clip of a row's gradient, noise that predictions of long rows may have: as good as any that
# were tried, and for softmax the defaults.
RULES: Mapping[str, tuple[Callable[[Floats, NDArray[np.int64]], Floats], float, float]] = {
    "least squares": (least_squares, 0.6, 0.18),
    "one-sided least squares": (one_sided, 0.6, 0.18),
    "least squares of unsure rows": (unsure, 0.6, 0.18),
    "squared hinge of the runner-up": (runner_up, 0.2, 0.2),
    "softmax": (softmax, 0.212, 1.27),
    "sparsemax": (sparsemax, 0.2, 0.25),
}


def descend(
    X: Floats, y: NDArray[np.int64], share: float, rules: Sequence[str] = tuple(RULES)
) -> tuple[list[Floats], list[Floats]]:
    """Return parameters, of every rule and seed, and of each the sums of gradients in blocks.

    All take their steps together, so that rows are read once.
    """
    models = [(*RULES[name], seed) for name in rules for seed in SEEDS]
    w = np.zeros((X.shape[1], len(models) * K), np.float32)
    velocity, noises = np.zeros_like(w), [np.random.default_rng(1 + m[-1]) for m in models]
    blocks = np.zeros((N_BLOCKS, *w.shape), np.float32)
    pace = np.minimum(1.0, (1.0 - np.arange(N_STEPS) / N_STEPS) / DECAY)
    lengths = np.linalg.norm(X, axis=1)
    for step in range(N_STEPS):
        slopes = X @ w
        for at, (rule, clip, _, _) in enumerate(models):
            r = rule(slopes[:, at * K : at * K + K], y)
            long = np.maximum(np.linalg.norm(r, axis=1) * lengths / clip, 1.0)
            slopes[:, at * K : at * K + K] = r / long[:, None]
        g = X.T @ slopes / np.float32(len(X))
        for at, (_, clip, noise, _) in enumerate(models):
            own = g[:, at * K : at * K + K]
            deviation = clip * np.sqrt(N_STEPS / share) / N_MU
            own += np.float32(deviation) * noises[at].standard_normal(own.shape, np.float32)
            blocks[step * N_BLOCKS // N_STEPS, :, at * K : at * K + K] += own
            own *= noise * N_MU / (clip * pace.sum()) * pace[step]
        velocity = MOMENTUM * velocity + (1.0 - MOMENTUM) * g
        w -= velocity
    pieces = [slice(at * K, at * K + K) for at in range(len(models))]
    return [w[:, piece] for piece in pieces], [np.hstack(list(blocks[:, :, p])) for p in pieces]


def refitted(X: Floats, y: NDArray[np.int64], basis: Floats) -> Floats:
    """Least squares of codes in the columns of ``basis``, by their exact second moments."""
    Z = X @ basis
    squares = Z.T @ Z / np.float32(len(Z))
    ridge = 1e-3 * np.diag(np.diag(squares))
    return basis @ np.linalg.solve(squares + ridge, Z.T @ CODES[y] / np.float32(len(Z)))


def main(arguments: Sequence[str] | None = None) -> None:
    """Fit and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mnist", type=Path, help="folder of MNIST's files")
    folder = parser.parse_args(arguments).mnist
    data = load_fashion_mnist() if folder is None else load_mnist(folder)
    rows = np.random.default_rng(123).permutation(np.arange(len(data.target))[data.train])[
        : N_TRAIN + N_HELD
    ]
    images, y = data.data[rows].astype(np.float32) / np.float32(255.0), data.target[rows]
    X = RandomFourierFeatures(1024).fit_transform(images)
    away = np.random.default_rng(0).standard_normal(X.shape[1]) / (N_MU * np.sqrt(CENTER_SHARE))
    X -= X[:N_TRAIN].mean(axis=0) + away.astype(np.float32)
    X = np.hstack([X, np.full((len(X), 1), INTERCEPT, np.float32)])
    train, held = X[:N_TRAIN], X[N_TRAIN:]
    y, y_held = y[:N_TRAIN], y[N_TRAIN:]

    def percent(w: Floats) -> float:
        return 100.0 * float(np.mean((held @ w).argmax(axis=1) == y_held))

    def shown(name: str, *columns: Sequence[float]) -> None:
        cells = (f"{np.mean(one):.2f} ± {np.std(one):.2f}" for one in columns)
        print(f"| {name} | {' | '.join(cells)} |", flush=True)

    squares, directions = np.linalg.eigh(train.T @ train / np.float32(N_TRAIN))
    s = np.maximum(squares, 0.0)
    seen = [directions @ ((s / (s + t))[:, None] * directions.T) for t in (1e-4, 3e-4, 1e-3)]
    parameters, blocks = descend(train, y, 1.0 - CENTER_SHARE)
    for at, name in enumerate(RULES):
        own = parameters[at * len(SEEDS) : (at + 1) * len(SEEDS)]
        shown(name, [percent(w) for w in own], [max(percent(f @ w) for f in seen) for w in own])
    anew = [percent(refitted(train, y, basis)) for basis in blocks[: len(SEEDS)]]
    shown(f"least squares anew in {N_BLOCKS * K} directions, for nothing", anew)
    paid = []
    parameters, _ = descend(train, y, 1.0 - CENTER_SHARE - REFIT_SHARE, ["least squares"])
    for seed, w in zip(SEEDS, parameters, strict=True):
        basis = np.linalg.qr(w)[0]
        model = RidgeClassifier(
            budget=GaussianDP(N_MU / N_TRAIN * np.sqrt(REFIT_SHARE)),
            classes=range(K),
            row_norm=1.1,
            solver=SufficientStatistics(),
            random_state=seed,
        ).fit(train @ basis, y)
        paid.append(100.0 * float(model.score(held @ basis, y_held)))
    shown(f"least squares anew in {K} directions, for a tenth of the budget", paid)


if __name__ == "__main__":
    main()
