from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from dpglm.privacy.noise import NoiseSource, SeededNoise, SystemNoise
from dpglm.privacy.noise.exact import FUNCTION_ERROR, coins, uniform_indices
from dpglm.privacy.selection import choices
from dpglm.privacy.selection.choices import (
    exponential_mechanism,
    generalized_exponential_mechanism,
    generalized_scores,
    permute_and_flip,
)
from tests.privacy.noise.support import Script

SIGNIFICANCE = 1e-4
ALL_ONES = 2**64 - 1
EPSILONS = (2.0**-30, 1e-3, 0.5, 1.0, 7.3, 40.0)

Law = Callable[[NDArray[np.float64]], list[Fraction]]
Mechanism = Callable[[Any, float, float, NoiseSource], int]


def pack(values: Sequence[int]) -> list[int]:
    """Words made of the given bytes."""
    padded = np.zeros(-(-len(values) // 8) * 8, dtype=np.uint8)
    padded[: len(values)] = values
    return [int(word) for word in padded.view(np.uint64)]


# Coins and indices, bit by bit.


@pytest.mark.parametrize("numerator", [0, 1, 255, 256, 257, 12345, 65535, 65536])
def test_coins_have_exactly_their_probability(numerator: int) -> None:
    # Over all strings of two bytes, exactly p * 65536 lead to heads.
    p = np.full(256, numerator / 65536)
    heads = 0
    for second in range(256):
        source = Script([*pack(range(256)), *pack([second])])
        heads += int(coins(source.words, p.size, p).sum())
    assert heads == numerator


def test_coins_compare_with_every_bit_of_the_probability() -> None:
    rng = np.random.default_rng(0)
    for p in [*rng.random(20), *np.exp(-rng.uniform(0, 700, 20)), math.exp(-700), 1 - 2.0**-53]:
        length = next(n for n in itertools.count() if (Fraction(p) * 256**n).denominator == 1)
        target = int(Fraction(p) * 256**length)
        for drawn in {max(target - 1, 0), target, min(target + 1, 256**length - 1)}:
            # One byte in each word: the coin looks at the next when all so far agree.
            source = Script(drawn.to_bytes(length, "big"))
            assert coins(source.words, 1, p).tolist() == [drawn < target]


def test_each_coin_has_its_own_probability() -> None:
    p = np.array([0.0, 1.0, 0.5, 2.0**-10, 0.9])
    counts = coins(SeededNoise(1).words, 200_000, np.tile(p, 40_000)).reshape(-1, 5).sum(axis=0)
    for count, chance in zip(counts.tolist(), p.tolist(), strict=True):
        assert stats.binomtest(count, 40_000, chance).pvalue > SIGNIFICANCE
    assert stats.binomtest(int(counts[4]), 40_000, 0.89).pvalue < SIGNIFICANCE


def test_coins_are_independent() -> None:
    heads = coins(SeededNoise(2).words, 240_000, 0.3).reshape(-1, 3)
    counts = np.bincount(heads @ np.array([1, 2, 4]), minlength=8)
    ones = np.array([code.bit_count() for code in range(8)])
    expected = 0.3**ones * 0.7 ** (3 - ones) * 80_000
    assert stats.chisquare(counts, expected).pvalue > SIGNIFICANCE


def test_indices_are_uniform_and_below_the_size() -> None:
    # Every string of three bits once: each index once, and three strings are rejected.
    assert uniform_indices(Script(range(8)).words, 8, 5).tolist() == [0, 1, 2, 3, 4]
    assert uniform_indices(Script([2**63 + 4]).words, 1, 5).tolist() == [4]
    assert uniform_indices(Script([5, 6, 7]).words, 3, 5).size == 0
    assert uniform_indices(Script([ALL_ONES]).words, 1, 1).tolist() == [0]
    assert uniform_indices(Script([ALL_ONES]).words, 1, 2**62).tolist() == [2**62 - 1]
    counts = np.bincount(uniform_indices(SeededNoise(3).words, 50_000, 11), minlength=11)
    assert counts.size == 11
    assert counts.sum() > 25_000
    assert stats.chisquare(counts).pvalue > SIGNIFICANCE


# The assumption of the proof.


def test_exp_error_is_far_within_the_assumed_bound() -> None:
    rng = np.random.default_rng(4)
    x = -np.concatenate([rng.uniform(0, 700, 3000), 2.0 ** rng.uniform(-60, 9, 1000), [700.0]])
    with mpmath.workprec(140):
        exact = [mpmath.exp(mpmath.mpf(float(value))) for value in x]
        # Long arrays, short ones and strided ones take different loops inside NumPy.
        ways = (
            np.exp(x),
            np.exp(np.repeat(x, 2)[::2]),
            [np.exp(x[i : i + 1])[0] for i in range(x.size)],
        )
        for way in ways:
            for got, value in zip(way, exact, strict=True):
                assert abs(mpmath.mpf(float(got)) / value - 1) <= FUNCTION_ERROR / 4
                assert got <= 1.0
    for size in (1, 3, 1000):
        assert (np.exp(-np.zeros(size)) == 1.0).all()


# Laws, computed from the probabilities in use, exactly.


def exponential_law(p: NDArray[np.float64]) -> list[Fraction]:
    exact = [Fraction(float(value)) for value in p]
    return [value / sum(exact) for value in exact]


def flip_law(p: NDArray[np.float64]) -> list[Fraction]:
    """Uniform among heads: the integral over x in [0, 1] of p[r] prod (1 - p[s] x), s not r."""
    exact = [Fraction(float(value)) for value in p]
    law = []
    for r, chance in enumerate(exact):
        polynomial = [Fraction(1)]
        for s, other in enumerate(exact):
            if s != r:
                shifted = [Fraction(0), *polynomial]
                polynomial = [
                    a - other * b for a, b in zip([*polynomial, Fraction(0)], shifted, strict=True)
                ]
        law.append(chance * sum(c / (j + 1) for j, c in enumerate(polynomial)))
    return law


def sequential_flip_law(p: NDArray[np.float64]) -> list[Fraction]:
    """The definition: in random order, flip until the first coin that comes up heads."""
    exact = [Fraction(float(value)) for value in p]
    law = [Fraction(0)] * len(exact)
    orders = list(itertools.permutations(range(len(exact))))
    for order in orders:
        missed = Fraction(1, len(orders))
        for r in order:
            law[r] += missed * exact[r]
            missed *= 1 - exact[r]
    return law


def test_uniform_among_heads_is_permute_and_flip() -> None:
    p = np.array([0.3, 1.0, 1e-9, 0.999, 0.3])
    assert flip_law(p) == sequential_flip_law(p)
    assert sum(flip_law(p)) == 1


def log_ratios(law: list[Fraction], other: list[Fraction]) -> list[Any]:
    ratios = [a / b for a, b in zip(law, other, strict=True)]
    return [mpmath.log(mpmath.mpf(ratio.numerator) / ratio.denominator) for ratio in ratios]


def loss_and_range(
    law: Law, scores: Any, moved: Any, sensitivity: float, epsilon: float
) -> tuple[Any, Any]:
    """Greatest log-ratio either way, and the length of the interval of all of them and 0."""
    first = law(choices._probabilities(scores, sensitivity, epsilon))
    second = law(choices._probabilities(moved, sensitivity, epsilon))
    ratios = [mpmath.mpf(0), *log_ratios(first, second)]
    return max(abs(ratio) for ratio in ratios), max(ratios) - min(ratios)


def distance(scores: NDArray[np.float64], moved: NDArray[np.float64]) -> float:
    """Largest move of a score, exact and then rounded up."""
    pairs = zip(scores.tolist(), moved.tolist(), strict=True)
    exact = max(abs(Fraction(a) - Fraction(b)) for a, b in pairs)
    near = float(exact)
    return near if Fraction(near) >= exact else math.nextafter(near, math.inf)


def neighbours() -> Iterable[tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """Pairs of score vectors: random ones, and the worst, where all others move against one."""
    rng = np.random.default_rng(5)
    for k, spread, offset in itertools.product((2, 3, 6), (0.3, 10.0, 300.0), (0.0, 1e6, -1e12)):
        scores = offset + spread * rng.random(k)
        yield scores, scores + rng.uniform(-1, 1, k)
        yield scores, scores + rng.choice([-1.0, 1.0], k)
        worst = np.full(k, -1.0)
        worst[int(rng.integers(k))] = 1.0
        yield scores, scores + worst


@pytest.fixture
def digits() -> Iterable[None]:
    with mpmath.workdps(60):
        yield


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.usefixtures("digits")
def test_no_neighbour_reaches_epsilon(epsilon: float) -> None:
    greatest = mpmath.mpf(0)
    for scores, moved in neighbours():
        # Exponents beyond the clamp are met too: rounding is greatest there.
        for unit in (1.0, epsilon / 3000.0):
            a, b = scores * unit, moved * unit
            sensitivity = distance(a, b)
            loss, length = loss_and_range(exponential_law, a, b, sensitivity, epsilon)
            assert loss <= length <= epsilon
            assert loss_and_range(flip_law, a, b, sensitivity, epsilon)[0] <= epsilon
            greatest = max(greatest, length)
    # The bound is reached, up to the cost of rounding.
    assert greatest >= epsilon * (1 - 2.0**-45) - 2.0**-38


@pytest.mark.parametrize("law", [exponential_law, flip_law])
@pytest.mark.usefixtures("digits")
def test_worst_neighbour_is_close_and_bugs_are_detected(law: Law) -> None:
    epsilon, rare = 1.0, 30.0
    scores = np.array([rare, 0.0, 5.0])
    moved = scores + np.array([1.0, -1.0, -1.0])
    assert 0.999 * epsilon < loss_and_range(law, scores, moved, 1.0, epsilon)[0] <= epsilon
    # Half of the sensitivity, or the factor 2 in the exponent forgotten.
    assert loss_and_range(law, scores, moved, 0.5, epsilon)[0] > 1.9 * epsilon
    # The scores' own rounding left out: the floats moved by more than is declared.
    shifted = scores + 1e12
    apart = moved + 1e12 + np.array([2e-4, -2e-4, -2e-4])
    assert distance(shifted, apart) > 1.0
    assert loss_and_range(law, shifted, apart, 1.0, epsilon)[0] > epsilon


@pytest.mark.usefixtures("digits")
def test_rounding_costs_epsilon_when_nothing_is_set_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    def excess() -> Any:
        rng = np.random.default_rng(6)
        worst = mpmath.mpf(-1)
        for low in rng.uniform(100, 300, 40):
            scores = np.array([2 * low, 0.0])
            moved = scores + np.array([1.0, -1.0])
            sensitivity = distance(scores, moved)
            worst = max(worst, loss_and_range(exponential_law, scores, moved, sensitivity, 2.0)[0])
        return worst - 2

    assert excess() <= 0
    monkeypatch.setattr(choices, "_ROUNDING", 0.0)
    monkeypatch.setattr(choices, "_RATE_ROUNDING", 0.0)
    assert excess() > 0


@pytest.mark.usefixtures("digits")
def test_scores_that_move_to_one_side_need_half_the_sensitivity() -> None:
    for scores, moved in neighbours():
        raised = scores + (moved - scores + 1.0) / 2.0
        half = max(0.5 * distance(scores, raised), 1e-9)
        loss, length = loss_and_range(exponential_law, scores, raised, half, 1.0)
        assert loss <= length <= 1.0
        assert loss_and_range(flip_law, scores, raised, half, 1.0)[0] <= 1.0
    # Scores that move to both sides need all of it.
    both = loss_and_range(exponential_law, [30.0, 0.0], [31.0, -1.0], 0.5, 1.0)
    assert both[0] > 1.9


@pytest.mark.usefixtures("digits")
def test_scores_at_the_ends_of_the_floats_are_defined() -> None:
    largest = np.finfo(np.float64).max
    for scores in ([-largest, largest, 0.0], [5e-324, 0.0, 1e-300], [0.0] * 3):
        for sensitivity in (2.0**-500, 1.0, 2.0**500):
            for epsilon in (2.0**-30, 2.0**30):
                p = choices._probabilities(scores, sensitivity, epsilon)
                assert p.max() == 1.0
                assert p.min() >= math.exp(-700.001)
    spread = choices._probabilities([-largest, largest, 0.0], 1.0, 1.0)
    assert spread[0] == 1.0
    assert spread[1] == spread[2] == math.exp(-700)


# Draws follow these laws.


def counts_of(mechanism: Mechanism, scores: Any, epsilon: float, repeats: int) -> NDArray[np.int64]:
    source = SeededNoise(7)
    drawn = [mechanism(scores, 1.0, epsilon, source) for _ in range(repeats)]
    return np.bincount(drawn, minlength=len(scores))


def all_within(counts: NDArray[np.int64], law: list[Fraction]) -> bool:
    """Whether every frequency's Clopper-Pearson interval holds its probability."""
    total = int(counts.sum())
    return all(
        bool(
            stats.binomtest(int(count), total).proportion_ci(1 - SIGNIFICANCE).low
            <= chance
            <= stats.binomtest(int(count), total).proportion_ci(1 - SIGNIFICANCE).high
        )
        for count, chance in zip(counts, map(float, law), strict=True)
    )


@pytest.mark.parametrize(
    ("mechanism", "law"),
    [(exponential_mechanism, exponential_law), (permute_and_flip, flip_law)],
    ids=["exponential", "flip"],
)
@pytest.mark.parametrize("scores", [[0.0, 1.0], [3.0, 1.0, 1.5]], ids=["two", "three"])
def test_frequencies_are_those_of_the_law(mechanism: Mechanism, law: Law, scores: Any) -> None:
    counts = counts_of(mechanism, scores, 2.0, 12_000)
    assert all_within(counts, law(choices._probabilities(scores, 1.0, 2.0)))
    # The factor 2 in the exponent forgotten, or one too many.
    assert not all_within(counts, law(choices._probabilities(scores, 0.5, 2.0)))
    assert not all_within(counts, law(choices._probabilities(scores, 2.0, 2.0)))
    other = flip_law if law is exponential_law else exponential_law
    assert not all_within(counts, other(choices._probabilities(scores, 1.0, 2.0)))


def test_the_two_mechanisms_differ_as_they_should() -> None:
    p = choices._probabilities([0.0, 1.0, 1.0, 4.0], 1.0, 2.0)
    scores = [0, 1, 1, 4]
    flip = sum(q * chance for q, chance in zip(scores, flip_law(p), strict=True))
    assert flip < sum(q * chance for q, chance in zip(scores, exponential_law(p), strict=True))


def test_the_first_accepted_proposal_is_returned() -> None:
    # Proposals 1, 0, 2, 2, ...; candidate 1 is refused (255 is above its digit), 0 accepted.
    proposals = [1, 0] + [2] * 62
    refused, accepted = 255, 0
    words = [*proposals, *pack([refused, accepted] + [accepted] * 62)]
    source = Script(words)
    assert exponential_mechanism([0.5, 1.0, 0.0], 1.0, 1.0, source) == 0
    assert not source.left


def test_proposals_go_on_until_one_is_accepted() -> None:
    refused = [255] * 64
    words = [*[1] * 64, *pack(refused), *[1] * 127, 0, *pack([255] * 127 + [0])]
    assert exponential_mechanism([0.0, 1.0], 1.0, 1.0, Script(words)) == 0


def test_a_draw_among_heads_is_repeated_until_it_is_one_of_them() -> None:
    # Three heads, so two bits; 3 is not an index.
    assert permute_and_flip([0.0, 0.0, 0.0], 1.0, 1.0, Script([*pack([0] * 3), 3, 2])) == 2


@pytest.mark.parametrize("mechanism", [exponential_mechanism, permute_and_flip])
def test_one_candidate_and_a_million(mechanism: Mechanism) -> None:
    source = SystemNoise()
    assert mechanism([3.0], 1.0, 1.0, source) == 0
    scores = np.full(1_000_000, 1e3)
    scores[765_432] = 0.0
    # The others together have a chance of 1e6 exp(-500).
    assert mechanism(scores, 1.0, 1.0, source) == 765_432
    equal = {mechanism(np.zeros(1_000_000), 1.0, 1.0, source) for _ in range(3)}
    assert len(equal) > 1


@pytest.mark.parametrize("mechanism", [exponential_mechanism, permute_and_flip])
@pytest.mark.parametrize("scores", [[], [[1.0]], 1.0, [math.nan, 1.0], [math.inf], [-math.inf, 0]])
def test_bad_scores_are_refused(mechanism: Mechanism, scores: Any) -> None:
    with pytest.raises(ValueError, match="scores"):
        mechanism(scores, 1.0, 1.0, SystemNoise())


@pytest.mark.parametrize("mechanism", [exponential_mechanism, permute_and_flip])
@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf, 1e-200, 1e200])
def test_bad_sensitivity_and_epsilon_are_refused(mechanism: Mechanism, bad: float) -> None:
    with pytest.raises(ValueError, match="sensitivity"):
        mechanism([0.0], bad, 1.0, SystemNoise())
    with pytest.raises(ValueError, match="epsilon"):
        mechanism([0.0], 1.0, bad, SystemNoise())


def test_errors_do_not_show_scores() -> None:
    with pytest.raises(ValueError, match="finite") as caught:
        exponential_mechanism([123.456, math.nan], 1.0, 1.0, SystemNoise())
    assert "123" not in str(caught.value)


# Generalized scores.


def formula(q: Any, d: Any, epsilon: float, failure: float) -> list[Any]:
    """Definition of the generalized scores at high precision, without cut."""
    q, d = [mpmath.mpf(float(v)) for v in q], [mpmath.mpf(float(v)) for v in d]
    t = 2 * mpmath.log(len(q) / mpmath.mpf(failure)) / epsilon
    pairs = range(len(q))
    return [
        max(
            ((q[j] + t * d[j]) - (q[k] + t * d[k])) / (d[j] + d[k]) if j != k else mpmath.mpf(0)
            for k in pairs
        )
        for j in pairs
    ]


@pytest.mark.usefixtures("digits")
def test_generalized_scores_follow_the_definition() -> None:
    rng = np.random.default_rng(8)
    for k in (1, 2, 7):
        for epsilon, failure in ((0.1, 0.05), (3.0, 1e-9)):
            q, d = rng.normal(size=k), 2.0 ** rng.uniform(-6, 2, k)
            d[0] = 0.0
            got = generalized_scores(q, d, epsilon, failure)
            want = [min(s, 1400 / mpmath.mpf(epsilon)) for s in formula(q, d, epsilon, failure)]
            np.testing.assert_allclose(got, np.array(want, dtype=np.float64), rtol=1e-9, atol=1e-9)
            assert got.min() == 0.0


def worst_move(
    scores: Callable[..., NDArray[np.float64]], epsilon: float, repeats: int
) -> Fraction:
    """Largest move of a generalized score, exact, over neighbours that move by sensitivities."""
    rng = np.random.default_rng(9)
    worst = Fraction(0)
    for _ in range(repeats):
        k = int(rng.integers(2, 7))
        q = rng.choice([1.0, 1e5]) + rng.normal(size=k) * rng.choice([0.1, 1.0, 30.0])
        signs = rng.choice([-1.0, 1.0], k)
        moved = q + signs * 2.0 ** rng.uniform(-8, 1, k)
        d = np.array([distance(q[j : j + 1], moved[j : j + 1]) for j in range(k)])
        a, b = scores(q, d, epsilon, 0.1), scores(moved, d, epsilon, 0.1)
        for s, t in zip(a.tolist(), b.tolist(), strict=True):
            worst = max(worst, abs(Fraction(s) - Fraction(t)))
    return worst


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1.0, 5.0])
def test_generalized_scores_have_sensitivity_one(
    epsilon: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    worst = worst_move(generalized_scores, epsilon, 300)
    assert 1 - Fraction(2.0**-34 / epsilon) <= worst <= 1

    # Nothing set aside for rounding.
    monkeypatch.setattr(choices, "_SCORE_ROUNDING", 0.0)
    monkeypatch.setattr(choices, "_SCALE_ROUNDING", 0.0)
    assert worst_move(generalized_scores, epsilon, 300) > 1

    def one_sensitivity_forgotten(q: Any, d: Any, eps: float, failure: float) -> Any:
        t = 2.0 * math.log(len(q) / failure) / eps
        return ((q + t * d)[:, None] - (q + t * d)[None, :]).max(axis=1) / d

    assert worst_move(one_sensitivity_forgotten, epsilon, 20) > 1.5


def test_scores_far_apart_are_cut() -> None:
    largest = np.finfo(np.float64).max
    got = generalized_scores([largest, -largest, 0.0], [1.0, 2.0**-500, 0.0], 0.5, 0.1)
    np.testing.assert_allclose(got, [2800.0, 0.0, 2800.0])


@pytest.mark.usefixtures("digits")
def test_the_generalized_mechanism_never_passes_epsilon() -> None:
    rng = np.random.default_rng(10)
    epsilon, greatest = 0.8, mpmath.mpf(0)
    for _ in range(200):
        k = int(rng.integers(2, 6))
        d = 2.0 ** np.round(rng.uniform(-5, 2, k))
        q = np.round(rng.normal(size=k) * 40.0, 3)
        q = np.ldexp(np.rint(np.ldexp(q, 10)), -10)
        moved = q + rng.choice([-1.0, 1.0], k) * d
        a, b = (generalized_scores(v, d, epsilon, 0.1) for v in (q, moved))
        greatest = max(greatest, loss_and_range(exponential_law, a, b, 1.0, epsilon)[1])
    assert 0.9 * epsilon < greatest <= epsilon


def test_the_generalized_mechanism_is_as_accurate_as_promised() -> None:
    rng = np.random.default_rng(11)
    q, d = rng.random(20) + 0.5, 2.0 ** -rng.uniform(0, 12, 20)
    epsilon, failure = 1.0, 0.2
    bound = (q + 4.0 * d * math.log(20 / failure) / epsilon).min()
    source = SeededNoise(12)
    drawn = [generalized_exponential_mechanism(q, d, epsilon, failure, source) for _ in range(500)]
    assert np.mean(q[drawn] > bound) <= failure
    # One sensitivity for all, the largest, promises less.
    assert bound < q.min() + 4.0 * d.max() * math.log(20 / failure) / epsilon


def test_generalized_mechanism_is_exponential_on_its_scores() -> None:
    q, d = [0.3, 0.1, 0.2], [0.01, 0.2, 0.1]
    scores = generalized_scores(q, d, 2.0, 0.1)
    for seed in range(50):
        got = generalized_exponential_mechanism(q, d, 2.0, 0.1, SeededNoise(seed))
        assert got == exponential_mechanism(scores, 1.0, 2.0, SeededNoise(seed))


@pytest.mark.parametrize(
    ("scores", "sensitivities", "epsilon", "failure", "name"),
    [
        ([0.0, math.nan], [1.0, 1.0], 1.0, 0.1, "scores"),
        ([], [], 1.0, 0.1, "scores"),
        ([0.0, 1.0], [1.0], 1.0, 0.1, "sensitivities"),
        ([0.0, 1.0], [0.0, 0.0], 1.0, 0.1, "sensitivities"),
        ([0.0, 1.0], [1.0, -1.0], 1.0, 0.1, "sensitivities"),
        ([0.0, 1.0], [1.0, 1e-200], 1.0, 0.1, "sensitivities"),
        ([0.0, 1.0], [1.0, math.inf], 1.0, 0.1, "sensitivities"),
        ([0.0, 1.0], [1.0, 1.0], 0.0, 0.1, "epsilon"),
        ([0.0, 1.0], [1.0, 1.0], 1.0, 0.0, "failure"),
        ([0.0, 1.0], [1.0, 1.0], 1.0, 1.0, "failure"),
    ],
)
def test_bad_arguments_of_generalized_scores_are_refused(
    scores: Any, sensitivities: Any, epsilon: float, failure: float, name: str
) -> None:
    with pytest.raises(ValueError, match=name):
        generalized_scores(scores, sensitivities, epsilon, failure)
