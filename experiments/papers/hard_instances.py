"""Generated data on which every private method must err: instances from lower-bound proofs."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dpglm._validation import check_integer, check_real
from dpglm.problem import Hinge, Squared
from experiments.papers.hard_instance import HardInstance

__all__ = ["biased_labels", "biased_responses", "fingerprint_labels", "two_clusters"]

# The maximiser of x / (1 + exp(x)): floors are best with x / epsilon labels at stake.
_HARDEST = 1.2784645427610738


def biased_labels(
    n_rows: int,
    n_features: int,
    *,
    rank: int,
    epsilon: float,
    seed: int,
    row_norm: float = 1.0,
) -> HardInstance:
    """One-hot rows with labels that lean one way by just too little for a private method to detect.

    Parameters
    ----------
    n_rows : int
        Number of rows n, at least ``rank``.
    n_features : int
        Number of columns, at least ``rank``.
    rank : int
        Number of columns r that are used, at least 1; the others are zero.
    epsilon : float
        Above 0. The labels of a column lean by ``1.28 / epsilon`` rows, or by all of its
        ``n / r`` rows if those are fewer: hardest for methods that are epsilon-private under
        ``replace_one``.
    seed : int
        Seed of the signs and of the order of rows.
    row_norm : float, default=1.0
        Length of each row, above 0.

    Returns
    -------
    HardInstance
        For the hinge loss. Its minimiser has norm ``sqrt(r) / row_norm``, and its floor is about
        ``0.28 r / (n epsilon)`` for r below ``n epsilon``.

    Raises
    ------
    ValueError
        If a parameter is out of range.

    Notes
    -----
    The mean loss in one column with labels that lean by a share b is ``1 - b w`` on [-1, 1] (in
    units of ``row_norm``), so the optimum is 1, or -1, and a wrong sign costs at least b.

    References
    ----------
    Arora et al. (2022), Theorem 6, for the rate; Song et al. (2021), Theorem 3.3, has the
    absolute loss; the hinge is twice its value on these rows (Sun et al. 2023, proof
    of Theorem 2).

    Examples
    --------
    >>> instance = biased_labels(600, 50, rank=3, epsilon=0.1, seed=1)
    >>> instance.X.shape, instance.flips.tolist(), np.abs(instance.minimizer[:3]).tolist()
    ((600, 50), [12, 12, 12], [1.0, 1.0, 1.0])
    >>> instance.excess_risk(instance.minimizer)
    0.0
    """
    _check_sizes(n_rows, n_features, rank, row_norm)
    check_real("epsilon", epsilon, above=0.0)
    rng = np.random.default_rng(check_integer("seed", seed, least=0))
    each = n_rows // rank
    # At least one label leans, or two where they come in pairs.
    lean = max(_of_parity(each, min(_HARDEST / epsilon, float(each))), 2 - each % 2)
    leans = lean * rng.choice([-1, 1], rank)
    return _hinge_instance(n_rows, n_features, each, leans, row_norm, rng)


def fingerprint_labels(
    n_rows: int, n_features: int, *, rank: int, seed: int, row_norm: float = 1.0
) -> HardInstance:
    """One-hot rows with the entries of a random fingerprinting code as labels.

    Parameters
    ----------
    n_rows : int
        Number of rows n, at least ``rank``.
    n_features : int
        Number of columns, at least ``rank``.
    rank : int
        Number of columns that are used, at least 1; the others are zero.
    seed : int
        Seed of the code and of the order of rows.
    row_norm : float, default=1.0
        Length of each row, above 0.

    Returns
    -------
    HardInstance
        For the hinge loss. Its floor is weak, as leans are of all sizes: the fingerprinting
        argument of the paper, not turned into constants here, gives more.

    Raises
    ------
    ValueError
        If a parameter is out of range.

    Notes
    -----
    Each column draws its share of positive labels uniformly from [0, 1], as the fingerprinting
    lemma of the paper's proof asks, and then its labels independently with that probability.

    References
    ----------
    Song et al. (2021), Theorem 3.3 and its sketch of proof; Steinke and Ullman (2017) for the
    code.

    Examples
    --------
    >>> instance = fingerprint_labels(600, 50, rank=3, seed=1)
    >>> sorted(set(instance.y.tolist())), abs(instance.excess_risk(instance.minimizer)) < 1e-12
    ([-1.0, 1.0], True)
    """
    _check_sizes(n_rows, n_features, rank, row_norm)
    rng = np.random.default_rng(check_integer("seed", seed, least=0))
    each = n_rows // rank
    positive = rng.binomial(each, rng.random(rank))
    return _hinge_instance(n_rows, n_features, each, 2 * positive - each, row_norm, rng)


def biased_responses(
    n_rows: int,
    n_features: int,
    *,
    radius: float,
    epsilon: float,
    seed: int,
    row_norm: float = 1.0,
    target_bound: float = 1.0,
) -> HardInstance:
    """One-hot rows with responses that lean one way by too little: hard for least squares.

    Parameters
    ----------
    n_rows : int
        Number of rows n.
    n_features : int
        Number of columns d, at least 1.
    radius : float
        Bound B on the norm of the minimiser, above 0; it is reached up to rounding.
    epsilon : float
        Above 0. A column's responses lean by about ``1 / epsilon`` rows: hard for methods that
        are epsilon-private under ``replace_one``.
    seed : int
        Seed of the signs and of the order of rows.
    row_norm : float, default=1.0
        Length X of the rows that are not zero, above 0.
    target_bound : float, default=1.0
        Size Y of the responses, above 0.

    Returns
    -------
    HardInstance
        For the loss ``(z - y)^2 / 2``. Its floor is of the order of the smaller of
        ``sqrt(d) B X Y / (n epsilon)`` and ``(B X)^(4/3) Y^(2/3) / (n epsilon)^(2/3)``.

    Raises
    ------
    ValueError
        If a parameter is out of range, or rows are too few for any response to lean.

    Notes
    -----
    With ``k`` columns in use, each having ``m`` rows that lean by ``b m``, the minimiser's
    entries are ``b Y / X`` in size, so ``b = B X / (Y sqrt(k))``, and ``b m = 1 / epsilon`` asks
    for ``m = sqrt(k) Y / (B X epsilon)``. All rows are used if ``k m = n``, so
    ``k = (B X n epsilon / Y)^(2/3)`` unless that is beyond d; then k = d and the other rows are
    zero. A wrong sign costs at least ``b^2 Y^2 / 2`` in the mean over its rows.

    References
    ----------
    Arora et al. (2022), Theorem 4 and its sketch of proof.

    Examples
    --------
    >>> instance = biased_responses(1000, 4, radius=0.5, epsilon=0.1, seed=1)
    >>> round(float(np.linalg.norm(instance.minimizer)), 3), instance.flips.tolist()
    (0.5, [10, 10, 10, 10])
    >>> abs(instance.excess_risk(instance.minimizer)) < 1e-12
    True
    """
    _check_sizes(n_rows, n_features, 1, row_norm)
    radius = check_real("radius", radius, above=0.0)
    epsilon = check_real("epsilon", epsilon, above=0.0)
    bound = check_real("target_bound", target_bound, above=0.0)
    rng = np.random.default_rng(check_integer("seed", seed, least=0))
    ratio = radius * row_norm / bound
    used = max(1, min(int((ratio * n_rows * epsilon) ** (2.0 / 3.0)), n_features, n_rows))
    share = min(1.0, ratio / math.sqrt(used))
    lean = max(1, round(1.0 / epsilon))
    each = math.ceil(lean / share * (1.0 - 1e-12))
    each += (each - lean) % 2
    if each > n_rows // used:
        each = n_rows // used
        lean = _of_parity(each, share * each)
    if lean == 0:
        raise ValueError(
            f"n_rows must be so large that responses can lean, got {n_rows!r} for radius "
            f"{radius!r} and epsilon {epsilon!r}"
        )
    signs = rng.choice([-1, 1], used)
    columns, labels = _one_hot_labels(each, lean * signs)
    y = np.concatenate([bound * labels, np.zeros(n_rows - used * each)])
    minimizer = np.zeros(n_features)
    minimizer[:used] = signs * lean / each * bound / row_norm
    stake = each / n_rows * (lean / each * bound) ** 2 / 2.0
    X, y = _shuffled(n_rows, n_features, columns, y, row_norm, rng)
    return HardInstance(
        X=X,
        y=y,
        loss=Squared(),
        row_norm=row_norm,
        target_low=-bound,
        target_high=bound,
        minimizer=minimizer,
        minimum=used * each / n_rows * bound**2 / 2.0 - used * stake,
        flips=np.full(used, lean),
        stakes=np.full(used, stake),
    )


def two_clusters(n_rows: int, *, shift: float, sign: int = 1) -> HardInstance:
    """Two far and close clusters, which clipped noisy gradient descent cannot tell apart.

    Parameters
    ----------
    n_rows : int
        Number of rows n, at least 2; one cluster gets the odd row.
    shift : float
        Distance mu of the clusters' middle from the origin, above 0; they are 2 apart.
    sign : {-1, 1}, default=1
        Label of the upper cluster.

    Returns
    -------
    HardInstance
        For the hinge loss, with rows ``(mu, 1)`` and ``(mu, -1)``. The least loss is zero. The
        floor under all private methods is next to nothing, since one that centres rows solves
        it; noisy gradient descent does not for mu above ``n epsilon``.

    Raises
    ------
    ValueError
        If a parameter is out of range.

    References
    ----------
    Sun, Suresh and Menon (2023), section 4, Theorem 3 and Lemma 2.

    Examples
    --------
    >>> instance = two_clusters(4, shift=10.0)
    >>> instance.X.tolist(), instance.y.tolist()
    ([[10.0, 1.0], [10.0, -1.0], [10.0, 1.0], [10.0, -1.0]], [1.0, -1.0, 1.0, -1.0])
    """
    check_integer("n_rows", n_rows, least=2)
    shift = check_real("shift", shift, above=0.0)
    if sign not in (-1, 1):
        raise ValueError(f"sign must be -1 or 1, got {sign!r}")
    heights = np.where(np.arange(n_rows) % 2 == 0, 1.0, -1.0)
    # A wrong sign of the second weight leaves the smaller cluster, or its mirror, at loss 1.
    return HardInstance(
        X=np.column_stack([np.full(n_rows, shift), heights]),
        y=sign * heights,
        loss=Hinge(),
        row_norm=math.hypot(shift, 1.0),
        target_low=-1.0,
        target_high=1.0,
        minimizer=np.array([0.0, float(sign)]),
        minimum=0.0,
        flips=np.array([n_rows]),
        stakes=np.array([2.0 * (n_rows // 2) / n_rows]),
    )


def _check_sizes(n_rows: int, n_features: int, rank: int, row_norm: float) -> None:
    check_integer("rank", rank, least=1)
    check_integer("n_rows", n_rows, least=rank)
    check_integer("n_features", n_features, least=rank)
    check_real("row_norm", row_norm, above=0.0)


def _of_parity(count: int, most: float) -> int:
    """Largest possible sum of ``count`` signs up to ``most``."""
    number = math.floor(most * (1.0 + 1e-12))
    return number - (number - count) % 2 if number > 0 else 0


def _one_hot_labels(
    each: int, leans: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Column and label of each row: ``each`` rows for a column, adding up to its lean."""
    positive = (each + leans) // 2
    position = np.tile(np.arange(each), len(leans))
    columns = np.repeat(np.arange(len(leans)), each)
    return columns, np.where(position < positive[columns], 1.0, -1.0)


def _shuffled(
    n_rows: int,
    n_features: int,
    columns: NDArray[np.int64],
    y: NDArray[np.float64],
    row_norm: float,
    rng: np.random.Generator,
) -> tuple[sparse.csr_array, NDArray[np.float64]]:
    """Rows with ``row_norm`` in their column, the others zero, in random order."""
    entries = (np.full(len(columns), row_norm), (np.arange(len(columns)), columns))
    X = sparse.csr_array(sparse.coo_array(entries, shape=(n_rows, n_features)))
    order = rng.permutation(n_rows)
    return X[order], y[order]


def _hinge_instance(
    n_rows: int,
    n_features: int,
    each: int,
    leans: NDArray[np.int64],
    row_norm: float,
    rng: np.random.Generator,
) -> HardInstance:
    columns, labels = _one_hot_labels(each, leans)
    rest = n_rows - len(columns)
    minimizer = np.zeros(n_features)
    minimizer[: len(leans)] = np.sign(leans) / row_norm
    X, y = _shuffled(
        n_rows, n_features, columns, np.concatenate([labels, np.ones(rest)]), row_norm, rng
    )
    flips = np.abs(leans)
    return HardInstance(
        X=X,
        y=y,
        loss=Hinge(),
        row_norm=row_norm,
        target_low=-1.0,
        target_high=1.0,
        minimizer=minimizer,
        minimum=1.0 - float(flips.sum()) / n_rows,
        flips=flips,
        stakes=flips / n_rows,
    )
