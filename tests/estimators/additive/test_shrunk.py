"""Bends that noise would make vanish, those beyond it stay, and straight lines are let alone."""

from __future__ import annotations

import numpy as np
import pytest

from dpglm import AdditiveRegressor
from dpglm.estimators.additive import models
from dpglm.estimators.additive._curves import information_of, shrunk_bends, straightened
from dpglm.solvers.second_order.newton import Newton
from dpglm.tables.additive import Additive
from dpglm.tables.schema import Schema
from tests.estimators.additive.tables import schema

ENCODED = Schema.from_dict(schema()).with_additive(Additive(8, 1.0, (("age", "pay"),), 2))
TERMS = ENCODED.additive_encoding.terms
SIZE = ENCODED.additive_encoding.n_features + 1


def curve(w, term=TERMS[0]):
    return term.root @ w[term.features]


def coefficients(values, term=TERMS[0]):
    w = np.zeros(SIZE)
    w[term.features] = np.linalg.lstsq(term.root, values, rcond=None)[0]
    return w


def test_noise_in_bends_vanishes_and_a_line_stays():
    rng = np.random.default_rng(0)
    noise, line = 0.05, coefficients(np.linspace(-1.0, 1.0, len(TERMS[0].labels)))
    before, after = [], []
    for _ in range(20):
        w = line + noise * rng.normal(size=SIZE)
        shrunk, *_ = shrunk_bends(w, np.eye(SIZE) / noise**2, ENCODED)
        before.append(np.linalg.norm(curve(w) - curve(line)))
        after.append(np.linalg.norm(curve(shrunk) - curve(line)))
    assert np.mean(after) < 0.6 * np.mean(before)


def test_a_bend_beyond_noise_stays():
    rng = np.random.default_rng(0)
    bent = coefficients(np.cos(np.linspace(0.0, np.pi * 2, len(TERMS[0].labels))))
    w = bent + 0.01 * rng.normal(size=SIZE)
    shrunk, *_ = shrunk_bends(w, np.eye(SIZE) / 0.01**2, ENCODED)
    assert np.linalg.norm(curve(shrunk) - curve(bent)) < 0.05 * np.linalg.norm(curve(bent))


def test_ordered_levels_are_shrunk_except_missing():
    levels = ["", *range(9)]
    entry = {"type": "categorical", "categories": levels, "ordered": True}
    column = {"columns": {"band": entry}, "provenance": "made up"}
    mixed = {"columns": {"band": entry | {"categories": levels[1:]}}, "provenance": "made up"}
    for one in (column, mixed):
        encoded = Schema.from_dict(one).with_additive(Additive(2, 1.0))
        (term,) = encoded.additive_encoding.terms
        order = term.axes[0].order
        values = np.zeros(len(term.labels))
        values[order] = np.linspace(-1.0, 1.0, len(order))
        values[: -len(order)] = 0.7
        rng, noise, off = np.random.default_rng(0), 0.02, []
        line = np.append(np.linalg.lstsq(term.root, values, rcond=None)[0], 0.3)
        for _ in range(20):
            w = line + noise * rng.normal(size=len(line))
            shrunk, *_ = shrunk_bends(w, np.eye(len(w)) / noise**2, encoded)
            np.testing.assert_array_equal(shrunk[len(order) - 1 :], w[len(order) - 1 :])
            errors = [(term.root @ (one - line)[:-1])[order] for one in (w, shrunk)]
            off.append([np.linalg.norm(one) for one in errors])
        assert np.mean(off, axis=0)[1] < 0.7 * np.mean(off, axis=0)[0]


def test_linear_parts_change_only_with_correlated_errors():
    rng = np.random.default_rng(1)
    w, root = rng.normal(size=SIZE), rng.normal(size=(SIZE, 2 * SIZE))
    levels = next(term for term in TERMS if term.name == "sex").features
    alone, *_ = shrunk_bends(w, np.eye(SIZE), ENCODED)
    assert np.array_equal(alone[levels], w[levels])
    assert alone[-1] == w[-1]
    precision = root @ root.T
    pull = precision @ (shrunk_bends(w, precision, ENCODED)[0] - w)
    # Of the least squares around w, given the bends, nothing is left along the rest.
    assert np.abs(pull[levels]).max() < 1e-8
    assert abs(pull[-1]) < 1e-8
    assert np.abs(pull).max() > 1e-3


def test_straight_lines_have_nothing_to_shrink():
    straight = Schema.from_dict(schema()).with_additive(Additive(1, 1.0))
    w = np.arange(straight.additive_encoding.n_features + 1.0)
    same, kept, slopes = shrunk_bends(w, np.eye(len(w)), straight)
    assert same is w
    np.testing.assert_array_equal(kept, np.eye(len(w)))
    np.testing.assert_array_equal(slopes, np.eye(len(w)))


def test_slopes_are_derivatives_by_which_variances_move_too():
    """Components with a low signal-to-noise ratio change by more than their shrinkage factor."""
    rng = np.random.default_rng(8)
    w, root = 1.5 * rng.normal(size=SIZE), np.eye(SIZE) + 0.1 * rng.normal(size=(SIZE, SIZE))
    precision = root @ root.T
    way = rng.normal(size=SIZE)
    *_, slopes = shrunk_bends(w, precision, ENCODED)
    there, back = (shrunk_bends(w + one * way, precision, ENCODED)[0] for one in (0.05, -0.05))
    found = (there - back) / 0.1
    assert np.linalg.norm(slopes @ way - found) < 0.03 * np.linalg.norm(found)


def generated(score, *, n=16_000, columns=5, bound=5.0):
    """Rows with normal columns and a numeric target, the last quarter held out."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, columns)).clip(-4.0, 4.0)
    y = (score(x) + rng.normal(size=n)).clip(-bound, bound)
    bounds = {"type": "numeric", "low": -4.0, "high": 4.0}
    facts = {
        "columns": {f"x{i}": bounds for i in range(columns)},
        "target": {"name": "y", "type": "numeric", "low": -bound, "high": bound},
        "provenance": "made up",
    }
    part = 3 * n // 4
    rows = [{f"x{i}": one[:, i] for i in range(columns)} for one in (x[:part], x[part:])]
    return facts, x, y, part, rows


def straight(x):
    return x @ np.linspace(0.5, -0.3, x.shape[1])


def losses(monkeypatch, seeds, *, n=16_000, bound=5.0, **parameters):
    """Return the loss of R squared to straight lines, with and without the average."""
    facts, x, y, part, rows = generated(straight, n=n, bound=bound)
    design = np.column_stack([x, np.ones(len(x))])
    line = np.linalg.lstsq(design[:part], y[:part], rcond=None)[0]
    best = np.mean((y[part:] - design[part:] @ line) ** 2)

    def loss():
        found = []
        for seed in range(seeds):
            model = AdditiveRegressor(facts, delta=1e-5, random_state=seed, **parameters)
            model.fit(rows[0], y[:part])
            found.append(np.mean((y[part:] - model.predict(rows[1])) ** 2) - best)
        return np.mean(found) / np.var(y)

    averaged = loss()
    monkeypatch.setattr(models, "straightened", lambda w, *_: w)
    return averaged, loss()


@pytest.mark.parametrize(
    ("epsilon", "bound", "most"), [(0.3, 5.0, 0.0025), (1.0, 5.0, 0.0025), (4.0, 2.0, 0.0035)]
)
def test_straight_effects_lose_little_accuracy(monkeypatch, epsilon, bound, most):
    averaged, released = losses(monkeypatch, 3, bound=bound, epsilon=epsilon)
    assert averaged < most
    assert released > 0.004


@pytest.mark.parametrize(("n", "epsilon"), [(4_000, 1.0), (16_000, 0.15)])
def test_single_bends_of_straight_effects_shrink_in_common(monkeypatch, n, epsilon):
    told = {"epsilon": epsilon, "segments": 2, "solver": Newton(clip=0.15)}
    averaged, released = losses(monkeypatch, 6, n=n, **told)
    assert averaged < 0.6 * released


@pytest.mark.parametrize("segments", ["auto", 2])
def test_clear_bends_are_not_straightened(segments):
    facts, _, y, part, rows = generated(lambda x: 0.5 * np.abs(x[:, 0]) + straight(x))
    model = AdditiveRegressor(facts, segments=segments, epsilon=1.0, delta=1e-5, random_state=0)
    solution, encoded = model.fit(rows[0], y[:part]).solution_, model.schema_
    w, *_ = shrunk_bends(solution.w, solution.precision, encoded)
    known = information_of(solution, encoded)
    np.testing.assert_allclose(straightened(w, solution, encoded, known), w, rtol=1e-6)


def test_information_finishes_steps():
    facts, _, y, part, rows = generated(lambda x: 0.3 * np.abs(x[:, 0]) + straight(x))
    solver = Newton(n_steps=2, step_size=1.0, clip=100.0)
    model = AdditiveRegressor(facts, segments=8, solver=solver, epsilon=1e4, random_state=0)
    solution, encoded = model.fit(rows[0], y[:part]).solution_, model.schema_
    known = information_of(solution, encoded)
    x = encoded.encode(rows[0]) * (solution.plan.data.row_norm / encoded.row_norm)
    design = np.column_stack([x, np.full(len(x), solution.plan.data.intercept)])
    best = np.linalg.lstsq(design, y[:part] / 5.0, rcond=None)[0]
    ways = [np.linalg.solve(known.design, known.pooled) - best, solution.w - best]
    finished, released = (np.linalg.norm(design @ way) for way in ways)
    assert finished < 0.3 * released
