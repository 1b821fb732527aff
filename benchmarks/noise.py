"""Measure the speed of noise, its distribution, and its lowest bits.

Run with ``make noise`` (two minutes on one core), which rewrites the table of
``docs/evidence/speed.md`` and ``docs/figures/noise_low_bits.svg``. ``--quick`` draws little,
prints, and writes nothing.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import math
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from benchmarks.bar import Bar
from benchmarks.step_cost.__main__ import about_machine
from dpglm.privacy import OpenDPNoise
from dpglm.privacy.noise import SystemNoise, add_gaussian
from dpglm.privacy.noise.additive import add_l2_noise, add_laplace
from experiments.measured import put

__all__ = ["Rate", "agreement", "agreement_table", "low_bits", "main", "measure", "rate_table"]

DOCS = Path(__file__).parent.parent / "docs"
STD, EXPONENT = 1.3, -24
CELLS = math.ldexp(STD, -EXPONENT)
BAR = 5e6
REFERENCE = "NumPy, `standard_normal`: not private"
OURS = "dpglm, Gaussian"


@dataclass(frozen=True)
class Rate:
    """Draws per second of processor time, one number for each round."""

    name: str
    rates: tuple[float, ...]

    @property
    def quartiles(self) -> NDArray[np.float64]:
        """Quartiles over the rounds."""
        return np.quantile(self.rates, [0.25, 0.5, 0.75])


def box_muller(n: int) -> NDArray[np.float64]:
    """Draw normal variates from the operating system's bits, with no regard to rounding."""
    out = np.empty(n)
    # Blocks that stay in the cache, as the library's own.
    for start in range(0, n, 8192):
        block = out[start : start + 8192]
        half = -(-block.size // 2)
        words = np.frombuffer(os.urandom(16 * half), dtype=np.uint64).reshape(2, half)
        u, v = ((words >> np.uint64(11)) + np.uint64(1)).astype(np.float64) * 2.0**-53
        r, angle = np.sqrt(-2.0 * np.log(u)), 2.0 * math.pi * v
        block[:half] = r * np.cos(angle)
        block[half:] = (r * np.sin(angle))[: block.size - half]
    return out


def opendp_vector() -> Callable[[int], Any]:
    """Return a function that adds OpenDP's Gaussian noise to a vector of floats."""
    import opendp.prelude as dp

    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T=float, nan=False)), dp.l2_distance(T=float)
    add = dp.m.make_gaussian(*space, scale=STD)
    return lambda n: add([0.0] * n)


def methods(n: int, n_of_opendp: int) -> dict[str, tuple[Callable[[int], Any], int]]:
    """Return the timed functions, each with its number of draws."""
    system, opendp, zeros = SystemNoise(), OpenDPNoise(), np.zeros(n)
    return {
        OURS: (lambda n: system.gaussian(n, EXPONENT, STD), n),
        "dpglm, Gaussian, added to values": (
            lambda n: add_gaussian(zeros, STD, EXPONENT, system),
            n,
        ),
        "dpglm, Laplace, added": (lambda n: add_laplace(zeros, STD, EXPONENT, system), n),
        "dpglm, one L2 vector, added": (
            lambda n: add_l2_noise(zeros[: n // 10], STD, EXPONENT, system),
            n // 10,
        ),
        "dpglm, Gaussian from OpenDP": (
            lambda n: opendp.gaussian(n, EXPONENT, STD),
            n_of_opendp,
        ),
        "OpenDP, vector Gaussian": (opendp_vector(), n_of_opendp),
        "Box-Muller in NumPy on `os.urandom`: not exact": (box_muller, n),
        REFERENCE: (np.random.default_rng().standard_normal, n),
    }


def measure(n: int, n_of_opendp: int, rounds: int) -> list[Rate]:
    """Time all methods in turn, once in every round."""

    def rate(draw: Callable[[int], Any], size: int) -> float:
        start = time.process_time()
        draw(size)
        return size / (time.process_time() - start)

    timed = methods(n, n_of_opendp)
    # The first round warms up.
    found = [[rate(*one) for one in timed.values()] for _ in range(rounds + 1)][1:]
    return [Rate(name, one) for name, one in zip(timed, zip(*found, strict=True), strict=True)]


def _short(*quartiles: float) -> str:
    middle, low, high = (f"{x:.0f}" if x >= 1000.0 else f"{x:.3g}" for x in quartiles)
    return f"{middle} [{low}, {high}]"


def rate_table(found: Sequence[Rate]) -> str:
    """Write medians, and in brackets quartiles, in Markdown."""
    (reference,) = (one for one in found if one.name == REFERENCE)
    lines = [
        "| noise | million draws per second | time of a draw over NumPy's |",
        "|---|---:|---:|",
    ]
    for one in found:
        low, middle, high = 1e-6 * one.quartiles
        ratios = np.quantile(np.divide(reference.rates, one.rates), [0.5, 0.25, 0.75])
        lines.append(f"| {one.name} | {_short(middle, low, high)} | {_short(*ratios)} |")
    return "\n".join(lines)


@dataclass(frozen=True)
class Agreement:
    """Chances of a statistic as far off, for draws as they are and with a scale 2 % off."""

    name: str
    p_value: float
    p_value_off: float


def _spread_p_value(a: NDArray[Any], b: NDArray[Any]) -> float:
    ratio = float(np.var(a) / np.var(b))
    return 2.0 * float(stats.norm.sf(abs(ratio - 1.0) / math.sqrt(2.0 / a.size + 2.0 / b.size)))


def agreement(n: int, n_of_opendp: int) -> list[Agreement]:
    """Compare draws of the library with the normal law and with OpenDP's sampler."""
    ours = SystemNoise().gaussian(n, EXPONENT, STD) / CELLS
    theirs = OpenDPNoise().gaussian(n_of_opendp, EXPONENT, STD) / CELLS
    few = ours[: 2 * n_of_opendp]

    def against(name: str, draws: NDArray[Any], test: Callable[[Any], float]) -> Agreement:
        return Agreement(name, test(draws), test(1.02 * draws))

    def normal(draws: Any) -> float:
        return float(stats.kstest(draws, "norm", method="asymp").pvalue)

    return [
        against("dpglm and the normal law, Kolmogorov-Smirnov", ours, normal),
        against(
            "dpglm and OpenDP, Kolmogorov-Smirnov",
            few,
            lambda draws: float(stats.ks_2samp(draws, theirs, method="asymp").pvalue),
        ),
        against("dpglm and OpenDP, variance", few, lambda draws: _spread_p_value(draws, theirs)),
        against("OpenDP and the normal law, Kolmogorov-Smirnov", theirs, normal),
    ]


def agreement_table(found: Sequence[Agreement]) -> str:
    """Write p-values in Markdown."""
    lines = ["| laws compared | p-value | scale of the first 2 % off |", "|---|---:|---:|"]
    lines += [f"| {one.name} | {one.p_value:.2g} | {one.p_value_off:.1g} |" for one in found]
    return "\n".join(lines)


def low_bits(n: int) -> dict[str, dict[float, NDArray[np.int64]]]:
    """Find the place of the lowest bit of released numbers in (-1/2, 1/2), by value and noise."""

    def places(y: NDArray[np.float64]) -> NDArray[np.int64]:
        y = y[(np.abs(y) < 0.5) & (y != 0.0)]
        mantissa, exponent = np.frexp(y)
        digits = np.ldexp(mantissa, 53).astype(np.int64)
        return np.asarray(exponent - 53 + np.log2(digits & -digits).astype(np.int64))

    rng, system = np.random.default_rng(), SystemNoise()
    naive = {value: places(value + rng.standard_normal(n)) for value in (0.0, 1.0)}
    ours = {
        value: places(add_gaussian(np.full(n, value), 1.0, EXPONENT, system))
        for value in (0.0, 1.0)
    }
    return {"value + standard_normal()": naive, "add_gaussian(value, ...)": ours}


def draw(found: Mapping[str, Mapping[float, NDArray[np.int64]]], path: Path) -> None:
    """Draw how often the lowest bit stands where."""
    import matplotlib
    from matplotlib.figure import Figure

    bins = np.arange(-62, -10)
    options = {"svg.hashsalt": "dpglm", "svg.fonttype": "path", "font.size": 9}
    with matplotlib.rc_context(options):
        figure = Figure(figsize=(9.0, 3.2), layout="constrained")
        panels = figure.subplots(1, 2, sharey=True)
        for panel, (name, values) in zip(panels, found.items(), strict=True):
            for (value, places), color, shift in zip(
                values.items(), ("#0072b2", "#d55e00"), (-0.2, 0.2), strict=True
            ):
                share = (
                    np.bincount(np.maximum(places + 62, 0), minlength=bins.size)[: bins.size]
                    / places.size
                )
                panel.bar(bins + shift, share, 0.4, color=color, label=f"value {value:g}")
            panel.set_title(name, fontsize=9, family="monospace")
            panel.set_xlabel("place of the lowest bit of the released number")
            panel.set_xticks(
                [-60, -53, -40, -24], ["$2^{-60}$", "$2^{-53}$", "$2^{-40}$", "$2^{-24}$"]
            )
        panels[0].set_ylabel("share of releases in (-1/2, 1/2)")
        panels[0].legend()
        figure.savefig(path, metadata={"Date": None})


def _machine() -> str:
    names = ("numpy", "opendp", "scipy")
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in names)
    facts = about_machine()
    return f"Measured on {facts['processor']}, one core: Python {facts['python']}, {versions}."


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write; return the number of bars that were missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.noise", description=__doc__)
    parser.add_argument("--docs", type=Path, help="where to write; docs unless --quick is given")
    parser.add_argument("--quick", action="store_true", help="few draws, to try the code")
    options = parser.parse_args(arguments)
    n, n_of_opendp, rounds = (20_000, 200, 3) if options.quick else (1_000_000, 10_000, 15)
    rates = measure(n, n_of_opendp, rounds)
    low, middle, high = next(one for one in rates if one.name == OURS).quartiles
    bar = Bar("Gaussian draws per second", middle, high - low, BAR, True, "")
    verdict = "met" if bar.met else "MISSED"
    text = "\n\n".join(
        [
            _machine(),
            rate_table(rates),
            f"Bar: at least {BAR / 1e6:g} million Gaussian draws per second, {verdict}.",
            agreement_table(agreement(2 * n, 20 * n_of_opendp)),
        ]
    )
    print(text)
    docs = options.docs or (None if options.quick else DOCS)
    if docs is not None:
        put(docs / "evidence" / "speed.md", "noise", text)
        draw(low_bits(20 * n_of_opendp), docs / "figures" / "noise_low_bits.svg")
    return int(not bar.met)


if __name__ == "__main__":
    sys.exit(main())
