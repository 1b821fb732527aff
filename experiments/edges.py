"""Compare defaults at the edges with trivial and non-private models: a table for the docs.

Run with ``python -m experiments.edges``. It rewrites the table in ``docs/evidence/edges.md``. With
``--only LinearSVC 5000`` it prints the lines that have both words, and writes nothing.
"""

from __future__ import annotations

import argparse
import itertools
import math
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from scipy import sparse
from sklearn import linear_model, svm
from sklearn.base import clone

import dpglm
from dpglm.problem import (
    Logistic,
    Loss,
    OneVsRest,
    Poisson,
    Savage,
    Softmax,
    Squared,
    SquaredHinge,
)

EPSILONS = (0.05, 0.3, 1.0, 4.0, 20.0)
WITHOUT_PRIVACY = 1e6
TEST_ROWS = 2000
PAGE = Path(__file__).parent.parent / "docs" / "evidence" / "edges.md"
TARGET_BOUNDS = {"squares": (-4.0, 4.0), "counts": (0.0, 10.0)}
# scikit-learn's models of the same kind, where there is one.
REFERENCES: dict[str, Any] = {
    "LogisticRegression": linear_model.LogisticRegression(max_iter=1000),
    "LinearSVC": svm.LinearSVC(),
    "LinearRegression": linear_model.LinearRegression(),
    "Ridge": linear_model.Ridge(),
    "PoissonRegressor": linear_model.PoissonRegressor(max_iter=1000),
}
ESTIMATORS: dict[str, tuple[str, Any, Loss, Loss]] = {
    # Kind of target, estimator, its loss for one output and for several.
    "LogisticRegression": ("classes", dpglm.LogisticRegression, Logistic(), Softmax()),
    "LinearSVC": ("classes", dpglm.LinearSVC, SquaredHinge(), SquaredHinge()),
    "RobustClassifier": ("classes", dpglm.RobustClassifier, Savage(), Savage()),
    "LinearRegression": ("squares", dpglm.LinearRegression, Squared(), Squared()),
    "Ridge": ("squares", dpglm.Ridge, Squared(), Squared()),
    "PoissonRegressor": ("counts", dpglm.PoissonRegressor, Poisson(), Poisson()),
}


@dataclass(frozen=True)
class Edge:
    """One generated problem for one estimator."""

    estimator: str
    n_rows: int
    n_features: int
    columns: str = "normal"
    n_classes: int = 2
    signal: float = 2.0
    rare: float = 0.5
    largest: float | None = None  # Share of the most frequent of several classes.
    delta: float | None = None

    @property
    def label(self) -> str:
        """The first cells of its line in the table."""
        kind = self.columns
        if self.n_classes > 2:
            kind += f", {self.n_classes} classes"
        if self.largest is not None:
            kind += f", one with {self.largest:.0%}"
        if self.rare < 0.5:
            kind += f", {self.rare:.0%} positive"
        if self.delta == 0.0:
            kind += ", delta 0"
        signal = {0.0: "no", 2.0: "yes"}.get(self.signal, "strong")
        return f"`{self.estimator}` | {self.n_rows} | {self.n_features} | {kind} | {signal}"


@dataclass(frozen=True)
class Result:
    """Test risks of one edge, over seeds; lists have one entry for each epsilon."""

    edge: Edge
    zero: float
    constant: float
    reference: float
    non_private: float
    risks: list[list[float]]
    scores: list[list[float]]


def edges() -> list[Edge]:
    """All lines of the table."""
    sizes = list(itertools.product((500, 5000), (5, 100)))
    found = [
        Edge("LogisticRegression", n, d, signal=s)
        for n, d, s in itertools.product((500, 5000), (5, 100, 1000), (0.0, 2.0))
    ]
    found += [
        Edge("LogisticRegression", n, 10_000, "sparse", signal=s)
        for n, s in itertools.product((500, 5000), (0.0, 2.0))
    ]
    found += [
        Edge("LogisticRegression", n, d, columns)
        for columns in ("heavy-tailed", "scales")
        for n, d in sizes
    ]
    found += [Edge("LogisticRegression", n, d, rare=0.01) for n, d in sizes]
    found += [Edge("LogisticRegression", n, d, n_classes=10) for n, d in sizes]
    found += [Edge("LogisticRegression", n, d, n_classes=100) for n, d in sizes]
    found += [
        Edge("LogisticRegression", 5000, d, n_classes=10, signal=s, largest=0.5)
        for d, s in ((100, 2.0), (100, 8.0), (1000, 8.0))
    ]
    found += [
        Edge(name, n, d, signal=s)
        for name in ("LinearSVC", "LinearRegression", "PoissonRegressor", "RobustClassifier")
        for (n, d), s in itertools.product(sizes, (0.0, 2.0))
    ]
    found += [
        Edge(name, n, d, columns)
        for name in ("LinearRegression", "PoissonRegressor")
        for columns in ("heavy-tailed", "scales")
        for n, d in ((500, 5), (5000, 100))
    ]
    found += [Edge("LinearRegression", 5000, 1000, signal=s) for s in (0.0, 2.0)]
    found += [
        Edge("LinearRegression", n, 10_000, "sparse", signal=s)
        for n, s in itertools.product((500, 5000), (0.0, 2.0))
    ]
    found += [Edge("Ridge", n, d) for n, d in sizes]
    found += [
        Edge(name, n, d, signal=s, delta=0.0)
        for name in ("LogisticRegression", "LinearRegression")
        for (n, d), s in itertools.product(((500, 5), (5000, 100)), (0.0, 2.0))
    ]
    return found


def _matrix(edge: Edge, rng: np.random.Generator) -> tuple[Any, dict[str, Any]]:
    """Rows, and the public fact that a user would declare about them."""
    n, d = edge.n_rows + TEST_ROWS, edge.n_features
    if edge.columns == "normal":
        return rng.normal(size=(n, d)), {"row_norm": math.sqrt(d)}
    if edge.columns == "heavy-tailed":
        return rng.standard_t(2, size=(n, d)), {"row_norm": 2.0 * math.sqrt(d)}
    if edge.columns == "scales":
        scale = np.logspace(-3.0, 3.0, d)
        return rng.uniform(-1.0, 1.0, size=(n, d)) * scale, {"feature_bounds": (-scale, scale)}
    frequency = 1.0 / np.arange(1, d + 1) ** 1.1
    words = rng.choice(d, size=(n, 40), p=frequency / frequency.sum())
    places = np.repeat(np.arange(n), 40), words.ravel()
    counts = sparse.csr_array((np.ones(words.size), places), shape=(n, d))
    counts.sum_duplicates()
    lengths = np.sqrt(counts.multiply(counts).sum(axis=1))
    return sparse.csr_array(sparse.diags_array(1.0 / lengths) @ counts), {"row_norm": 1.0}


def generate(edge: Edge, seed: int) -> tuple[Any, NDArray[Any], dict[str, Any]]:
    """Draw rows, targets and public facts; the last 2000 rows are for testing."""
    rng = np.random.default_rng([seed, edge.n_rows, edge.n_features, edge.n_classes])
    X, facts = _matrix(edge, rng)
    w = rng.normal(size=(edge.n_features, edge.n_classes))
    if edge.columns == "scales":
        w /= np.logspace(-3.0, 3.0, edge.n_features)[:, np.newaxis]
    z = X @ w
    z -= np.median(z, axis=0)
    z *= edge.signal / np.quantile(np.abs(z), 0.68, axis=0)
    kind = ESTIMATORS[edge.estimator][0]
    if kind == "classes":
        facts["classes"] = list(range(edge.n_classes))
        if edge.n_classes > 2:
            noisy = z + rng.gumbel(size=z.shape)
            if edge.largest is not None:
                behind = noisy[:, 1:].max(axis=1) - noisy[:, 0]
                noisy[:, 0] += np.quantile(behind, edge.largest)
            return X, noisy.argmax(axis=1), facts
        noisy = z[:, 0] + rng.logistic(size=len(z))
        return X, (noisy > np.quantile(noisy, 1.0 - edge.rare)).astype(int), facts
    low, high = facts["target_bounds"] = TARGET_BOUNDS[kind]
    if kind == "squares":
        return X, np.clip(z[:, 0] + rng.normal(size=len(z)), low, high), facts
    counts = rng.poisson(np.exp(np.clip(z[:, 0] / 2.0, -3.0, 2.0)))
    return X, np.minimum(counts, high).astype(float), facts


def risk_of(edge: Edge, z: NDArray[np.float64], y: NDArray[Any]) -> float:
    """Mean loss of linear predictions; squares in units of the target's variance."""
    kind, _, one, several = ESTIMATORS[edge.estimator]
    if kind == "squares":
        return float(np.mean((z - y) ** 2) / np.var(y))
    if edge.n_classes == 2:
        return float(np.mean(one.value(z, 2.0 * y - 1.0 if kind == "classes" else y)))
    loss = several if several == Softmax() else OneVsRest(several, edge.n_classes)
    return float(np.mean(loss.value(z, y)))


def _constants(edge: Edge, y: NDArray[Any], test: NDArray[Any]) -> tuple[float, float]:
    """Test risks of the model that a fit starts from, and of the best constant one for ``y``."""
    kind = ESTIMATORS[edge.estimator][0]
    ones = np.ones(len(test))
    if kind == "squares":
        return risk_of(edge, 0.0 * ones, test), risk_of(edge, y.mean() * ones, test)
    if kind == "counts":
        high = TARGET_BOUNDS[kind][1]
        start, best = math.log(high), math.log(y.mean())
        return risk_of(edge, start * ones, test), risk_of(edge, best * ones, test)
    if edge.n_classes == 2:
        tried = [risk_of(edge, b * ones, test) for b in np.linspace(-6.0, 6.0, 121)]
        return risk_of(edge, 0.0 * ones, test), min(tried)
    zeros = np.zeros((len(test), edge.n_classes))
    if edge.estimator == "LogisticRegression":
        shares = (np.bincount(y, minlength=edge.n_classes) + 0.5) / (len(y) + 0.5 * edge.n_classes)
        return risk_of(edge, zeros, test), risk_of(edge, zeros + np.log(shares), test)
    return risk_of(edge, zeros, test), risk_of(edge, zeros - 1.0, test)


def _fit(
    edge: Edge, epsilon: float, seed: int, X: Any, y: NDArray[Any], facts: dict[str, Any]
) -> tuple[float, float]:
    """Fit with default settings; test risk and score."""
    delta = {} if edge.delta is None else {"delta": edge.delta}
    model = ESTIMATORS[edge.estimator][1](epsilon=epsilon, random_state=seed, **facts, **delta)
    with warnings.catch_warnings():
        # Fits that promise little warn of it; here that is wanted.
        warnings.simplefilter("ignore")
        model.fit(X[: edge.n_rows], y[: edge.n_rows])
        test_X, test_y = X[edge.n_rows :], y[edge.n_rows :]
        kind = ESTIMATORS[edge.estimator][0]
        if kind == "classes":
            z = model.decision_function(test_X)
        else:
            z = test_X @ model.coef_ + model.intercept_
        return risk_of(edge, z, test_y), float(model.score(test_X, test_y))


def _fit_reference(edge: Edge, X: Any, y: NDArray[Any], facts: dict[str, Any]) -> float:
    """Test risk of scikit-learn's model with the same penalty; NaN where there is none."""
    if edge.estimator not in REFERENCES:
        return math.nan
    kind, estimator = ESTIMATORS[edge.estimator][:2]
    model = clone(REFERENCES[edge.estimator])
    settings = estimator(**facts).get_params()
    same = {name: settings[name] for name in ("C", "alpha") if name in model.get_params()}
    model.set_params(**same)
    if edge.columns == "scales":
        # Penalties are about columns between -1 and 1.
        X = X / facts["feature_bounds"][1]
    train, test = X[: edge.n_rows], X[edge.n_rows :]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(train, y[: edge.n_rows])
        if kind != "classes":
            return risk_of(edge, test @ model.coef_ + model.intercept_, y[edge.n_rows :])
        z = model.decision_function(test)
        if edge.n_classes > 2:
            # Classes without a row are as unlikely as the least likely one.
            known, z = z, np.repeat(z.min(axis=1, keepdims=True), edge.n_classes, axis=1)
            z[:, model.classes_] = known
        return risk_of(edge, z, y[edge.n_rows :])


def measure(edge: Edge, epsilons: Iterable[float], seeds: int) -> Result:
    """Fit once for each epsilon and seed, once without privacy, once at an epsilon of a million."""
    constants, references, limits = [], [], []
    risks: list[list[float]] = [[] for _ in epsilons]
    scores: list[list[float]] = [[] for _ in epsilons]
    for seed in range(seeds):
        X, y, facts = generate(edge, seed)
        constants.append(_constants(edge, y[: edge.n_rows], y[edge.n_rows :]))
        references.append(_fit_reference(edge, X, y, facts))
        limits.append(_fit(edge, WITHOUT_PRIVACY, seed, X, y, facts)[0])
        for k, epsilon in enumerate(epsilons):
            risk, score = _fit(edge, epsilon, seed, X, y, facts)
            risks[k].append(risk)
            scores[k].append(score)
    zero, constant = np.mean(constants, axis=0).tolist()
    reference, limit = float(np.mean(references)), float(np.mean(limits))
    return Result(edge, zero, constant, reference, limit, risks, scores)


def is_worse(result: Result, k: int) -> bool:
    """Whether risk is above the zero model's by more than two standard errors and 2 %."""
    risks = np.array(result.risks[k])
    error = float(risks.std(ddof=1)) / math.sqrt(len(risks)) if len(risks) > 1 else 0.0
    allowed = 0.02 * max(1.0, abs(result.zero))
    return not float(risks.mean()) <= result.zero + 2.0 * error + allowed


def table(results: Iterable[Result]) -> str:
    """All results as Markdown; risks that are worse than the zero model's are bold."""
    lines = [
        "| estimator | n | d | columns | signal | zero | constant | scikit-learn | ε = 10⁶ | "
        + " | ".join(f"ε = {e:g}" for e in EPSILONS)
        + " | scores |",
        "|---|---:|---:|---|---|" + "---:|" * (len(EPSILONS) + 5),
    ]
    for one in results:
        reference = "-" if math.isnan(one.reference) else f"{one.reference:.3g}"
        cells = [f"{one.zero:.3g}", f"{one.constant:.3g}", reference, f"{one.non_private:.3g}"]
        for k, risks in enumerate(one.risks):
            cell = f"{np.mean(risks):.3g}"
            cells.append(f"**{cell}**" if is_worse(one, k) else cell)
        scores = [f"{float(np.clip(np.mean(s), -99, 1)):.2f}" for s in one.scores]
        lines.append(f"| {one.edge.label} | {' | '.join(cells)} | {', '.join(scores)} |")
    return "\n".join(lines)


def write(text: str) -> None:
    """Put the table between its marks in the page."""
    page = PAGE.read_text()
    head, rest = page.split("<!-- begin: edges -->")
    _, tail = rest.split("<!-- end: edges -->")
    PAGE.write_text(f"{head}<!-- begin: edges -->\n\n{text}\n\n<!-- end: edges -->{tail}")


def main() -> None:
    """Measure everything and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--only", nargs="+", metavar="WORD", help="words that a line must contain")
    options = parser.parse_args()
    chosen = [edge for edge in edges() if all(word in edge.label for word in options.only or ())]
    results = Parallel(n_jobs=options.jobs)(
        delayed(measure)(edge, EPSILONS, options.seeds) for edge in chosen
    )
    text = table(results)
    print(text, flush=True)
    if not options.only:
        write(text)


if __name__ == "__main__":
    main()
