"""Pictures of private fits, as Matplotlib figures (extra ``plot``)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpglm._validation import check_integer
from dpglm.problem import ClippedLoss, ConvexScalarLoss, Target
from dpglm.report import _drawing as draw
from dpglm.report.coefficients import TARGET, CoefficientTable, coefficient_table
from dpglm.report.words import plain_number
from dpglm.solvers.base import Solution

__all__ = ["accuracy_against_epsilon", "clipped_loss", "coefficients", "training_history"]

_MOST_PANELS = 12
_WIDE_RANGE = 8.0
_CURVE_TARGET = {Target.BINARY: 1.0, Target.REAL: 0.0, Target.COUNT: 2.0}
_CURVE_REACH = {Target.BINARY: 5.0, Target.COUNT: 3.0}
_CURVE_AXIS = {
    Target.BINARY: "prediction, for the positive class",
    Target.REAL: "prediction minus target",
    Target.COUNT: "log of the prediction, for count 2",
}


def accuracy_against_epsilon(
    epsilons: ArrayLike,
    scores: ArrayLike,
    *,
    without_privacy: float | None = None,
    without_features: float | None = None,
    chosen: float | None = None,
    metric: str = "Accuracy on test rows",
    title: str = "What privacy costs",
    subtitle: str | None = None,
) -> Any:
    """Draw how good private models are at several epsilons, next to what bounds them.

    Parameters
    ----------
    epsilons : array_like of shape (m,)
        Different, above 0.
    scores : array_like of shape (m,) or (m, runs)
        Score at each epsilon; of several runs the mean is drawn, and the range shaded.
    without_privacy : float, optional
        Score of the same model without noise.
    without_features : float, optional
        Score of the best constant answer, such as the most frequent class.
    chosen : float, optional
        One of ``epsilons`` to point out.
    metric : str
        What the scores are.
    title, subtitle : str
        Plain words; by default the subtitle explains the shading.

    Returns
    -------
    matplotlib.figure.Figure
        Save it with ``figure.savefig("name.png")``, ``.svg`` or ``.pdf``.

    Raises
    ------
    ImportError
        If Matplotlib is not installed (``pip install 'dpglm[plot]'``).
    ValueError
        If the shapes do not fit, an epsilon is not above 0, or ``chosen`` is not among them.

    Notes
    -----
    Privacy: scores on private rows are not private themselves; this is for public test data, or
    for rows whose use for evaluation was paid for.
    """
    eps = np.asarray(epsilons, dtype=np.float64)
    runs = np.asarray(scores, dtype=np.float64)
    if eps.ndim != 1 or not (eps > 0.0).all() or len(set(eps.tolist())) != eps.size:
        raise ValueError(f"epsilons must be different numbers above 0, got {epsilons!r}")
    if runs.ndim not in (1, 2) or len(runs) != len(eps) or not np.isfinite(runs).all():
        raise ValueError(
            f"scores must be finite with shape ({len(eps)},) or ({len(eps)}, runs), got shape "
            f"{runs.shape}"
        )
    if chosen is not None and chosen not in eps:
        raise ValueError(f"chosen must be one of the epsilons {eps.tolist()}, got {chosen!r}")
    order = np.argsort(eps)
    eps, runs = eps[order], runs.reshape(len(eps), -1)[order]
    mean, low, high = runs.mean(axis=1), runs.min(axis=1), runs.max(axis=1)
    if subtitle is None:
        shading = f" Line: mean of {runs.shape[1]} runs. Shaded: their range."
        subtitle = "Further left is more private." + (shading if runs.shape[1] > 1 else "")

    figure = draw.new_figure(7.2, 4.4, title, subtitle)
    axes = figure.add_subplot()
    labels: list[tuple[float, str, str]] = [(mean[-1], "with privacy", draw.BLUE)]
    for value, text, dashes in (
        (without_privacy, "without privacy", (6, 3)),
        (without_features, "constant answer", (1.5, 2.5)),
    ):
        if value is not None:
            axes.axhline(value, color=draw.GREY, linewidth=1.5, dashes=dashes)
            labels.append((value, f"{text}\n{value:.3f}", draw.GREY))
    axes.fill_between(eps, low, high, color=draw.BLUE, alpha=0.18, linewidth=0)
    axes.plot(eps, mean, color=draw.BLUE, linewidth=2.2, marker="o", markersize=5.5)
    if chosen is not None:
        value = float(mean[eps == chosen][0])
        axes.plot(
            [chosen], [value], "o", markersize=12, mfc="none", mec=draw.ORANGE, mew=2.0, zorder=5
        )
        axes.annotate(
            f"epsilon {plain_number(chosen)}: {value:.3f}",
            (chosen, value),
            xytext=(0, -22),
            textcoords="offset points",
            ha="center",
            color=draw.ORANGE,
            size=10,
            weight="bold",
        )
    axes.set_xscale("log")
    axes.set_xticks(*_epsilon_ticks(eps), minor=False)
    axes.set_xticks([], minor=True)
    axes.set_xlabel("epsilon (privacy loss; smaller protects more)")
    axes.set_ylabel(metric, parse_math=False)
    axes.margins(x=0.04, y=0.14)
    draw.quiet(axes)
    heights, texts, colors = zip(*labels, strict=True)
    draw.label_at_end(axes, heights, texts, colors)
    return figure


def training_history(solution: Solution) -> Any:
    """Draw the noisy gradient of each step against what noise alone would look like.

    Parameters
    ----------
    solution : Solution
        ``solution_`` of a fitted estimator.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    ImportError
        If Matplotlib is not installed (``pip install 'dpglm[plot]'``).
    ValueError
        If no step released a gradient: where only the last iterate is paid for, steps stay
        secret.

    Notes
    -----
    Privacy: all that is drawn was released, and paid for, by the fit itself.
    """
    history = [info for info in solution.history if math.isfinite(info.gradient_norm)]
    if not history:
        raise ValueError(
            "solution must have a history, got an empty one: no gradient of this fit was released, "
            "so what its steps looked like stays secret"
        )
    steps = [info.step for info in history]
    norms = [info.gradient_norm for info in history]
    floors = [info.noise_norm for info in history]
    figure = draw.new_figure(
        7.2,
        5.0,
        "How training went",
        "While the noisy gradient is longer than noise alone, steps still follow the data.",
    )
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=[3.0, 1.0])
    few = len(steps) <= 60
    upper.plot(
        steps,
        norms,
        color=draw.BLUE,
        linewidth=1.6,
        marker="o" if few else None,
        markersize=4,
        label="this run, with noise",
    )
    upper.plot(
        steps,
        floors,
        color=draw.INK,
        linewidth=1.4,
        dashes=(6, 3),
        label="noise alone (expected)",
    )
    if max(norms) > _WIDE_RANGE * min(*norms, *floors):
        draw.log_scale(upper)
    else:
        upper.set_ylim(0.0, 1.15 * max(*norms, *floors))
    upper.set_ylabel("length of the gradient")
    upper.legend(frameon=False, fontsize=9.5, labelcolor=draw.INK, loc="upper right")
    sizes = [info.step_size for info in history]
    lower.plot(
        steps, sizes, color=draw.INK, linewidth=1.6, drawstyle="steps-mid" if few else "default"
    )
    lower.set_ylim(0.0, 1.15 * max(sizes))
    lower.set_ylabel("step size")
    lower.set_xlabel("step")
    for axes in (upper, lower):
        draw.quiet(axes)
        axes.margins(x=0.01)
    figure.align_ylabels([upper, lower])
    return figure


def coefficients(
    estimator: Any, feature_names: Sequence[str] | None = None, most: int | None = None
) -> Any:
    """Draw the largest coefficients with the noise expected in each.

    Parameters
    ----------
    estimator : fitted estimator of dpglm, or pipeline that ends with one
        A PrivatePipeline, a private search, or a Pipeline of scikit-learn.
    feature_names : sequence of str, optional
        Default: the names the pipeline makes or the estimator saw.
    most : int, optional
        How many features are drawn for each output, at least 1; by default 20 for one output
        and 8 for several. Of more than 12 outputs the first 12 are drawn.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    ImportError
        If Matplotlib is not installed (``pip install 'dpglm[plot]'``).
    ValueError
        If names or ``most`` do not fit.

    Notes
    -----
    Where feature bounds were declared, coefficients are drawn per half of a feature's range, so
    that features of different units can be compared.

    Privacy: everything drawn is released or public.
    """
    table = coefficient_table(estimator, feature_names)
    n_outputs = min(len(table.outputs), _MOST_PANELS)
    most = (20 if n_outputs == 1 else 8) if most is None else check_integer("most", most, least=1)
    shown = min(most, len(table.features))
    n_columns = min(2, n_outputs)
    n_rows = math.ceil(n_outputs / n_columns)
    of = f"The {shown} largest of {len(table.features)}. " if shown < len(table.features) else ""
    subtitle = (
        f"{of}Bars: 2 standard deviations of the privacy noise each way (at most).\n"
        "Hollow: could be noise alone."
    )
    figure = draw.new_figure(
        7.2,
        1.5 + n_rows * (0.45 + 0.235 * shown),
        "What the model learned",
        subtitle,
    )
    unit = "coefficient for half of the feature's range" if table.has_reach else "coefficient"
    if n_outputs == 1 and table.outputs != (TARGET,):
        unit += f" (right: towards {table.outputs[0]!r})"
    grid = figure.subplots(n_rows, n_columns, squeeze=False, sharex=n_outputs > 1).ravel()
    for output, axes in enumerate(grid[:n_outputs]):
        _draw_coefficients(axes, table, output, shown)
        axes.tick_params(labelbottom=output + n_columns >= n_outputs)
        if n_outputs > 1:
            name = f"class {table.outputs[output]}"
            axes.set_title(
                name, loc="left", size=10.5, weight="bold", color=draw.INK, parse_math=False
            )
        if output + n_columns >= n_outputs:
            axes.set_xlabel(unit, parse_math=False)
    for axes in grid[n_outputs:]:
        axes.set_visible(False)
    return figure


def clipped_loss(
    loss: ConvexScalarLoss,
    clips: Sequence[float],
    *,
    target: float | None = None,
    z_range: tuple[float, float] | None = None,
) -> Any:
    """Draw the loss that gradient descent with clipped gradients really minimises.

    Parameters
    ----------
    loss : ConvexScalarLoss
        Any convex loss of one output.
    clips : sequence of float
        One to five clips of the slope, each above 0: clip norm over row norm.
    target : float, optional
        Target of the row; by default +1 for classes, 0 for real targets, 2 for counts.
    z_range : pair of float, optional
        Range of predictions; by default wide enough to see the clips bind.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    ImportError
        If Matplotlib is not installed (``pip install 'dpglm[plot]'``).
    ValueError
        If the loss is not convex with one output, or the clips do not fit.

    References
    ----------
    Song, Steinke, Thakkar and Thakurta, "Evading the curse of dimensionality in unconstrained
    private GLMs", AISTATS 2021, Lemma 5.1.
    """
    if not 1 <= len(clips) <= len(draw.CYCLE):
        raise ValueError(f"clips must be 1 to {len(draw.CYCLE)} numbers, got {clips!r}")
    clipped = [ClippedLoss(loss, clip) for clip in sorted(clips, reverse=True)]
    axis = _CURVE_AXIS[loss.target] if target is None else "prediction"
    target = _CURVE_TARGET[loss.target] if target is None else target
    reach = _CURVE_REACH.get(loss.target, 2.5 * max(clips))
    z = np.linspace(*((-reach, reach) if z_range is None else z_range), 801)
    y = np.full_like(z, target)
    figure = draw.new_figure(
        7.2,
        3.8,
        "What clipping does to the loss",
        f"{type(loss).__name__}: where its slope is steeper than the clip, it goes on straight.",
    )
    left, right = figure.subplots(1, 2)
    curves = [(loss, "not clipped", draw.INK)]
    curves += [
        (one, f"clip {plain_number(one.clip_slope)}", color)
        for one, color in zip(clipped, draw.CYCLE, strict=False)
    ]
    for curve, label, color in curves:
        width = 3.2 if curve is loss else 1.9
        shade = "#AEB7C0" if curve is loss else color
        left.plot(z, curve.value(z, y), color=shade, linewidth=width, label=label)
        right.plot(z, curve.slope(z, y), color=shade, linewidth=width)
    for one, color in zip(clipped, draw.CYCLE, strict=False):
        touch = _touching_points(one, z, y)
        left.plot(touch, one.value(touch, np.full_like(touch, target)), "o", color=color, ms=6)
    left.set_ylabel("loss of the row")
    right.set_ylabel("slope (the row's pull)")
    for axes in (left, right):
        axes.set_xlabel(axis)
        draw.quiet(axes)
        axes.margins(x=0.0)
    left.legend(frameon=False, fontsize=9.5, labelcolor=draw.INK, handlelength=1.6)
    return figure


def _draw_coefficients(axes: Any, table: CoefficientTable, output: int, most: int) -> None:
    which = table.largest(output, most)[::-1]
    values = (table.values[output] * table.reach)[which]
    bars = 2.0 * (table.noise * table.reach)[which]
    clear = table.above_noise()[output][which]
    rows = np.arange(len(which))
    axes.axvline(0.0, color=draw.GREY, linewidth=1.0)
    for chosen, color, fill in ((clear, draw.BLUE, draw.BLUE), (~clear, draw.GREY, "white")):
        axes.errorbar(
            values[chosen],
            rows[chosen],
            xerr=bars[chosen],
            fmt="o",
            markersize=6,
            color=color,
            markerfacecolor=fill,
            elinewidth=2.6,
            ecolor=(color, 0.35),
        )
    axes.set_yticks(rows, [_short(table.features[column]) for column in which], parse_math=False)
    axes.set_ylim(-0.7, len(which) - 0.3)
    draw.quiet(axes, grid="x")
    axes.spines["left"].set_visible(False)
    axes.tick_params(labelsize=9)


def _epsilon_ticks(eps: NDArray[np.float64]) -> tuple[list[float], list[str]]:
    """Tick at each epsilon, leaving out those too close to the one before to be read."""
    span = math.log(eps[-1] / eps[0]) or 1.0
    ticks: list[float] = []
    for value in eps.tolist():
        if not ticks or math.log(value / ticks[-1]) > 0.05 * span:
            ticks.append(value)
    return ticks, [plain_number(value) for value in ticks]


def _touching_points(
    clipped: ClippedLoss, z: NDArray[np.float64], y: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Points within the range of z where the clip begins to bind."""
    binds = np.abs(clipped.loss.slope(z, y)) > clipped.clip_slope
    edges = np.flatnonzero(binds[1:] != binds[:-1])
    middle: NDArray[np.float64] = 0.5 * (z[edges] + z[edges + 1])
    return middle


def _short(name: str, most: int = 34) -> str:
    return name if len(name) <= most else f"{name[: most - 3]}..."
