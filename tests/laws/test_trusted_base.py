"""No module outside the trusted base reaches a private row or draws noise: docs/trusted_base.md."""

import ast
import functools
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.visited import CALLS, visited

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "dpglm"
PAGE = ROOT / "docs" / "trusted_base.md"
MOST_LINES = 12_190
# Attributes of rows and blocks that give private values, of oracles that take functions of blocks,
# and of sources and curators that draw.
OF_ROWS = {
    "map_native",
    "weighted_sum",
    "located",
    "clip_entries",
    "batch_sums",
    "noisy_sum",
    "noisy_mean",
    "entered",
}
OF_BLOCKS = {"targets", "norms", "weights", "features", "stored", "predict", "starts"}
OF_NOISE = {"words", "rounded_gaussian", "gaussian"}
# Public facts about prepared rows.
PUBLIC = {"spec", "unit", "watch"}
NAMES_OF_NOISE = {"Bounded", "Curator", "add_gaussian", "bernoulli", "SampledBlock", "Block"}
PURE = ("problem", "tables", "exceptions")

# Exceptions: module, used name, and why that is safe.
ALLOWED = {
    ("selection/search.py", "words"): "a public seed",
    ("solvers/gradient/frank_wolfe.py", "clip_entries"): "returns rows, which it cannot read",
    ("solvers/second_order/newton.py", "rotated_rows"): "returns rows, which it cannot read",
    ("solvers/minimizer/objective_perturbation.py", "rows.n_rows"): (
        "the share of rows that count; its proof covers a private number of rows"
    ),
    ("solvers/second_order/newton_raphson_method.py", "rows.n_rows"): (
        "parts of the rows are refused where their number is private"
    ),
}


@functools.cache
def _listed() -> list[str]:
    return re.findall(r"^\| `([\w/.]+)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)


def _in_base(name: str) -> bool:
    return any(name == one or (one.endswith("/") and name.startswith(one)) for one in _listed())


def _dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


@functools.cache
def _private_functions() -> set[str]:
    """Functions of the base with a result that they declare private."""
    found = set()
    for package in ("oracle", "data"):
        for path in (SOURCE / package).rglob("*.py"):
            for node in ast.parse(path.read_text(encoding="utf-8")).body:
                if isinstance(node, ast.FunctionDef) and "Private." in (
                    ast.get_docstring(node) or ""
                ):
                    found.add(node.name)
    return found


def violations(name: str, source: str) -> Iterator[str]:
    """Actions of a module outside the base that only the base may do."""
    forbidden = NAMES_OF_NOISE | _private_functions()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("dpglm."):
            if (node.module or "") == "dpglm.privacy.noise.exact":
                yield node.module or ""
            yield from (one.name for one in node.names if one.name in forbidden)
        elif isinstance(node, ast.Call) and _dotted(node.func).rpartition(".")[2] in OF_NOISE:
            yield _dotted(node.func).rpartition(".")[2]
        elif isinstance(node, ast.Attribute):
            dotted = _dotted(node)
            owner, attribute = dotted.rpartition(".")[0], node.attr
            if attribute in OF_ROWS or dotted.endswith("curator.release"):
                yield attribute
            if dotted.endswith("mechanism.draw"):
                yield "mechanism.draw"
            if owner.endswith("oracle.rows") and attribute not in PUBLIC:
                yield f"rows.{attribute}"
            if owner.rpartition(".")[2] == "block" and attribute in OF_BLOCKS:
                yield f"block.{attribute}"


def _others() -> dict[str, str]:
    """Sources outside the base; audits see private values by design, and mark runs as such."""
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        name = path.relative_to(SOURCE).as_posix()
        if not _in_base(name) and not name.startswith("audit/"):
            found[name] = path.read_text(encoding="utf-8")
    return found


def test_other_modules_reach_no_row_and_draw_no_noise():
    found = {
        (name, what) for name, source in _others().items() for what in violations(name, source)
    }
    assert found <= ALLOWED.keys()
    assert ALLOWED.keys() <= found  # unused exceptions


@pytest.mark.parametrize(
    "planted",
    [
        "def f(oracle):\n    return [list(b.targets) for b in oracle.rows.blocks()]",
        "def f(rows):\n    return list(rows.map_native(lambda block: block.features()))",
        "def f(oracle, k):\n    return oracle.rows.sum(k)",
        "def f(oracle):\n    return oracle.rows.n_rows",
        "def f(o, d, k):\n    return o.noisy_sum(d, k, 1.0)",
        "from dpglm.oracle.gradients import clipped_gradient_sum",
        "from dpglm.oracle.choices import distances as d",
        "from dpglm.privacy.releases import Bounded",
        "from dpglm.privacy.releases import Curator",
        "def f(oracle, d, v):\n    return oracle.curator.release(d, v)",
        "def f(d, v, s):\n    return d.mechanism.draw(d, v, s)",
        "def f(noise):\n    return noise.words(1)",
        "from dpglm.privacy.noise.exact import rounded_gaussian",
    ],
)
def test_planted_violations_are_found(planted):
    assert list(violations("estimators/x.py", planted))


def _files(listed: str) -> set[Path]:
    """Return the files that the tables in a text list."""
    paths = {SOURCE / one for one in re.findall(r"^\| `([\w/.]+)` \|", listed, re.MULTILINE)}
    assert all(path.exists() for path in paths)
    return {
        file
        for path in paths
        for file in ([path] if path.is_file() else path.rglob("*"))
        if file.suffix in {".py", ".c", ".h"}
    }


def _parts_of_base() -> tuple[set[Path], set[Path]]:
    """Return the files that every fit and study rests on, and those of single methods."""
    always, some = PAGE.read_text(encoding="utf-8").split("Some of these files")
    return _files(always) - _files(some), _files(some)


def test_base_files_exist_and_are_few():
    files = _parts_of_base()[0]
    assert sum(len(one.read_text(encoding="utf-8").splitlines()) for one in files) <= MOST_LINES


def test_default_fits_and_studies_do_not_run_files_of_single_methods():
    ran = {SOURCE / path for call in CALLS.values() for path in visited(call)}
    assert not ran & _parts_of_base()[1]
    assert SOURCE / "privacy" / "releases.py" in ran


def _defined_in(module: str, name: str) -> str:
    """Return the module that defines a name exported by another one."""
    found = getattr(importlib.import_module(module), name)
    owner: str = getattr(found, "__name__" if inspect.ismodule(found) else "__module__", module)
    # Types of other packages have names there.
    return owner if owner.startswith("dpglm.") else module


def test_exports_are_traced_to_their_modules():
    assert _defined_in("dpglm.privacy", "gdp") == "dpglm.privacy.gdp"
    assert _defined_in("dpglm.privacy", "calibrate") == "dpglm.privacy.accounting.calibrate"


def test_base_imports_only_itself_and_pure_functions():
    for path in sorted(SOURCE.rglob("*.py")):
        name = path.relative_to(SOURCE).as_posix()
        if not _in_base(name) or name.startswith(("solvers/", "torch/")):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("dpglm."):
                for one in node.names:
                    module = _defined_in(node.module or "", one.name).split(".", 1)[1]
                    package, module = module.split(".")[0], module.replace(".", "/")
                    allowed = package.startswith("_") or package in PURE
                    assert allowed or _in_base(f"{module}.py") or _in_base(f"{module}/"), name
