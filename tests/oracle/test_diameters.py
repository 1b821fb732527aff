"""Sums of contributions that cannot be opposite: moves by a replaced row, or group."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
import pytest

from dpglm.data.groups import GroupedRows
from dpglm.data.prepare import prepare_rows
from dpglm.data.rows import DataSpec, GroupBound
from dpglm.oracle import choices as loss_choices
from dpglm.oracle import choices as quantiles
from dpglm.oracle import rounding
from dpglm.oracle.counts import Cells, noisy_mean, noisy_tables, row_sum, table_sum
from dpglm.oracle.gradients import Oracle
from dpglm.oracle.linear import (
    ROW_LENGTHS,
    SHELL_COUNTS,
    LinearView,
    MomentShares,
    ScoreShares,
    Shells,
    moment_sum,
    noisy_lengths,
    noisy_moments,
    noisy_score_sums,
    noisy_shell_counts,
    noisy_sizes,
    noisy_weighted_moments,
    size_sum,
    table_moment_sum,
)
from dpglm.oracle.linear import score_moment_sum as sums_of
from dpglm.oracle.moments import noisy_second_moments, second_moment_sum
from dpglm.oracle.rounding import RowSum
from dpglm.oracle.scores import (
    LENGTHS,
    ClippedScores,
    curvature_sum,
    score_product_sum,
    score_with_limits,
)
from dpglm.oracle.targets import (
    SLOPES,
    SQUARED_SLOPES,
    TargetShares,
    column_sum,
    magnitude_sum,
    near_sum,
    noisy_columns,
    noisy_magnitudes,
    noisy_mean_slope,
    noisy_near_counts,
    noisy_squared_slope,
    noisy_target_means,
    noisy_target_sizes,
    noisy_target_sums,
    target_mean_sum,
    target_size_sum,
    target_sum,
)
from dpglm.privacy.budget import Adjacency
from dpglm.privacy.noise import SeededNoise
from dpglm.privacy.noise.additive import GaussianNoise
from dpglm.privacy.releases import Curator, Release
from dpglm.problem import Logistic, Squared
from tests.oracle.watching import watching

NOISE, SQUARED = GaussianNoise(1.0), Squared()
WEIGHT = 2.0
BASIS, V = np.diag([2.0, 3.0, 0.0]), np.zeros(3)
SCORES = ClippedScores(BASIS, 0.8, 0.9, slope=0.7, curvature=0.2)
VIEW = LinearView(np.eye(3), 1.0, 0.0, 0.5, np.zeros(3), 0.4)
LEVEL_VIEW = LinearView(np.eye(3), 1.0, 1.0, 0.0, np.zeros(3), 1.0)
LONG_VIEW = LinearView(100.0 * np.eye(3), 1.0, 1.0, 0.0, np.zeros(3), 1.0)
SHELLS = Shells(0.01, 1.3)
COLUMNS = np.eye(3)[:, :2]
BY = np.zeros(2), np.array([0.1, 0.3])
EQUATIONS, LAST = MomentShares(0.5, 0.25, 0.25), MomentShares(0.0, 0.9, 0.1)
FINAL, ROBUST = ScoreShares(0.25, 0.7, 0.05), ScoreShares(0.2, 0.55, 0.05, 0.2)
TARGETS, MEANS = TargetShares(0.6, 0.2, 0.2, 3), TargetShares(0.4, 0.6, 0.0, 0)
TABLES = (Cells((0,), (4,), 0.5), Cells((0, 1), (4, 3), 0.3), Cells((1,), (3,), 0.4, (0, 0)))
SIGNED = (*TABLES, Cells((), (), 0.6, (1,)))


@dataclasses.dataclass(frozen=True)
class Sum:
    """A release: how it is declared and asked, and two rows that are as far apart as can be."""

    declare: Callable[[DataSpec, Adjacency], Any]
    ask: Callable[[Oracle, Any], object]
    worst: tuple[tuple[Any, ...], tuple[Any, ...]]  # Features, target and weight of either row.
    reached: float = 1.0
    loss: Any = SQUARED
    classes: int = 1
    row_norm: float = 1.0
    rows: bool = True


def of(sums: Callable[[DataSpec], RowSum]) -> Callable[[DataSpec, Adjacency], Any]:
    return lambda spec, relation: sums(spec).release(spec, relation, NOISE)


E1, E2 = (1.0, 0.0), (0.0, 1.0)


def at(cosine: float, length: float = 1.0) -> tuple[float, float]:
    """Return a row of this length, and with the cosine of its angle to ``E1``."""
    return cosine * length, math.sqrt(1.0 - cosine**2) * length


# Beside the intercept of 0.5 rows of this length are 1 long.
LONG = math.sqrt(0.75)


# As long in ``BASIS`` as both bounds on a score allow.
SHORT = ((0.5625, 0.0), (0.0, 0.375))
SUMS = {
    "second moments": Sum(
        of(second_moment_sum),
        lambda oracle, one: noisy_second_moments(oracle, one, 1.0 / 3.0),
        # Orthogonal, with the constant.
        ((E1, 1.0, WEIGHT), (at(-1.0 / 9.0), 1.0, WEIGHT)),
    ),
    "sums of columns": Sum(
        of(column_sum),
        noisy_columns,
        ((E1, 1.0, WEIGHT), (at(-0.5), 1.0, WEIGHT)),
        0.82,
    ),
    "long rows": Sum(
        of(lambda data: ROW_LENGTHS),
        lambda oracle, one: noisy_lengths(oracle, one, LEVEL_VIEW, SHELLS),
        ((E1, 1.0, WEIGHT), (at(1.0, 0.5), 1.0, WEIGHT)),
    ),
    "large entries": Sum(
        of(lambda data: size_sum(2)),
        lambda oracle, one: noisy_sizes(oracle, one, LONG_VIEW, np.arange(2)),
        ((at(0.6), 1.0, WEIGHT), (at(0.28), 1.0, WEIGHT)),
    ),
    "moments of columns": Sum(
        of(table_moment_sum),
        lambda oracle, one: noisy_moments(oracle, one, LEVEL_VIEW),
        # Their coordinates, with the constant 1, are orthogonal.
        ((E1, 1.0, WEIGHT), ((-1.0, 0.0), 1.0, WEIGHT)),
    ),
    "equations": Sum(
        of(lambda data: moment_sum(data, EQUATIONS)),
        lambda oracle, one: noisy_weighted_moments(oracle, one, VIEW, EQUATIONS),
        ((at(1.0, LONG), 1.0, WEIGHT), (at(-1.0 / 3.0, LONG), 0.5, WEIGHT)),
        0.866,
    ),
    "scores and squares": Sum(
        of(lambda data: moment_sum(data, LAST)),
        lambda oracle, one: noisy_weighted_moments(oracle, one, VIEW, LAST),
        ((E1, 1.0, WEIGHT), ((-1.0, 0.0), 1.0, WEIGHT)),
        0.87,
    ),
    "scores": Sum(
        of(lambda data: sums_of(data, FINAL)),
        lambda oracle, one: noisy_score_sums(oracle, one, VIEW, FINAL, COLUMNS),
        ((E1, 1.0, WEIGHT), (E1, 0.0, WEIGHT)),
        0.91,
    ),
    "scores and their moments": Sum(
        of(lambda data: sums_of(data, ROBUST)),
        lambda oracle, one: noisy_score_sums(oracle, one, VIEW, ROBUST, COLUMNS),
        ((E1, 1.0, WEIGHT), (E1, 0.0, WEIGHT)),
        0.91,
    ),
    "long scores": Sum(
        of(lambda data: SHELL_COUNTS),
        lambda oracle, one: noisy_shell_counts(oracle, one, VIEW, SHELLS),
        ((E1, 1.0, WEIGHT), (E1, 0.8, WEIGHT)),
    ),
    "scores with limits": Sum(
        of(lambda data: score_with_limits(data, SCORES.clip)),
        lambda oracle, one: SCORES.mean_score_and_limits(oracle, one, V, COLUMNS, cuts_slopes=True),
        ((SHORT[0], 1.0, WEIGHT), ((-SHORT[0][0], 0.0), 1.0, WEIGHT)),
    ),
    "entries near a center": Sum(
        of(near_sum),
        lambda oracle, one: noisy_near_counts(oracle, one, np.array([0.1, -0.2]), 1.0),
        (((0.6, 0.6), 1.0, WEIGHT), ((0.11, -0.3), 1.0, WEIGHT)),
    ),
    "standardised second moments": Sum(
        of(second_moment_sum),
        lambda oracle, one: noisy_second_moments(oracle, one, 0.01, BY),
        # Orthogonal but for the constant.
        ((E1, 1.0, WEIGHT), (E2, 1.0, WEIGHT)),
        0.99,
    ),
    "magnitudes": Sum(
        of(magnitude_sum),
        noisy_magnitudes,
        (((0.6, 0.6), 1.0, 1.0), ((0.1, 0.1), 1.0, 1.0)),
    ),
    "targets and bins": Sum(
        of(lambda data: target_sum(TARGETS)),
        lambda oracle, one: noisy_target_sums(oracle, one, TARGETS),
        ((E1, 1.0, WEIGHT), (E1, 0.0, WEIGHT)),
    ),
    "targets": Sum(
        of(lambda data: target_sum(MEANS)),
        lambda oracle, one: noisy_target_sums(oracle, one, MEANS),
        ((E1, 1.0, WEIGHT), (E1, 0.0, WEIGHT)),
        0.89,
    ),
    "means of targets": Sum(
        of(lambda data: target_mean_sum(has_offset=False)),
        lambda oracle, one: noisy_target_means(oracle, one, 0.0, 1.0),
        ((E1, 1.0, WEIGHT), (E1, 0.0, WEIGHT)),
    ),
    "squared slopes": Sum(
        of(lambda data: SQUARED_SLOPES),
        lambda oracle, one: noisy_squared_slope(oracle, one, 0.0, 0.5, 1.0),
        ((E1, 1.0, WEIGHT), (E1, 0.0, WEIGHT)),
    ),
    "clipped slopes": Sum(
        of(lambda data: SLOPES),
        # Slopes of at least 1/16 in either direction, for the prediction 1/2.
        lambda oracle, one: noisy_mean_slope(oracle, one, np.array([0.5, 0.0, 0.0]), 0.0625),
        ((E1, 1.0, WEIGHT), (E1, 0.0, WEIGHT)),
    ),
    "target sizes": Sum(
        of(lambda data: target_size_sum(has_offset=False)),
        lambda oracle, one: noisy_target_sizes(oracle, one, 1.0),
        ((E1, 1.0, WEIGHT), (E1, 0.1, WEIGHT)),
    ),
    "tables": Sum(
        of(lambda data: table_sum(TABLES)),
        lambda oracle, one: noisy_tables(oracle, one, TABLES),
        (((1.0, 0.0), 1.0, WEIGHT), ((-1.0, 1.0), 1.0, WEIGHT)),
        row_norm=2.0,
    ),
    "tables with signs": Sum(
        of(lambda data: table_sum(SIGNED)),
        lambda oracle, one: noisy_tables(oracle, one, SIGNED),
        (((1.0, 1.0), 1.0, WEIGHT), ((-1.0, -1.0), 1.0, WEIGHT)),
        row_norm=2.0,
    ),
    "Hessians": Sum(
        of(lambda data: curvature_sum(data, SCORES.clip, SCORES.square)),
        lambda oracle, one: SCORES.mean_curvatures(oracle, one, V)[0],
        ((E1, 1.0, WEIGHT), (E2, 1.0, WEIGHT)),
        loss=Logistic(),
    ),
    "Hessians and variances": Sum(
        of(lambda data: curvature_sum(data, SCORES.clip, SCORES.square, with_variance=True)),
        lambda oracle, one: SCORES.mean_curvatures(oracle, one, V, with_variance=True),
        ((SHORT[0], 1.0, WEIGHT), (SHORT[1], 1.0, WEIGHT)),
        loss=Logistic(),
    ),
    "squared scores": Sum(
        of(lambda data: score_product_sum(data, SCORES.clip)),
        lambda oracle, one: SCORES.mean_score_products(oracle, one, V),
        ((SHORT[0], 1.0, WEIGHT), (SHORT[1], 1.0, WEIGHT)),
    ),
    "lengths of groups' scores": Sum(
        of(lambda data: LENGTHS),
        lambda oracle, one: SCORES.mean_length(oracle, one, V),
        ((E1, 1.0, WEIGHT), (E1, 0.0, 0.0)),
        rows=False,
    ),
}


def spec_of(case: Sum, n_rows: int, groups: GroupBound | None = None) -> DataSpec:
    return DataSpec(
        n_rows,
        2,
        n_outputs=case.classes,
        row_norm=case.row_norm,
        intercept=0.5,
        weight_bound=WEIGHT,
        target_low=0.0,
        target_high=1.0,
        groups=groups,
    )


def contribution(case: Sum, units: list[list[tuple[Any, ...]]], grouped: bool) -> Any:
    """Return the declared bound, and the sum over one unit and a fixed one."""
    everyone = [row for unit in units for row in unit]
    X, y, weights = (np.array(part, float) for part in zip(*everyone, strict=True))
    groups = GroupBound(len(units), 2.0) if grouped else None
    spec = spec_of(case, len(everyone), groups)
    targets = y.astype(int) if case.classes > 1 else y
    if isinstance(case.loss, Logistic):
        targets = np.where(y > 0.5, 1.0, -1.0)
    rows = prepare_rows(X, targets, spec, weights=weights)
    if grouped:
        rows = GroupedRows(rows, np.cumsum([0, *map(len, units)]))
    curator = Curator(Adjacency.REPLACE_ONE, SeededNoise(0), rows.unit)
    declared = case.declare(spec, Adjacency.REPLACE_ONE)
    with watching() as seen:
        case.ask(Oracle(rows, case.loss, curator), declared)
    return declared, np.array(seen.value)


def distance(case: Sum, one: Any, other: Any, *, grouped: bool) -> float:
    """Distance of two sums that differ in one unit, over the declared bound."""
    same = [((0.3, -0.2), 1.0, 0.7)]
    declared, first = contribution(case, [one, same], grouped)
    _, second = contribution(case, [other, same], grouped)
    return float(np.linalg.norm(first - second)) / declared.sensitivity


def some_row(rng: np.random.Generator) -> tuple[Any, ...]:
    angle = rng.choice([0.0, 0.5, 1.0, 1.5, rng.uniform(0.0, 2.0)]) * math.pi
    length = rng.choice([1.0, 2.0, rng.uniform(), 1e-6, 0.0])
    x = (length * math.cos(angle), length * math.sin(angle))
    return x, rng.choice([0.0, 1.0]), rng.choice([WEIGHT, rng.uniform(0.0, WEIGHT), 0.0])


BY_ROW = {name: case for name, case in SUMS.items() if case.rows}
by_row = pytest.mark.parametrize("name", BY_ROW)
by_group = pytest.mark.parametrize("name", SUMS)


@by_row
def test_replaced_row_is_within_declared_distance(name):
    case, rng = SUMS[name], np.random.default_rng(0)
    for _ in range(80):
        assert distance(case, [some_row(rng)], [some_row(rng)], grouped=False) <= 1.0


@by_group
def test_replaced_group_is_within_declared_distance(name):
    case, rng = SUMS[name], np.random.default_rng(1)
    for _ in range(40):
        one, other = ([some_row(rng) for _ in range(rng.integers(1, 6))] for _ in range(2))
        assert distance(case, one, other, grouped=True) <= 1.0


@by_row
def test_worst_replaced_row_attains_declared_distance(name):
    case = SUMS[name]
    reached = distance(case, *([one] for one in case.worst), grouped=False)
    assert case.reached * 0.999 <= reached <= 1.0


@pytest.mark.parametrize("name", [name for name, case in BY_ROW.items() if case.reached > 0.97])
def test_smaller_diameter_is_caught(name):
    """The planted bug: a factor that is 5 % too small."""
    case, honest = SUMS[name], Release.sensitivity.fget

    def planted(release):
        return 0.95 * honest(release)

    with mock.patch.object(Release, "sensitivity", property(planted)):
        assert distance(case, *([one] for one in case.worst), grouped=False) > 1.0


@pytest.mark.parametrize("grouped", [False, True])
def test_signed_sum_taken_for_one_of_squares_is_caught(grouped):
    """The planted bug: rows themselves may be opposite, unlike their second moments."""
    honest = Sum(of(row_sum), noisy_mean, ((E1, 1.0, 1.0), ((-1.0, 0.0), 1.0, 1.0)))
    pair = [[one] * (2 if grouped else 1) for one in honest.worst]
    assert distance(honest, *pair, grouped=grouped) == pytest.approx(1.0, rel=1e-3)

    def planted(spec, relation):
        one = honest.declare(spec, relation)
        return dataclasses.replace(one, diameter=rounding.diameter(0.0))

    assert distance(dataclasses.replace(honest, declare=planted), *pair, grouped=grouped) > 1.4


def test_group_of_opposing_parts_has_no_smaller_diameter():
    # A scaled-down group with scores that outweigh its curvature leaves only scores.
    groups = GroupBound(10, 3.0)
    for name in ("scores", "tables with signs", "targets and bins"):
        case = SUMS[name]
        assert case.declare(spec_of(case, 30, groups), Adjacency.REPLACE_ONE).diameter == 2.0
        assert case.declare(spec_of(case, 30), Adjacency.REPLACE_ONE).diameter < 2.0


@pytest.mark.parametrize("relation", [Adjacency.ZERO_OUT, Adjacency.ADD_REMOVE])
def test_other_relations_have_noise_for_the_bound(relation):
    for case in BY_ROW.values():
        declared = case.declare(spec_of(case, 30), relation)
        opposite = dataclasses.replace(declared, diameter=2.0)
        assert declared.scale.std == opposite.scale.std
        assert declared.sensitivity == declared.contribution_bound + declared.rounding


def test_sample_has_no_smaller_diameter():
    declared = SUMS["tables"].declare(spec_of(SUMS["tables"], 30), Adjacency.REPLACE_ONE)
    with pytest.raises(ValueError, match="diameter must be 2 for a release on a sample"):
        dataclasses.replace(declared, sampling_rate=0.5)


@pytest.mark.parametrize("signed", [0.0, 0.1, 0.5, 0.7, 1.0])
@pytest.mark.parametrize("squared", [0.0, 0.05, 0.3, 1.0])
def test_least_product_is_the_least(signed, squared):
    t = np.linspace(0.0, 1.0, 20_001)
    least = float(np.min(squared * t * t - signed * t))
    assert -rounding.least_product(signed, squared) == pytest.approx(least, abs=1e-9)


@pytest.mark.parametrize(
    "shares", [EQUATIONS, MomentShares(0.5, 0.45, 0.05), MomentShares(0.1, 0.8, 0.1)]
)
def test_opposition_of_moments_is_the_least_product(shares):
    t, r = np.meshgrid(np.linspace(-1.0, 1.0, 801), np.linspace(0.0, 1.0, 401))
    products = shares.matrix * t**2 + shares.vector * t * r + shares.squares * r**2
    assert shares.opposition == pytest.approx(-float(products.min()), abs=1e-4)


def test_replaced_row_moves_ranks_by_one():
    rng = np.random.default_rng(0)
    declared = quantiles.rank_release("median", Adjacency.REPLACE_ONE, 1.0)
    moves = []
    for _ in range(300):
        cells = rng.integers(0, 6, rng.integers(1, 9))
        scores = []
        for own in rng.integers(0, 6, 2):
            cells[0] = own
            with watching(0) as seen:
                curator = Curator(Adjacency.REPLACE_ONE, SeededNoise(0))
                quantiles.choose_quantile(curator, declared, cells, 6, len(cells) // 2)
            scores.append(np.repeat(*seen.value))
        moves.append(float(np.abs(scores[0] - scores[1]).max()))
    assert max(moves) == declared.sensitivity == 1.0


def test_replaced_row_moves_losses_by_their_bound():
    bounds, spec = (0.5, 2.0), spec_of(SUMS["targets"], 2)
    candidates = [np.array([2.0, 0.0, 0.0]), np.array([9.0, 0.0, 0.0])]
    declared = loss_choices.generalized_choice_release(
        spec, Adjacency.REPLACE_ONE, bounds, 1.0, 0.1
    )
    seen = []
    for x in ((1.0, 0.0), (0.0, 0.0)):
        rows = prepare_rows(np.array([x, (0.0, 0.0)]), np.zeros(2), spec, weights=[WEIGHT, 0.0])
        oracle = Oracle(rows, SQUARED, Curator(Adjacency.REPLACE_ONE, SeededNoise(0)))
        with watching(0) as watched:
            loss_choices.choose_least_generalized(
                oracle, declared, candidates, bounds, 1.0, (0.25, 0.5)
            )
        seen.append(watched.value)
    made_for = [
        declared.adjacency.sum_sensitivity(bound, declared.diameter) for bound in seen[0][1]
    ]
    moves = np.abs(seen[0][0] - seen[1][0])
    assert (moves <= made_for).all()
    np.testing.assert_allclose(moves, made_for, rtol=1e-9)
