"""The API reference: a page for each package that docs/api.md lists, with every name in it."""

import ast
import enum
import importlib
import inspect
import re
import types

from sphinx.pycode import ModuleAnalyzer

LISTED = re.compile(r"^\| `(dpglm[\w.]*)` \|", re.MULTILINE)


class UndocumentedError(Exception):
    """A public name lacks a docstring."""


def packages(text):
    """Return the names of the public packages, as the table of docs/api.md has them."""
    return LISTED.findall(text)


def public_names(module):
    """Return ``__all__``, or the names that a package re-exports or a module defines."""
    if hasattr(module, "__all__"):
        return sorted(module.__all__, key=str.lower)
    if not hasattr(module, "__path__"):
        own = (name for name, value in vars(module).items() if is_own(module, name, value))
        return sorted(own, key=str.lower)
    return sorted(
        (
            name
            for name, value in vars(module).items()
            if not name.startswith("_")
            and not isinstance(value, types.ModuleType)
            # ``from __future__ import annotations`` leaves a name behind.
            and name != "annotations"
        ),
        key=str.lower,
    )


def is_own(module, name, value):
    """Tell whether a module defines a public class or function."""
    defined = isinstance(value, type) or inspect.isroutine(value)
    return defined and not name.startswith("_") and value.__module__ == module.__name__


def write(source):
    """Write the pages below ``source/api``, and link to them from ``source/api.md``."""
    index = source / "api.md"
    modules = {name: importlib.import_module(name) for name in packages(index.read_text())}
    homes = find_homes(modules)
    (source / "api").mkdir()
    for name, module in modules.items():
        (source / "api" / f"{name}.rst").write_text(package_page(name, module, homes))
    text = LISTED.sub(r"| [`\1`](api/\1.rst) |", index.read_text())
    tree = "\n".join(f"{name} <api/{name}>" for name in modules)
    index.write_text(f"{text}\n```{{toctree}}\n:hidden:\n\n{tree}\n```\n")


def find_homes(modules):
    """Return where each name has its page: of those that export it, the one nearest to it."""
    exporters = {}
    for name, module in modules.items():
        for member in public_names(module):
            value = getattr(module, member)
            key = (member, id(value))
            exporters.setdefault(key, []).append((name, nearness(name, value)))
    return {
        (name, member): max(exported, key=lambda one: one[1])[0]
        for (member, _), exported in exporters.items()
        for name, _ in exported
    }


def nearness(name, value):
    defined = getattr(value, "__module__", None) or ""
    shared = 0
    for ours, theirs in zip(name.split("."), defined.split("."), strict=False):
        if ours != theirs:
            break
        shared += 1
    return shared, name.count(".")


def package_page(name, module, homes):
    """Return the page of a package: its docstring, its names in short, then each in full."""
    lines = [heading(name, "="), f".. automodule:: {name}\n   :no-members:\n"]
    for title, members in groups(module).items():
        rows = "".join(
            f"   * - :py:obj:`{member} <{homes[name, member]}.{member}>`\n"
            f"     - {summary(module, member)}\n"
            for member in members
        )
        lines.append(f".. rubric:: {title}\n\n.. list-table::\n   :widths: 35 65\n\n{rows}")
    for member in (m for members in groups(module).values() for m in members):
        if homes[name, member] == name:
            lines += [heading(member, "-"), directive(module, member)]
    return "\n".join(lines)


def heading(text, line):
    return f"{text}\n{line * len(text)}\n"


def groups(module):
    """Return a package's names by kind, without empty kinds."""
    found = {}
    for title in ("Classes", "Functions", "Exceptions and warnings", "Other names"):
        names = [name for name in public_names(module) if kind(getattr(module, name)) == title]
        found |= {title: names} if names else {}
    return found


def kind(value):
    if isinstance(value, type):
        return "Exceptions and warnings" if issubclass(value, BaseException) else "Classes"
    return "Functions" if inspect.isroutine(value) else "Other names"


def directive(module, member):
    """Return the directive that documents one name."""
    value, name = getattr(module, member), f"{module.__name__}.{member}"
    if kind(value) == "Other names":
        return f".. py:data:: {name}\n\n   {documentation(module, member)}\n"
    if kind(value) == "Functions":
        return f".. autofunction:: {name}\n"
    inherited = "" if issubclass(value, enum.Enum) else "   :inherited-members:\n"
    return f".. autoclass:: {name}\n   :members:\n{inherited}"


def summary(module, member):
    """Return the first paragraph of a name's documentation."""
    return " ".join(documentation(module, member).split("\n\n")[0].split())


def documentation(module, member):
    """Return the docstring of a name, for data that which stands below the assignment."""
    value = getattr(module, member)
    if kind(value) != "Other names":
        text = inspect.getdoc(value)
    else:
        home = origin(module, member)
        text = "\n".join(home.find_attr_docs().get(("", member), []))
    if not text:
        raise UndocumentedError(f"{module.__name__}.{member}")
    return text


def origin(module, member):
    """Return an analysis of the module that a name is assigned in."""
    analyzer = ModuleAnalyzer.for_module(module.__name__)
    for node in ast.walk(ast.parse(analyzer.code)):
        if isinstance(node, ast.ImportFrom) and member in {alias.name for alias in node.names}:
            return origin(importlib.import_module(node.module), member)
    return analyzer
