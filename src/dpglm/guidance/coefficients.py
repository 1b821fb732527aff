"""Coefficients with the standard deviation of their noise."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from dpglm.inference.inference import Inference

_ROUNDING = 1e-9


@final
@dataclass(frozen=True, eq=False)
class CoefficientTable:
    """Released coefficients in the user's units, with the standard deviation of their noise.

    ``values`` has shape (n_outputs, n_features). ``noise``, of shape (n_outputs, n_features + 1),
    ends with the intercepts. ``reach``, of shape (n_features,), is half the width of each feature's
    declared bounds, or 1: values times reach are comparable. ``of_table`` states whether units are
    those of the user's table, rather than of the estimator's columns. ``inference`` has the same
    units and names.
    """

    features: tuple[str, ...]
    outputs: tuple[str, ...]
    values: NDArray[np.float64]
    noise: NDArray[np.float64] | None
    reach: NDArray[np.float64]
    of_table: bool
    intercepts: NDArray[np.float64]
    inference: Inference | None = None

    @property
    def steps(self) -> NDArray[np.float64]:
        """The largest power of ten within each reach, as a unit for effects."""
        powers = np.floor(np.log10(self.reach) + 1e-9)  # for rounding
        return np.asarray(10.0**powers, dtype=np.float64)

    def intervals(self) -> NDArray[np.float64]:
        """Return 95 % confidence intervals of shape (n_features, 2); NaN if there are none."""
        if self.inference is None:
            return np.full((len(self.features), 2), np.nan)
        return self.inference.conf_int()[-len(self.features) :]

    def largest(self, output: int, most: int) -> NDArray[np.intp]:
        """Return the positions of an output's largest coefficients, largest first.

        With intervals, terms are in the order of ``explained``. Within a term, the order is by the
        smallest size within the interval, then by the distance from zero in units of the interval.
        Spline coefficients come after all others, and those with the interval of their prior last.
        """
        size = np.abs(self.values[output] * self.reach)
        if self.inference is None:
            return np.argsort(-size, kind="stable")[:most]
        half = 0.5 * np.diff(self.intervals(), axis=1)[:, 0] * self.reach
        ratios = np.divide(size, half, out=np.full_like(size, np.inf), where=half > 0.0)
        sizes = (-ratios, -np.maximum(size - half, 0.0))
        return np.lexsort((*sizes, self._ranks, self.of_curves, self._of_prior))[:most]

    @property
    def unknown(self) -> int:
        """Number of features with the interval of their prior, or an infinite one."""
        return int(self._of_prior.sum())

    @property
    def in_curves(self) -> int:
        """Number of features of splines, without those of ``unknown``."""
        return int((self.of_curves & ~self._of_prior).sum())

    @property
    def ratio(self) -> str | None:
        """Name of the exponentials, such as "odds ratio"; None without inference or ratios."""
        return None if self.inference is None else self.inference.link.exponentiated

    @functools.cached_property
    def explained(self) -> Mapping[str, float]:
        """Variance of the score that each term explains given the others, up to a factor.

        Let b be the effects of a term, and S their sampling covariance. Without privacy noise,
        ``b @ inv(S) @ b`` is the explained variance times the number of rows, over the dispersion.
        Its expectation and standard deviation without an effect are subtracted, so that noise alone
        does not rank first.
        """
        if self.inference is None:
            return {}
        found, estimates = {}, self.inference.estimates
        for name, term in self.inference.named.terms.items():
            places = [self.inference.names.index(one) for one in term.coefficients]
            chosen = np.ix_(places, places)
            sampling, both = estimates.sampling[chosen], estimates.covariance[chosen]
            scale = np.sqrt(np.diag(sampling))
            scale[scale == 0.0] = np.inf
            values, vectors = np.linalg.eigh(sampling / np.outer(scale, scale))
            kept = values > _ROUNDING
            root = vectors[:, kept] / np.sqrt(values[kept]) / scale[:, np.newaxis]
            signal, noise = root.T @ estimates.params[places], root.T @ both @ root
            chance = np.trace(noise) + math.sqrt(2.0 * float((noise**2).sum()))
            found[name] = float(signal @ signal - chance)
        return found

    @functools.cached_property
    def of_curves(self) -> NDArray[np.bool_]:
        """Whether each feature is one of several of a spline, next to other terms."""
        found = np.zeros(len(self.features), dtype=np.bool_)
        if self.inference is not None:
            for term in self.inference.named.terms.values():
                if len(term.coefficients) > 1 and not term.levels and len(term.columns) == 1:
                    found[[self._own.index(one) for one in term.coefficients]] = True
        return np.zeros_like(found) if found.all() else found

    @property
    def _ranks(self) -> NDArray[np.intp]:
        """Rank of each feature's term by ``explained``."""
        assert self.inference is not None
        found = np.zeros(len(self.features), dtype=np.intp)
        ordered = sorted(self.explained, key=lambda name: -self.explained[name])
        for rank, name in enumerate(ordered):
            of_term = self.inference.named.terms[name].coefficients
            found[[self._own.index(one) for one in of_term]] = rank
        return found

    @property
    def _own(self) -> tuple[str, ...]:
        assert self.inference is not None
        return self.inference.names[-len(self.features) :]

    @property
    def _of_prior(self) -> NDArray[np.bool_]:
        if self.inference is None:
            return np.zeros(len(self.features), dtype=bool)
        names = {*self.inference.of_prior, *self.inference.unknown}
        return np.array([name in names for name in self._own])
