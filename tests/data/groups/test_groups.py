"""Groups of rows: who belongs to which, which rows are kept, and sums that hold each to a bound."""

import dataclasses
import datetime
import itertools
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from numpy.typing import NDArray
from scipy import sparse

from dpglm import LogisticRegression
from dpglm.data.groups import GROUP_BATCH, GroupedRows, Groups
from dpglm.data.maps import viewed
from dpglm.data.memory import ArrayRows
from dpglm.data.prepare import derived_rows, prepare_rows
from dpglm.data.rows import AnyArrays, Block, DataSpec, GroupBound
from dpglm.exceptions import PlanMismatchError
from dpglm.oracle.clipping import FlatClipping
from dpglm.oracle.gradients import clipped_gradient_sum
from dpglm.oracle.moments import normalized_second_moments
from dpglm.oracle.rounding import group_rounding
from dpglm.privacy import Adjacency, ApproximateDP
from dpglm.privacy.noise import SeededNoise
from dpglm.problem import Logistic, Problem, Softmax
from dpglm.solvers import NoisyGD

IDS = np.array([7, 3, 7, 9, 3, 7])


def test_equal_identifiers_are_one_group_wherever_they_stand() -> None:
    groups = Groups.of(IDS, 6)
    np.testing.assert_array_equal(groups.codes, [0, 1, 0, 2, 1, 0])
    assert groups.n_groups == 3
    by_name = Groups.of(np.array(["c", "a", "c", "d", "a", "c"], dtype=object), 6)
    np.testing.assert_array_equal(by_name.codes, groups.codes)
    order, starts = groups.sorted()
    np.testing.assert_array_equal(IDS[order], [7, 7, 7, 3, 3, 9])
    np.testing.assert_array_equal(starts, [0, 3, 5, 6])


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([1, 2], r"groups must have shape \(3,\)"),
        ([1.0, np.nan, 2.0], "missing"),
        (["a", " ", "b"], "missing"),
        (np.array(["a", None, "b"], dtype=object), "missing"),
        (np.array(["a", 1, "b"], dtype=object), "all numbers or all texts"),
        # NumPy makes texts of these, "1" and "1.0", and "nan".
        ([1, 1.0, "b"], "all numbers or all texts"),
        (["a", float("nan"), "b"], "missing"),
    ],
)
def test_rows_without_a_group_are_refused(ids: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Groups.of(ids, 3)


def test_row_limit_holds_and_rows_are_equally_likely() -> None:
    groups, times = Groups.of(IDS, 6), np.zeros(6)
    for seed in range(600):
        kept = groups.kept(2, SeededNoise(seed))
        assert np.bincount(groups.codes[kept]).max() <= 2
        assert (np.diff(kept) > 0).all()
        times[kept] += 1
    np.testing.assert_array_equal(times[[1, 3, 4]], 600)
    np.testing.assert_allclose(times[[0, 2, 5]] / 600, 2 / 3, atol=0.07)


def test_a_groups_rows_are_drawn_whatever_the_other_groups_are() -> None:
    """Stability 1: with the same random words a group's draw is the same with other groups."""

    class Words(SeededNoise):  # type: ignore[misc]
        def words(self, count: int) -> NDArray[np.uint64]:
            return np.array([5, 1, 9, 4, 8, 2], dtype=np.uint64)[:count]

    alone = Groups.of([0, 1, 0, 1, 0, 1], 6).kept(2, Words(0))
    beside = Groups.of([0, 1, 0, 2, 0, 3], 6).kept(2, Words(0))
    own = [0, 2, 4]
    assert sorted(set(alone) & set(own)) == sorted(set(beside) & set(own))


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
def test_each_group_is_held_to_the_bound(kind: Callable[..., object]) -> None:
    rng = np.random.default_rng(0)
    values = rng.integers(0, 3, size=(6, 4)).astype(float)
    groups = Groups.of(IDS, 6)
    sums = np.array([values[one == IDS].sum(axis=0) for one in (3, 7, 9)])
    bound = 0.7 * np.linalg.norm(sums, axis=1).max()
    lengths = np.linalg.norm(sums, axis=1)
    wanted = (sums * np.minimum(1.0, bound / lengths)[:, None]).sum(axis=0)
    np.testing.assert_allclose(groups.bounded_sum(kind(values), bound), wanted, rtol=1e-12)
    exact = groups.bounded_sum(kind(values), 1e3)
    np.testing.assert_array_equal(exact, values.sum(axis=0))


def test_sums_of_many_groups_are_those_of_one_at_a_time() -> None:
    rng = np.random.default_rng(1)
    n = 5 * GROUP_BATCH
    ids, values = rng.integers(0, n // 3, size=n), rng.normal(size=(n, 3))
    ids[:2000] = 0  # One group is larger than a batch.
    groups = Groups.of(ids, n)
    sums = np.zeros((groups.n_groups, 3))
    np.add.at(sums, groups.codes, values)
    lengths = np.linalg.norm(sums, axis=1, keepdims=True)
    wanted = (sums * np.minimum(1.0, 1.5 / np.maximum(lengths, 1e-300))).sum(axis=0)
    np.testing.assert_allclose(groups.bounded_sum(values, 1.5), wanted, rtol=1e-9)


def _rows(kind: str = "dense", n_outputs: int = 1, dtype: str = "float64") -> GroupedRows:
    rng = np.random.default_rng(2)
    sizes = np.array([1, 4, 2, 0, 1500, 3])
    n, d = int(sizes.sum()), 3
    spec = DataSpec(
        n_rows=n,
        n_features=d,
        n_outputs=n_outputs,
        intercept=0.5,
        dtype=dtype,  # type: ignore[arg-type]
        sparse=kind == "sparse",
        groups=GroupBound(len(sizes), 2.0),
    )
    X = rng.normal(size=(n, d)).astype(dtype)
    y = rng.integers(0, 3, n) if n_outputs > 1 else rng.choice([-1.0, 1.0], n)
    matrix = sparse.csr_array(X) if kind == "sparse" else X
    inner = prepare_rows(matrix, y, spec, weights=rng.uniform(size=n))
    assert isinstance(inner, ArrayRows)
    return GroupedRows(inner, np.concatenate([[0], np.cumsum(sizes)]))


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("n_outputs", [1, 3])
@pytest.mark.parametrize("seen", [False, True])
def test_groups_summed_together_or_one_by_one(kind: str, n_outputs: int, seen: bool) -> None:
    grouped = _rows(kind, n_outputs)
    rows = viewed(grouped, intercept_scale=0.3) if seen else grouped
    loss = Logistic() if n_outputs == 1 else Softmax()
    w = np.random.default_rng(3).normal(size=rows.spec.coefficient_shape)
    total = clipped_gradient_sum(rows.bounded(2.0), loss, FlatClipping(1.0), w)
    wanted = np.zeros_like(total)
    for start, stop in itertools.pairwise(grouped._starts):
        alone = grouped._rows.take(np.arange(start, stop))
        view = viewed(alone, intercept_scale=0.3) if seen else alone
        own = clipped_gradient_sum(view, loss, FlatClipping(1.0), w)
        wanted += own * min(1.0, 2.0 / max(float(np.linalg.norm(own)), 1e-300))
    np.testing.assert_allclose(total, wanted, rtol=1e-10, atol=1e-12)


def test_kernels_without_groups_get_them_one_by_one() -> None:
    rows = _rows()
    kernel = normalized_second_moments(rows.spec, 0.3)
    assert isinstance(kernel, AnyArrays)
    together = rows.bounded(2.0).sum(kernel, shape=(10,))
    one_by_one = rows.bounded(2.0).sum(kernel.kernel, shape=(10,))
    np.testing.assert_allclose(together, one_by_one, rtol=1e-12)


def test_no_sum_without_a_bound() -> None:
    rows = _rows()
    with pytest.raises(PlanMismatchError, match="bound"):
        rows.sum(lambda block: np.ones(4))
    with pytest.raises(PlanMismatchError, match="groups"):
        rows._rows.bounded(1.0)


def test_derived_rows_and_parts_keep_their_groups() -> None:
    rows = _rows()

    def doubled(block: Block) -> NDArray[np.float64]:
        return np.asarray(2.0 * block.features(), dtype=np.float64)

    for one in (rows, viewed(rows)):
        new = derived_rows(one, doubled, rows.spec)
        assert new.unit.value == "group"
        assert new.n_units == 6
    part = rows.part(np.array([4, 1]))
    assert part.n_rows == 1504
    assert part.spec.n_units == part.n_units == 2
    assert part.spec.n_rows == round(1510 / 3)


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_rounding_of_sums_over_groups(adjacency: Adjacency) -> None:
    rng = np.random.default_rng(4)
    n, size, bound = 3000, 5, 1.0
    groups = Groups.of(np.arange(n), n)
    values = rng.normal(size=(n, size)) * 10.0 ** rng.uniform(-8, 8, size=(n, 1))
    exact = np.zeros(size, dtype=np.longdouble)
    for row in values.astype(np.longdouble):
        exact += row * min(np.longdouble(1.0), bound / np.sqrt((row * row).sum()))
    error = float(np.linalg.norm((groups.bounded_sum(values, bound) - exact).astype(float)))
    assert error <= group_rounding(n, adjacency, bound, size) < 0.01


@pytest.mark.parametrize("adjacency", [Adjacency.ADD_REMOVE, Adjacency.REPLACE_ONE])
def test_single_precision_is_refused_where_groups_shift_rows(adjacency: Adjacency) -> None:
    """A person with one row more moves the predictions of all others by their last bits."""
    fit = NoisyGD(n_steps=1), Problem(Logistic()), ApproximateDP(1.0, 1e-5)
    spec = DataSpec(900, 2, groups=GroupBound(300, 3.0), dtype="float32")
    with pytest.raises(ValueError, match="dtype must be 'float64' for dense rows in groups"):
        fit[0].plan(*fit[1:], spec, adjacency)
    for fine in (dataclasses.replace(spec, sparse=True), dataclasses.replace(spec, groups=None)):
        if fine.sparse or adjacency.n_is_public:
            fit[0].plan(*fit[1:], fine, adjacency)
    model = LogisticRegression(
        classes=[0, 1], row_norm=1.0, adjacency=adjacency.value, n_rows=900, n_groups=300
    )
    assert model.plan(900, 2, dtype="float32").data.dtype == "float64"


@pytest.mark.parametrize(
    "ids",
    [
        [frozenset({1}), frozenset({2}), frozenset({1})],
        [(1, 2), (1, 2), (3, 4)],
        [[1], [2], [1]],
        np.array([1 + 1j, 2, 1 + 1j]),
        np.array([complex("nan"), 1j, 1j], dtype=object),
        np.array(["2020-01-01", "NaT", "2020-01-01"], dtype="datetime64[D]"),
        np.array([1, 2, 1], dtype="timedelta64[ns]"),
        np.array([np.datetime64(1, "ns"), 1, 1], dtype=object),
        [datetime.date(2020, 1, 1)] * 3,
        np.array([(1,), (2,), (1,)], dtype=[("a", int)]),
        [{"a": 1}, {}, {"a": 1}],
        [object(), object(), object()],
    ],
)
def test_ids_other_than_numbers_and_text_are_refused(ids: object) -> None:
    """Values without one total order and one spelling were split over several groups."""
    with pytest.raises(ValueError, match=r"groups must be numbers or texts|missing"):
        Groups.of(ids, 3)


@pytest.mark.parametrize(
    ("ids", "n_groups"),
    [
        ([1, 1.0, Decimal("1.00"), Fraction(1), np.int8(1), np.float32(1), True], 1),
        ([2**60, 2**60 + 1, np.uint64(2**60), np.int64(2**60 + 1)], 2),
        ([2**70, 2**70 + 1, Decimal(2**70)], 2),
        (np.array([-0.0, 0.0, 3.0]), 2),
        (np.array([2**63, 2**63 + 1], dtype=np.uint64), 2),
        ([0.1, np.float32(0.1)], 2),
        ([], 0),
    ],
)
def test_numbers_of_equal_value_are_one_group(ids: object, n_groups: int) -> None:
    assert Groups.of(ids, len(ids)).n_groups == n_groups  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_ids_that_floats_run_together_are_refused(dtype: str) -> None:
    most = 2.0 ** (np.finfo(dtype).nmant + 1)
    assert Groups.of(np.array([most - 1, most - 2], dtype=dtype), 2).n_groups == 2
    with pytest.raises(ValueError, match=f"whole numbers that {dtype} tells apart"):
        Groups.of(np.array([1.0, most], dtype=dtype), 2)


@pytest.mark.parametrize(
    "missing", [None, "", "  ", float("nan"), np.nan, Decimal("NaN"), pd.NA, pd.NaT, float("inf")]
)
def test_missing_ids_are_refused_in_every_kind_of_value(missing: object) -> None:
    for other in ("a", 1):
        with pytest.raises(ValueError, match="missing"):
            Groups.of(np.array([other, missing, other], dtype=object), 3)


def test_missing_ids_of_encoded_columns_are_not_other_ids() -> None:
    encoded = pa.array(["a", None, "b"]).dictionary_encode()
    with pytest.raises(ValueError, match="missing"):
        Groups.of(encoded, 3)
