"""Do projections and fading noise help networks at equal epsilon: d2p2's Figures 1 to 5, Table 2.

``python -m experiments.d2p2_networks --mnist FOLDER`` trains a small network on images of 14 x 14
pixels, draws ``docs/figures/d2p2_networks.svg``, and writes the tables of
``docs/evidence/papers.md``; ``--full`` trains the network of Opacus's example on whole images for
ten epochs (a day or more on one thread) and ``--quick`` tries the code. Step sizes are chosen on
held-out training rows, for each method alike; test rows score the choice.
"""

from __future__ import annotations

import argparse
import functools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpglm.pictures import (
    BLUE,
    GREEN,
    GREY,
    INK,
    ORANGE,
    PURPLE,
    YELLOW,
    new_figure,
    quiet,
)
from dpglm.privacy import Adjacency, ApproximateDP
from dpglm.privacy.accounting.calibrate import calibrate
from dpglm.privacy.events import Event, Gaussian, PoissonSampled, Repeated
from dpglm.solvers import D2P2, Given
from experiments.curves import Curve, draw_curve, log_axes, write_csv
from experiments.d2p2 import epsilon_of
from experiments.measured import DOCS, put
from experiments.network_tasks import (
    DELTA,
    Images,
    accuracy,
    fashion_images,
    four_layers,
    mnist_images,
    train,
    train_without_privacy,
)

__all__ = ["clipping_bias", "main"]

BLOCK_SIZE, SHARE = 256, 0.7
EPSILON = 1.0
TENTHS = 10
"""Parts of a run that k counts where printed noise fades; in a run of ten epochs, epochs."""
STEP_SIZES = (4.0, 8.0)
"""Step size, times the clip; divided by a projection's factor on a gradient's norm."""
METHODS: Mapping[str, Callable[..., D2P2]] = {
    "DP-SGD": functools.partial(D2P2.dp_sgd, normalize=False),
    "DP-SGD, automatic clipping": D2P2.dp_sgd,
    "D2P-SGD": D2P2.d2p_sgd,
    "DP2-SGD": D2P2.dp2_sgd,
    "D2P2-SGD": D2P2,
    "PrivSGD": D2P2.priv_sgd,
}
COLORS = dict(zip(METHODS, (INK, BLUE, GREEN, YELLOW, ORANGE, PURPLE), strict=True))
MAIN = ("DP-SGD, automatic clipping", "D2P-SGD", "DP2-SGD", "D2P2-SGD")
PRINTED = "D2P2-SGD, first noise of DP-SGD"
PLAIN, PLAIN_STEP_SIZES = "SGD, without privacy", (0.5, 1.0)
"""The baseline that neither clips nor adds noise; its step sizes are not times a clip."""


@dataclass(frozen=True)
class Size:
    """How much is trained."""

    side: int
    n_rows: int
    held_out: int
    batch: int
    n_steps: int
    seeds: int
    epsilons: tuple[float, ...]
    batches: tuple[int, ...]
    shares: tuple[float, ...]

    @property
    def rate(self) -> float:
        """Return the sampling rate of the usual batch."""
        return self.batch / self.n_rows


MEASURED = Size(14, 60_000, 5000, 1024, 60, 3, (0.05, 0.3, 3.0), (512,), (0.1, 0.4))
FULL = Size(28, 60_000, 5000, 512, 1172, 3, (0.3, 3.0, 8.0), (256, 1024), (0.1, 0.3, 0.5, 0.9))
QUICK = Size(14, 1500, 500, 256, 4, 2, (3.0,), (128,), (0.3,))


@dataclass(frozen=True)
class Setting:
    """One method with everything but its step size and seed."""

    method: str
    epsilon: float = EPSILON
    batch: int | None = None
    share: float = SHARE
    noise: tuple[float, ...] | None = None

    @property
    def step_sizes(self) -> tuple[float, ...]:
        """Return the candidate step sizes."""
        return PLAIN_STEP_SIZES if self.method == PLAIN else STEP_SIZES

    def solver(self, size: Size, step: float) -> D2P2:
        """Make the method; smaller batches take more steps, for as many epochs."""
        batch = self.batch or size.batch
        settings: dict[str, Any] = {
            "n_steps": round(size.n_steps * size.batch / batch),
            "clip": 1.0,
            "stability": 0.01,
            "sampling_rate": batch / size.n_rows,
        }
        make = METHODS[self.method]
        if self.noise is not None:
            settings |= {"noise_schedule": Given(self.noise), "noise_levels": TENTHS}
        if make(**settings).projected:
            block = _block(size)
            dimension = max(2, round(self.share * block))
            settings["dimension"] = dimension
            step /= 1.0 + (block + 1) / dimension
        return make(step_size=step, **settings)


@functools.cache
def _block(size: Size) -> int:
    """Return the length of the longest block of the network's parameters."""
    count = sum(value.numel() for value in four_layers(size.side).parameters())
    return -(-count // -(-count // BLOCK_SIZE))


class Bench:
    """Trains on images of one kind, and remembers which step size was best."""

    def __init__(self, data: Images, size: Size) -> None:
        self.data, self.size = data.first(size.n_rows), size
        self.development = self.data.held_out(size.held_out)
        self.steps: dict[Setting, float] = {}

    def chosen(self, setting: Setting) -> float:
        """Return the step size with the best last accuracy on held-out training rows."""
        if setting not in self.steps:
            found = {
                step: self._trained(self.development, setting, step, 1000)[-1]
                for step in setting.step_sizes
            }
            self.steps[setting] = max(found, key=lambda step: found[step])
        return self.steps[setting]

    def scores(self, setting: Setting, step: float) -> NDArray[np.float64]:
        """Return test accuracies in per cent, of shape (checkpoints, seeds)."""
        start = time.perf_counter()
        curves = [self._trained(self.data, setting, step, seed) for seed in range(self.size.seeds)]
        values = 100.0 * np.transpose(curves)
        last, spread = values[-1].mean(), values[-1].std(ddof=1)
        what = (setting.method, setting.epsilon, setting.batch or self.size.batch, setting.share)
        told = f"{last:.1f} ± {spread:.1f}, step {step:g}, {time.perf_counter() - start:.0f} s"
        print(self.data.name, *what, told, flush=True)
        return values

    def _trained(self, data: Images, setting: Setting, step: float, seed: int) -> list[float]:
        network = four_layers(self.size.side, "Tanh", seed)
        n_steps = round(self.size.n_steps * self.size.batch / (setting.batch or self.size.batch))
        marks, curve = set(checkpoints(n_steps)), []

        def watch(count: int) -> None:
            if count in marks:
                curve.append(accuracy(network, data))

        if setting.method == PLAIN:
            train_without_privacy(network, data, step, n_steps, self.size.rate, seed, watch)
        else:
            solver = setting.solver(self.size, step)
            train(network, data, solver, setting.epsilon, seed, watch, block_size=BLOCK_SIZE)
        return curve


def checkpoints(n_steps: int) -> list[int]:
    """Return after which steps accuracy is measured."""
    return sorted({max(1, round(n_steps * part / 6)) for part in range(1, 7)})


def constant_noise(size: Size, epsilon: float = EPSILON) -> float:
    """Return the noise multiplier of DP-SGD."""

    def event(sigma: float) -> Event:
        return Repeated(PoissonSampled(size.rate, Gaussian(sigma)), size.n_steps)

    return calibrate(event, ApproximateDP(epsilon, DELTA), Adjacency.ZERO_OUT)


def fading(size: Size) -> NDArray[np.float64]:
    """Return ``1 / sqrt(k)`` for every step, where k counts tenths of the run."""
    k = np.arange(size.n_steps) * TENTHS // size.n_steps
    return np.asarray(1.0 / np.sqrt(1.0 + k))


def privacy_loss(size: Size) -> tuple[Curve, Curve]:
    """Return the cost of constant and fading noise of one first scale after each tenth."""
    sigma, factors = constant_noise(size), fading(size)
    ends = np.array([size.n_steps * part // TENTHS for part in range(1, TENTHS + 1)])
    shown = ends[ends > 0]

    def spent(multipliers: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.array([[epsilon_of(size.rate, multipliers[:end])] for end in shown])

    epochs = shown * size.rate
    return (
        Curve("constant noise", epochs, spent(np.full(size.n_steps, sigma))),
        Curve("fading noise", epochs, spent(sigma * factors)),
    )


def clipping_bias(stability: float, start: float = 8.0) -> float:
    """Return the least gradient norm on the way of normalised full gradients, without noise.

    Logistic loss on rows that are all the number 1, three fifths of the labels positive;
    from ``start``, by many small steps, so that only the bias is left.
    """
    w, least = start, np.inf
    for _ in range(40_000):
        s = 1.0 / (1.0 + np.exp(-w))
        least = min(least, abs(s - 0.6))
        w -= 0.05 * (0.4 * s / (s + stability) - 0.6 * (1.0 - s) / (1.0 - s + stability))
    return float(least)


def bias_table() -> str:
    """Compare the bias that Table 2 prints for exact gradients with the real one."""
    lines = ["| stability γ | printed: 2ξ + γ at ξ = 0 | least gradient norm |", "|---:|---:|---:|"]
    lines += [f"| {one:g} | {one:g} | {clipping_bias(one):.3f} |" for one in (0.001, 0.01, 0.1)]
    return "\n".join(lines)


Panels = dict[str, list[Curve]]


def measure(kinds: Sequence[Images], size: Size) -> tuple[Panels, str]:
    """Train everything; return the panels of the figure and the table."""
    benches = [Bench(data, size) for data in kinds]
    first = benches[0]
    epochs = np.array(checkpoints(size.n_steps)) * size.rate
    panels: Panels = {}
    constant, faded = privacy_loss(size)
    unequal = Setting("D2P2-SGD", float(faded.mean[-1]), noise=tuple(fading(size).tolist()))
    lines = [
        f"| method | epsilon | step | {' | '.join(bench.data.name for bench in benches)} |",
        "|---|---:|---:|" + "---|" * len(benches),
    ]
    steps, usual = {}, {}
    others = {PRINTED: unequal, PLAIN: Setting(PLAIN, math.inf)}
    for name in (*METHODS, *others):
        setting = others.get(name) or Setting(name)
        steps[name] = first.chosen(setting)
        found = [bench.scores(setting, steps[name]) for bench in benches]
        for bench, values in zip(benches, found, strict=True):
            panels.setdefault(bench.data.name, []).append(Curve(name, epochs, values))
        usual[name] = found[0][-1]
        lines.append(table_line(name, setting.epsilon, steps[name], found))
    panels["privacy loss"] = [constant, faded]

    def against(name: str, at: float, settings: Mapping[float, Setting]) -> Curve:
        last = {x: first.scores(one, steps[name])[-1] for x, one in settings.items()}
        last[at] = usual[name]
        x = sorted(last)
        return Curve(name, np.array(x, float), np.array([last[one] for one in x]))

    panels["epsilon"] = [
        against(name, EPSILON, {one: Setting(name, one) for one in size.epsilons}) for name in MAIN
    ]
    panels["batch"] = [
        against(name, size.batch, {one: Setting(name, batch=one) for one in size.batches})
        for name in (MAIN[0], MAIN[-1])
    ]
    panels["share"] = [
        against(name, SHARE, {one: Setting(name, share=one) for one in size.shares})
        for name in MAIN[-1:]
    ]
    return panels, "\n".join(lines)


def table_line(name: str, epsilon: float, step: float, found: Sequence[NDArray[np.float64]]) -> str:
    """Write one line of the table: last accuracies on each kind of images."""
    cells = [f"{one[-1].mean():.1f} ± {one[-1].std(ddof=1):.1f}" for one in found]
    spent = f"{epsilon:.3g}" if math.isfinite(epsilon) else "none"
    return f"| {name} | {spent} | {step:g} | {' | '.join(cells)} |"


def draw(panels: Panels, size: Size) -> Any:
    """Draw accuracy against epochs, epsilon, batch and columns, and at the printed settings."""
    from matplotlib.ticker import LogLocator

    figure = new_figure(
        10.0,
        6.8,
        "Networks at equal epsilon: projections cost accuracy, fading noise changes little",
        f"Test accuracy in per cent; {size.side} x {size.side} pixels, batches of {size.batch}, "
        f"epsilon {EPSILON:g} and delta {DELTA:g} unless said otherwise.\n"
        "Lines: mean of seeds; bands: their middle half. Step sizes chosen on training rows of the "
        "first data, held out, at epsilon 1.",
    )
    axes = figure.subplots(2, 3).ravel()
    *kinds, _, _, _, _ = panels
    for place, name in enumerate(kinds):
        for curve in panels[name]:
            style = ":" if curve.label == PRINTED else "--" if curve.label == PLAIN else "-"
            color = COLORS.get(curve.label, GREY if curve.label == PLAIN else ORANGE)
            draw_curve(axes[place], curve, color, style=style, marker="")
        _linear(axes[place], name, "epochs")
    if len(kinds) < 2:
        axes[1].set_axis_off()
    for curve, color in zip(panels["privacy loss"], (BLUE, ORANGE), strict=True):
        draw_curve(axes[2], curve, color, marker="")
    _linear(axes[2], "Epsilon for the same first noise", "epochs")
    axes[2].set_yscale("log")
    axes[2].yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes[2].yaxis.set_major_formatter("{x:g}")
    axes[2].minorticks_off()
    axes[2].legend(frameon=False, labelcolor=INK, fontsize=8.5)
    sigmas = ", ".join(f"{constant_noise(size, one):.2g}" for one in panels["epsilon"][0].x)
    for place, (name, title, label) in enumerate(
        (
            ("epsilon", "Noise", f"epsilon (sigma of DP-SGD: {sigmas})"),
            ("batch", "Batch, epochs unchanged", "expected rows in a batch"),
            ("share", "Projection", "columns for each row of a matrix"),
        ),
        3,
    ):
        for curve in panels[name]:
            draw_curve(axes[place], curve, COLORS[curve.label], marker="o")
        if name == "share":
            _linear(axes[place], title, label)
        else:
            log_axes(axes[place], title, label, panels[name][0].x)
            axes[place].set_yscale("linear")
            axes[place].yaxis.set_major_formatter("{x:g}")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(
        handles,
        labels,
        loc="outside lower center",
        ncols=4,
        frameon=False,
        fontsize=9,
        labelcolor=INK,
    )
    return figure


def _linear(axes: Any, title: str, label: str) -> None:
    axes.set_title(title, size=10.5, color=INK, loc="left")
    axes.set_xlabel(label)
    quiet(axes)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, draw, and write into the docs."""
    import matplotlib
    import torch

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mnist", type=Path, help="folder of MNIST's files; without it, no MNIST")
    parser.add_argument("--fashion-mnist", type=Path, help="folder of Fashion-MNIST's files")
    parser.add_argument("--docs", type=Path, default=DOCS, help="where to write")
    sizes = parser.add_mutually_exclusive_group()
    sizes.add_argument("--quick", action="store_true", help="tiny sizes, to try the code")
    sizes.add_argument("--full", action="store_true", help="whole images, ten epochs")
    parser.add_argument("--threads", type=int, default=1, help="of torch")
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    size = QUICK if options.quick else FULL if options.full else MEASURED
    start = time.perf_counter()
    kinds = [fashion_images(options.fashion_mnist, size.side)]
    if options.mnist is not None:
        kinds.append(mnist_images(options.mnist, size.side))
    panels, table = measure(kinds, size)
    page = options.docs / "evidence" / "papers.md"
    put(page, "d2p2 networks", table)
    put(page, "d2p2 clipping bias", bias_table())
    figures = options.docs / "figures"
    figures.mkdir(parents=True, exist_ok=True)
    write_csv(figures / "d2p2_networks.csv", list(panels.items()))
    with matplotlib.rc_context({"svg.hashsalt": "dpglm", "svg.fonttype": "path"}):
        drawn = draw(panels, size)
        drawn.savefig(figures / "d2p2_networks.svg", metadata={"Date": None})
    print(f"{time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
