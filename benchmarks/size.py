"""Count the files, classes and lines of the package: ``python -m benchmarks.size``."""

from __future__ import annotations

import ast
import io
import tokenize
from pathlib import Path

__all__ = ["counts", "main"]

SRC = Path(__file__).parents[1] / "src"
_NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
    tokenize.ENCODING,
}


def counts(folder: Path = SRC) -> dict[str, int]:
    """Count files, classes, abstract classes, lines, and code lines (without docstrings)."""
    found = dict.fromkeys(("files", "classes", "abstract classes", "lines", "code lines"), 0)
    for path in sorted(folder.rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        nodes = list(ast.walk(ast.parse(source)))
        classes = [node for node in nodes if isinstance(node, ast.ClassDef)]
        found["files"] += 1
        found["classes"] += len(classes)
        found["abstract classes"] += sum(map(_is_abstract, classes))
        found["lines"] += len(source.splitlines())
        found["code lines"] += len(_code(source) - _docstrings(nodes))
    return found


def main() -> None:
    """Print the counts."""
    for name, count in counts().items():
        print(f"{count:7d}  {name}")


def _is_abstract(node: ast.ClassDef) -> bool:
    """Whether a class has an abstract method of its own."""
    return any(
        "abstractmethod" in ast.unparse(decorator)
        for one in node.body
        if isinstance(one, ast.FunctionDef)
        for decorator in one.decorator_list
    )


def _code(source: str) -> set[int]:
    """Return the numbers of lines that hold more than a comment."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    return lines


def _docstrings(nodes: list[ast.AST]) -> set[int]:
    """Return the numbers of lines of docstrings, those of attributes included."""
    texts = [
        node
        for node in nodes
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    ]
    return {line for node in texts for line in range(node.lineno, (node.end_lineno or 0) + 1)}


if __name__ == "__main__":
    main()
