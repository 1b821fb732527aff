"""Dependencies point down: no package knows one above it, and no modules import each other."""

import ast
import collections
import functools
import graphlib
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src"

# From the bottom to the top; a package may import packages before it.
# `exceptions` and underscored modules of `dpglm` itself are below all, and import only each other.
LAYERS = (
    "pictures",
    "datasets",
    "problem",
    "privacy",
    "tables",
    "data",
    "oracle",
    "preprocessing",
    "ledger",
    "solvers",
    "selection",
    "papers",
    "certificate",
    "torch",
    "inference",
    "tabulate",
    "exploration",
    "moments",
    "survival",
    "evaluation",
    "guidance",
    "shapes",
    "export",
    "estimators",
    "report",
    "audit",
    "study",
    "effects",
    "cli",
)
KNOW_NOBODY = ("problem", "privacy", "tables", "datasets")
# An accountant leaves pure releases among sampled ones to the best accountant for them.
KNOWN_CIRCLES = (("dpglm.privacy.accounting.accountant", "dpglm.privacy.accounting.accountants"),)
MOST_FILES = 16
BACKENDS = ("dask", "networks", "partitions", "pyspark", "stream", "torch")


@dataclass(frozen=True)
class Module:
    """A module: its imports, as (module, whether only for types)."""

    name: str
    imports: frozenset[tuple[str, bool]]

    @property
    def package(self) -> str:
        return self.name.split(".")[1] if "." in self.name else ""


def is_helper(package: str) -> bool:
    return package.startswith("_") or package == "exceptions"


def imports(
    nodes: Iterable[ast.AST], names: frozenset[str], of_types: bool = False
) -> Iterator[tuple[str, bool]]:
    """Imports of modules with these names, those in functions included."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from ((one.name, of_types) for one in node.names if one.name in names)
        elif isinstance(node, ast.ImportFrom):
            both = ((f"{node.module}.{one.name}", node.module) for one in node.names)
            yield from (
                (full if full in names else str(module), of_types)
                for full, module in both
                if full in names or module in names
            )
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            yield from imports(node.body, names, of_types=True)
            yield from imports(node.orelse, names, of_types)
        else:
            yield from imports(ast.iter_child_nodes(node), names, of_types)


parsed = functools.cache(ast.parse)


@functools.cache
def module(name: str, text: str, names: frozenset[str]) -> Module:
    return Module(name, frozenset(imports([parsed(text)], names)))


def read(sources: Mapping[str, str]) -> dict[str, Module]:
    names = frozenset(sources)
    return {name: module(name, text, names) for name, text in sources.items()}


def library() -> dict[str, str]:
    found = {}
    for path in sorted((SOURCE / "dpglm").rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = path.read_text(encoding="utf-8")
    return found


def violations(modules: Mapping[str, Module]) -> list[str]:
    """Imports that point up, those for types included; `dpglm` itself knows everybody."""
    rank = {package: place for place, package in enumerate(LAYERS)}
    found = []
    for one in modules.values():
        for name, _ in one.imports:
            package = modules[name].package
            if not one.package or package == one.package or is_helper(package):
                continue
            if (
                is_helper(one.package)
                or not package
                or rank[package] > rank[one.package]
                or one.package in KNOW_NOBODY
            ):
                found.append(f"{one.name} imports {name}")
    return sorted(found)


def circle(modules: Mapping[str, Module]) -> list[str]:
    """Modules that import each other, at whatever time; imports for types alone do not count."""
    graph = {
        one.name: {name for name, of_types in one.imports if not of_types}
        for one in modules.values()
    }
    for above, below in KNOWN_CIRCLES:
        graph[above].discard(below)
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        found: list[str] = error.args[1]
        return found
    return []


@pytest.fixture(scope="module")
def sources():
    return library()


def test_every_package_has_its_layer(sources):
    packages = {one.package for one in read(sources).values() if one.package}
    assert {name for name in packages if not is_helper(name)} == set(LAYERS)


def test_dependencies_point_down(sources):
    assert violations(read(sources)) == []


def test_no_modules_import_each_other(sources):
    assert circle(read(sources)) == []


@pytest.mark.parametrize(
    ("where", "line"),
    [
        ("dpglm.problem.loss", "from dpglm.privacy.budget import PrivacyBudget"),
        ("dpglm.privacy.budget", "def f():\n    from dpglm.tables import schema"),
        ("dpglm.data.rows", "import dpglm.solvers.run"),
        ("dpglm.tables.schema", "from dpglm.report import verify"),
        ("dpglm.solvers.base", "from dpglm.certificate.verify import verdict"),
        ("dpglm.certificate.verify", "from dpglm.estimators import Ridge"),
        ("dpglm.estimators._private", "from dpglm.report.plots import coefficients"),
        ("dpglm.datasets.tables", "from dpglm.estimators import Ridge"),
        ("dpglm._json", "from dpglm.privacy.budget import PrivacyBudget"),
        ("dpglm.solvers.run", "import dpglm"),
        (
            "dpglm.ledger.entry",
            "import typing\nif typing.TYPE_CHECKING:\n    from dpglm.solvers.base import Plan",
        ),
    ],
)
def test_imports_that_point_up_are_found(sources, where, line):
    changed = {**sources, where: f"{sources[where]}\n{line}\n"}
    assert [one.split()[0] for one in violations(read(changed))] == [where]


@pytest.mark.parametrize(
    ("where", "line"),
    [
        ("dpglm.problem.loss", "from dpglm.problem.losses import Logistic"),
        ("dpglm.privacy.gdp", "def f():\n    from dpglm.privacy.budget import ApproximateDP"),
        ("dpglm.solvers.base", "import dpglm.solvers.run"),
    ],
)
def test_circles_are_found(sources, where, line):
    changed = {**sources, where: f"{sources[where]}\n{line}\n"}
    assert where in circle(read(changed))


def repeated_classes(sources):
    """Names of public classes that several modules define."""
    defined = collections.Counter(
        node.name
        for text in sources.values()
        for node in parsed(text).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    return [name for name, count in defined.items() if count > 1]


def test_class_names_are_unique(sources):
    assert repeated_classes(sources) == []


def test_repeated_class_names_are_found(sources):
    assert repeated_classes({**sources, "planted": "class ElasticNet:\n    pass\n"}) == [
        "ElasticNet"
    ]


def test_folders_hold_few_files():
    sizes = collections.Counter(path.parent for path in (SOURCE / "dpglm").rglob("*.py"))
    assert {str(folder): size for folder, size in sizes.items() if size > MOST_FILES} == {}


PROGRAM = """
import sys
# scikit-learn itself asks whether it is there, and it asks for pyarrow.
sys.modules["pandas"] = None
import numpy as np
from dpglm import LogisticRegression, LowSignalWarning
import warnings
warnings.simplefilter("ignore")
rng = np.random.default_rng(0)
X = rng.uniform(-1.0, 1.0, size=(500, 3))
model = LogisticRegression(classes=[0, 1], feature_bounds=(-1.0, 1.0))
model.fit(X, X[:, 0] > 0.0).predict(X)
print("\\n".join(sys.modules), end="|")
import dpglm.data.stream.stored
print("\\n".join(sys.modules))
"""
NOT_LOADED = (
    *(f"dpglm.data.{backend}" for backend in BACKENDS),
    "dpglm.pictures",
    "dpglm.report",
    "dpglm.audit",
    "dpglm.cli",
    "dpglm.datasets",
    "dpglm.torch",
    "dask",
    "distributed",
    "jinja2",
    "matplotlib",
    "pyarrow",
    "torch",
)


def test_a_fit_of_an_array_loads_no_other_backend_and_no_report():
    """Planted: a backend that is imported afterwards is found."""
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    fit, planted = (set(names.split("\n")) & set(NOT_LOADED) for names in done.stdout.split("|"))
    assert sorted(fit) == []
    assert planted == {"dpglm.data.stream"}
