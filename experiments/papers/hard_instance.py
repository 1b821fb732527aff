"""Hard instances: data with a known optimum and a floor under private excess risk."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from dpglm._validation import check_real
from dpglm.privacy.budget import Adjacency
from dpglm.problem import Loss

__all__ = ["HardInstance"]


@final
@dataclass(frozen=True, eq=False)
class HardInstance:
    """Rows and targets with a known exact optimum and a floor under private excess risk.

    The optimum is decided by signs: some coordinates of the minimiser are plus or minus a known
    size, each sign the majority among the labels of some rows, and drawn by a fair coin.

    Parameters
    ----------
    X : ndarray or csr_array of shape (n, d), float64
        Rows.
    y : ndarray of shape (n,)
        Targets in the convention of ``loss``.
    loss : Loss
        The loss for which the instance is hard.
    row_norm : float
        Public bound on the norm of a row.
    target_low, target_high : float
        Public bounds on the targets.
    minimizer : ndarray of shape (d,)
        A parameter of least mean loss; the shortest one.
    minimum : float
        Its mean loss.
    flips : ndarray of int64, shape (k,)
        For each sign, in how many rows the labels must be changed to turn it.
    stakes : ndarray of shape (k,)
        Least excess risk of a parameter that has this sign wrong, or zero there. The stakes of
        several wrong signs add up.

    Notes
    -----
    The data are generated, not private.
    """

    X: Any
    y: NDArray[np.float64]
    loss: Loss
    row_norm: float
    target_low: float
    target_high: float
    minimizer: NDArray[np.float64]
    minimum: float
    flips: NDArray[np.int64]
    stakes: NDArray[np.float64]

    def excess_risk(self, w: NDArray[np.float64]) -> float:
        """Evaluate the mean loss beyond its minimum.

        Parameters
        ----------
        w : ndarray of shape (d,)
            Weights, without an intercept.

        Returns
        -------
        float
            At least 0, up to rounding.
        """
        predictions = np.asarray(self.X @ w)
        return float(self.loss.value(predictions, self.y).mean()) - self.minimum

    def floor(
        self, epsilon: float, delta: float, adjacency: Adjacency = Adjacency.REPLACE_ONE
    ) -> float:
        """Bound from below the expected excess risk of every private method.

        Parameters
        ----------
        epsilon : float
            At least 0.
        delta : float
            In [0, 1).
        adjacency : Adjacency, default=Adjacency.REPLACE_ONE
            The relation under which methods are (epsilon, delta)-private.

        Returns
        -------
        float
            Bound on the mean over the random signs, of methods that know all but the signs.

        Raises
        ------
        ValueError
            If a parameter is out of range.

        Notes
        -----
        Proof. Take two instances that differ in one sign, which m changed labels turn, so by m
        steps of ``replace_one``, or 2 m of the other relations. By group privacy the outputs are
        ``(a, b)``-indistinguishable with ``a = m epsilon`` and
        ``b = delta (exp(a) - 1) / (exp(epsilon) - 1)``. Let p and q be the probabilities that
        the method has the sign wrong on the one and on the other. Then
        ``1 - p <= exp(a) q + b`` and ``1 - q <= exp(a) p + b``, so
        ``(p + q) / 2 >= (1 - b) / (1 + exp(a))``. As the sign is drawn by a fair coin, the mean
        excess risk is at least this times the stake; and stakes add up.

        References
        ----------
        The lemma of Chaudhuri and Hsu (2012) that Arora et al. (2022) quote as Lemma 1, with its
        constants worked out.
        """
        epsilon = check_real("epsilon", epsilon, least=0.0)
        delta = check_real("delta", delta, least=0.0, below=1.0)
        steps = self.flips * (1.0 if adjacency is Adjacency.REPLACE_ONE else 2.0)
        # Beyond this the floor is zero to double precision.
        exponents = np.minimum(steps * epsilon, 700.0)
        groups = steps
        if epsilon > 0.0:
            groups = np.exp(exponents - epsilon) * np.expm1(-exponents) / math.expm1(-epsilon)
        wrong = np.maximum(1.0 - delta * groups, 0.0) / (1.0 + np.exp(exponents))
        return float(self.stakes @ wrong)
