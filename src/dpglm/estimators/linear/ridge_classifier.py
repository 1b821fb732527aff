"""Private least squares of the codes of classes."""

from __future__ import annotations

from typing import final

import numpy as np
from scipy import sparse

from dpglm._validation import check_real
from dpglm.estimators.linear._classifier import PrivateClassifier
from dpglm.estimators.linear._targets import Task
from dpglm.problem import L2, Loss, Regularizer, Sparsemax, Squared
from dpglm.tables.units import LinearUnits

__all__ = ["RidgeClassifier"]


@final
class RidgeClassifier(PrivateClassifier):
    """Private least squares of classes' codes, without a price for scores beyond them.

    Two classes are least squares of targets that are 1 for one class and -1 for the other,
    ``(1/n) sum (y - X w)^2 / 2 + alpha/(2 n) |w|^2``: scikit-learn's objective, scaled. With more,
    the sparsemax loss (``dpglm.problem.Sparsemax``) takes the place of the squares: it is the same
    where scores lie between codes, and a row whose scores are beyond its code, surely of its class,
    pulls at nothing. So slopes are bounded, and come from rows between two classes.

    Scores rank the classes; they are no probabilities. Noise does not grow with the number of
    classes, as for softmax.

    Parameters
    ----------
    alpha : float, default=1.0
        Strength of the penalty, at least 0.

    Notes
    -----
    With a delta of 0 and several classes the default compares rows with the classes' private means
    (``dpglm.solvers.Prototypes``), as steps would drown in noise.

    Privacy: the releases are those of the solver's plan. A slope of ``Sparsemax`` is at most
    sqrt(2) long whatever the number of classes is.

    References
    ----------
    Martins and Astudillo, "From softmax to sparsemax", ICML 2016. Mehta, Krichene, Thakurta,
    Kurakin and Cutkosky, "Differentially private image classification from features", TMLR 2023.

    Examples
    --------
    >>> import numpy as np
    >>> from dpglm import RidgeClassifier
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(6000, 3))
    >>> y = X.argmax(axis=1)
    >>> model = RidgeClassifier(epsilon=1.0, classes=[0, 1, 2], feature_bounds=(-1, 1))
    >>> model = model.fit(X[:5000], y[:5000])
    >>> model.score(X[5000:], y[5000:]) > 0.8
    True
    """

    alpha: float = 1.0

    def _loss(self, n_classes: int) -> Loss:
        return Squared() if n_classes == 2 else Sparsemax()

    def _penalty(self, n_rows: int) -> Regularizer:
        return L2(check_real("alpha", self.alpha, least=0.0) / n_rows)

    def _target_range(self, n_classes: int) -> tuple[float, float]:
        return (-1.0, 1.0) if n_classes == 2 else super()._target_range(n_classes)

    def _target_units(self, task: Task, n_features: int) -> LinearUnits:
        if task.n_outputs == 1:
            return super()._target_units(task, n_features)
        # Codes that are 1 and -1 are twice the centred ones, and ``2 / K - 1``: the same for every
        # class, so that without an intercept it is left out.
        twice = sparse.csr_array(sparse.diags_array(np.full(n_features + 1, 2.0)))
        return LinearUnits(twice, 2.0 / task.n_outputs - 1.0 if self.fit_intercept else 0.0)
