"""Check an installed dpglm: `python tests/installed.py` in an environment that has it."""

import subprocess
import sys
from pathlib import Path

import numpy as np

import dpglm
from dpglm.certificate import verify
from dpglm.data.compiled.kernels import COMPILED
from dpglm.datasets import load_adult


def main() -> None:
    """Fit, verify and load data; fail if sums are not compiled or a checkout is imported."""
    assert not (Path(dpglm.__file__).parents[2] / "pyproject.toml").exists(), dpglm.__file__
    assert COMPILED, "the wheel has no compiled sums"
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(5000, 3))
    model = dpglm.LogisticRegression(epsilon=1.0, classes=[False, True], feature_bounds=(-1, 1))
    model.fit(X, X[:, 0] > 0)
    assert verify(model.privacy_).ok
    assert len(load_adult().target) == 48842
    subprocess.run([sys.executable, "-c", "from dpglm.cli import main"], check=True)


if __name__ == "__main__":
    main()
