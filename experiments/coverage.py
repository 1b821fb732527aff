"""Coverage and length of confidence intervals, over generated rows: a table for the docs.

Run with ``make coverage``, or ``python -m experiments.coverage``. It rewrites the tables in
``docs/evidence/coverage.md``. Results are stored, so that a part can be measured again by itself:
``--only poisson robust`` measures the lines that have both words.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from scipy import special

from dpglm.inference import Inference
from dpglm.privacy import ApproximateDP, default_delta
from dpglm.solvers import Auto
from experiments.families import (
    FAMILIES,
    Array,
    Case,
    draw_columns,
    fit_plain,
    means,
    plain_covariance,
    target_of,
)
from experiments.measured import DOCS, put

PAGE, STORE = DOCS / "evidence" / "coverage.md", DOCS / "figures" / "coverage.json"
LEVEL = 0.95
# Of the mean coverage over coefficients, and of the worst coefficient's.
MEAN, WORST = (0.93, 0.97), 0.91
_RUNS, _BOOTSTRAPS = 300, 200
# Conditional coverage is judged if a coefficient has finite intervals in this many runs.
_FINITE = 0.05
_ARRAYS = (
    *("covered", "finite", "covered_if_finite", "lengths", "errors"),
    *("plain_covered", "plain_lengths"),
)
Method: TypeAlias = "Callable[[Case, Array, Array, int], tuple[Array, Array]]"
"""From a case, rows, targets and a seed to estimates and their intervals."""


@dataclass(frozen=True)
class Result:
    """Results of intervals in many runs, for each coefficient, the intercept first.

    ``covered`` and ``lengths`` are shares and medians over runs, ``covered_if_finite`` the share
    among the ``finite`` intervals (NaN where there is none); ``errors`` are root mean squared
    errors over the standard errors of a fit without privacy; its intervals are ``plain_``.
    """

    case: Case
    covered: Array
    finite: Array
    covered_if_finite: Array
    lengths: Array
    errors: Array
    plain_covered: Array
    plain_lengths: Array
    runs: int
    seconds: float

    @property
    def record(self) -> dict[str, Any]:
        """The result as JSON, with six digits."""
        arrays = {name: getattr(self, name) for name in _ARRAYS}
        rounded = {name: [float(f"{x:.6g}") for x in one] for name, one in arrays.items()}
        return {**rounded, "runs": self.runs, "seconds": round(self.seconds, 1)}

    @classmethod
    def of(cls, case: Case, record: dict[str, Any]) -> Result:
        """Make the result of a record; older ones do not say which intervals were finite."""
        unknown = [math.nan] * len(record["covered"])
        arrays = {name: np.array(record.get(name, unknown)) for name in _ARRAYS}
        return cls(case, **arrays, runs=record["runs"], seconds=record["seconds"])

    @property
    def length(self) -> float:
        """Length over that without privacy, mean over coefficients."""
        return float(np.mean(self.lengths / self.plain_lengths))

    @property
    def if_finite(self) -> float:
        """Coverage of finite intervals, mean over all of them."""
        return float(np.nansum(self.finite * self.covered_if_finite) / self.finite.sum())

    @property
    def least_if_finite(self) -> float:
        """The same of the worst coefficient with some finite intervals; NaN if there is none."""
        shares = self.covered_if_finite[self.finite >= _FINITE]
        return float(shares.min()) if len(shares) else math.nan

    def faults(self) -> list[str]:
        """Return the results that contradict a claim of 95 % and exceed chance.

        Chance: two standard errors of the mean over coefficients, which is that of independent
        ones, and three of the worst.
        """
        found, size = [], len(self.covered)
        chance = math.sqrt(LEVEL * (1.0 - LEVEL) / self.runs)
        mean = float(self.covered.mean())
        if not MEAN[0] - 2.0 * chance / math.sqrt(size) <= mean:
            found.append(f"mean coverage {mean:.3f}")
        if not mean <= MEAN[1] + 2.0 * chance / math.sqrt(size):
            found.append(f"mean coverage {mean:.3f}")
        # Whether intervals are finite, coefficients have in common.
        if self.if_finite < MEAN[0] - 2.0 * chance / math.sqrt(self.finite.mean()):
            found.append(f"mean coverage {self.if_finite:.3f} of finite intervals")
        some = self.finite >= _FINITE
        least = WORST - 3.0 * chance / np.sqrt(self.finite[some])
        if (self.covered_if_finite[some] < least).any():
            found.append(f"worst coverage {self.least_if_finite:.3f} of finite intervals")
        worst = float(self.covered.min())
        if not worst >= WORST - 3.0 * chance:
            found.append(f"worst coverage {worst:.3f}")
        if not self.length <= self.case.most:
            found.append(f"length {self.length:.2f}")
        return found

    @property
    def line(self) -> str:
        """Its line of the table, with missed bars in bold."""
        mean, worst = float(self.covered.mean()), float(self.covered.min())
        most = "" if math.isinf(self.case.most) else f"{self.case.most:g}"
        cells = [
            self.case.label,
            _marked(f"{mean:.3f}", MEAN[0] <= mean <= MEAN[1]),
            _marked(f"{worst:.3f}", worst >= WORST),
            _if_known(self.if_finite, MEAN[0]),
            _if_known(self.least_if_finite, WORST),
            _marked(f"{self.length:.2f}", self.length <= self.case.most),
            most,
            f"{np.sqrt(np.mean(self.errors**2)):.2f}",
            f"{self.plain_covered.mean():.3f}",
            str(self.runs),
        ]
        return f"| {' | '.join(cells)} |"


def _marked(text: str, is_within: bool) -> str:
    return text if is_within else f"**{text}**"


def _if_known(share: float, least: float) -> str:
    return "" if math.isnan(share) else _marked(f"{share:.3f}", share >= least)


def estimator(case: Case, seed: int, **settings: Any) -> Any:
    """Make the estimator of a case, with noise from a seed."""
    family, reach = FAMILIES[case.family], np.ones(case.n_features)
    reach[0] = case.wide
    rough = {"n_rows": round(1.05 * case.n_rows)} if case.adjacency == "add_remove" else {}
    options = {
        "epsilon": case.epsilon,
        "adjacency": case.adjacency,
        "feature_bounds": (-reach, reach),
        "inference": "robust" if case.robust else True,
        "random_state": seed,
        "solver": _solver(case),
        **family.facts,
        **rough,
        **settings,
    }
    return family.estimator(**options)


def _solver(case: Case) -> Auto:
    """Return the solver, with the facts that a schema states."""
    if case.columns == "narrow":
        return Auto(prior_scales=(math.inf,) * case.n_features)
    return Auto(indicators=((*case.factor, 0.0),)) if case.columns == "levels" else Auto()


def wald(inference: Inference) -> Array:
    """Return the intervals that are claimed."""
    return inference.conf_int(LEVEL)


def forgets_noise(inference: Inference) -> Array:
    """Return planted intervals: those of sampling alone."""
    estimates = inference.estimates
    blind = dataclasses.replace(estimates, privacy=np.zeros_like(estimates.privacy))
    return dataclasses.replace(inference, estimates=blind).conf_int(LEVEL)


def library(interval: Callable[[Inference], Array] = wald, **settings: Any) -> Method:
    """Return the method that is measured: an estimator's ``inference_``."""

    def fit(case: Case, X: Array, y: Array, seed: int) -> tuple[Array, Array]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = estimator(case, seed, **settings).fit(X, y)
        return model.inference_.params, interval(model.inference_)

    return fit


def bootstrap(
    case: Case, X: Array, y: Array, seed: int, *, noise_in_products: bool = True
) -> tuple[Array, Array]:
    """Fit least squares with a parametric bootstrap of noisy sufficient statistics.

    Without ``noise_in_products`` it is a planted one, which forgets noise in the Hessian.

    Ferrando, Wang and Sheldon, "Parametric bootstrap for differentially private confidence
    intervals", AISTATS 2022, section 5, with one Gaussian release. Privacy: an experiment's only;
    rows and targets are within their bounds as they are drawn, and noise is a generator's.
    """
    rng = np.random.default_rng([seed, 1])
    high = FAMILIES[case.family].facts["target_bounds"][1]
    rows = np.column_stack([np.ones(len(X)), X, np.clip(y, -high, high) / high])
    size = rows.shape[1]
    mu = ApproximateDP(case.epsilon, default_delta(len(X))).gdp_mu()
    # A row's products are as long as the row's squared length.
    deviation = size / mu

    def noise(count: int) -> Array:
        draws = rng.normal(size=(count, size, size))
        symmetric: Array = deviation * (draws + draws.transpose(0, 2, 1)) / 2.0
        return symmetric

    released = rows.T @ rows + noise(1)[0]
    products, sums = released[:-1, :-1], released[:-1, -1]
    values, directions = np.linalg.eigh(products)
    products = (directions * np.maximum(values, deviation)) @ directions.T
    theta = np.linalg.solve(products, sums)
    residual = max(float(released[-1, -1] - sums @ theta), 0.0) / len(X)
    root = math.sqrt(residual) * np.linalg.cholesky(products)
    extra = noise(_BOOTSTRAPS)
    extra[:, :-1, :-1] *= noise_in_products
    means = products @ theta + rng.normal(size=(_BOOTSTRAPS, size - 1)) @ root.T
    replicates = np.linalg.solve(
        products + extra[:, :-1, :-1], (means + extra[:, :-1, -1])[..., np.newaxis]
    )
    tail = 0.5 * (1.0 - LEVEL)
    ends = np.quantile(replicates[..., 0], [tail, 1.0 - tail], axis=0).T
    return high * theta, high * ends


def measure(case: Case, runs: int = _RUNS, fit: Method | None = None) -> Result:
    """Fit many times to new rows."""
    fit = library() if fit is None else fit
    family, target, start = FAMILIES[case.family], target_of(case), time.perf_counter()
    covered, lengths, errors, plain_covered, plain_lengths = ([] for _ in range(5))
    z = -float(special.ndtri(0.5 - LEVEL / 2.0))
    for run in range(runs):
        rng = np.random.default_rng([run, case.n_rows, case.n_features])
        X = draw_columns(case, case.n_rows, rng)
        y = family.drawn(means(case, X), X, rng, case.wrong)
        params, intervals = fit(case, X, y, run)
        low, high = intervals.T
        covered.append((low <= target) & (target <= high))
        lengths.append(high - low)
        errors.append(params - target)
        plain = fit_plain(family, X, y, target)
        deviations = np.sqrt(np.diag(plain_covariance(family, X, y, plain, case.robust)))
        plain_covered.append(np.abs(plain - target) <= z * deviations)
        plain_lengths.append(2.0 * z * deviations)
    deviations = np.sqrt(np.mean(np.square(plain_lengths), axis=0)) / (2.0 * z)
    finite = np.isfinite(lengths)
    with np.errstate(invalid="ignore"):
        covered_if_finite = (finite & covered).sum(axis=0) / finite.sum(axis=0)
    return Result(
        case,
        np.mean(covered, axis=0),
        finite.mean(axis=0),
        covered_if_finite,
        np.median(lengths, axis=0),
        np.sqrt(np.mean(np.square(errors), axis=0)) / deviations,
        np.mean(plain_covered, axis=0),
        np.mean(plain_lengths, axis=0),
        runs,
        time.perf_counter() - start,
    )


def cases() -> list[Case]:
    """All lines of the table; bounds on lengths are those that the project sets itself."""
    found = []
    for family, far, most in (
        ("logistic", -3.5, (1.65, 2.5, 1.3, 1.08)),
        ("linear", 4.0, (1.5, 2.5, 1.35, 1.12)),
        ("poisson", -3.5, (1.8, 3.6, 1.45, 1.2)),
    ):
        free = Case(family, 20_000, 10, 1.0)
        found += [
            Case(family, 5_000, 5, 1.0, most=most[0]),
            dataclasses.replace(free, epsilon=0.3, most=most[1]),
            dataclasses.replace(free, most=most[2]),
            dataclasses.replace(free, epsilon=10.0),
            Case(family, 100_000, 10, 1.0, most=most[3]),
            dataclasses.replace(free, columns="correlated"),
            dataclasses.replace(free, columns="rare"),
            dataclasses.replace(free, intercept=far),
            dataclasses.replace(free, adjacency="replace_one"),
            dataclasses.replace(free, adjacency="add_remove"),
            dataclasses.replace(free, robust=True),
            dataclasses.replace(free, robust=True, wrong=True),
        ]
    found += [*_wide_bounds(), *_small_tables()]
    found += [*_hard_for_newton_raphson(), *_hard_for_least_squares(), *_rare_references()]
    found += _many_columns()
    found += [*_uneven_levels(), *_narrow_columns()]
    others = [name for name in FAMILIES if name not in {one.family for one in found}]
    return [*found, *(Case(name, 20_000, 10, 1.0) for name in others)]


def _wide_bounds() -> list[Case]:
    """Bounds of a column that are ten and a hundred times too wide."""
    return [
        Case(family, 20_000, 10, 1.0, wide=wide)
        for family in ("logistic", "linear")
        for wide in (10.0, 100.0)
    ]


def _small_tables() -> list[Case]:
    """Few rows, for the columns or at all."""
    sizes = (500, 3, 1.0), (1000, 10, 1.0), (2000, 5, 1.0), (5000, 20, 1.0)
    return [Case("linear", *size) for size in sizes]


def _hard_for_newton_raphson() -> list[Case]:
    """Columns with few informative rows, strong effects, wrong models with large rows."""
    lines = []
    for family in ("logistic", "poisson"):
        free, some = Case(family, 20_000, 10, 1.0), Case(family, 20_000, 3, 1.0)
        skewed = dataclasses.replace(some, columns="skewed", wrong=True, robust=True)
        lines += [
            *(dataclasses.replace(free, columns=one) for one in ("rarer", "rarest")),
            dataclasses.replace(some, columns="skewed"),
            skewed,
            dataclasses.replace(skewed, n_rows=100_000),
            dataclasses.replace(some, epsilon=10.0, effects=6.0 if family == "logistic" else 4.0),
        ]
    return lines


def _many_columns() -> list[Case]:
    """Many columns with strong effects (deviations of scores of 3.9 and 5.0), or little budget."""
    sizes = (20_000, 60, 1.0), (50_000, 100, 1.0), (5_000, 20, 0.3), (2_000, 10, 0.3)
    return [Case("logistic", *size) for size in sizes]


def _rare_references() -> list[Case]:
    """Factors with a rare reference level."""
    families = "complementary log-log", "logistic", "poisson", "linear"
    lines = [Case(name, 20_000, 17, 1.0, columns="reference") for name in families]
    return [*lines, dataclasses.replace(lines[0], n_rows=100_000)]


def _uneven_levels() -> list[Case]:
    """Three numbers, and a factor of 41 levels with sizes in proportion to 1, 1/2, 1/3, ..."""
    free = Case("logistic", 20_000, 43, 1.0, columns="levels")
    return [
        *(dataclasses.replace(free, epsilon=epsilon) for epsilon in (0.3, 1.0, 4.0)),
        *(Case("linear", 20_000, 43, epsilon, columns="levels") for epsilon in (0.3, 1.0, 4.0)),
        Case("poisson", 20_000, 43, 1.0, columns="levels"),
    ]


def _narrow_columns() -> list[Case]:
    """Four even columns, and one whose variation noise hides."""
    families = "logistic", "poisson", "linear"
    return [Case(name, 5_000, 5, 0.3, columns="narrow") for name in families]


def _hard_for_least_squares() -> list[Case]:
    """Errors and columns with few informative rows."""
    free, some = Case("linear", 20_000, 10, 1.0), Case("linear", 20_000, 3, 1.0)
    errors = [
        Case(f"linear, {one} errors", 20_000, 10, 1.0) for one in ("exponential", "lognormal")
    ]
    uneven = [
        Case("linear, gamma targets", 20_000, 10, 1.0, intercept=4.0, robust=True),
        Case("linear, binary targets", 20_000, 10, 1.0, intercept=0.06, robust=True),
    ]
    skewed = dataclasses.replace(some, columns="skewed", wrong=True, robust=True)
    lines = [
        *errors,
        dataclasses.replace(errors[1], epsilon=10.0),
        dataclasses.replace(errors[1], robust=True),
        *uneven,
        dataclasses.replace(some, columns="skewed"),
        skewed,
        dataclasses.replace(skewed, epsilon=10.0),
        *(dataclasses.replace(free, columns=one) for one in ("rarer", "rarest")),
    ]
    again = [*errors, *uneven, skewed, dataclasses.replace(free, columns="rarest")]
    return [*lines, *(dataclasses.replace(one, n_rows=100_000) for one in again)]


_HEADINGS = (
    *("family", "rows", "columns", "epsilon", "drawn", "covariance", "coverage", "worst"),
    *("if finite", "worst if finite"),
    *("length", "at most", "error", "without privacy", "runs"),
)


def methods(case: Case) -> dict[str, Method]:
    """Return the measurement of a case, by the name of its table."""
    found: dict[str, Method] = {"coverage": library()}
    plain = not (case.robust or case.wrong or case.wide != 1.0)
    plain = plain and case.adjacency == "zero_out"
    if case.family == "linear" and case.columns == "even" and plain:
        found["bootstrap"] = bootstrap
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=(), help="words that a line must have")
    parser.add_argument("--runs", type=int, default=_RUNS)
    arguments = parser.parse_args()
    store: dict[str, dict[str, Any]] = json.loads(STORE.read_text()) if STORE.exists() else {}
    for case in cases():
        if all(word in case.label for word in arguments.only):
            runs = arguments.runs if case.n_rows < 50_000 else arguments.runs // 2
            for table, fit in methods(case).items():
                result = measure(case, runs, fit)
                print(result.line, *result.faults(), f"{result.seconds:.0f} s", flush=True)
                store.setdefault(table, {})[case.label] = result.record
                STORE.write_text(json.dumps(store))
    for table, records in store.items():
        lines = [f"| {' | '.join(_HEADINGS)} |", "|---" * len(_HEADINGS) + "|"]
        lines += [
            Result.of(case, records[case.label]).line for case in cases() if case.label in records
        ]
        put(PAGE, table, "\n".join(lines))


if __name__ == "__main__":
    main()
