from __future__ import annotations

import math
from collections.abc import Callable
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
    granularity_exponent,
    grid_limit,
    grid_sensitivity,
)
from dpglm.privacy.noise import exact as _exact_laplace
from dpglm.privacy.noise import exact as _exact_pairs
from dpglm.privacy.noise.additive import add_l2_noise, add_laplace
from dpglm.privacy.noise.exact import CELL, FUNCTION_ERROR, rounded_l2, rounded_laplace
from tests.privacy.noise.support import Script, bad_functions, bits_to_uniform

pytestmark = pytest.mark.one_in(3)

SCALE = 2.0**24.7
SIGNIFICANCE = 1e-4
ALL_ONES = 2**64 - 1
CONSTANTS = (0x9E3779B97F4A7C15, 0xD1B54A32D192ED03)

Add = Callable[[Any, float, int, NoiseSource], NDArray[np.float64]]


@final
class FixedRefinement(NoiseSource):
    """The first two requests come from a seeded stream, later ones always give the same.

    For a vector in one block, later requests are those of the slow path.
    """

    name: ClassVar[str] = "fixed refinement"
    is_private: ClassVar[bool] = False

    def __init__(self, seed: int, streamed: int = 2) -> None:
        self._stream = SeededNoise(seed)
        self._streamed = streamed
        self.drawn: list[list[int]] = []
        self.refinements = 0

    def words(self, count: int) -> NDArray[np.uint64]:
        if len(self.drawn) == self._streamed:
            self.refinements += 1
            return np.resize(np.array(CONSTANTS, dtype=np.uint64), count)
        words = self._stream.words(count)
        self.drawn.append(words.tolist())
        return words


@final
class SilentNoise(NoiseSource):
    """Words with noise that rounds to zero on a coarse grid: the value becomes visible."""

    name: ClassVar[str] = "silent"
    is_private: ClassVar[bool] = False

    def words(self, count: int) -> NDArray[np.uint64]:
        return np.full(count, ALL_ONES - 2**20, dtype=np.uint64)


def uniform(word: int, *more: int) -> Any:
    """Uniform with the 53 first bits of a word and then whole words, exact at 120 digits."""
    return bits_to_uniform(word >> 11, *more)


def refined_alike(words: list[int]) -> list[Any]:
    """Uniforms that continue as ``FixedRefinement`` would have them."""
    return [uniform(word, *[CONSTANTS[i % 2]] * 2) for i, word in enumerate(words)]


def ideal_vector(size: int, scale: float, lengths: list[Any], pairs: list[Any]) -> list[int]:
    """Rounded noise at 120 digits, by its definition; the caller's numbers are exact."""

    def normals(u: Any, v: Any) -> tuple[Any, Any]:
        r, angle = mpmath.sqrt(-2 * mpmath.log(u)), 2 * mpmath.pi * v
        return r * mpmath.cos(angle), r * mpmath.sin(angle)

    with mpmath.workdps(120):
        square = mpmath.mpf(0)
        if size % 2 == 0:
            first, *lengths, last = lengths
            square += normals(first, last)[0] ** 2
        square -= 2 * sum(mpmath.log(w) for w in lengths)
        assert len(lengths) == (size + 1) // 2
        amplitude = scale * mpmath.sqrt(square)
        count = len(pairs) // 2
        z = [normals(u, v) for u, v in zip(pairs[:count], pairs[count:], strict=True)]
        x = [amplitude * c for c, _ in z] + [amplitude * s for _, s in z]
        return [int(mpmath.nint(value)) for value in x[:size]]


# Every draw is the rounding of an ideal one.


@pytest.mark.parametrize("scale", [1.0, 3.7, SCALE, math.nextafter(2.0**32, 0)])
@pytest.mark.parametrize("size", [1, 2, 3, 8, 301])
def test_draws_agree_with_mpmath(size: int, scale: float) -> None:
    for seed in range(max(1, 40 // size)):
        source = FixedRefinement(seed)
        got = rounded_l2(source.words, size, scale)
        lengths, pairs = source.drawn
        count = len(pairs) // 2
        refined = refined_alike(lengths)
        if size % 2 == 0:
            refined[-1] = uniform(lengths[-1], *[CONSTANTS[0]] * 2)
        continued = [uniform(word, *[CONSTANTS[i >= count]] * 2) for i, word in enumerate(pairs)]
        assert got.tolist() == ideal_vector(size, scale, refined, continued)


Draw = Callable[[NoiseSource], NDArray[np.int64]]


def many_vectors(source: NoiseSource) -> NDArray[np.int64]:
    return rounded_l2(source.words, 8192, 2.0**31)


def many_laplace(source: NoiseSource) -> NDArray[np.int64]:
    return rounded_laplace(source.words, 400_000, 2.0**31.9)


def draws_with_bad_functions(draw: Draw, size: float) -> tuple[NDArray[np.int64], int]:
    source = FixedRefinement(5, streamed=1 if draw is many_laplace else 2)
    with bad_functions(size):
        return draw(source), source.refinements


@pytest.mark.parametrize("draw", [many_vectors, many_laplace])
def test_draws_do_not_depend_on_the_errors_of_the_functions(draw: Draw) -> None:
    expected, refinements = draws_with_bad_functions(draw, 0.0)
    got, _ = draws_with_bad_functions(draw, 0.9 * FUNCTION_ERROR)
    assert refinements > 10
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("draw", [many_vectors, many_laplace])
def test_inaccurate_functions_or_missing_bounds_are_detected(
    draw: Draw, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, _ = draws_with_bad_functions(draw, 0.0)
    too_bad, _ = draws_with_bad_functions(draw, 64 * FUNCTION_ERROR)
    assert (too_bad != expected).any()
    # Every proposal accepted.
    monkeypatch.setattr(_exact_pairs, "HALF", math.inf)
    monkeypatch.setattr(_exact_laplace, "HALF", math.inf)
    unbounded, _ = draws_with_bad_functions(draw, 0.9 * FUNCTION_ERROR)
    assert (unbounded != expected).any()


# The slow path: bits that land on a rounding boundary. With one coordinate and V = 0 the noise
# is 2 S sqrt(log W log U), which falls as either uniform grows.

W_FIRST, U_FIRST = 2**51 + 977, 2**43 + 12345
BOUNDARY_HALF = 62_000_000


def boundary_scale() -> float:
    """Scale for which the cells of the first bits straddle ``BOUNDARY_HALF + 1/2``."""
    with mpmath.workdps(120):
        w, u = (mpmath.ldexp(mpmath.mpf(2 * a + 1), -54) for a in (W_FIRST, U_FIRST))
        return float(
            (BOUNDARY_HALF + mpmath.mpf(1) / 2) / (2 * mpmath.sqrt(mpmath.log(w) * mpmath.log(u)))
        )


def boundary_draw(*more: int) -> int:
    # Refined in this order: U and V of the pair, then W.
    source = Script([W_FIRST << 11, U_FIRST << 11, 0, *more])
    (drawn,) = rounded_l2(source.words, 1, boundary_scale()).tolist()
    assert not source.left
    return int(drawn)


def test_later_bits_decide_a_draw_on_the_boundary() -> None:
    middle = 1 << 63
    assert boundary_draw(0, 0, middle) == BOUNDARY_HALF + 1
    assert boundary_draw(ALL_ONES, 0, middle) == BOUNDARY_HALF
    assert boundary_draw(middle, 0, 0) == BOUNDARY_HALF + 1
    assert boundary_draw(middle, 0, ALL_ONES) == BOUNDARY_HALF


def test_refined_draws_agree_with_mpmath() -> None:
    rng = np.random.default_rng(6)
    results = set()
    for u, v, w in rng.integers(0, 2**64, size=(30, 3), dtype=np.uint64).tolist():
        pair = [uniform(U_FIRST << 11, u), uniform(0, v)]
        want = ideal_vector(1, boundary_scale(), [uniform(W_FIRST << 11, w)], pair)
        got = boundary_draw(u, v, w)
        assert [got] == want
        results.add(got)
    assert results == {BOUNDARY_HALF, BOUNDARY_HALF + 1}


@pytest.mark.parametrize("above", [0, 1])
@pytest.mark.parametrize(("wide", "narrow"), [("w", "u"), ("u", "w")])
def test_refinement_goes_on_until_the_draw_is_decided(above: int, wide: str, narrow: str) -> None:
    # First bits of one uniform say little, those of the other a lot.
    first = {wide: 3 << 11, narrow: (2**51 + 977) << 11}
    half = mpmath.mpf(BOUNDARY_HALF) + 0.5
    with mpmath.workdps(120):
        settled = mpmath.log(uniform(first[narrow], 0, 0))
        middle = mpmath.log(uniform(first[wide], 1 << 63))
        scale = float(half / (2 * mpmath.sqrt(settled * middle)))
        edge = mpmath.exp((half / (2 * mpmath.mpf(scale))) ** 2 / settled)
        bits = int(mpmath.floor(mpmath.ldexp(edge, 53 + 128)))
    assert bits >> 128 == 3
    # 53 + 64 bits agree with the boundary; the bits after these lie clear of it.
    second = {wide: bits >> 64 & ALL_ONES, narrow: 0}
    third = {wide: ALL_ONES if above else 0, narrow: 0}
    more = [word for words in (second, third) for word in (words["u"], 0, words["w"])]
    source = Script([first["w"], first["u"], 0, *more])
    assert rounded_l2(source.words, 1, scale).tolist() == [BOUNDARY_HALF + 1 - above]
    assert not source.left


@pytest.mark.parametrize("first", [1, 3, 1000, 2**20, 2**53 - 2, 2**53 - 1])
@pytest.mark.parametrize("place", [0, 1])
def test_wide_cells_are_refined(first: int, place: int) -> None:
    # Here the noise moves by up to thousands of grid cells within the cell of a uniform.
    for u, v, w in np.random.default_rng(7).integers(2**63, size=(10, 3)).tolist():
        words = [first << 11, 1 << 63] if place == 0 else [1 << 63, first << 11]
        source = Script([*words, 0, u, v, w])
        got = rounded_l2(source.words, 1, SCALE)
        pair = [uniform(words[1], u), uniform(0, v)]
        assert got.tolist() == ideal_vector(1, SCALE, [uniform(words[0], w)], pair)
        assert not source.left


@pytest.mark.parametrize("size", [3, 4])
def test_the_length_is_refined_once_and_shared(size: int) -> None:
    # W begins with 52 zeros, so the first bits say little about the length: all pairs are
    # refined, the length only with the first of them.
    rng = np.random.default_rng(8)
    first_words = [int(word) for word in rng.integers(2**63, size=11)]
    pair_words, lengths = first_words[:4], first_words[4 : 6 + 2 * (size % 2 == 0)]
    lengths[size % 2 == 0] = 1 << 11
    more = [int(word) for word in rng.integers(2**63, size=4 + len(lengths))]
    first, second, longer = more[:2], more[2:4], more[4:]
    source = Script([*lengths, *pair_words, *first, *longer, *second])
    got = rounded_l2(source.words, size, SCALE)
    assert not source.left
    pairs = [
        uniform(word, extra)
        for word, extra in zip(pair_words, [first[0], second[0], first[1], second[1]], strict=True)
    ]
    refined = [uniform(word, extra) for word, extra in zip(lengths, longer, strict=True)]
    assert got.tolist() == ideal_vector(size, SCALE, refined, pairs)


@pytest.mark.parametrize("place", [0, 1])
def test_uniform_with_leading_zeros_is_refined(place: int) -> None:
    # In turn W, then U of the pair: 64 more zeros, then the bits that count.
    w, u = (0, 1 << 63) if place == 0 else (1 << 62, 0)
    if place == 0:
        # The pair is decided after the first words; the norm draws until it is.
        more, ws, us = [5, 0, 0, 9 << 58], [0, 9 << 58], [5]
    else:
        # The pair asks twice before it looks at the length, which then catches up.
        more, ws, us = [0, 0, 9 << 58, 0, 5, 6], [5, 6], [0, 9 << 58]
    source = Script([w, u, 0, *more])
    got = rounded_l2(source.words, 1, SCALE)
    assert not source.left
    assert got.tolist() == ideal_vector(1, SCALE, [uniform(w, *ws)], [uniform(u, *us), uniform(0)])


# The law of the draws.

COUNTS = {1: 5_000, 2: 5_000, 20: 5_000, 100: 1_200}


@pytest.fixture(scope="module")
def samples() -> dict[int, NDArray[np.float64]]:
    """Vectors of noise of scale 1, by size."""
    source = SeededNoise(9)
    drawn = {}
    for size, count in COUNTS.items():
        vectors = [rounded_l2(source.words, size, SCALE) for _ in range(count)]
        drawn[size] = np.array(vectors) / SCALE
        drawn[size].flags.writeable = False
    return drawn


def norm_p_value(vectors: NDArray[np.float64]) -> float:
    """Norms against Gamma(m): their whole law, and the sum, which sees a wrong scale best."""
    count, size = vectors.shape
    norms = np.linalg.norm(vectors, axis=1)
    law = stats.kstest(norms, stats.gamma(size).cdf, method="asymp").pvalue
    total = stats.gamma(size * count).cdf(norms.sum())
    return float(min(law, 2.0 * min(total, 1.0 - total)))


@pytest.mark.parametrize("size", COUNTS)
def test_norms_have_a_gamma_law(samples: dict[int, NDArray[np.float64]], size: int) -> None:
    assert norm_p_value(samples[size]) > SIGNIFICANCE
    error = 0.02 if size > 2 else 0.08
    for factor in (1.0 - error, 1.0 + error):
        assert norm_p_value(factor * samples[size]) < SIGNIFICANCE


@pytest.mark.parametrize("size", [1, 2, 3])
def test_the_definition_has_a_gamma_law_and_wrong_ones_have_not(size: int) -> None:
    # Draws agree with this definition one by one; here it is fast enough to see 2 %.
    rng = np.random.default_rng(10)
    normals = rng.standard_normal((200_000, size))

    def p_value(degrees: int) -> float:
        lengths = np.sqrt(rng.chisquare(degrees, (normals.shape[0], 1)))
        return norm_p_value(lengths * normals)

    right = np.sqrt(rng.chisquare(size + 1, (normals.shape[0], 1))) * normals
    assert norm_p_value(right) > SIGNIFICANCE
    for factor in (0.98, 1.02):
        assert norm_p_value(factor * right) < SIGNIFICANCE
    assert p_value(size) < SIGNIFICANCE
    assert p_value(size + 2) < SIGNIFICANCE


def test_one_coordinate_is_laplace(samples: dict[int, NDArray[np.float64]]) -> None:
    x = samples[1][:, 0]
    assert stats.kstest(x, "laplace", method="asymp").pvalue > SIGNIFICANCE
    assert stats.kstest(np.abs(x), "laplace", method="asymp").pvalue < SIGNIFICANCE


def test_directions_are_uniform_and_independent_of_the_norm(
    samples: dict[int, NDArray[np.float64]],
) -> None:
    angle = np.arctan2(samples[2][:, 1], samples[2][:, 0]) / (2.0 * math.pi) + 0.5
    assert stats.kstest(angle, "uniform", method="asymp").pvalue > SIGNIFICANCE
    squeezed = np.arctan2(1.6 * samples[2][:, 1], samples[2][:, 0]) / (2.0 * math.pi) + 0.5
    assert stats.kstest(squeezed, "uniform", method="asymp").pvalue < SIGNIFICANCE
    for size in (2, 20, 100):
        norms = np.linalg.norm(samples[size], axis=1)
        directions = samples[size] / norms[:, None]
        # A coordinate's square is Beta(1/2, (m - 1)/2) on the sphere.
        law = stats.beta(0.5, 0.5 * (size - 1)).cdf
        for square in (directions[:, 0] ** 2, directions[:, -1] ** 2):
            assert stats.kstest(square, law, method="asymp").pvalue > SIGNIFICANCE
            assert abs(np.corrcoef(square, norms)[0, 1]) < 4.5 / math.sqrt(COUNTS[size])
        moments = directions.T @ directions / COUNTS[size] * size
        assert np.abs(moments - np.eye(size)).max() < 5.5 * math.sqrt(2.0 / COUNTS[size])
        assert np.abs(directions.mean(axis=0)).max() < 5.0 / math.sqrt(size * COUNTS[size])


def test_low_bits_are_uniform(samples: dict[int, NDArray[np.float64]]) -> None:
    m = np.rint(samples[20].ravel() * SCALE).astype(np.int64)
    assert stats.chisquare(np.bincount(m & 255)).pvalue > SIGNIFICANCE


def test_a_long_vector() -> None:
    size = 100_000
    x = rounded_l2(SeededNoise(11).words, size, SCALE) / SCALE
    norm = float(np.linalg.norm(x))
    law = stats.gamma(size)
    assert SIGNIFICANCE < law.cdf(norm) < 1.0 - SIGNIFICANCE
    assert law.cdf(0.98 * norm) < SIGNIFICANCE
    assert law.sf(1.02 * norm) < SIGNIFICANCE
    z = x / (norm / math.sqrt(size))
    assert stats.kstest(z, "norm", method="asymp").pvalue > SIGNIFICANCE
    half = _exact_pairs._PAIRS_PER_BLOCK
    for a, b in ((z[:-1], z[1:]), (z[:-half], z[half:])):
        assert abs(np.corrcoef(a, b)[0, 1]) < 4.5 / math.sqrt(a.size)


# Laplace noise.


def test_laplace_draws_agree_with_mpmath() -> None:
    for scale in (1.0, 3.7, SCALE, math.nextafter(2.0**32, 0)):
        source = FixedRefinement(12, streamed=1)
        got = rounded_laplace(source.words, 1000, scale)
        with mpmath.workdps(120):
            for m, word in zip(got.tolist(), source.drawn[0], strict=True):
                x = -scale * mpmath.log(uniform(word, *[CONSTANTS[0]] * 2))
                assert m == (1 if word & 1 else -1) * int(mpmath.nint(x))


def test_later_bits_decide_a_laplace_draw_on_the_boundary() -> None:
    with mpmath.workdps(120):
        scale = float(
            -(BOUNDARY_HALF + mpmath.mpf(1) / 2) / mpmath.log(uniform(U_FIRST << 11, 1 << 63))
        )
        exact = mpmath.exp(-(BOUNDARY_HALF + mpmath.mpf(1) / 2) / mpmath.mpf(scale))
        bits = int(mpmath.floor(mpmath.ldexp(exact, 53 + 128)))
    assert bits >> 128 == U_FIRST
    second = bits >> 64 & ALL_ONES
    for sign in (1, -1):
        for more, magnitude in (
            ([0], BOUNDARY_HALF + 1),
            ([ALL_ONES], BOUNDARY_HALF),
            ([second, 0], BOUNDARY_HALF + 1),
            ([second, ALL_ONES], BOUNDARY_HALF),
        ):
            source = Script([U_FIRST << 11 | (sign > 0), *more])
            assert rounded_laplace(source.words, 1, scale).tolist() == [sign * magnitude]
            assert not source.left


def test_laplace_uniform_with_leading_zeros_is_refined() -> None:
    source = Script([0, 0, 5 << 58])
    (got,) = rounded_laplace(source.words, 1, SCALE).tolist()
    with mpmath.workdps(120):
        assert got == int(mpmath.nint(SCALE * mpmath.log(uniform(0, 0, 5 << 58))))
    assert not source.left


def test_laplace_draws_have_the_law() -> None:
    x = rounded_laplace(SeededNoise(13).words, 400_000, SCALE) / SCALE

    def p_value(z: NDArray[np.float64]) -> float:
        return float(stats.kstest(z, "laplace", method="asymp").pvalue)

    assert p_value(x) > SIGNIFICANCE
    assert p_value(0.98 * x) < SIGNIFICANCE
    assert p_value(1.02 * x) < SIGNIFICANCE
    for a, b in ((x[:-1], x[1:]), (np.sign(x), np.abs(x))):
        assert abs(np.corrcoef(a, b)[0, 1]) < 4.5 / math.sqrt(a.size)


def rounded_laplace_p_value(m: NDArray[np.int64], scale: float) -> float:
    edges = np.concatenate([[-np.inf], np.arange(-12.5, 13.0), [np.inf]])
    expected = np.diff(stats.laplace.cdf(edges / scale)) * m.size
    return float(stats.chisquare(np.histogram(m, edges)[0], expected).pvalue)


def test_laplace_on_a_coarse_grid_is_rounded_not_cut() -> None:
    m = rounded_laplace(SeededNoise(14).words, 400_000, 2.5)
    assert rounded_laplace_p_value(m, 2.5) > SIGNIFICANCE
    assert rounded_laplace_p_value(m, 2.5 * 1.02) < SIGNIFICANCE
    x = np.random.default_rng(14).laplace(scale=2.5, size=m.size)
    assert rounded_laplace_p_value(np.trunc(x).astype(np.int64), 2.5) < SIGNIFICANCE


# Privacy of the release: the exact law on a grid.


def cell_probability(m: Any, centre: int, scale: Any) -> Any:
    """Chance that an integer plus rounded Laplace noise is ``m``."""

    def below(x: Any) -> Any:
        tail = mpmath.exp(-abs(x) / scale) / 2
        return tail if x < 0 else 1 - tail

    offset = m - centre
    return below(offset + mpmath.mpf(1) / 2) - below(offset - mpmath.mpf(1) / 2)


def test_the_grid_belongs_into_the_sensitivity() -> None:
    # Neighbours that differ by a third of a cell, on either side of a rounding boundary.
    k, scale, sensitivity = -2, 1.0, 1.0 / 12.0
    low, high = 0.125 - sensitivity / 2, 0.125 + sensitivity / 2
    for add in (add_l2_noise, add_laplace):
        cells = [int(add(value, scale, k, SilentNoise()) * 4) for value in (low, high)]
        assert cells == [0, 1]
    with mpmath.workdps(40):
        loss = max(
            abs(mpmath.log(cell_probability(m, 0, 4.0) / cell_probability(m, 1, 4.0)))
            for m in range(-60, 60)
        )
        assert loss > 1.5 * sensitivity / scale
        assert 0.9 * loss < (sensitivity + grid_sensitivity(1, k)) / scale
        assert loss <= (sensitivity + grid_sensitivity(1, k)) / scale


# Released values.

BOTH = pytest.mark.parametrize("add", [add_l2_noise, add_laplace])


@BOTH
@pytest.mark.parametrize("scale", [1e-290, 3e-5, 1.0, 1e9, 1e280])
def test_released_value_is_value_plus_noise_exactly(add: Add, scale: float) -> None:
    k = granularity_exponent(scale)
    value = np.random.default_rng(16).normal(size=(40, 3)) * scale * 1e6
    got = add(value, scale, k, SeededNoise(17))
    rounded = rounded_l2 if add is add_l2_noise else rounded_laplace
    m = rounded(SeededNoise(17).words, 120, math.ldexp(scale, -k))
    for y, v, noise in zip(got.ravel(), value.ravel(), m, strict=True):
        cells = math.ldexp(float(y), -k)
        assert cells == int(cells)
        assert int(cells) == round(math.ldexp(float(v), -k)) + int(noise)


@BOTH
def test_shape_and_dtype_of_the_result(add: Add) -> None:
    for value in (1.0, np.float32(2.0), [1, 2], np.zeros((0, 3)), np.ones((2, 2), np.float32)):
        got = add(value, 1.0, -24, SystemNoise())
        assert isinstance(got, np.ndarray)
        assert got.dtype == np.float64
        assert got.shape == np.shape(value)


@BOTH
def test_values_are_snapped_half_to_even(add: Add) -> None:
    cell = 2.0**-10
    value = np.array([0.5, 1.5, 2.5, -0.5, -1.5, 0.49, -7.0, 2.0**40, 1e-320]) * cell
    got = add(value, cell, -10, SilentNoise())
    np.testing.assert_array_equal(got / cell, [0, 2, 2, 0, -2, 0, -7, 2.0**40, 0])


@BOTH
@pytest.mark.parametrize("k", [-1074, -24, 0, 970])
def test_values_up_to_the_limit_are_released_and_beyond_refused(add: Add, k: int) -> None:
    limit, scale = grid_limit(k), math.ldexp(1.0, k + 3)
    largest = math.nextafter(limit, 0.0)
    for sign in (-1.0, 1.0):
        assert abs(add(sign * largest, scale, k, SystemNoise())) > limit / 2
        for too_large in (limit, 2.0 * limit):
            with pytest.raises(OverflowError, match=r"2\^52 cells"):
                add([0.0, sign * too_large], scale, k, SystemNoise())


@BOTH
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_values_that_are_not_finite_are_refused(add: Add, bad: float) -> None:
    with pytest.raises(ValueError, match="value must be finite"):
        add([0.0, bad], 1.0, -24, SystemNoise())


@BOTH
@pytest.mark.parametrize("scale", [0.0, -1.0, math.nan, math.inf, 2.0**-25, 2.0**8])
def test_scale_out_of_range_of_the_grid_is_refused(add: Add, scale: float) -> None:
    with pytest.raises(ValueError, match="scale"):
        add([1.0], scale, -24, SystemNoise())


@BOTH
@pytest.mark.parametrize("k", [-1075, 971, 0.5, True])
def test_exponent_out_of_range_is_refused(add: Add, k: Any) -> None:
    with pytest.raises(ValueError, match="granularity_exponent"):
        add([1.0], 1.0, k, SystemNoise())


@BOTH
def test_noise_is_fresh_in_every_coordinate_and_call(add: Add) -> None:
    source = SystemNoise()
    drawn = np.concatenate([add(np.zeros(50), 1.0, -24, source) for _ in range(40)])
    # 2000 draws of some 2^25 likely values: a few may agree by chance.
    assert np.unique(drawn).size > 1990


def test_the_bounds_of_the_fast_path_are_not_vacuous() -> None:
    # Refinement is rare where noise is drawn in earnest.
    source = FixedRefinement(18)
    rounded_l2(source.words, 1000, SCALE)
    assert source.refinements <= 4
    assert _exact_pairs._Length(SeededNoise(19).words, 1000).error < 2.0**11 * CELL
