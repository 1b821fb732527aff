"""Tell two tables apart by DP-EBM's published model: its regression's sensitivity is not bounded.

Run by the environment of the comparison: ``.venv-peers/interpret/bin/python -m
benchmarks.peers.interpret_attack``. Targets are declared to lie in [1000, 1001], and do. Noise is
scaled to the width of that range, but boosting starts at 0, so a row's residual is 1000 and more.
"""

from __future__ import annotations

import warnings
from importlib.metadata import version

import numpy as np
from interpret.privacy import DPExplainableBoostingRegressor

ROWS, FITS, LOW = 2000, 60, 1000.0


def statistic(n_rows: int) -> float | None:
    """Fit once; return the distance of the prediction from that of 2000 rows without noise.

    It is computed from published values alone. None if the bins are more than one.
    """
    model = DPExplainableBoostingRegressor(
        epsilon=1.0,
        delta=1e-5,
        feature_types=["continuous"],
        privacy_bounds={0: (0.0, 1.0)},
        privacy_target_min=LOW,
        privacy_target_max=LOW + 1.0,
        max_bins=3,
        n_jobs=1,
    ).fit(np.full((n_rows, 1), 0.99), np.full(n_rows, LOW + 1.0))
    if len(model.bins_[0][0]):
        return None
    (weight,) = np.trim_zeros(model.bin_weights_[0])
    rounds, rate = model.get_params()["max_rounds"], model.get_params()["learning_rate"]
    without_noise = (LOW + 1.0) * (1.0 - (1.0 - rate * ROWS / weight) ** rounds)
    return float(model.predict(np.array([[0.99]]))[0] - without_noise)


def main() -> None:
    """Guess from each of 120 models whether it had 2000 or 1999 rows."""
    warnings.simplefilter("ignore")
    found = {n: [statistic(n) for _ in range(FITS)] for n in (ROWS, ROWS - 1)}
    known = {n: np.array([one for one in row if one is not None]) for n, row in found.items()}
    # Either table's mean follows from the published weights; the threshold is half way.
    threshold = 0.5 * (known[ROWS].mean() + known[ROWS - 1].mean())
    right = (known[ROWS] > threshold).sum() + (known[ROWS - 1] <= threshold).sum()
    count = sum(len(row) for row in known.values())
    allowed = (np.e + 1e-5) / (1.0 + np.e)
    print(f"interpret-core {version('interpret-core')}: {right} of {count} guesses right")
    print(f"epsilon 1, delta 1e-5 allows {allowed:.0%} on average")
    for n, row in known.items():
        print(f"{n} rows: {row.mean():.4f} ± {row.std():.4f}")


if __name__ == "__main__":
    main()
