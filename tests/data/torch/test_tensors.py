"""Rows in tensors: the same preparation, sums and fits as NumPy's, within the same bounds."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from unittest import mock

import numpy as np
import pytest
import torch

from dpglm import LinearRegression, LogisticRegression, PoissonRegressor, problem
from dpglm._validation import like, namespace
from dpglm.data import torch as tensors
from dpglm.data.collection import as_collection
from dpglm.data.maps import viewed
from dpglm.data.memory import BLOCK_ROWS, RUN_ROWS
from dpglm.data.prepare import derived_rows, prepare_rows
from dpglm.data.rows import AnyArrays, Block, DataSpec, Rows
from dpglm.data.torch import TensorRows, check_exact
from dpglm.oracle.clipping import FlatClipping
from dpglm.oracle.gradients import clipped_gradient_sum
from dpglm.oracle.rounding import sum_rounding
from dpglm.preprocessing import Center, Whiten
from dpglm.privacy import Adjacency, ApproximateDP
from dpglm.privacy.noise import SeededNoise
from dpglm.problem import (
    L2,
    Binomial,
    ClippedLoss,
    ComplementaryLogLog,
    ConvexScalarLoss,
    Gamma,
    Hinge,
    Huber,
    L1Ball,
    Logistic,
    Loss,
    NegativeBinomial,
    OneVsRest,
    Pinball,
    Poisson,
    Probit,
    Problem,
    Savage,
    SmoothedHinge,
    Softmax,
    Sparsemax,
    Squared,
    SquaredHinge,
    Tangent,
    Target,
    Tempered,
    Tweedie,
    Unconstrained,
    WithOffset,
)
from dpglm.solvers import SOLVERS, NoisySGD, Preprocessed, run
from dpglm.tables.encoding import column_scaling

pytestmark = pytest.mark.one_in(3)

DTYPES = ["float32", "float64"]
N_CLASSES = 3


@pytest.fixture(autouse=True)
def as_on_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums are torch's, here as on a GPU."""
    monkeypatch.setattr(tensors, "_is_host", lambda device: False)


SCALAR_LOSSES: list[Loss] = [
    Logistic(),
    Squared(),
    Huber(0.5),
    Poisson(),
    Gamma(),
    Tweedie(1.5),
    NegativeBinomial(0.5),
    Binomial(),
    Probit(),
    ComplementaryLogLog(),
    Pinball(0.3),
    WithOffset(NegativeBinomial(0.5)),
    Hinge(),
    SquaredHinge(),
    SmoothedHinge(0.5),
    Savage(),
    Tangent(),
    Tempered(0.5),
    ClippedLoss(Logistic(), 0.2),
]
EXPONENTIAL = (
    Poisson | Gamma | Tweedie | NegativeBinomial | Probit | ComplementaryLogLog | WithOffset
)
LOSSES = [*SCALAR_LOSSES, Softmax(), Sparsemax(), OneVsRest(Hinge(), N_CLASSES)]


def targets_for(loss: Loss, n: int, rng: np.random.Generator) -> np.ndarray:
    if loss.target is Target.CLASS:
        return rng.integers(0, N_CLASSES, n)
    return rng.choice([-1.0, 1.0], n) if loss.target is Target.BINARY else rng.uniform(0, 1, n)


def both(X: np.ndarray, y: np.ndarray, spec: DataSpec, scaling=None, weights=None):
    """The same rows in a NumPy array and in a tensor."""
    X = X.astype(spec.dtype)
    stored = prepare_rows(X, y, spec, scaling, weights)
    tensor_weights = None if weights is None else torch.as_tensor(weights)
    moved = prepare_rows(torch.as_tensor(X), torch.as_tensor(y), spec, scaling, tensor_weights)
    assert isinstance(moved, TensorRows)
    return stored, moved


def one_block(rows: Rows) -> Block:
    (block,) = rows.map_native(lambda block: block)
    return block


def units(dtype: str) -> float:
    return float(np.finfo(dtype).eps)


# Preparation.


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("scaled", [True, False])
def test_rows_are_prepared_as_numpy_prepares_them(dtype, scaled):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 4)) * 3.0
    X[0], X[1], X[2] = 0.0, 1e30, -1e-30
    spec = DataSpec(300, 4, row_norm=1.2, intercept=0.7, dtype=dtype, weight_bound=2.0)
    scaling = column_scaling(([-1.0, 0.0, 5.0, 2.0], [3.0, 10.0, 6.0, 2.0]), 4) if scaled else None
    weights = rng.uniform(-1, 4, 300)
    before = X.copy()
    stored, moved = both(X, np.ones(300), spec, scaling, weights)
    np.testing.assert_array_equal(X, before)
    expected, got = one_block(stored), one_block(moved)
    assert all(value.dtype == getattr(torch, dtype) for value in (got.norms, got.features()))
    for name in ("targets", "norms", "weights"):
        np.testing.assert_allclose(getattr(got, name), getattr(expected, name), 2 * units(dtype))
    np.testing.assert_allclose(got.features(), expected.features(), 4 * units(dtype), 1e-30)
    lengths = [math.hypot(*row, 0.7) for row in got.features().double().tolist()]
    assert (got.norms.double().numpy() >= lengths).all()
    assert max(math.hypot(*row) for row in got.features().double().tolist()) <= 1.2


@pytest.mark.parametrize("dtype", DTYPES)
def test_numpy_kernels_get_host_copies_in_usual_blocks(dtype):
    rng = np.random.default_rng(1)
    n = BLOCK_ROWS + 100
    spec = DataSpec(n, 2, n_outputs=3, dtype=dtype, weight_bound=2.0)
    X, y, weights = rng.normal(size=(n, 2)), rng.integers(0, 3, n), rng.uniform(0, 2, n)
    stored, moved = both(X, y, spec, weights=weights)
    copies = list(moved.blocks())
    assert len(copies) > 1
    assert max(len(block.targets) for block in copies) <= BLOCK_ROWS
    assert all(isinstance(block.features(), np.ndarray) for block in copies)
    for name in ("targets", "weights"):
        expected, got = (
            np.concatenate([getattr(block, name) for block in blocks])
            for blocks in (stored.blocks(), copies)
        )
        np.testing.assert_array_equal(got, expected)
    sums = [
        rows.sum(lambda block: block.features().sum(axis=0), shape=(2,)) for rows in (stored, moved)
    ]
    np.testing.assert_allclose(*sums, rtol=1e-4)


def test_rows_can_be_taken_parted_and_clipped():
    X = np.arange(12.0).reshape(6, 2) / 20.0
    spec = DataSpec(6, 2, weight_bound=2.0)
    for rows in both(X, np.arange(6.0), spec, weights=np.linspace(0, 2, 6)):
        taken = one_block(rows.take(np.array([4, 1])))
        np.testing.assert_array_equal(taken.features(), X[[4, 1]])
        np.testing.assert_array_equal(taken.targets, [4.0, 1.0])
        np.testing.assert_array_equal(taken.weights, np.linspace(0, 2, 6)[[4, 1]])
        assert rows.part(np.array([0, 5])).spec.n_rows == 2
        assert rows.take(np.array([4, 1])).spec == spec
        clipped = one_block(rows.clip_entries(0.3)).features()
        np.testing.assert_array_equal(clipped, np.clip(X, -0.3, 0.3))
        assert clipped_gradient_sum(
            rows.take(np.array([], dtype=np.intp)), Squared(), FlatClipping(1.0), np.ones(2)
        ).tolist() == [0.0, 0.0]


def test_derived_rows_stay_in_tensors_and_are_prepared_again():
    rng = np.random.default_rng(2)
    X, y = rng.normal(size=(40, 3)), rng.choice([-1.0, 1.0], 40)
    spec = DataSpec(40, 3, intercept=0.5, weight_bound=2.0)
    after = DataSpec(40, 2, intercept=0.5, weight_bound=2.0, row_norm=0.4, dtype="float32")
    results = [
        derived_rows(rows, lambda block: block.features()[:, :2] * 3.0, after)
        for rows in both(X, y, spec, weights=rng.uniform(0, 2, 40))
    ]
    assert isinstance(results[1], TensorRows)
    expected, got = map(one_block, results)
    np.testing.assert_allclose(got.features(), expected.features(), rtol=1e-6)
    np.testing.assert_array_equal(got.targets, expected.targets)
    np.testing.assert_array_equal(got.weights, expected.weights)


# Slopes and sums.


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
def test_slopes_of_tensors_are_those_of_arrays(loss, dtype):
    rng = np.random.default_rng(3)
    scale = np.repeat([1.0, 10.0, 1e3, 1e4], 100)
    y = targets_for(loss, 400, rng)
    shape = (400, N_CLASSES) if loss.target is Target.CLASS else (400,)
    z = (rng.normal(size=shape).T * scale).T.astype(dtype)
    z_before = z.copy()
    got = loss.slope(torch.as_tensor(z), torch.as_tensor(y))
    assert isinstance(got, torch.Tensor)
    assert got.dtype == getattr(torch, dtype)
    assert torch.isfinite(got).all()
    expected = loss.slope(z, y)
    tolerance = 1e-3 if isinstance(loss, EXPONENTIAL) else 100 * units(dtype)
    np.testing.assert_allclose(got, expected, tolerance, tolerance)
    np.testing.assert_array_equal(z, z_before)
    with pytest.raises(ValueError, match="shape"):
        loss.slope(torch.as_tensor(z), torch.as_tensor(y)[:, None])


def test_no_loss_is_left_out():
    public = vars(problem).values()
    losses = {one for one in public if isinstance(one, type) and issubclass(one, Loss)}
    assert {type(loss) for loss in LOSSES} == losses - {Loss, ConvexScalarLoss}


def test_class_indices_of_tensors_are_checked():
    z = torch.zeros((2, 3))
    for loss in (Softmax(), OneVsRest(Hinge(), 3)):
        for wrong in (torch.tensor([0, 3]), torch.tensor([-1, 0]), torch.tensor([0.0, 1.0])):
            with pytest.raises(ValueError, match="y must"):
                loss.slope(z, wrong)


@pytest.fixture
def small_blocks() -> Iterator[None]:
    """Several blocks, groups of runs and a remainder from a few thousand rows."""
    with (
        mock.patch.object(tensors, "_BLOCK_ENTRIES", 9 * 1024),
        mock.patch.object(tensors, "_PARTIAL_ENTRIES", 2 * 21),
    ):
        yield


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [1, 255, 256, 257, 1023, 2049, 4000])
@pytest.mark.parametrize("loss", [Logistic(), Softmax()], ids=["scalar", "softmax"])
def test_sums_do_not_depend_on_how_rows_are_cut(loss, n, dtype):
    rng = np.random.default_rng(n)
    K = N_CLASSES if loss.target is Target.CLASS else 1
    spec = DataSpec(n, 5, n_outputs=K, intercept=0.7, dtype=dtype)
    stored, moved = both(rng.normal(size=(n, 5)), targets_for(loss, n, rng), spec)
    w = rng.normal(size=spec.coefficient_shape)
    if n > 1100:
        assert len(list(moved.map_native(lambda block: block))) > 1
    expected = clipped_gradient_sum(stored, loss, FlatClipping(0.4), w)
    got = clipped_gradient_sum(moved, loss, FlatClipping(0.4), w)
    assert got.dtype == np.float64
    np.testing.assert_allclose(got, expected, rtol=0, atol=n * units(dtype))


@pytest.mark.parametrize("dtype", DTYPES)
def test_on_the_host_sums_are_those_of_numpy(monkeypatch, dtype):
    monkeypatch.undo()
    rng = np.random.default_rng(8)
    spec = DataSpec(500, 4, n_outputs=3, intercept=1.3, dtype=dtype)
    stored, moved = both(rng.normal(size=(500, 4)), rng.integers(0, 3, 500), spec)
    args = (Softmax(), FlatClipping(0.4), rng.normal(size=(5, 3)))
    with mock.patch.object(tensors, "_sum_in_runs", side_effect=AssertionError("torch's sum")):
        got = clipped_gradient_sum(moved, *args)
    expected = clipped_gradient_sum(stored, *args)
    np.testing.assert_allclose(got, expected, rtol=0, atol=500 * units(dtype))


@pytest.mark.parametrize("dtype", DTYPES)
def test_views_of_tensors_are_summed_on_the_device(dtype):
    rng = np.random.default_rng(9)
    spec = DataSpec(500, 4, n_outputs=3, intercept=1.3, dtype=dtype)
    stored, moved = both(rng.normal(size=(500, 4)), rng.integers(0, 3, 500), spec)
    w = rng.normal(size=5)
    with mock.patch.object(TensorRows, "blocks", side_effect=AssertionError("copied to the host")):
        expected, got = (
            clipped_gradient_sum(
                viewed(rows, 0.3, positive_class=1), Logistic(), FlatClipping(0.4), w
            )
            for rows in (stored, moved)
        )
    np.testing.assert_allclose(got, expected, rtol=0, atol=500 * units(dtype))


def test_overflowing_or_nan_slopes_count_as_zero():
    spec = DataSpec(3, 1)
    _, rows = both(np.array([[1.0], [1.0], [0.5]]), np.array([0.0, 1.0, 1.0]), spec)
    for size in (1e6, 1e308, -1e308, math.nan, math.inf):
        total = clipped_gradient_sum(rows, Poisson(), FlatClipping(1.0), np.array([size]))
        assert np.isfinite(total).all()
        assert np.linalg.norm(total) <= 3.0 * (1 + 1e-9)


# The bound on rounding.


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [100, 10_000, 10**6, 10**9])
def test_declared_rounding_covers_the_derived_one(n, dtype):
    def gamma(terms: int, unit: float) -> float:
        return terms * unit / (1.0 - terms * unit)

    u, fine = units(dtype) / 2, units("float64") / 2
    run, block = min(RUN_ROWS, n), min(tensors.MOST_BLOCK_ROWS, n)
    additions = block // RUN_ROWS + RUN_ROWS + 2
    needed = gamma(RUN_ROWS + 1, u) * run + gamma(additions, fine) * block
    spec = DataSpec(n, 10, dtype=dtype)
    assert sum_rounding(spec, Adjacency.ZERO_OUT, 1.0) >= 2.0 * needed
    # Runs twice as long would not be covered.
    if n > 1000 and dtype == "float32":
        twice = gamma(2 * RUN_ROWS + 1, u) * 2 * run
        assert sum_rounding(spec, Adjacency.ZERO_OUT, 1.0) < 2.0 * twice


@pytest.mark.parametrize("n_outputs", [1, 2])
def test_errors_of_sums_stay_within_bound_unlike_plain_products(n_outputs):
    # Equal terms, so that rounding errors do not cancel.
    n = tensors.MOST_BLOCK_ROWS
    X = torch.full((n, 1), 0.7)
    slopes = torch.tensor([0.3, 0.9])[:n_outputs].repeat(n, 1)
    got = tensors._sum_in_runs(X, slopes, 1.0).numpy()
    u, fine = units("float32") / 2, units("float64") / 2
    additions = n // RUN_ROWS + RUN_ROWS + 2
    for k in range(n_outputs):
        terms = (X[:, 0].double() * slopes[:, k].double()).numpy()
        exact, last = math.fsum(terms), math.fsum(slopes[:, k].double().numpy())
        bound = ((RUN_ROWS + 1) * u + additions * fine) * exact
        assert abs(got[0, k] - exact) <= bound
        assert abs(got[1, k] - last) <= additions * fine * last
        # Runs keep the error small.
        assert abs(np.cumsum(terms.astype(np.float32))[-1] - exact) > 10 * bound


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("loss", "n_outputs"), [(Logistic(), 1), (Softmax(), N_CLASSES)])
def test_a_row_that_changes_leaves_all_other_bits_alone(loss, n_outputs, dtype):
    # The bound rests on a schedule that does not depend on values.
    rng = np.random.default_rng(5)
    X, y = rng.normal(size=(1500, 33)), targets_for(loss, 1500, rng)
    spec = DataSpec(1500, 33, n_outputs=n_outputs, intercept=1.0, dtype=dtype)
    w = rng.normal(size=spec.coefficient_shape)

    def seen(X: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
        block = one_block(both(X, y, spec)[1])
        z, runs = block.predict(w), []
        slopes = loss.slope(z, block.targets)
        for start in range(0, 1500, RUN_ROWS):
            run = slice(start, start + RUN_ROWS)
            runs.append(
                tensors._sum_in_runs(block.features()[run], slopes.reshape(1500, -1)[run], 1.0)
            )
        return z.numpy(), [run.numpy() for run in runs]

    other = X.copy()
    other[700] = 1e30
    (z, runs), (z_other, runs_other) = seen(X), seen(other)
    changed = (z != z_other).reshape(1500, -1).any(axis=1)
    assert changed.nonzero()[0].tolist() == [700]
    differing = [
        i for i, pair in enumerate(zip(runs, runs_other, strict=True)) if (pair[0] != pair[1]).any()
    ]
    assert differing == [700 // RUN_ROWS]


@pytest.mark.parametrize("longest", [1.0, 1e3])
def test_memory_layout_is_independent_of_clipped_rows(longest):
    stored = torch.zeros((40, 7))
    stored[:, 1] = 0.5
    stored[3, 1] = longest
    views = (stored, stored[1:], stored[:, 1:], stored[:, ::2], stored.T.contiguous().T)
    for X in views:
        rows = prepare_rows(X, np.ones(len(X)), DataSpec(*X.shape, dtype="float32"))
        features = one_block(rows).features()
        assert features.is_contiguous()
        assert features.data_ptr() % 64 == 0
        expected = np.minimum(X.numpy(), 1.0)
        np.testing.assert_allclose(features, expected, rtol=1e-6)


# Refusals.


@pytest.fixture
def deterministic(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    for name in (*tensors._EMULATIONS, *tensors._FAST_MATHS):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("deterministic")
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_products_below_float32_are_refused(device):
    check_exact(torch.device(device))
    try:
        for precision in ("high", "medium"):
            torch.set_float32_matmul_precision(precision)
            with pytest.raises(ValueError, match="float32 products must be computed in float32"):
                check_exact(torch.device(device))
            _, rows = both(np.ones((3, 1)), np.ones(3), DataSpec(3, 1))
            with pytest.raises(ValueError, match="float32 products"):
                clipped_gradient_sum(rows, Squared(), FlatClipping(1.0), np.ones(1))
    finally:
        torch.set_float32_matmul_precision("highest")
    check_exact(torch.device(device))


@pytest.mark.usefixtures("deterministic")
def test_nondeterministic_gpu_sums_are_refused(monkeypatch):
    cuda = torch.device("cuda")
    check_exact(cuda)
    for device, names in (("cuda", tensors._EMULATIONS), ("cpu", tensors._FAST_MATHS)):
        for name in names:
            monkeypatch.setenv(name, "1")
            with pytest.raises(ValueError, match=name):
                check_exact(torch.device(device))
            monkeypatch.delenv(name)
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":0:0")
    with pytest.raises(ValueError, match="CUBLAS_WORKSPACE_CONFIG must be one of"):
        check_exact(cuda)
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG")
    with pytest.raises(ValueError, match="before Python starts"):
        check_exact(cuda)
    check_exact(torch.device("cpu"))


@pytest.mark.usefixtures("deterministic")
def test_devices_without_such_promises_are_refused(monkeypatch):
    with pytest.raises(ValueError, match="on the CPU or on an NVIDIA GPU, got mps"):
        check_exact(torch.device("mps"))
    monkeypatch.setattr(torch.version, "hip", "6.0")
    with pytest.raises(ValueError, match="on the CPU or on an NVIDIA GPU, got cuda"):
        check_exact(torch.device("cuda"))


def test_only_dense_numeric_matrices_are_accepted():
    X, y = torch.ones((3, 2)), torch.ones(3)
    for wrong in (torch.ones(3), X.to_sparse(), X.to(torch.complex64)):
        with pytest.raises(ValueError, match="X must be a dense tensor"):
            as_collection(wrong, y)
    for arguments, match in (
        ((y[:2],), r"inconsistent numbers of samples: \[3, 2\]"),
        ((torch.ones((3, 2)),), "y should be a 1d array"),
        ((y, y[:1]), r"sample_weight must have shape \(3,\), got shape \(1,\)"),
    ):
        with pytest.raises(ValueError, match=match):
            as_collection(X, *arguments)


def test_non_finite_values_are_refused_before_any_release():
    model = LogisticRegression(classes=[0, 1], row_norm=1.0, weight_bound=1.0)
    X, y = torch.ones((3, 2)), torch.tensor([0, 1, 1])
    for bad in (math.nan, math.inf, -math.inf):
        broken = X.clone()
        broken[1, 1] = bad
        with pytest.raises(ValueError, match="X must be finite"):
            model.fit(broken, y)
        with pytest.raises(ValueError, match="sample_weight must be finite"):
            model.fit(X, y, sample_weight=torch.tensor([1.0, bad, 1.0]))
    with pytest.raises(ValueError, match="sample_weight must be finite and at least 0"):
        model.fit(X, y, sample_weight=torch.tensor([1.0, -1.0, 1.0]))
    assert not hasattr(model, "coef_")


def test_the_extra_is_named_where_it_is_missing():
    with (
        mock.patch.dict(sys.modules, {"array_api_compat.torch": None}),
        pytest.raises(ImportError, match=r"pip install 'dpglm\[torch\]'"),
    ):
        namespace(torch.ones(1))


# Whole fits.

IN_FLOAT32 = ["auto", "newton", "noisy_gd", "noisy_sgd", "sufficient_statistics", "svrg"]


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        *((name, "float64") for name in SOLVERS),
        *((name, "float32") for name in (*IN_FLOAT32, "center and whiten")),
    ],
)
def test_every_solver_gives_the_same_result_on_tensors(name, dtype):
    whitened = Preprocessed([Center(lengthen=True), Whiten(exponent=0.25)])
    others = {"center and whiten": whitened, "noisy_sgd": NoisySGD(n_steps=50)}
    solver = others[name] if name in others else SOLVERS[name]()
    losses = {"sufficient_statistics": Squared(), "prototypes": Sparsemax()}
    loss = losses.get(name, Logistic())
    constraint = L1Ball(3.0) if name == "frank_wolfe" else Unconstrained()
    rng = np.random.default_rng(6)
    X = rng.normal(size=(700, 5))
    X[3] = 1e30
    of_classes = loss.target is Target.CLASS
    y = X[:, :3].argmax(axis=1) if of_classes else np.where(X[:, 0] > 0.0, 1.0, -1.0)
    budget = ApproximateDP(5.0, 1e-5)
    stated = Problem(loss, L2(0.1), constraint, penalize_intercept=True)
    dtype = "float64" if solver.needs_float64(stated, budget) else dtype
    spec = DataSpec(
        700,
        5,
        n_outputs=3 if of_classes else 1,
        row_norm=1.5,
        intercept=1.0,
        dtype=dtype,
        target_low=-1.0,
        target_high=1.0,
        entry_bound=1.0,
        weight_bound=2.0,
    )
    plan = solver.plan(stated, budget, spec)
    stored, moved = both(X, y, spec, weights=rng.uniform(0, 2, 700))
    expected, got = (run(plan, rows, SeededNoise(7)).w for rows in (stored, moved))
    assert type(got) is np.ndarray
    assert got.dtype == np.float64
    # Noise is a multiple of a grid, so most differences in rounding vanish.
    np.testing.assert_allclose(got, expected, rtol=2e-5, atol=2e-5 * np.abs(expected).max())


ESTIMATORS: list[tuple[Callable[[], object], Callable[[np.ndarray], np.ndarray]]] = [
    (
        lambda: LogisticRegression(classes=["no", "yes"], feature_bounds=(-1, 1), random_state=0),
        lambda X: np.where(X[:, 0] > 0, "yes", "no"),
    ),
    (
        lambda: LogisticRegression(classes=[0, 1, 2], row_norm=1.5, random_state=0),
        lambda X: np.digitize(X[:, 0], [-0.3, 0.3]),
    ),
    (
        lambda: LogisticRegression(
            classes=[0, 1],
            row_norm=1.5,
            random_state=0,
            class_weight={1: 2.0},
            adjacency="add_remove",
            n_rows=900,
        ),
        lambda X: (X[:, 0] > 0).astype(int),
    ),
    (
        lambda: LinearRegression(target_bounds=(-1, 1), row_norm=1.5, random_state=0),
        lambda X: X[:, 0],
    ),
    (
        lambda: PoissonRegressor(target_bounds=(0, 5), row_norm=1.5, random_state=0),
        lambda X: np.round(2 * X[:, 0] + 2),
    ),
]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", range(len(ESTIMATORS)))
@pytest.mark.parametrize("weighted", [False, True])
def test_estimators_fit_tensors_as_they_fit_arrays(case, dtype, weighted):
    make, label = ESTIMATORS[case]
    X = np.random.default_rng(8).uniform(-1, 1, (900, 4)).astype(dtype)
    y = label(X)
    options = {"sample_weight": np.linspace(0, 2, 900)} if weighted else {}
    expected = make().set_params(weight_bound=1.5 if weighted else None).fit(X, y, **options)
    moved = torch.as_tensor(X).requires_grad_()
    labels = y if y.dtype.kind == "U" else torch.as_tensor(y)
    got = make().set_params(weight_bound=1.5 if weighted else None).fit(moved, labels, **options)
    for name in ("coef_", "intercept_"):
        value = getattr(got, name)
        assert not isinstance(value, torch.Tensor)
        close = np.abs(value).max() * 2e-5
        np.testing.assert_allclose(value, getattr(expected, name), rtol=2e-5, atol=close)
    assert type(got.coef_) is np.ndarray
    assert got.privacy_.epsilon <= 1.0


def test_narrow_and_integer_types_are_stored_exactly():
    X = torch.ones((2, 1))
    stored = {
        torch.float16: "float32",
        torch.bfloat16: "float32",
        torch.float32: "float32",
        torch.float64: "float64",
        torch.int64: "float64",
        torch.uint8: "float64",
        torch.bool: "float64",
    }
    for dtype, expected in stored.items():
        assert as_collection(X.to(dtype), X[:, 0].to(dtype)).dtype == expected


def test_arrays_that_tensors_cannot_share_are_copied():
    x = torch.zeros(3)
    fixed = np.arange(3.0)
    fixed.setflags(write=False)
    for values in (fixed, np.arange(3.0)[::-1], np.arange(6.0)[::2]):
        np.testing.assert_array_equal(like(x, values), values)


def test_marked_kernels_run_on_arrays_too():
    stored, moved = both(np.ones((4, 2)), np.ones(4), DataSpec(4, 2))
    kernel = AnyArrays(lambda block: like(block.norms, block.weighted_sum(block.norms)))
    np.testing.assert_allclose(stored.sum(kernel), moved.sum(kernel), rtol=1e-12)
