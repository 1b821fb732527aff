"""By what a fit divided the user's targets, and what undoes it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from dpglm.certificate.certificate import Certificate
from dpglm.problem import Loss

__all__ = ["TargetScale"]


@final
@dataclass(frozen=True)
class TargetScale:
    """The loss of a fit, and by what its targets were divided before: 1 for labels."""

    loss: Loss
    scale: float

    @classmethod
    def of(cls, certificate: Certificate) -> TargetScale:
        """Read what a certificate says; offsets are left out of the loss."""
        data, fact = certificate.data, certificate.fact("target_bounds")
        width, scale = data.target_high - data.target_low, 1.0
        if fact is not None and 0.0 < width < np.inf:
            scale = (fact.value[1] - fact.value[0]) / width
        return cls(certificate.problem.loss.without_offset, scale)

    @property
    def users_loss(self) -> Loss:
        """The loss of the user's targets."""
        scaled = self.loss.for_scaled_targets(1.0 / self.scale)
        return self.loss if scaled is None else scaled

    @property
    def of_dispersions(self) -> float:
        """What turns the dispersion of prepared targets into that of the user's.

        Where targets divided by s have the variance ``phi V(m / s)``, the user's have
        ``s^2 phi V(m / s)``; as V is a power, this is ``s^2 V(1 / s) / V(1)`` times ``phi V(m)``.
        """
        variances = self.loss.variance(np.array([1.0 / self.scale, 1.0]))
        assert variances is not None
        return float(self.scale**2 * variances[0] / variances[1])
