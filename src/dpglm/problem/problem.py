"""A loss, a penalty and a set of allowed weights: what a fit minimises."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

from dpglm._validation import check_bools
from dpglm.problem.constraints import Constraint, Unconstrained
from dpglm.problem.loss import Loss
from dpglm.problem.regularizers import NoPenalty, Regularizer

__all__ = ["Problem"]


@final
@dataclass(frozen=True)
class Problem:
    """Minimise ``(1/n) sum_i loss(<w, x_i>, y_i) + regularizer(w)`` over w in ``constraint``.

    Parameters
    ----------
    loss : Loss
        Pointwise loss.
    regularizer : Regularizer, optional
        Penalty on the weights; none by default.
    constraint : Constraint, optional
        Set of allowed weights; all by default.
    penalize_intercept : bool, default=False
        Whether penalty and constraint act on the intercept as well.

    Notes
    -----
    A proximal step followed by a projection is nonexpansive for every pair. It is exactly the
    proximal map of penalty plus set for no penalty or `L2` on any set, for every penalty on
    an `L2Ball`, and for `L1` and `ElasticNet` on a `Box` or an `L1Ball` [1]_. For other pairs
    a fixed point of such steps is close to the minimiser, not at it.

    References
    ----------
    .. [1] Y. Yu, "On Decomposing the Proximal Map", NIPS 2013, Theorem 1.

    Examples
    --------
    >>> from dpglm.problem.losses import Logistic
    >>> Problem(Logistic()).regularizer
    NoPenalty()
    """

    loss: Loss
    regularizer: Regularizer = field(default_factory=NoPenalty)
    constraint: Constraint = field(default_factory=Unconstrained)
    penalize_intercept: bool = False

    def __post_init__(self) -> None:
        check_bools(self)
