"""Bounds on the rounding of convolutions, against convolutions term by term in long double."""

import dataclasses
import math

import numpy as np
import pytest

from dpglm.privacy.accounting import convolution as tilted_sums
from dpglm.privacy.accounting.convolution import Lattice, LossPart, Mixture, tilt

pytestmark = pytest.mark.skipif(
    np.finfo(np.longdouble).eps > 1e-18, reason="long double has no more digits than double here"
)
# Relative errors of masses, which accounts for delta add elsewhere.
SLACK = 1e-9


def lattice(width, losses, count, nothing=0.0):
    """Losses on a grid with masses that fall fast, and 0 with the mass ``nothing``, if any."""
    points = np.arange(*losses, dtype=np.int64)
    probs = np.exp(-0.5 * (points - points.mean()) ** 2 / (0.1 * points.size) ** 2)
    probs *= (1.0 - nothing) / probs.sum()
    if nothing:
        points, probs = np.append(0, points), np.append(nothing, probs)
    return Lattice(
        width, points, width * points, np.log(probs), 0.0, count, 0.0, has_nothing=nothing > 0.0
    )


def window(lattices):
    low = sum(one.count * one.losses.min() for one in lattices)
    return low, sum(one.count * one.losses.max() for one in lattices)


def sums(lattices, theta):
    """Law of the sum of all losses, from the same tilted masses as the code's: first point, law."""
    first, total = 0, np.ones(1, dtype=np.longdouble)
    for one in lattices:
        weights = tilt(one, theta)[0].astype(np.longdouble)
        single = np.zeros(np.ptp(one.points) + 1, dtype=np.longdouble)
        np.add.at(single, one.points - one.points.min(), weights)
        for _ in range(one.count):
            total = np.convolve(total, single)
        first += one.count * int(one.points.min())
    return first, total


def moved(losses, masses, width, theta):
    """Split each mass between the ends of its cell, so that its P- and Q-mass are kept."""
    cells = np.floor(losses / width).astype(np.int64)
    total = np.zeros(np.ptp(cells) + 2, dtype=np.longdouble)
    for loss, mass, cell in zip(losses, masses.astype(np.longdouble), cells, strict=True):
        gap = np.longdouble(loss) - cell * np.longdouble(width)
        share = np.expm1(-gap) / np.expm1(-np.longdouble(width))
        total[cell - cells.min()] += mass * (1.0 - share) * np.exp(-theta * gap)
        total[cell - cells.min() + 1] += mass * share * np.exp(theta * (width - gap))
    return int(cells.min()), total


def exact(before, lattices, theta):
    """What ``plus`` adds on the wider grid, without any rounding, as a function of the point."""
    width = lattices[0].width
    start, law = sums(lattices, theta)
    if all(one.has_nothing for one in lattices):
        usual = math.prod(float(tilt(one, theta)[0][0]) ** one.count for one in lattices)
        law[-start] -= usual if usual > tilted_sums._USUAL else 0.0
    first, total = moved(before.losses, before.masses, width, theta)
    return first + start, np.convolve(total, law)


def holds(part, first, masses):
    """Whether all errors above each point are together within the bound on them."""
    points = np.rint(part.losses / (part.losses[1] - part.losses[0])).astype(np.int64)
    true = np.zeros(points.size, dtype=np.longdouble)
    inside = (points >= first) & (points < first + masses.size)
    true[inside] = masses[points[inside] - first]
    errors = np.abs(part.masses - true)[::-1].cumsum()[::-1]
    above = true[::-1].cumsum()[::-1]
    bounds = [part.error_above(loss) for loss in part.losses[:-1]]
    return bool(np.all(errors[1:] <= np.array(bounds) + SLACK * above[1:]))


CASES = {
    "usual": ([lattice(0.1, (-20, 21), 6)], 3.0),
    "two kinds": ([lattice(0.1, (-20, 21), 6), lattice(0.1, (-9, 30), 2)], 8.0),
    "rare": ([lattice(0.1, (2, 40), 6, nothing=0.97)], 1.0),
    "rare, few points": ([lattice(0.1, (2, 12), 9, nothing=0.97)], 2.0),
    "two rare": ([lattice(0.1, (2, 12), 9, 0.97), lattice(0.1, (5, 30), 3, 0.9)], 2.0),
}


@pytest.mark.parametrize("case", CASES)
def test_rounding_is_within_its_bound(case, monkeypatch):
    lattices, theta = CASES[case]

    def found():
        return Mixture.nothing(theta).plus(lattices, window(lattices)).parts[-1]

    part = found()
    first, masses = exact(Mixture.nothing(theta).parts[0], lattices, theta)
    assert holds(part, first, masses)
    assert part.error < 1e-11
    # The planted bug: a unit of roundoff that is far too small.
    monkeypatch.setattr(tilted_sums, "UNIT_ROUNDOFF", 1e-22)
    assert not holds(found(), first, masses)


def wrong(place, size):
    """A partial sum on a fine grid, and one with an error of the stated size at one place."""
    losses = 0.01 * np.arange(-150.0, 151.0)
    masses = np.exp(-0.5 * (losses / 0.3) ** 2)
    right = LossPart(losses, masses / masses.sum(), 0.0, 0.0)
    other = right.masses.copy()
    other[place] += size
    return right, dataclasses.replace(right, masses=other, error=size)


@pytest.mark.parametrize("place", [0, 150, -1])
@pytest.mark.parametrize("theta", [0.5, 4.0])
def test_former_violations_are_within_bounds(place, theta):
    wide = [lattice(0.7, (-8, 9), 3)]
    right, other = wrong(place, 1e-6)
    (part,) = Mixture(theta, (other,)).plus(wide, window(wide)).parts
    first, masses = exact(right, wide, theta)
    assert holds(part, first, masses)
    assert not holds(dataclasses.replace(part, inherited=0.0), first, masses)
    if place == -1:
        # An error at the top exceeds most of the other values.
        assert not holds(dataclasses.replace(part, blur=0.0), first, masses)
        assert not holds(dataclasses.replace(part, relative=0.0), first, masses)
    if theta == 4.0 and place != 150:
        # Away from points of the wider grid it grows by the tilt.
        assert not holds(dataclasses.replace(part, inherited=1e-6), first, masses)


def test_bias_is_small_far_above_most_losses():
    wide = [lattice(0.7, (-8, 9), 3)]
    (part,) = Mixture(0.5, (wrong(150, 1e-6)[1],)).plus(wide, window(wide)).parts
    far = float(part.losses[np.flatnonzero(np.cumsum(part.masses[::-1])[::-1] > 1e-12)[-1]])
    assert part.error_above(far) < 0.1 * part.inherited


def test_values_off_the_grid_stay_beyond():
    wide = [lattice(0.7, (-8, 9), 3)]
    right, _ = wrong(0, 0.0)
    before = dataclasses.replace(right, beyond=1e-7)
    (part,) = Mixture(1.0, (before,)).plus(wide, window(wide)).parts
    assert part.beyond >= 1e-7
    assert part.error_above(float(part.losses[-1])) == part.beyond
