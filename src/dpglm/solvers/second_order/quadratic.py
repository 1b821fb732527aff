"""Minimising a released quadratic plus penalty over a constraint: post-processing."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpglm.problem import Problem, Unconstrained
from dpglm.solvers.parts.algebra import solved
from dpglm.solvers.parts.feasible import feasible
from dpglm.solvers.second_order.preconditioner import Basis

__all__ = ["is_quadratic", "minimize_quadratic"]

_MOST_STEPS, _TOLERANCE = 20_000, 1e-10


def minimize_quadratic(
    matrix: NDArray[np.float64] | float,
    vector: NDArray[np.float64],
    basis: Basis,
    problem: Problem,
    penalized: int,
    center: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Minimise ``<v, A v> / 2 - <b, v>`` plus the penalty of ``w = center + basis v``; return w.

    A number in place of the matrix A stands for as many times the identity, and is faster.
    Exact where the penalty is quadratic and the constraint does not bind; else by accelerated
    proximal gradient steps with restarts. Post-processing of released values.

    O'Donoghue and Candès, "Adaptive restart for accelerated gradient schemes", Foundations of
    Computational Mathematics 15 (2015), section 3.2.
    """
    strength = problem.regularizer.strong_convexity
    acted_on = basis.vectors[:penalized]
    target = vector - strength * acted_on.T @ center[:penalized]
    if isinstance(matrix, float):
        v = _solved_along(basis.spectrum(penalized), matrix, strength, target)
    else:
        v = solved(matrix + strength * basis.products(penalized), target)
    w = center + basis.vectors @ v
    if problem.regularizer.smoothness == strength and problem.constraint.contains(
        w[:penalized], 0.0
    ):
        return w
    full = matrix * np.eye(len(v)) if isinstance(matrix, float) else matrix
    hessian = basis.inverse.T @ full @ basis.inverse
    shift = basis.inverse.T @ vector + hessian @ center
    step = 1.0 / float(np.linalg.norm(hessian, 2))
    w = feasible(problem, penalized, w, 0.0)
    ahead, momentum = w, 1.0
    for _ in range(_MOST_STEPS):
        new = feasible(problem, penalized, ahead - step * (hessian @ ahead - shift), step)
        moved = new - w
        if float(np.vdot(ahead - new, moved)) > 0.0:
            momentum = 1.0
        following = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * momentum**2))
        ahead = new + (momentum - 1.0) / following * moved
        momentum, w = following, new
        if np.linalg.norm(moved) <= _TOLERANCE * np.linalg.norm(w):
            break
    return w


def is_quadratic(problem: Problem) -> bool:
    """Whether penalty and constraint leave the minimiser of a quadratic a linear function of it."""
    penalty = problem.regularizer
    unconstrained = problem.constraint == Unconstrained()
    return penalty.smoothness == penalty.strong_convexity and unconstrained


def _solved_along(
    spectrum: tuple[NDArray[np.float64], NDArray[np.float64]],
    multiple: float,
    strength: float,
    vector: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Solve ``(multiple I + strength P) v = vector``, given eigenvalues and eigenvectors of P."""
    values, directions = spectrum
    along: NDArray[np.float64] = (directions.T @ vector).T / (multiple + strength * values)
    return np.asarray(directions @ along.T)
