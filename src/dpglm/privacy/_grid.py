"""The grid on which values and their noise are added without rounding."""

from __future__ import annotations

import math

from dpglm._validation import check_integer, check_real

__all__ = ["cells_per_std", "granularity_exponent", "grid_limit", "grid_sensitivity"]

# Every multiple m * 2^k with |m| <= 2^53 is a float64, and 2^(52 + k) has no overflow.
_LEAST_EXPONENT, _GREATEST_EXPONENT = -1074, 970
_LEAST_CELLS_LOG2, _GREATEST_CELLS_LOG2 = 0, 32
_CELLS_LOG2 = 24


def granularity_exponent(std: float) -> int:
    """Exponent ``k`` of the grid ``2**k`` that suits noise of a standard deviation.

    Parameters
    ----------
    std : float
        Standard deviation of the noise, above 0; from 2^-1050 to below 2^995.

    Returns
    -------
    int
        ``floor(log2(std)) - 24``, so that ``std`` is 2^24 to 2^25 cells.

    Raises
    ------
    ValueError
        If ``std`` is out of range.

    Notes
    -----
    Privacy: depends on the public ``std`` only.

    Examples
    --------
    >>> granularity_exponent(1.0), granularity_exponent(0.75)
    (-24, -25)
    """
    std = check_real("std", std, above=0.0, least=2.0**-1050, below=2.0**995)
    return math.frexp(std)[1] - 1 - _CELLS_LOG2


def grid_sensitivity(size: int, granularity_exponent: int) -> float:
    """Bound what snapping to the grid adds to the L2 distance between two vectors.

    Parameters
    ----------
    size : int
        Number of coordinates, at least 0.
    granularity_exponent : int
        ``k``, from -1074 to 970.

    Returns
    -------
    float
        ``sqrt(size) * 2**k``, rounded up.

    Notes
    -----
    Privacy: add this to the sensitivity of what ``add_gaussian`` releases. Each coordinate
    moves by at most half a cell on either side.

    References
    ----------
    Lemma 2 of ``docs/proofs/exact-gaussian-noise.md``.

    Examples
    --------
    >>> round(grid_sensitivity(16, -2), 12)
    1.0
    """
    size = check_integer("size", size, least=0)
    return math.nextafter(math.ldexp(math.sqrt(size), _exponent(granularity_exponent)), math.inf)


def grid_limit(granularity_exponent: int) -> float:
    """Magnitude below which ``add_gaussian`` accepts values: 2^52 cells.

    Parameters
    ----------
    granularity_exponent : int
        ``k``, from -1074 to 970.

    Returns
    -------
    float
        ``2**(52 + k)``.

    Notes
    -----
    Privacy: an error that depends on private values is itself a release. Whoever knows a
    public bound on the values compares it with this limit before seeing any.

    Examples
    --------
    >>> grid_limit(-52)
    1.0
    """
    return math.ldexp(1.0, 52 + _exponent(granularity_exponent))


def cells_per_std(std: float, granularity_exponent: int) -> float:
    """Return ``std / 2**k``, exactly, after checking that both are in range."""
    k = _exponent(granularity_exponent)
    std = check_real("std", std, above=0.0)
    if not _LEAST_CELLS_LOG2 < math.frexp(std)[1] - k <= _GREATEST_CELLS_LOG2:
        raise ValueError(
            f"std must be from 2^{k + _LEAST_CELLS_LOG2} to below 2^{k + _GREATEST_CELLS_LOG2} "
            f"for a grid of 2^{k}, got {std!r}"
        )
    return math.ldexp(std, -k)


def _exponent(granularity_exponent: int) -> int:
    """Check the exponent of a grid."""
    k = check_integer("granularity_exponent", granularity_exponent, least=_LEAST_EXPONENT)
    if k > _GREATEST_EXPONENT:
        raise ValueError(
            f"granularity_exponent must be at most {_GREATEST_EXPONENT}, got {granularity_exponent}"
        )
    return k
