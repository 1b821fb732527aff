"""Count unidiomatic constructions in texts: ``python -m benchmarks.prose [--worst N] PATH...``.

A path is a Python file (its docstrings, comments and string messages are read), a Markdown file, a
template, a text file, or a folder. Prints counts per 10,000 words by file, worst first, and in
total. The score is a smoke detector and not a goal: a page that avoids these patterns can still be
unclear. Docstrings of scikit-learn have 2, those of optimistix 4.
"""

from __future__ import annotations

import argparse
import ast
import re
from collections.abc import Sequence
from pathlib import Path

__all__ = ["PATTERNS", "files", "found", "main", "score", "text_of", "words"]

PATTERNS = {
    "what-clause used as a noun": r"\b[Ww]hat (?!to\b|is this|if\b)(?!\w+ \?)\w+",
    "is no X": r"\b(?:is|are|was|were|be|has|have) no (?!more|longer|effect)\w+",
    "so many, so much": r"\bso (?:many|much|few|little)\b(?! that)",
    "sentence that starts with 'Of X'": r"(?m)(?:^|[.:;] )\s*Of (?!course)(?:\w+ ){1,6}",
    "beside": r"\bbeside\b",
    "whose, of which": r"\b(?:[Ww]hose|[Oo]f which|beyond which|by which|from which|at which)\b",
    "hardly": r"\bhardly\b",
    "as for, as of": r"\b[Aa]s (?:for|of)\b(?! version)",
    "nobody, one does": (
        r"\b(?:nobody|anybody|somebody|one (?:can|may|must|does|wants|looks|sees))\b"
    ),
    "data that say or hide": (
        r"\b(?:noise|rows?|data|it|they|curvature|solvers?) "
        r"(?:hides?|says?|sees?|tells?|hears?|knows?)\b"
    ),
}
_SUFFIXES = {".py", ".md", ".j2", ".rst", ".txt"}


def words(text: str) -> int:
    """Return the number of words of a text."""
    return len(re.findall(r"[A-Za-z']+", text))


def found(text: str) -> int:
    """Return the number of unidiomatic constructions in a text."""
    return sum(len(re.findall(pattern, text)) for pattern in PATTERNS.values())


def text_of(path: Path) -> str:
    """Return the prose of a file: without code, and in Markdown without tables."""
    source = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        return re.sub(r"(?ms)^```.*?^```|^\|.*?$", "", source)
    parts = [
        re.sub(r"(?m)^\s*(>>>|\.\.\.).*$", "", node.value)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value
    ]
    return "\n".join([*parts, *re.findall(r"(?m)(?:^\s*|  )#+ (.*)$", source)])


def files(paths: Sequence[Path]) -> list[Path]:
    """Return the files with prose among the paths and in their folders."""
    listed: list[Path] = []
    for path in paths:
        inside = [path] if path.is_file() else sorted(path.rglob("*"))
        listed += [one for one in inside if one.suffix in _SUFFIXES]
    return listed


def score(paths: Sequence[Path]) -> float:
    """Return unidiomatic constructions per 10,000 words of all files together."""
    texts = [text_of(path) for path in files(paths)]
    return 1e4 * sum(map(found, texts)) / max(sum(map(words, texts)), 1)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the scores."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.prose", description=__doc__)
    parser.add_argument("paths", nargs="+", type=Path)
    parser.add_argument("--worst", type=int, default=20, help="files to list")
    options = parser.parse_args(arguments)
    ranked = sorted(((score([path]), path) for path in files(options.paths)), reverse=True)
    for index, path in ranked[: options.worst]:
        print(f"{index:8.1f}  {path}")
    print(f"{score(options.paths):8.1f}  total, {len(ranked)} files")


if __name__ == "__main__":
    main()
