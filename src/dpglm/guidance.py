"""The accuracy to expect from a plan, its remedies, and coefficients with their noise."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from dpglm._calls import checked
from dpglm._words import LARGEST_EPSILON, card, plain_number
from dpglm.data.rows import SMALLEST
from dpglm.inference.inference import Inference
from dpglm.oracle.targets import SIZES
from dpglm.privacy import gdp
from dpglm.privacy.budget import ApproximateDP, default_delta
from dpglm.problem import LogLink, Target
from dpglm.solvers.auto import signal_to_noise
from dpglm.solvers.base import Plan

__all__ = ["Guidance", "guidance"]

_ROUNDING = 1e-9
_TITLE = "Expectation (a rule of thumb, not a promise)"


@final
@dataclass(frozen=True, eq=False)
class CoefficientTable:
    """Released coefficients in the user's units, with the standard deviation of their noise.

    ``values`` has shape (n_outputs, n_features). ``noise``, of shape (n_outputs, n_features + 1),
    ends with the intercepts. ``reach``, of shape (n_features,), is half the width of each feature's
    declared bounds, or 1: values times reach are comparable. ``of_table`` states whether units are
    those of the user's table, rather than of the estimator's columns.
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
        names: tuple[str, ...] = self.inference.names[-len(self.features) :]
        return names

    @property
    def _of_prior(self) -> NDArray[np.bool_]:
        if self.inference is None:
            return np.zeros(len(self.features), dtype=bool)
        names = {*self.inference.of_prior, *self.inference.unknown}
        return np.array([name in names for name in self._own])


_VERDICTS = (
    (2.0, "Noise will dominate: do not fit with these numbers."),
    (10.0, "Expect a rough pattern that changes from fit to fit:"),
    (30.0, "Expect a useful but often clearly weaker model:"),
    (300.0, "Expect a good model:"),
    (math.inf, "Expect a model close to the one without privacy:"),
)
# Signal, and the range of the share of the possible improvement that 9 of 10 problems reached: the
# improvement over a constant answer (area under the ROC curve, accuracy, R squared, D squared),
# divided by the improvement without privacy. Interpolated on a log scale; tested by
# ``benchmarks.guidance``.
_SHARES = (
    (1.0, 0.0, 0.6),
    (3.0, 0.0, 0.9),
    (10.0, 0.35, 1.02),
    (30.0, 0.6, 1.02),
    (100.0, 0.75, 1.02),
    (300.0, 0.84, 1.02),
    (1000.0, 0.92, 1.02),
    (10_000.0, 0.97, 1.02),
)
# Beyond this number of classes, rows of each class are few.
_FEW_CLASSES = 10.0
HOPELESS, _GOOD = 2.0, 30.0
# Relative noise of full weights that is worth a sentence.
_CHEAP = 1.05
_NOISE_OF_BOUND = (
    "The noise scale follows the declared bound on targets: expect a useful model only if typical "
    "targets are not far below it."
)
_BOUNDS = (
    "tighter bounds, if they are public knowledge: the noise scale follows row_norm, so it "
    "dominates rows with norms below a tenth of it; if only the direction of a row matters, divide "
    "each row by its norm, which costs no privacy"
)
# With this many dense columns, as in images and embeddings, directions matter most.
_MANY_COLUMNS = 300
_LENGTHS = (
    "rows of the same norm, if only the direction of a row matters, as in images and embeddings: "
    "divide each row by its norm, which costs no privacy, and declare row_norm instead of "
    "feature_bounds, because the noise scale follows the largest possible norm"
)


@final
@dataclass(frozen=True)
class Guidance:
    """The accuracy to expect from a plan.

    Parameters
    ----------
    sizes : str
        Rows, budget and coefficients.
    signal : float
        ``signal_to_noise`` of the plan: below 2 noise dominates, from 30 on the model is good.
    verdict : str
        Its meaning, with the range in words.
    share : tuple of float
        Expected range of the improvement over a constant answer, divided by the improvement of the
        same model without privacy. In tests it held in 9 of 10 problems.
    noise : str
        The noise in each coefficient.
    cures : tuple of str
        Changes that would each give a good model; for a good model, improvements at no cost.
    cautions : tuple of str
        Weaknesses of the budget; those of a fitted model are in its certificate.
    theorems : tuple of str, default=()
        Theorems that the settings follow.

    Notes
    -----
    Privacy: depends on public facts and released coefficients only.
    """

    sizes: str
    signal: float
    verdict: str
    share: tuple[float, float]
    noise: str
    cures: tuple[str, ...]
    cautions: tuple[str, ...]
    theorems: tuple[str, ...] = ()

    def sections(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """Return headings with their sentences."""
        parts = (
            (_TITLE, (self.sizes, self.verdict, self.noise)),
            ("Remedies", tuple(f"{cure[0].upper()}{cure[1:]}." for cure in self.cures)),
            ("Which theorem the settings follow", self.theorems),
            ("Caution", self.cautions),
        )
        return tuple((heading, sentences) for heading, sentences in parts if sentences)

    def _repr_html_(self) -> str:
        cures = [("Remedies", self.cures)] if self.cures else []
        pairs = (("for", self.sizes), ("expect", self.verdict), ("noise", self.noise))
        return card(_TITLE, pairs, warnings=self.cautions, sections=cures)

    def __str__(self) -> str:
        lines = []
        for heading, sentences in self.sections():
            lines += [f"{heading}:", *(f"  {sentence}" for sentence in sentences)]
        return "\n".join(lines)


@checked
def guidance(plan: Plan, coefficients: CoefficientTable | None = None) -> Guidance:
    """Return the accuracy to expect from a plan, and remedies.

    Parameters
    ----------
    plan : Plan
        From ``estimator.plan(...)``, or ``solution_.plan`` of a fitted estimator.
    coefficients : CoefficientTable, optional
        Coefficients of the fitted model, to describe their precision.

    Notes
    -----
    The range held in 9 of 10 problems, generated and public, with default solvers:
    ``make guidance`` tests it, docs/evidence/coverage.md has it. Other solvers are better or
    worse.

    Privacy: depends on public facts and released coefficients only.

    Examples
    --------
    >>> from dpglm import LogisticRegression
    >>> print(guidance(LogisticRegression(row_norm=3.0).plan(n_rows=400, n_features=30)))
    Expectation (a rule of thumb, not a promise):
      400 rows and epsilon 1 for 31 coefficients.
      Expect a useful but often clearly weaker model: ... % of the possible improvement...
      Noise in each coefficient: standard deviation about ..., per unit of its column ...
    Remedies:
      About 630 rows instead of 400.
      Epsilon 1.6 instead of 1, which protects less.
      About 12 columns instead of 30: leave some out, or merge categories, by public knowledge.
      Tighter bounds, ...
    """
    signal, share = signal_to_noise(plan), _share_of_possible(plan)
    spent = ", ".join(
        f"{name} {plain_number(value)}"
        for name, value in plan.budget.to_dict().items()
        if name not in ("type", "delta")
    )
    verdict = _VERDICTS[0][1]
    if signal >= HOPELESS and _has_noise_of_bound(plan):
        verdict = _NOISE_OF_BOUND
    elif signal >= HOPELESS:
        quality = next(text for bound, text in _VERDICTS if _signal_of_share(plan) < bound)
        low, high = (round(100.0 * min(one, 1.0)) for one in share)
        verdict = (
            f"{quality} {low} to {high} % of the possible improvement, which is that of a fit "
            "without privacy over a constant prediction."
        )
    data, cures = plan.data, _cures(plan, _GOOD / signal) if signal < _GOOD else ()
    wide = data.n_outputs > 1 and not data.sparse and data.n_features > _MANY_COLUMNS
    if signal >= _GOOD and wide and math.isfinite(data.entry_bound):
        # A good model has improvements at no cost.
        cures = (_LENGTHS,)
    return Guidance(
        f"{plan.data.n_rows} rows and {spent} for {plan.data.n_coefficients} coefficients.",
        signal,
        verdict,
        share,
        _noise_in_plan(plan) if coefficients is None else _noise_in_model(coefficients.inference),
        cures,
        plan.cautions() if coefficients is None else (),
        plan.theorems,
    )


def _signal_of_share(plan: Plan) -> float:
    """Return the signal, adjusted to the rows of each class, and at least the hopeless one."""
    many = max(plan.data.n_outputs / _FEW_CLASSES, 1.0)
    return max(signal_to_noise(plan) / math.sqrt(many), HOPELESS)


def _share_of_possible(plan: Plan) -> tuple[float, float]:
    """Return the range of the share of the possible improvement; hopeless plans lack a low end."""
    if _has_noise_of_bound(plan):
        return -math.inf, _SHARES[-1][2]
    signals, *ends = np.transpose(_SHARES)
    signal = math.log(_signal_of_share(plan))
    low, high = (float(np.interp(signal, np.log(signals), end)) for end in ends)
    return (low if signal_to_noise(plan) >= HOPELESS else -math.inf), high


def _has_noise_of_bound(plan: Plan) -> bool:
    """Whether the noise of a log-link model follows the declared bound on its targets."""
    if not isinstance(plan.problem.loss.link, LogLink):
        return False
    return not any(SIZES in one.quantity for one in plan.method.releases)


def _noise_in_model(inference: Inference | None) -> str:
    if inference is None:
        return (
            "There are no confidence intervals (inference=True), so it is unknown which "
            "coefficients differ from zero."
        )
    low, high = inference.conf_int().T
    clear = int(np.count_nonzero((low > 0.0) | (high < 0.0)))
    longer = np.median(1.0 / np.sqrt(np.maximum(1.0 - inference.privacy_shares, SMALLEST)))
    return (
        f"{clear} of {len(low)} confidence intervals (95 %) exclude zero. Privacy made intervals "
        f"{plain_number(float(longer), 3)} times as long as sampling alone would (median)."
    )


def _noise_in_plan(plan: Plan) -> str:
    per = "half of the declared range of its column"
    if math.isinf(plan.data.entry_bound):
        per = "unit of its column (half of the range of one that a schema encoded)"
    has_range = plan.problem.loss.target is Target.REAL and math.isfinite(plan.data.target_high)
    target = "in half ranges of the target " if has_range else ""
    price = plan.method.price_of_full_weights
    full = (
        f" Full weights of all rows (weighting='none') make it {price:.2g} times that of the "
        "default, and more if a column is skewed."
    )
    return (
        f"Noise in each coefficient: standard deviation about {plan.coefficient_noise:.2g}, "
        f"{target}per {per}.{full if price > _CHEAP else ''}"
    )


def _cures(plan: Plan, lack: float) -> tuple[str, ...]:
    data, budget, pure = plan.data, plan.budget, plan.budget.is_pure
    fewer = data.n_features / (lack if pure else lack**2)
    rows = data.n_rows * lack
    # Two significant digits, rounded up.
    unit = 10 ** max(0, math.floor(math.log10(rows)) - 1)
    found = [f"about {unit * math.ceil(rows / unit)} rows instead of {data.n_rows}"]
    if isinstance(budget, ApproximateDP):
        epsilon = budget.epsilon * lack
        if not pure:
            epsilon = gdp.epsilon(budget.delta, budget.gdp_mu() * lack)
        said = f"epsilon {epsilon:.2g} instead of {plain_number(budget.epsilon)}"
    else:
        mu = budget.gdp_mu() * lack
        epsilon = gdp.epsilon(default_delta(data.n_units), mu)
        said = f"a mu of {mu:.2g}"
    if epsilon <= LARGEST_EPSILON:
        found.append(f"{said}, which protects less")
    if fewer >= 1.0:
        found.append(
            f"about {int(fewer)} columns instead of {data.n_features}: leave some out, or merge "
            "categories, by public knowledge"
        )
    found.append(_BOUNDS)
    if pure:
        found.append("a delta above 0, which allows Gaussian noise and needs less of it")
    return tuple(found)
