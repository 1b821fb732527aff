"""Count the tuned numbers of the estimators: ``python -m benchmarks.constants``.

Every number in the packages below counts as tuned, except

- 0, 1, -1, 2 and 0.5, exponents, indices, and defaults of arguments;
- percent, and guards against division by zero and overflow (below 1e-8 or above 1e8);
- those that ``NOT_TUNED`` lists with the reason.

A tuned number is a constant of its module, below a comment with the command that chose it
(``tests/test_constants.py``).
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["NOT_TUNED", "PACKAGES", "SRC", "Number", "main", "numbers", "tuned"]

SRC = Path(__file__).parents[1] / "src" / "dpglm"
PACKAGES = "solvers/second_order", "estimators/additive", "shapes", "inference"
_PLAIN = {0.0, 1.0, 2.0, 0.5}
_COMMAND = re.compile(r"``python -m ((?:experiments|benchmarks)\.\w+)")

_SECOND, _ADDITIVE = "solvers/second_order", "estimators/additive"
NOT_TUNED = {
    "what text and figures show": (
        *("shapes/picture.py", "inference/layout.py", "inference/summary.py"),
        *("inference/table.py", "inference/effects.py: _WIDTH, _BODY"),
        *("inference/effects.py: _LINE, _BAND", "inference/effects.py: Curve.plot"),
        "inference/effects.py: mean_effects",
    ),
    "accuracy of a computation: steps, nodes, grids, tolerances, draws": (
        f"{_SECOND}/least_squares.py: _ROUNDS",
        f"{_SECOND}/likelihood.py: _MOST_STEPS, _TOLERANCE",
        f"{_SECOND}/likelihood.py: _FARTHEST_SCORE, _LEAST_BEND",
        f"{_SECOND}/likelihood.py: _NODES, _CELLS, _END, _FARTHEST",
        f"{_SECOND}/newton.py: _LONGER",
        f"{_SECOND}/newton_noise.py: _DRAWS, _DIFFERENCE, _FARTHEST",
        f"{_SECOND}/preconditioner.py: with_products_of_indicators",
        f"{_SECOND}/posterior.py: _SCALES, _ROUNDS, _OWN_ROUNDS",
        f"{_SECOND}/posterior.py: SCALE_GRID",
        f"{_SECOND}/posterior.py: SWEEPS",
        f"{_SECOND}/posterior.py: column_moments",
        f"{_SECOND}/posterior.py: ScaleLaw.interval",
        f"{_SECOND}/random_intercepts.py: _USUAL, _UNIT, _NODES",
        f"{_SECOND}/random_intercepts.py: _SPACING, _SURE",
        f"{_SECOND}/random_intercepts.py: RandomInterceptsMethod.coefficient_noise",
        f"{_SECOND}/random_intercepts.py: RandomInterceptsMethod.step",
        f"{_SECOND}/random_intercepts.py: RandomInterceptsMethod._started",
        f"{_SECOND}/random_intercepts.py: RandomInterceptsMethod._basis",
        f"{_ADDITIVE}/_curves.py: _MOST_ROUNDS, _TOLERANCE, _LEAST, _TINY",
        f"{_ADDITIVE}/_errors.py: _ROUNDS, _REPEATS, _TINY",
        f"{_ADDITIVE}/_errors.py: _LEAST_SHARE, _FARTHEST",
        f"{_ADDITIVE}/resolution.py: _CHOICES",
        "inference/comparisons.py: _DRAWS",
        "inference/effects.py: _STEP, _SCORE_STEP",
    ),
    "a formula, or the law of even columns": (
        f"{_SECOND}/least_squares.py: MOST_SQUARES",
        f"{_SECOND}/least_squares.py: UNSURE",
        f"{_SECOND}/likelihood.py: minimize_quadratic",
        f"{_SECOND}/preconditioner.py: usual_basis_scale",
        f"{_ADDITIVE}/_errors.py: _within",
    ),
    # Gelman, Jakulin, Pittau and Su, "A weakly informative default prior distribution for logistic
    # and other regression models", Annals of Applied Statistics 2 (2008).
    "a convention": (
        f"{_SECOND}/posterior.py: PRIOR, PRIOR_INTERCEPT",
        f"{_ADDITIVE}/resolution.py: _SOME_DELTA",
    ),
    "a limit on time and memory": (
        f"{_SECOND}/newton.py: _MOST_STEPS_WITHOUT_NOISE",
        f"{_SECOND}/newton_raphson_settings.py: _ENOUGH_ROWS",
        f"{_SECOND}/random_intercepts.py: MOST_FIXED",
        f"{_SECOND}/sufficient_statistics.py: _MOST_SIDE",
        f"{_ADDITIVE}/resolution.py: MOST_FEATURES",
        *("inference/effects.py: _MOST, _EFFECTS", "inference/effects.py: _MOST_POINTS"),
        "shapes/shape.py: _PIECES, _PIECES_OF_PAIRS",
        "shapes/shape.py: _MOST_JOINT",
    ),
}
"""Files, or constants and functions of files, by the reason why their numbers are not tuned."""


@dataclass(frozen=True)
class Number:
    """A number in the source: its file, the constant or function that holds it, and its line."""

    file: str
    owner: str
    value: float
    line: int
    command: str  # The module that chose it; empty if no comment above names one.
    is_constant: bool

    @property
    def reason(self) -> str | None:
        """The reason why it is not tuned, if there is one."""
        places = {self.file, f"{self.file}: {self.owner}"}
        return next((why for why, where in NOT_TUNED.items() if places & set(where)), None)


def numbers(source: str, file: str) -> list[Number]:
    """Return the numbers that the rule counts, those that are not tuned included."""
    commands = {
        n: found[1]
        for n, line in enumerate(source.splitlines(), 1)
        if "#" in line and (found := _COMMAND.search(line))
    }

    def chosen(line: int) -> str:
        return next((commands[n] for n in sorted(commands, reverse=True) if n <= line), "")

    tree = ast.parse(source)
    return [
        Number(file, owner, float(node.value), node.lineno, chosen(node.lineno), is_constant)
        for statement in tree.body
        for owner, part, is_constant in _owners(statement)
        for node in _counted(part)
    ]


def tuned(folder: Path = SRC) -> list[Number]:
    """Return the tuned numbers of the packages."""
    paths = [path for package in PACKAGES for path in sorted((folder / package).rglob("*.py"))]
    found = [
        one
        for path in paths
        for one in numbers(path.read_text(encoding="utf-8"), str(path.relative_to(folder)))
    ]
    return [one for one in found if one.reason is None]


def main() -> None:
    """Print the tuned numbers by file, and their count."""
    found = tuned()
    for file, count in Counter(one.file for one in found).items():
        print(f"{count:5d}  {file}")
        for one in found:
            if one.file == file:
                print(f"{'':9}{one.line:4d}  {one.owner}: {one.value:g}  {one.command}")
    print(f"{len(found):5d}  in all")


def _owners(node: ast.stmt, within: str = "") -> Iterator[tuple[str, ast.AST, bool]]:
    """Yield the parts of a statement, each with its constant or function."""
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        name = f"{within}{node.name}"
        for one in node.body:
            if isinstance(one, (ast.FunctionDef, ast.ClassDef)):
                yield from _owners(one, f"{name}.")
            else:
                yield name, one, False
    else:
        targets = node.targets if isinstance(node, ast.Assign) else []
        targets = [node.target] if isinstance(node, ast.AnnAssign) else targets
        names = ", ".join(ast.unparse(one).strip("()") for one in targets)
        yield names, node, bool(targets) and not within


def _counted(node: ast.AST) -> Iterator[ast.Constant]:
    """Yield the numbers of a part that the rule counts."""
    if isinstance(node, ast.Constant):
        value = node.value if isinstance(node.value, (int, float)) else 0.0
        if abs(value) not in _PLAIN and 1e-8 <= abs(value) <= 1e8:
            yield node
        return
    for name, child in ast.iter_fields(node):
        is_skipped = (
            (isinstance(node, ast.Subscript) and name == "slice")
            or (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow) and name == "right")
            or (isinstance(node, ast.BinOp) and name == "left" and ast.unparse(child) == "100.0")
        )
        if not is_skipped and not isinstance(child, ast.arguments):
            for one in child if isinstance(child, list) else [child]:
                if isinstance(one, ast.AST):
                    yield from _counted(one)


if __name__ == "__main__":
    main()
