"""The part of the estimators' docstrings that they share, written once."""

from __future__ import annotations

from typing import TypeVar

__all__ = ["shared_parameters"]

T = TypeVar("T", bound=type)

_PARAMETERS = """\
epsilon : float, default=1.0
    Privacy budget epsilon, above 0.
delta : float or "auto", default="auto"
    Privacy budget delta, in (0, 1). "auto" is the largest power of ten that is at most
    ``1 / (10 n)``, and at most 1e-5 (``dpglm.privacy.default_delta``).
budget : PrivacyBudget, optional
    Takes the place of ``epsilon`` and ``delta``: ``ApproximateDP``, ``GaussianDP`` or
    ``ZeroConcentratedDP``.
ledger : PrivacyLedger or path-like, optional
    Ledger of the data set, where every fit is recorded and paid for before it releases
    anything; one that would go over the ledger's budget is refused.
adjacency : {"zero_out", "add_remove", "replace_one"}, default="zero_out"
    Which data sets must be hard to tell apart: ``dpglm.privacy.Adjacency``.
n_rows : int, optional
    Public number of rows; only needed for ``adjacency="add_remove"``, where the true number is
    private and any rough public figure will do.
solver : str or Solver, default="auto"
    A name in ``dpglm.solvers.SOLVERS``, or a solver with settings of your own; "auto" is what
    ``dpglm.solvers.choose`` picks from public facts.
row_norm : float, optional
    Public bound R on the L2 norm of a row (after ``feature_bounds`` are applied), above 0.
    Longer rows are scaled down to it. Default: the square root of the number of features if
    ``feature_bounds`` are given; else the largest norm in the data, with a warning.
feature_bounds : mapping, pair of float or array_like, or sequence of pairs, optional
    Public lower and upper bounds of the columns: ``{"age": (18, 90), "pay": (0, 1e5)}`` by name
    (or by number from 0, for a matrix), ``(low, high)`` for all columns or as two arrays, or one
    pair ``(low, high)`` for each column. Values are clipped to them, in ``fit`` and in
    ``predict``, and columns mapped to [-1, 1] (sparse ones scaled, not shifted); coefficients
    are reported in the units of X.
weight_bound : float, optional
    Public bound on ``sample_weight``; default 1, or the largest weight with a warning. Rows
    without weights have weight 1, or this where it is less.
fit_intercept : bool, default=True
    Whether to fit an intercept.
penalize_intercept : bool, default=False
    Whether penalty and constraint act on the intercept.
regularizer : Regularizer, optional
    Takes the place of the penalty that the other parameters describe. Penalties act on the
    coefficients of the scaled columns.
constraint : Constraint, optional
    Set in which the coefficients of the scaled columns are held.
random_state : int or NoiseSource, optional
    None: noise from the operating system. ``OpenDPNoise()``: Gaussian noise from OpenDP. An
    integer makes the fit reproducible and NOT private, and ``privacy_`` says so.
callback : callable, optional
    Called after each step with a public ``dpglm.solvers.StepInfo``.
verbose : int, default=0
    1 shows how far the fit is and how long it will take: a bar in a terminal (with rich
    installed) or a notebook, else a line for each step on standard error. 2 writes the lines in any
    case. Where only the last iterate is paid for, lines hold counts only."""

_ATTRIBUTES = """\
intercept_ : float or ndarray
    Intercepts.
feature_bounds_ : ndarray of shape (2, n_features) or None
    Lower and upper bounds of the columns, as they were used.
n_features_in_ : int
    Number of features.
feature_names_in_ : ndarray of str
    Names of the columns, where X had any.
n_iter_ : int
    Number of steps.
privacy_ : dpglm.report.Certificate
    What was spent, on which events, and which facts were treated as public.
solution_ : dpglm.solvers.Solution
    The plan that was executed, and public diagnostics of each step."""


def shared_parameters(estimator: T) -> T:
    """Put the shared texts in place of ``<parameters>`` and ``<attributes>``."""
    text = estimator.__doc__ or ""
    for mark, shared in (("<parameters>", _PARAMETERS), ("<attributes>", _ATTRIBUTES)):
        text = text.replace(f"    {mark}", "\n".join(f"    {line}" for line in shared.split("\n")))
    estimator.__doc__ = text
    return estimator
