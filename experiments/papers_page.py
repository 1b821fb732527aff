"""All that is measured for the five papers: renews ``docs/papers.md`` and what it links to.

Run with ``make papers`` (an hour of one core), or with ``ARGS=--quick`` (minutes). Quick
sizes show only that the code runs, so they are written to a temporary folder. Data that are absent
are left out, and said to be: MNIST and Cod-RNA lie in ``--splits``, Fashion-MNIST where Debian's
package puts it.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
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

Part = Callable[[Path, Path, bool], None]
"""Of the folder of data, the folder of pages, and whether sizes are tiny."""


def _options(docs: Path, quick: bool) -> list[str]:
    return ["--docs", str(docs), *(["--quick"] if quick else [])]


def _found(flag: str, path: Path) -> list[str]:
    return [flag, str(path)] if path.exists() else []


PARTS: dict[str, Part] = {
    "song2021_clipping": lambda data, docs, quick: song2021_clipping.main(_options(docs, quick)),
    "song2021_dimension": lambda data, docs, quick: song2021_dimension.main(
        [*_options(docs, quick), *_found("--rows", data / "cod-rna.csv.gz")]
    ),
    "wang2017_tables": lambda data, docs, quick: wang2017_tables.main(_options(docs, quick)),
    "theorem_rates": lambda data, docs, quick: theorem_rates.main(_options(docs, quick)),
    "rates": lambda data, docs, quick: rates.main(_options(docs, quick)),
    "arora2022_johnson_lindenstrauss": lambda data, docs, quick: embeddings.main(
        _options(docs, quick)
    ),
    "sun2023_counter_example": lambda data, docs, quick: sun2023_counter_example.main(
        _options(docs, quick)
    ),
    "sun2023_tables": lambda data, docs, quick: sun2023_tables.main(
        [*_options(docs, quick), *_found("--mnist", data / "mnist")]
    ),
    "d2p2": lambda data, docs, quick: d2p2.main(
        [*_options(docs, quick), *_found("--mnist", data / "mnist")]
    ),
    "d2p2_networks": lambda data, docs, quick: d2p2_networks.main(
        [*_options(docs, quick), *_found("--mnist", data / "mnist")]
    ),
    "wang2017_gradient_complexity": lambda data, docs, quick: wang2017_gradient_complexity.main(
        _options(docs, quick)
    ),
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure part by part, and say how long each took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", choices=sorted(PARTS), default=list(PARTS))
    parser.add_argument("--splits", type=Path, default=Path("splits"), help="folder of data")
    parser.add_argument(
        "--quick", action="store_true", help="tiny sizes; the docs stay as they are"
    )
    options = parser.parse_args(arguments)
    for docs in _pages(options.quick):
        for name in options.only:
            start = time.perf_counter()
            try:
                PARTS[name](options.splits, docs, options.quick)
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
