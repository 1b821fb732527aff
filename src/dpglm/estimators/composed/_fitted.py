"""Fitted attributes of an estimator whose model is the fitted estimator inside it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpglm.certificate.certificate import Certificate
from dpglm.solvers.base import Solution

__all__ = ["FittedModel"]


class FittedModel:
    """Shows what ``estimator_`` learned, and lacks it as long as there is none."""

    estimator_: Any

    @property
    def classes_(self) -> NDArray[Any]:
        """Labels of a classifier, sorted."""
        classes: NDArray[Any] = self.estimator_.classes_
        return classes

    @property
    def coef_(self) -> NDArray[np.float64]:
        """Coefficients of the columns that enter the private steps."""
        coef: NDArray[np.float64] = self.estimator_.coef_
        return coef

    @property
    def intercept_(self) -> Any:
        """Intercepts."""
        return self.estimator_.intercept_

    @property
    def n_iter_(self) -> int:
        """Number of steps of the run, private preprocessing included."""
        return int(self.estimator_.n_iter_)

    @property
    def privacy_(self) -> Certificate:
        """The certificate of the whole."""
        certificate: Certificate = self.estimator_.privacy_
        return certificate

    @property
    def solution_(self) -> Solution:
        """The plan that was executed, and public diagnostics of each step."""
        solution: Solution = self.estimator_.solution_
        return solution
