"""The installed package: dependencies, data, the console script, and docstrings."""

import importlib
import inspect
import json
import os
import pkgutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from importlib import resources
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

import dpglm
import hatch_build
from tests.slowly import together

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CORE = {
    "narwhals",
    "dp-accounting",
    "joblib",
    "mpmath",
    "numpy",
    "scikit-learn",
    "scipy",
    "threadpoolctl",
}
OPTIONAL = [
    "array_api_compat",
    "click",
    "dask",
    "distributed",
    "jinja2",
    "matplotlib",
    "opendp",
    "pandas",
    "polars",
    "pyarrow",
    "rich",
]
# Heavy or optional: none of them may be imported by `import dpglm` itself.
NOT_AT_IMPORT = [*OPTIONAL, "dp_accounting", "hypothesis", "mpmath", "torch"]


def _python(code):
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT / "src"
    )


def _pins():
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return [Requirement(line) for line in lines if not line.startswith("#")]


def _requirements():
    extras = PROJECT["optional-dependencies"]
    texts = [*PROJECT["dependencies"], *(text for group in extras.values() for text in group)]
    return [Requirement(text) for text in texts if not text.startswith("dpglm")]


class TestDependencies:
    def test_core_needs_these_packages_only(self):
        assert {Requirement(text).name for text in PROJECT["dependencies"]} == CORE

    def test_import_loads_nothing_optional(self):
        """Packages are there all the same, and that of networks loads torch when it is used."""
        done = _python(
            "import sys, dpglm\n"
            f"print([name for name in {NOT_AT_IMPORT} if name in sys.modules])\n"
            "import dpglm.torch\n"
            "print('torch' in sys.modules)\n"
            "print(dpglm.report.guidance.__name__)"
        )
        assert (done.stdout, done.stderr) == ("[]\nFalse\nguidance\n", "")

    def test_every_module_imports_with_the_core_install_only(self):
        done = _python(
            "import importlib, pkgutil, sys\n"
            f"sys.modules.update(dict.fromkeys({OPTIONAL}))\n"
            "import dpglm\n"
            "for module in pkgutil.walk_packages(dpglm.__path__, 'dpglm.'):\n"
            "    if not module.name.startswith(('dpglm._', 'dpglm.cli.')):\n"
            "        importlib.import_module(module.name)\n"
            "print('all', end='')"
        )
        assert (done.stdout, done.stderr) == ("all", "")

    def test_all_is_the_union_of_the_extras_for_users(self):
        extras = PROJECT["optional-dependencies"]
        (requirement,) = map(Requirement, extras["all"])
        assert requirement.name == "dpglm"
        apart = {"adbc", "all", "dask", "dev", "duckdb", "onnx", "opendp", "spark", "torch"}
        assert requirement.extras == set(extras) - apart


class TestConstraints:
    def test_each_line_pins_one_version_once(self):
        pins = _pins()
        assert all([spec.operator for spec in pin.specifier] == ["=="] for pin in pins)
        names = [canonicalize_name(pin.name) for pin in pins]
        assert len(set(names)) == len(names)

    @together("requirement", _requirements(), ids=str)
    def test_each_requirement_is_pinned_to_an_allowed_version(self, requirement):
        pins = {canonicalize_name(pin.name): pin for pin in _pins()}
        (spec,) = pins[canonicalize_name(requirement.name)].specifier
        assert Version(spec.version) in requirement.specifier


class TestPackageData:
    @pytest.mark.parametrize(
        "name",
        [
            "about.json",
            "adult.csv.gz",
            "adult.schema.json",
            "california_housing.csv.gz",
            "california_housing.schema.json",
            "LICENSES.md",
        ],
    )
    def test_is_present_and_small(self, name):
        content = resources.files("dpglm.datasets").joinpath("files", name).read_bytes()
        assert 0 < len(content) < 700_000

    def test_each_data_set_has_texts_about_it(self):
        content = resources.files("dpglm.datasets").joinpath("files", "about.json").read_text()
        about = json.loads(content)
        assert list(about) == ["adult", "california_housing", "fashion_mnist", "mnist"]
        for name, texts in about.items():
            assert texts.keys() == {"name", "description", "source", "licence"}
            assert texts["name"] == name
            assert all(texts.values())

    def test_each_data_file_has_its_terms_stated(self):
        folder = resources.files("dpglm.datasets") / "files"
        terms = (folder / "LICENSES.md").read_text()
        for entry in folder.iterdir():
            if entry.name.endswith(".csv.gz"):
                assert f"`{entry.name}`" in terms

    @pytest.mark.slow
    def test_wheel_has_code_types_data_and_licences_only(self, tmp_path):
        from hatchling.builders.wheel import WheelBuilder

        (path,) = WheelBuilder(str(ROOT)).build(directory=str(tmp_path))
        names = set(zipfile.ZipFile(path).namelist())
        info = f"dpglm-{dpglm.__version__}.dist-info"
        assert {name.split("/")[0] for name in names} == {"dpglm", info}
        assert {
            "dpglm/py.typed",
            "dpglm/datasets/files/about.json",
            "dpglm/datasets/files/adult.csv.gz",
            "dpglm/datasets/files/adult.schema.json",
            f"{info}/licenses/LICENSE",
            f"{info}/licenses/src/dpglm/datasets/files/LICENSES.md",
        } <= names
        modules = {
            f"dpglm/{path.relative_to(ROOT / 'src' / 'dpglm').as_posix()}"
            for path in (ROOT / "src" / "dpglm").rglob("*.py")
        }
        assert modules <= names

    @pytest.mark.slow
    def test_sdist_makes_a_wheel_that_works_without_the_repository(self, tmp_path):
        def build(kind, folder):
            command = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", tmp_path]
            subprocess.run(command, check=True, cwd=folder, capture_output=True)

        build("sdist", ROOT)
        (archive,) = tmp_path.glob("*.tar.gz")
        with tarfile.open(archive) as opened:
            opened.extractall(tmp_path, filter="data")
        build("wheel", tmp_path / f"dpglm-{dpglm.__version__}")
        (wheel,) = tmp_path.glob("*.whl")
        installed = tmp_path / "installed"
        with zipfile.ZipFile(wheel) as opened:
            opened.extractall(installed)
        done = subprocess.run(
            [sys.executable, ROOT / "tests" / "installed.py"],
            env=os.environ | {"PYTHONPATH": str(installed)},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr


class TestCompilation:
    @pytest.mark.parametrize(
        ("system", "environment", "options", "tag"),
        [
            (
                "darwin",
                {"ARCHFLAGS": "-arch arm64", "MACOSX_DEPLOYMENT_TARGET": "12.3"},
                ["-arch", "arm64", "-mmacosx-version-min=12.3"],
                "macosx_12_3_arm64",
            ),
            (
                "darwin",
                {"ARCHFLAGS": "-arch x86_64 -arch arm64"},
                ["-arch", "x86_64", "-arch", "arm64", "-mmacosx-version-min=11.0"],
                "macosx_11_0_universal2",
            ),
            ("win32", {}, ["-static-libgcc"], "win_amd64"),
            ("linux", {}, ["-fPIC"], "linux_x86_64"),
        ],
    )
    def test_tag_names_the_result(self, system, environment, options, tag, monkeypatch):
        name = {"win32": "win-amd64", "linux": "linux-x86_64", "darwin": "macosx-10.9-universal2"}
        monkeypatch.setattr("sysconfig.get_platform", lambda: name[system])
        assert hatch_build.options_and_tag(system, environment) == (options, tag)

    def test_compiler_that_is_asked_for_is_the_only_one(self):
        assert hatch_build.find_compiler({"CC": "no-such-compiler -m64"}) is None
        assert hatch_build.find_compiler({"CC": "sh -m64"}) == ["sh", "-m64"]


class TestCitation:
    def test_has_all_parts_of_the_format(self):
        yaml = pytest.importorskip("yaml")
        citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
        assert citation["cff-version"] == "1.2.0"
        assert {"message", "title", "authors", "license"} <= set(citation)
        assert citation["license"] == PROJECT["license"]
        assert citation["keywords"] == PROJECT["keywords"]


class TestConsoleScript:
    def test_is_declared(self):
        assert PROJECT["scripts"] == {"dpglm": "dpglm.cli:main"}

    def test_message_names_the_missing_extra(self):
        done = _python(
            "import sys\n"
            "sys.modules.update(dict.fromkeys(['click', 'rich', 'pyarrow']))\n"
            "from dpglm.cli import main\n"
            "main()"
        )
        assert done.returncode != 0
        assert "dpglm[cli]" in done.stderr
        assert "Traceback" not in done.stderr


def _public_modules():
    yield dpglm
    for found in pkgutil.walk_packages(dpglm.__path__, "dpglm."):
        if not any(part.startswith("_") for part in found.name.split(".")):
            yield importlib.import_module(found.name)


def _public_members(owner):
    for name, member in vars(owner).items():
        if not name.startswith("_"):
            yield name, member


def _is_documentable(member):
    return inspect.isfunction(member) or isinstance(member, property | classmethod | staticmethod)


def _undocumented():
    """Public modules, functions, classes and methods that neither have nor inherit a docstring."""
    for module in _public_modules():
        if not module.__doc__:
            yield module.__name__
        for name, member in _public_members(module):
            if getattr(member, "__module__", None) != module.__name__:
                continue
            where = f"{module.__name__}.{name}"
            if inspect.isfunction(member) and not member.__doc__:
                yield where
            if inspect.isclass(member):
                if not member.__doc__:
                    yield where
                for method_name, method in _public_members(member):
                    if _is_documentable(method) and not inspect.getdoc(
                        getattr(member, method_name)
                    ):
                        yield f"{where}.{method_name}"


def test_everything_public_has_a_docstring():
    assert list(_undocumented()) == []


def test_the_docstring_check_sees_a_missing_one(monkeypatch):
    monkeypatch.setattr(dpglm.datasets.load_adult, "__doc__", None)
    assert list(_undocumented()) == ["dpglm.datasets.tables.load_adult"]
