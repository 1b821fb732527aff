"""``dpglm.oracle.objective`` again, in 50 digits and without shared code."""

from __future__ import annotations

from dataclasses import dataclass

import mpmath
import numpy as np

DIGITS = 50
CTX = mpmath.MPContext()
CTX.dps = DIGITS


def logistic(z, y):
    return -y / (1 + CTX.exp(y * z))


def squared(z, y):
    return z - y


def poisson(z, y):
    return CTX.exp(z) - y


SLOPES = {"Logistic": logistic, "Squared": squared, "Poisson": poisson}


def exact(values):
    """Floats as the numbers they are."""
    return [CTX.mpf(value if isinstance(value, CTX.mpf) else float(value)) for value in values]


@dataclass
class ExactObjective:
    """Sum of clipped losses, ridge, linear term, soft threshold and ball; one output."""

    X: list
    y: list
    weights: list
    limits: list
    slope: object
    ridge: list
    linear: list
    l1: object = 0
    radius: object = None

    @classmethod
    def of(cls, objective, l1=0.0, radius=None):
        """Read the rows that an ``Objective`` sees; limits are those it computes."""
        X, y, weights, limits = [], [], [], []
        for block in objective.rows.blocks():
            identity = np.eye(objective.rows.spec.n_columns)
            X += [exact(row) for row in block.predict(identity)]
            y += exact(block.targets)
            ones = np.ones(len(block.targets))
            weights += exact(ones if block.weights is None else block.weights)
            limits += exact(objective.clipping.bound / block.norms)
        inner = getattr(objective.loss, "loss", objective.loss)
        slope = SLOPES[type(inner).__name__]
        if inner is not objective.loss:
            limits = [min(one, CTX.mpf(objective.loss.clip_slope)) for one in limits]
        return cls(
            X,
            y,
            weights,
            limits,
            slope,
            exact(objective.terms.ridge),
            exact(objective.terms.linear),
            CTX.mpf(l1),
            None if radius is None else CTX.mpf(radius),
        )

    def gradient(self, w):
        total = [r * v + b for r, v, b in zip(self.ridge, w, self.linear, strict=True)]
        for x, y, weight, limit in zip(self.X, self.y, self.weights, self.limits, strict=True):
            z = CTX.fsum(a * b for a, b in zip(x, w, strict=True))
            slope = weight * max(-limit, min(limit, self.slope(z, y)))
            total = [t + slope * a for t, a in zip(total, x, strict=True)]
        return total

    def prox(self, w, step):
        shrunk = [CTX.sign(v) * max(abs(v) - step * self.l1, 0) for v in w]
        length = norm(shrunk)
        if self.radius is None or length <= self.radius:
            return shrunk
        return [v * self.radius / length for v in shrunk]

    def minimizer(self, start, smoothness, steps):
        """Proximal gradient steps of 50 digits; ``steps`` is large against the condition."""
        w, eta = exact(start), 1 / CTX.mpf(smoothness)
        for _ in range(steps):
            g = self.gradient(w)
            w = self.prox([v - eta * s for v, s in zip(w, g, strict=True)], eta)
        return w


def norm(w):
    return CTX.sqrt(CTX.fsum(v * v for v in w))


def distance(w, other):
    """L2 distance of floats to exact numbers."""
    return float(norm([a - b for a, b in zip(exact(w), other, strict=True)]))
