"""All that is measured for the five papers: renews ``docs/evidence/papers.md``.

Run with ``make papers`` (an hour of one core), or with ``ARGS=--quick`` (minutes). Quick
sizes show only that the code runs, so they are written to a temporary folder. A part
without its data is skipped with a message, and its earlier text stays: ``mnist`` and
``cod-rna.csv.gz`` lie in ``--splits``, Fashion-MNIST in ``--fashion-mnist`` or where Debian's
package puts it.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from experiments import arora2022_johnson_lindenstrauss as embeddings
from experiments import (
    d2p2,
    d2p2_networks,
    rates,
    song2021_clipping,
    song2021_dimension,
    sun2023_counter_example,
    sun2023_tables,
    theorem_rates,
    wang2017_gradient_complexity,
    wang2017_tables,
)
from experiments.measured import DOCS

__all__ = ["PARTS", "main"]


@dataclass(frozen=True)
class Inputs:
    """Where data and pages are, and whether sizes are tiny."""

    splits: Path
    fashion_mnist: Path | None
    docs: Path
    quick: bool

    @property
    def common(self) -> list[str]:
        """Return the options that every part takes."""
        return ["--docs", str(self.docs), *(["--quick"] if self.quick else [])]

    @property
    def mnist(self) -> list[str]:
        """Return the option for MNIST; only tiny sizes do without it."""
        folder = self.splits / "mnist"
        return [] if self.quick and not folder.exists() else ["--mnist", str(folder)]

    @property
    def images(self) -> list[str]:
        """Return the options for MNIST and Fashion-MNIST."""
        fashion = self.fashion_mnist
        return [*self.mnist, *([] if fashion is None else ["--fashion-mnist", str(fashion)])]


PARTS: dict[str, Callable[[Inputs], None]] = {
    "song2021_clipping": lambda inputs: song2021_clipping.main(inputs.common),
    "song2021_dimension": lambda inputs: song2021_dimension.main(
        [*inputs.common, "--data", str(inputs.splits)]
    ),
    "wang2017_tables": lambda inputs: wang2017_tables.main(inputs.common),
    "theorem_rates": lambda inputs: theorem_rates.main(inputs.common),
    "rates": lambda inputs: rates.main(inputs.common),
    "arora2022_johnson_lindenstrauss": lambda inputs: embeddings.main(inputs.common),
    "sun2023_counter_example": lambda inputs: sun2023_counter_example.main(inputs.common),
    "sun2023_tables": lambda inputs: sun2023_tables.main([*inputs.common, *inputs.images]),
    "d2p2": lambda inputs: d2p2.main([*inputs.common, *inputs.mnist]),
    "d2p2_networks": lambda inputs: d2p2_networks.main([*inputs.common, *inputs.images]),
    "wang2017_gradient_complexity": lambda inputs: wang2017_gradient_complexity.main(inputs.common),
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure part by part, and say how long each took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", choices=sorted(PARTS), default=list(PARTS))
    parser.add_argument("--splits", type=Path, default=Path("splits"), help="folder of data")
    parser.add_argument("--fashion-mnist", type=Path, help="folder of Fashion-MNIST's files")
    parser.add_argument(
        "--quick", action="store_true", help="tiny sizes; the docs stay as they are"
    )
    options = parser.parse_args(arguments)
    for docs in _pages(options.quick):
        for name in options.only:
            start = time.perf_counter()
            try:
                PARTS[name](Inputs(options.splits, options.fashion_mnist, docs, options.quick))
            except FileNotFoundError as error:
                print(f"{name}: skipped, {error}", flush=True)
            print(f"{name}: {time.perf_counter() - start:.0f} s", flush=True)


def _pages(quick: bool) -> Iterator[Path]:
    if not quick:
        yield DOCS
        return
    with tempfile.TemporaryDirectory() as folder:
        docs = Path(folder) / "docs"
        shutil.copytree(DOCS, docs)
        yield docs


if __name__ == "__main__":
    main()
