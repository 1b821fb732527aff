from __future__ import annotations

import math
import multiprocessing
import operator
import os
import pickle
import warnings
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from typing import Any, ClassVar, final

import mpmath
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from dpglm.privacy.noise import (
    NoiseSource,
    SeededNoise,
    SystemNoise,
    add_gaussian,
    bernoulli,
    granularity_exponent,
    grid_limit,
    grid_sensitivity,
)
from dpglm.privacy.noise import exact as _exact_bernoulli
from dpglm.privacy.noise import exact as _exact_pairs
from dpglm.privacy.noise.additive import add_l2_noise, add_laplace
from dpglm.privacy.noise.exact import (
    CELL,
    FUNCTION_ERROR,
    bernoulli_by_gaps,
    coins,
    rounded_gaussian,
)
from dpglm.privacy.selection.choices import exponential_mechanism, permute_and_flip
from tests.privacy.noise.support import Script, bad_functions, bits_to_uniform
from tests.slowly import together

SCALE = 2.0**24.7
SIGNIFICANCE = 1e-4
ALL_ONES = 2**64 - 1


@final
class FixedRefinement(NoiseSource):
    """A seeded stream with constant answers to short requests, those of the slow path."""

    name: ClassVar[str] = "fixed refinement"
    is_private: ClassVar[bool] = False

    def __init__(self, seed: int) -> None:
        self._stream = SeededNoise(seed)
        self.refinements = 0

    def words(self, count: int) -> NDArray[np.uint64]:
        if count > 2:
            return self._stream.words(count)
        self.refinements += 1
        return np.array([0x9E3779B97F4A7C15, 0xD1B54A32D192ED03], dtype=np.uint64)[:count]


def ideal_pair(u: Any, v: Any, scale: float) -> tuple[int, int]:
    """Rounded Box-Muller pair at 120 digits; the caller's numbers are exact."""
    with mpmath.workdps(120):
        r = scale * mpmath.sqrt(-2 * mpmath.log(u))
        angle = 2 * mpmath.pi * v
        return int(mpmath.nint(r * mpmath.cos(angle))), int(mpmath.nint(r * mpmath.sin(angle)))


# The assumption of the proof: bounds on the error of NumPy's functions.


def log_arguments() -> NDArray[np.float64]:
    rng = np.random.default_rng(0)
    edge = np.arange(1, 65)
    powers = np.concatenate([(1 << j) + np.arange(-2, 3) for j in range(4, 53)])
    integers = np.concatenate(
        [
            edge,
            2**53 - edge,
            powers,
            2**53 // 3 + edge,
            round(2**52.5) + np.arange(-32, 32),
            2**53 - (1 << np.arange(1, 52)),
            rng.integers(1, 2**53, 4000),
            (2.0 ** rng.uniform(0, 53, 2000)).astype(np.int64),
        ]
    )
    return integers.astype(np.float64) * CELL


def angle_arguments() -> NDArray[np.float64]:
    rng = np.random.default_rng(1)
    edge = np.arange(-32, 33)
    eighths = np.concatenate([j * 2**50 + edge for j in range(9)])
    integers = np.concatenate([eighths, rng.integers(0, 2**53, 4000), 1 << np.arange(53)])
    return (2.0 * math.pi) * (np.clip(integers, 0, 2**53 - 1).astype(np.float64) * CELL)


def worst_error(
    function: Callable[[Any], Any], reference: Callable[[Any], Any], x: Any, *, relative: bool
) -> float:
    """Largest error of a function over all ways in which NumPy may run its loops."""
    with mpmath.workprec(140):
        exact = [reference(mpmath.mpf(float(value))) for value in x]
        # Long arrays, short ones and strided ones take different loops inside NumPy.
        strided = np.repeat(x, 2)[::2]
        ways = (function(x), function(strided), [function(x[i : i + 1])[0] for i in range(x.size)])
        return max(
            float(abs((mpmath.mpf(float(got)) - value) / (value if relative else 1)))
            for way in ways
            for got, value in zip(way, exact, strict=True)
        )


def test_function_errors_are_far_within_the_assumed_bound() -> None:
    u, angle = log_arguments(), angle_arguments()
    assert worst_error(np.log, mpmath.log, u, relative=True) <= FUNCTION_ERROR / 4
    assert worst_error(np.cos, mpmath.cos, angle, relative=False) <= FUNCTION_ERROR / 4
    assert worst_error(np.sin, mpmath.sin, angle, relative=False) <= FUNCTION_ERROR / 4


def test_log1p_error_is_far_within_the_assumed_bound() -> None:
    q = np.concatenate([2.0 ** -np.arange(4.0, 65.0), np.random.default_rng(2).random(500) / 16])
    error = worst_error(
        lambda x: [math.log1p(-v) for v in x], lambda x: mpmath.log1p(-x), q, relative=True
    )
    assert error <= FUNCTION_ERROR / 4


def test_the_error_measurement_sees_an_inaccurate_function() -> None:
    u = log_arguments()[:200]
    error = worst_error(lambda x: np.log(x) * (1 + 2.0**-47), mpmath.log, u, relative=True)
    assert error > FUNCTION_ERROR


FLOATS = np.random.default_rng(24).uniform(1.0, 2.0, (2, 2000)) * 2.0 ** np.arange(-500, 500, 0.5)
"""Two columns of operands of all sizes."""


def relative_error(got: Any, exact: Fraction) -> float:
    return float(abs(Fraction(float(got)) / exact - 1))


@pytest.mark.parametrize("operation", [operator.add, operator.sub, operator.mul, operator.truediv])
def test_basic_operations_are_as_exact_as_assumed(operation: Callable[[Any, Any], Any]) -> None:
    a, b = FLOATS[0], FLOATS[1] * np.where(operation in (operator.mul, operator.truediv), 1.0, 0.3)
    pairs = list(zip(map(Fraction, a.tolist()), map(Fraction, b.tolist()), strict=True))
    for ways in (operation(a, b), [operation(x, y) for x, y in zip(a, b, strict=True)]):
        errors = [relative_error(z, operation(x, y)) for z, (x, y) in zip(ways, pairs, strict=True)]
        assert max(errors) <= 2.0**-52


def test_square_roots_and_sums_are_as_exact_as_assumed() -> None:
    for x, root in zip(FLOATS[0].tolist(), np.sqrt(FLOATS[0]).tolist(), strict=True):
        # (root (1 +- e))^2 encloses x, with no square root needed to say so.
        for sign in (-1, 1):
            end = (Fraction(root) * (1 + sign * Fraction(1, 2**52))) ** 2
            assert (end - Fraction(x)) * sign > 0
    terms = (-np.log(np.random.default_rng(25).random((50, 40)))).tolist()
    for row in terms:
        assert relative_error(math.fsum(row), sum(map(Fraction, row), Fraction(0))) <= 2.0**-52


def test_conversions_scalings_and_small_differences_are_exact() -> None:
    integers = np.random.default_rng(26).integers(-(2**53), 2**53, 2000)
    floats = integers.astype(np.float64)
    assert [int(x) for x in floats.tolist()] == integers.tolist()
    for k in (-1074, -24, 0, 900):
        scaled = np.ldexp(floats, k)
        assert [Fraction(x) for x in scaled.tolist()] == [
            m * Fraction(2) ** k for m in integers.tolist()
        ]
    x = np.random.default_rng(27).uniform(-1e9, 1e9, 2000)
    rest = x - np.rint(x)
    for value, difference in zip(x.tolist(), rest.tolist(), strict=True):
        assert Fraction(difference) == Fraction(value) - round(value)
    with mpmath.workdps(60):
        assert abs(mpmath.mpf(2.0 * math.pi) - 2 * mpmath.pi) <= mpmath.ldexp(1, -51)


@pytest.mark.parametrize("bits", [117, 181])
def test_mpmath_is_as_exact_as_assumed(bits: int) -> None:
    rng = np.random.default_rng(28)
    context = mpmath.MPContext()
    least = mpmath.ldexp(1, 24 - (bits + 64))
    for _ in range(200):
        a, b = (int.from_bytes(rng.bytes(bits // 8), "big") | 1 for _ in range(2))
        functions: list[tuple[Callable[[Any], Any], bool]] = [
            (lambda c, a=a: c.log(c.ldexp(a, -bits)), True),
            (lambda c, a=a: c.log1p(-c.ldexp(a, -bits - 8)), True),
            (lambda c, a=a: c.sqrt(c.ldexp(a, -bits)), True),
            (lambda c, b=b: c.cos(2 * c.pi * c.ldexp(b, -bits)), False),
            (lambda c, b=b: c.sin(2 * c.pi * c.ldexp(b, -bits)), False),
        ]
        for function, relative in functions:
            context.prec = bits + 64
            got = function(context)
            context.prec = 600
            exact = function(context)
            assert abs(got - exact) <= least * (abs(exact) if relative else 1)


def test_first_bits_convert_exactly() -> None:
    largest = np.array([2**53 - 1], dtype=np.uint64).astype(np.float64) * CELL
    assert largest[0] == math.nextafter(1.0, 0.0)


# Every draw is the rounding of an ideal one.


@pytest.mark.parametrize("scale", [1.0, 3.7, SCALE, math.nextafter(2.0**32, 0)])
def test_draws_agree_with_mpmath(scale: float) -> None:
    pairs = 600
    source = FixedRefinement(3)
    got = rounded_gaussian(source.words, 2 * pairs, scale).reshape(2, pairs)
    more = [int(word) for word in FixedRefinement(0).words(2)]
    first = FixedRefinement(3).words(2 * pairs) >> np.uint64(11)
    for i in range(pairs):
        u = bits_to_uniform(int(first[i]), more[0], more[0])
        v = bits_to_uniform(int(first[pairs + i]), more[1], more[1])
        assert (got[0, i], got[1, i]) == ideal_pair(u, v, scale)


def draws_with_bad_functions(size: float) -> tuple[NDArray[np.int64], int]:
    source = FixedRefinement(5)
    with bad_functions(size):
        return rounded_gaussian(source.words, 800_000, 2.0**31.9), source.refinements


def test_draws_do_not_depend_on_the_errors_of_the_functions() -> None:
    expected, refinements = draws_with_bad_functions(0.0)
    got, _ = draws_with_bad_functions(0.9 * FUNCTION_ERROR)
    assert refinements > 10
    np.testing.assert_array_equal(got, expected)


def test_inaccurate_functions_or_missing_bounds_are_detected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    expected, _ = draws_with_bad_functions(0.0)
    too_bad, _ = draws_with_bad_functions(64 * FUNCTION_ERROR)
    assert (too_bad != expected).any()
    monkeypatch.setattr(_exact_pairs, "FUNCTION_ERROR", 0.0)
    unbounded, _ = draws_with_bad_functions(0.9 * FUNCTION_ERROR)
    assert (unbounded != expected).any()


# The slow path: bits that land on a rounding boundary.

BOUNDARY_FIRST = 2**43 + 12345
BOUNDARY_HALF = 62_000_000


def boundary_scale() -> float:
    """Scale for which the cell of ``BOUNDARY_FIRST`` straddles ``BOUNDARY_HALF + 1/2``."""
    with mpmath.workdps(120):
        middle = mpmath.ldexp(mpmath.mpf(2 * BOUNDARY_FIRST + 1), -54)
        return float((BOUNDARY_HALF + mpmath.mpf(1) / 2) / mpmath.sqrt(-2 * mpmath.log(middle)))


def boundary_draw(*more: int) -> tuple[int, int]:
    source = Script([BOUNDARY_FIRST << 11, 0, *more])
    a, b = rounded_gaussian(source.words, 2, boundary_scale())
    assert not source.left
    return int(a), int(b)


def test_later_bits_decide_a_draw_on_the_boundary() -> None:
    # A larger uniform makes a smaller radius.
    assert boundary_draw(0, 0) == (BOUNDARY_HALF + 1, 0)
    assert boundary_draw(ALL_ONES, 0) == (BOUNDARY_HALF, 0)


def test_refined_draws_agree_with_mpmath() -> None:
    rng = np.random.default_rng(6)
    results = set()
    for word, other in rng.integers(0, 2**64, size=(30, 2), dtype=np.uint64).tolist():
        u, v = bits_to_uniform(BOUNDARY_FIRST, word), bits_to_uniform(0, other)
        got = boundary_draw(word, other)
        assert got == ideal_pair(u, v, boundary_scale())
        results.add(got[0])
    assert results == {BOUNDARY_HALF, BOUNDARY_HALF + 1}


@pytest.mark.parametrize("above", [0, 1])
def test_refinement_goes_on_until_the_draw_is_decided(above: int) -> None:
    with mpmath.workdps(120):
        ratio = (BOUNDARY_HALF + mpmath.mpf(1) / 2) / mpmath.mpf(boundary_scale())
        bits = int(mpmath.floor(mpmath.ldexp(mpmath.exp(-(ratio**2) / 2), 53 + 128)))
    second, third = bits >> 64 & ALL_ONES, bits & ALL_ONES
    assert bits >> 128 == BOUNDARY_FIRST
    # 53 + 64 bits agree with the boundary; the bits after these lie clear of it.
    third = ALL_ONES if above else 0
    assert boundary_draw(second, 0, third, 0) == (BOUNDARY_HALF + 1 - above, 0)


@pytest.mark.parametrize("first", [1, 3, 1000, 2**20, 2**53 - 2, 2**53 - 1])
def test_wide_cells_are_refined(first: int) -> None:
    # Here the radius moves by up to thousands of grid cells within the cell of the uniform.
    for word in np.random.default_rng(7).integers(2**63, size=10).tolist():
        source = Script([first << 11, 1 << 61, word, 0])
        got = rounded_gaussian(source.words, 2, SCALE)
        u, v = bits_to_uniform(first, word), bits_to_uniform(1 << 50, 0)
        assert tuple(got.tolist()) == ideal_pair(u, v, SCALE)


def test_uniform_with_leading_zeros_is_refined() -> None:
    source = Script([0, 1 << 63, 0, 7, 5 << 58, 11])
    got = rounded_gaussian(source.words, 2, SCALE)
    u, v = bits_to_uniform(0, 0, 5 << 58), bits_to_uniform(1 << 52, 7, 11)
    assert tuple(got.tolist()) == ideal_pair(u, v, SCALE)
    assert not source.left


# The law of the draws.


def normal_p_value(z: NDArray[np.float64]) -> float:
    return float(stats.kstest(z, "norm", method="asymp").pvalue)


def anderson_darling(z: NDArray[np.float64]) -> float:
    """Statistic against the standard normal, which weighs the tails more than KS does."""
    z = np.sort(z)
    weight = 2.0 * np.arange(1, z.size + 1) - 1.0
    return float(-z.size - np.mean(weight * (stats.norm.logcdf(z) + stats.norm.logsf(z)[::-1])))


@pytest.fixture(scope="module")
def million() -> NDArray[np.float64]:
    draws = rounded_gaussian(SeededNoise(8).words, 1_000_000, SCALE) / SCALE
    draws.flags.writeable = False
    return draws


def test_draws_are_normal(million: NDArray[np.float64]) -> None:
    assert normal_p_value(million) > SIGNIFICANCE
    # The limit law of the statistic exceeds 8.2 with probability 1e-4.
    assert anderson_darling(million[:200_000]) < 8.2


@pytest.mark.parametrize("factor", [0.98, 1.02])
def test_a_wrong_scale_is_rejected(million: NDArray[np.float64], factor: float) -> None:
    assert normal_p_value(million * factor) < SIGNIFICANCE
    assert anderson_darling(million[:200_000] * factor) > 8.2


def test_tails_reach_as_far_as_they_should(million: NDArray[np.float64]) -> None:
    for bound in (3.0, 4.0, 4.5):
        expected = 2 * stats.norm.sf(bound)
        count = int((np.abs(million) > bound).sum())
        assert stats.binomtest(count, million.size, expected).pvalue > SIGNIFICANCE


def rounded_normal_p_value(m: NDArray[np.int64], scale: float) -> float:
    """Chi-square test of integers against the exact law of a rounded normal."""
    edges = np.concatenate([[-np.inf], np.arange(-9.5, 10.0), [np.inf]])
    expected = np.diff(stats.norm.cdf(edges / scale)) * m.size
    observed = np.histogram(m, edges)[0]
    return float(stats.chisquare(observed, expected).pvalue)


def test_law_on_a_coarse_grid_is_that_of_a_rounded_normal() -> None:
    m = rounded_gaussian(SeededNoise(9).words, 1_000_000, 2.5)
    assert rounded_normal_p_value(m, 2.5) > SIGNIFICANCE
    assert rounded_normal_p_value(m, 2.5 * 1.02) < SIGNIFICANCE
    # Truncation instead of rounding, the classic slip.
    truncated = np.trunc(2.5 * np.random.default_rng(9).standard_normal(m.size)).astype(np.int64)
    assert rounded_normal_p_value(truncated, 2.5) < SIGNIFICANCE


def test_low_bits_are_uniform(million: NDArray[np.float64]) -> None:
    m = np.rint(million * SCALE).astype(np.int64)
    assert stats.chisquare(np.bincount(m & 255)).pvalue > SIGNIFICANCE


def test_draws_are_independent_of_each_other(million: NDArray[np.float64]) -> None:
    n = million.size
    block = 2 * _exact_pairs._PAIRS_PER_BLOCK
    pairs = million[: n // block * block].reshape(-1, 2, block // 2)
    c, s = pairs[:, 0].ravel(), pairs[:, 1].ravel()
    for a, b in ((c, s), (c**2, s**2), (million[:-1], million[1:]), (million[:-2], million[2:])):
        assert abs(np.corrcoef(a, b)[0, 1]) < 4.5 / math.sqrt(a.size)


@pytest.mark.parametrize("size", [0, 1, 2, 3, 8191, 8192, 8193])
def test_any_number_of_draws(size: int) -> None:
    m = rounded_gaussian(SystemNoise().words, size, SCALE)
    assert m.shape == (size,)
    assert m.dtype == np.int64
    assert np.unique(m).size >= 0.9 * size


# Sources.


def test_gaussian_has_the_shape_asked_for() -> None:
    source = SystemNoise()
    assert source.gaussian((), -24, 1.0).shape == ()
    assert source.gaussian(3, -24, 1.0).shape == (3,)
    assert source.gaussian((2, 0), -24, 1.0).shape == (2, 0)
    assert source.gaussian((2, 3, 4), -24, 1.0).shape == (2, 3, 4)


def test_gaussian_scales_with_std_over_the_grid() -> None:
    for std, k in ((1.0, -24), (3e-5, -40), (1e200, 640)):
        m = SeededNoise(10).gaussian(100_000, k, std)
        assert normal_p_value(m / math.ldexp(std, -k)) > SIGNIFICANCE


@pytest.mark.parametrize("std", [0.0, -1.0, math.nan, math.inf, 2.0**-25, 2.0**8])
def test_std_out_of_range_of_the_grid_is_refused(std: float) -> None:
    with pytest.raises(ValueError, match="std"):
        SystemNoise().gaussian(1, -24, std)


@pytest.mark.parametrize("k", [-1075, 971, 0.5, True])
def test_exponent_out_of_range_is_refused(k: Any) -> None:
    with pytest.raises(ValueError, match="granularity_exponent"):
        SystemNoise().gaussian(1, k, 1.0)


def all_differ(draws: Iterable[NDArray[np.int64]]) -> bool:
    # Vectors of several integers, each of some 2^25 likely values, never agree by chance.
    rows = [row.tobytes() for row in draws]
    return len(set(rows)) == len(rows) > 1


def draw(source: NoiseSource) -> NDArray[np.int64]:
    return source.gaussian(8, -24, 1.0)


def test_noise_differs_between_calls_objects_and_copies() -> None:
    source = SystemNoise()
    copy = pickle.loads(pickle.dumps(source))
    assert all_differ(draw(s) for s in (source, source, SystemNoise(), copy, copy))


def test_noise_differs_between_threads() -> None:
    source = SystemNoise()
    with ThreadPoolExecutor(4) as pool:
        assert all_differ(pool.map(draw, [source] * 64))


def test_noise_differs_between_coordinates() -> None:
    m = SystemNoise().gaussian((50, 4), -24, 1.0)
    assert all_differ(m)
    assert all_differ(np.ascontiguousarray(m.T))


def draws_in_forks(source: NoiseSource) -> list[NDArray[np.int64]]:
    draw(source)
    with warnings.catch_warnings():
        # Python 3.12 warns of forks of a process that has threads, as BLAS gives it.
        warnings.simplefilter("ignore", DeprecationWarning)
        context = multiprocessing.get_context("fork")
        results = context.SimpleQueue()
        children = [context.Process(target=lambda: results.put(draw(source))) for _ in range(3)]
        for child in children:
            child.start()
    drawn = [results.get() for _ in children]
    for child in children:
        child.join()
    return [*drawn, draw(source)]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_noise_differs_between_forked_processes() -> None:
    assert all_differ(draws_in_forks(SystemNoise()))
    # The same check fails for a generator with state: forks repeat each other.
    assert not all_differ(draws_in_forks(SeededNoise(11)))


def test_system_noise_has_no_state() -> None:
    assert vars(SystemNoise()) == {}
    assert SystemNoise() == SystemNoise()


def test_all_system_randomness_comes_from_os_urandom(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def replayed() -> Callable[[int], bytes]:
        generator = np.random.default_rng(12)

        def urandom(count: int) -> bytes:
            asked.append(count)
            return generator.bytes(count)

        return urandom

    def everything() -> list[Any]:
        monkeypatch.setattr(os, "urandom", replayed())
        source = SystemNoise()
        return [
            source.gaussian(10_000, -24, 1.0).tolist(),
            source.uniform(),
            bernoulli(source, 1000, 0.01).tolist(),
            bernoulli(source, 1000, 0.3).tolist(),
            add_laplace(np.zeros(1000), 1.0, -24, source).tolist(),
            add_l2_noise(np.zeros(1000), 1.0, -24, source).tolist(),
            [exponential_mechanism(np.zeros(100), 1.0, 1.0, source) for _ in range(20)],
            [permute_and_flip(np.zeros(100), 1.0, 1.0, source) for _ in range(20)],
        ]

    assert everything() == everything()
    assert sum(asked) >= 2 * 8 * 10_000

    def empty(count: int) -> bytes:
        raise NotImplementedError("no entropy")

    monkeypatch.setattr(os, "urandom", empty)
    for use in (draw, NoiseSource.uniform, lambda source: bernoulli(source, 10, 0.3)):
        with pytest.raises(NotImplementedError):
            use(SystemNoise())


def test_seeded_noise_repeats_and_is_marked_not_private() -> None:
    assert (draw(SeededNoise(13)) == draw(SeededNoise(13))).all()
    assert all_differ(draw(SeededNoise(seed)) for seed in (13, 14, 2**80))
    assert SystemNoise.is_private
    assert not SeededNoise.is_private
    assert SystemNoise.name != SeededNoise.name


def test_reprs_reveal_nothing() -> None:
    assert repr(SystemNoise()) == "SystemNoise()"
    assert "987654" not in repr(SeededNoise(987654))


@pytest.mark.parametrize("seed", [-1, 1.5, None, True, "1"])
def test_bad_seed_is_refused(seed: Any) -> None:
    with pytest.raises(ValueError, match="seed"):
        SeededNoise(seed)


def test_uniform_is_uniform() -> None:
    source = SeededNoise(15)
    draws = [source.uniform() for _ in range(5000)]
    assert stats.kstest(draws, "uniform").pvalue > SIGNIFICANCE
    assert Script([ALL_ONES]).uniform() < 1.0


# The grid.


@pytest.mark.parametrize("std", [1.0, 1.5, math.nextafter(2.0, 0), 2.0, 1e-300, 1e290, 0.1])
def test_grid_is_2_to_24_to_2_to_25_cells_per_std(std: float) -> None:
    cells = math.ldexp(std, -granularity_exponent(std))
    assert 2.0**24 <= cells < 2.0**25
    SystemNoise().gaussian(2, granularity_exponent(std), std)


@pytest.mark.parametrize("std", [0.0, -1.0, math.nan, math.inf, 1e-320, 1e300, "1"])
def test_std_without_a_grid_is_refused(std: Any) -> None:
    with pytest.raises(ValueError, match="std"):
        granularity_exponent(std)


def test_grid_sensitivity_is_attained() -> None:
    k, size = -3, 50
    cell = 2.0**k
    bound = grid_sensitivity(size, k)
    assert math.isclose(bound, math.sqrt(size) * cell)
    assert bound >= math.sqrt(size) * cell
    # Neighbours on either side of a boundary in every coordinate: the worst case.
    low = np.full(size, 0.5 * cell - 1e-12)
    high = np.full(size, 0.5 * cell + 1e-12)
    silent = SilentNoise()
    moved = add_gaussian(high, 1.0, k, silent) - add_gaussian(low, 1.0, k, silent)
    extra = np.linalg.norm(moved) - np.linalg.norm(high - low)
    assert 0.999 * bound < extra <= bound


@final
class SilentNoise(NoiseSource):
    """Words with Gaussian noise that rounds to zero on a coarse grid: the value becomes visible."""

    name: ClassVar[str] = "silent"
    is_private: ClassVar[bool] = False

    def words(self, count: int) -> NDArray[np.uint64]:
        return np.full(count, ALL_ONES - 2**20, dtype=np.uint64)


def test_values_are_snapped_half_to_even_and_never_rounded_again() -> None:
    cell = 2.0**-10
    value = np.array([0.5, 1.5, 2.5, -0.5, -1.5, 0.49, -7.0, 2.0**40, 1e-320]) * cell
    got = add_gaussian(value, 4.0 * cell, -10, SilentNoise())
    np.testing.assert_array_equal(got / cell, [0, 2, 2, 0, -2, 0, -7, 2.0**40, 0])


@pytest.mark.parametrize("std", [1e-290, 3e-5, 1.0, 1e9, 1e280])
def test_released_value_is_value_plus_noise_exactly(std: float) -> None:
    k = granularity_exponent(std)
    value = np.random.default_rng(16).normal(size=(40, 3)) * std * 1e6
    got = add_gaussian(value, std, k, SeededNoise(17))
    m = SeededNoise(17).gaussian((40, 3), k, std)
    for y, v, noise in zip(got.ravel(), value.ravel(), m.ravel(), strict=True):
        cells = math.ldexp(float(y), -k)
        assert cells == int(cells)
        assert int(cells) == round(math.ldexp(float(v), -k)) + int(noise)


def test_shape_and_dtype_of_the_result() -> None:
    for value in (1.0, np.float32(2.0), [1, 2], np.zeros((0, 3)), np.ones((2, 2), np.float32)):
        got = add_gaussian(value, 1.0, -24, SystemNoise())
        assert isinstance(got, np.ndarray)
        assert got.dtype == np.float64
        assert got.shape == np.shape(value)


@pytest.mark.parametrize("k", [-1074, -24, 0, 970])
def test_values_up_to_the_limit_are_released_and_beyond_refused(k: int) -> None:
    limit, std = grid_limit(k), math.ldexp(1.0, k + 3)
    largest = math.nextafter(limit, 0.0)
    for sign in (-1.0, 1.0):
        assert abs(add_gaussian(sign * largest, std, k, SystemNoise())) > limit / 2
        for too_large in (limit, 2.0 * limit):
            with pytest.raises(OverflowError, match=r"2\^52 cells"):
                add_gaussian([0.0, sign * too_large], std, k, SystemNoise())


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_values_that_are_not_finite_are_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="value must be finite"):
        add_gaussian([0.0, bad], 1.0, -24, SystemNoise())


# Poisson samples.


def patterns(draw_mask: Callable[[], NDArray[np.bool_]], repeats: int) -> NDArray[np.int64]:
    """How often each pattern of three bits came out."""
    codes = [int(draw_mask() @ np.array([1, 2, 4])) for _ in range(repeats)]
    return np.bincount(codes, minlength=8)


def pattern_p_value(counts: NDArray[np.int64], q: float) -> float:
    ones = np.array([code.bit_count() for code in range(8)])
    expected = q**ones * (1.0 - q) ** (3 - ones) * counts.sum()
    return float(stats.chisquare(counts, expected).pvalue)


@pytest.mark.parametrize("sampler", [bernoulli_by_gaps, coins])
def test_bits_are_independent_with_the_right_probability(sampler: Any) -> None:
    words = SeededNoise(20).words
    counts = patterns(lambda: sampler(words, 3, 0.3), 8000)
    assert pattern_p_value(counts, 0.3) > SIGNIFICANCE
    assert pattern_p_value(counts, 0.33) < SIGNIFICANCE


@pytest.mark.parametrize("sampler", [bernoulli_by_gaps, coins])
@pytest.mark.parametrize("q", [1e-5, 0.01, 1.0 / 3.0, 0.99])
def test_numbers_and_places_of_successes(sampler: Any, q: float) -> None:
    n = 400_000
    mask = sampler(SeededNoise(21).words, n, q)
    assert mask.shape == (n,)
    assert mask.dtype == np.bool_
    hits = np.flatnonzero(mask)
    assert stats.binomtest(hits.size, n, q).pvalue > SIGNIFICANCE
    if q > 1e-3:
        assert stats.binomtest(hits.size, n, q * 1.2 if q < 0.5 else 0.98).pvalue < SIGNIFICANCE
        assert stats.chisquare(np.histogram(hits, 16, (0, n))[0]).pvalue > SIGNIFICANCE


def test_gaps_agree_with_mpmath() -> None:
    q, cap = 0.0123, 10**6
    source = SeededNoise(22)
    got = _exact_bernoulli._gaps(source.words, 2000, q, cap)
    first = SeededNoise(22).words(2000) >> np.uint64(11)
    for gap, a in zip(got.tolist(), first.tolist(), strict=True):
        with mpmath.workdps(60):
            x = mpmath.log(bits_to_uniform(a)) / mpmath.log1p(-mpmath.mpf(q))
        assert gap == int(mpmath.floor(x))


def test_later_bits_decide_a_gap_on_the_boundary() -> None:
    q, gap = 2.0**-8, 1000
    with mpmath.workdps(120):
        bits = int(mpmath.floor(mpmath.ldexp((1 - mpmath.mpf(q)) ** gap, 53 + 128)))
    first, second = bits >> 128, bits >> 64 & ALL_ONES
    # U above (1 - q)^gap makes the gap shorter than ``gap``, U below makes it ``gap``.
    for more, expected in (
        ([0], gap),
        ([ALL_ONES], gap - 1),
        ([second, 0], gap),
        ([second, ALL_ONES], gap - 1),
    ):
        source = Script([first << 11, *more])
        assert _exact_bernoulli._gaps(source.words, 1, q, 10**6).tolist() == [expected]
        assert not source.left


@pytest.mark.parametrize("first", [1, 3, 100])
def test_gaps_of_wide_cells_are_refined(first: int) -> None:
    q = 1e-3
    for word in np.random.default_rng(23).integers(2**63, size=10).tolist():
        source = Script([first << 11, word])
        got = _exact_bernoulli._gaps(source.words, 1, q, 10**6)
        with mpmath.workdps(60):
            x = mpmath.log(bits_to_uniform(first, word)) / mpmath.log1p(-mpmath.mpf(q))
        assert got.tolist() == [int(mpmath.floor(x))]


def test_a_gap_beyond_the_end_is_cut() -> None:
    # u = 0 is refined; whatever it turns out to be, the gap is longer than 10.
    source = Script([0, 0, 0, 9 << 58])
    assert _exact_bernoulli._gaps(source.words, 1, 0.01, 10).tolist() == [10]


def test_ties_of_digits_are_decided_by_the_next_digit() -> None:
    # q = 5/256 + 7/65536: first bytes 4, 5 (tie), 6; the second byte of the tie decides.
    q = 5 / 256 + 7 / 65536
    for second, expected in ((6, True), (7, False), (8, False)):
        first = 4 | 5 << 8 | 6 << 16
        words = Script([first, second]).words
        assert coins(words, 3, q).tolist() == [True, expected, False]


@together("size", [0, 1, 7, 8, 9, 100_000])
@together("q", [0.0, 5e-324, 2.0**-64, 1e-12, 0.05, 0.0625, 0.5, 1.0 - 2.0**-53, 1.0])
def test_every_size_and_probability_is_defined(size: int, q: float) -> None:
    mask = bernoulli(SystemNoise(), size, q)
    assert mask.shape == (size,)
    if q < 1e-13:
        assert not mask.any()
    if q > 0.9:
        assert mask.all()


def test_the_first_and_the_last_row_can_enter() -> None:
    two_fifths = Script([2**65 // 5] * 9).words
    assert bernoulli_by_gaps(two_fifths, 2, 0.5).tolist() == [False, True]
    assert bernoulli_by_gaps(Script([ALL_ONES - 2**40] * 9).words, 2, 0.5).all()


def test_samples_are_fresh() -> None:
    masks = [bernoulli(SystemNoise(), 1000, q).tobytes() for q in (0.05, 0.05, 0.5, 0.5)]
    assert len(set(masks)) == 4


@pytest.mark.parametrize("q", [-0.1, 1.1, math.nan, "1", None])
def test_bad_probability_is_refused(q: Any) -> None:
    with pytest.raises(ValueError, match="probability"):
        bernoulli(SystemNoise(), 3, q)


@pytest.mark.parametrize("size", [-1, 1.5])
def test_bad_size_is_refused(size: Any) -> None:
    with pytest.raises(ValueError, match="size"):
        bernoulli(SystemNoise(), size, 0.5)
