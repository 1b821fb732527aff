"""Whatever JSON-like argument a public name of docs/api.md is given, its message is one of ours."""

from __future__ import annotations

import enum
import functools
import importlib
import inspect
import itertools
import re
import traceback
import types
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from docs._site import api_pages
from dpglm.exceptions import PlanMismatchError
from tests.laws.json_arguments import JSON, SCHEMA, TABLE, parameters_of

PAGE = Path(__file__).parents[2] / "docs" / "api.md"
PACKAGES = re.findall(r"^\| `(dpglm[\w.]*)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)


def public_names() -> Iterator[tuple[str, Callable[..., Any]]]:
    """List the functions and classes of the packages that the page names, once each."""
    seen: set[int] = set()
    for package in PACKAGES:
        module = importlib.import_module(package)
        # Its names are for other modules: events and accountants check no types.
        if package == "dpglm.privacy":
            continue
        for name in api_pages.public_names(module):
            one = getattr(module, name)
            if callable(one) and id(one) not in seen:
                seen.add(id(one))
                # Python itself checks the values of enumerations, and errors take any arguments.
                if not (inspect.isclass(one) and issubclass(one, enum.Enum | BaseException)):
                    yield f"{package}.{name}", one


@functools.cache
def samples() -> dict[str, Any]:
    """Return values that required parameters accept, by name or by annotation."""
    import torch

    import dpglm
    from dpglm.data.rows import DataSpec, Protection
    from dpglm.problem import Logistic, Problem
    from dpglm.solvers import D2P2, NoisyGD

    budget = dpglm.ApproximateDP(1.0, 1e-5)
    data, problem = DataSpec(200, 2), Problem(Logistic())
    solver = NoisyGD(n_steps=3)
    plan = solver.plan(problem, budget, data)
    facts: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-5, "row_norm": 200.0}
    X = np.column_stack([TABLE["age"], np.ones(200)])
    model = dpglm.LogisticRegression(classes=["no", "yes"], solver=solver, **facts)
    model.fit(X, TABLE["ill"])
    return {
        "float": 0.5, "int": 3, "str": "x", "bool": True, "n_rows": 200,
        "X": X, "y": TABLE["ill"], "table": TABLE, "schema": SCHEMA, "formula": "ill ~ age",
        "model": model, "estimator": model, "certificate": model.privacy_,
        "solution": model.solution_, "Plan": plan, "PrivacyBudget": budget, "data": data,
        "problem": problem, "adjacency": dpglm.Adjacency.ZERO_OUT, "loss": Logistic(),
        "protection": Protection(dpglm.Adjacency.ZERO_OUT, budget, n_rows=200),
        "D2P2": D2P2(), "network": torch.nn.Linear(2, 1),
    }  # fmt: skip


def accepted(name: str, one: inspect.Parameter) -> Any:
    found, kind = samples(), str(one.annotation)
    return found.get(kind, found.get(name) if name not in ("name", "names") else "x")


def raw_error(call: Callable[..., Any], arguments: dict[str, Any]) -> Exception | None:
    """Return the exception of a call, unless it is an error of ours."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            call(**arguments)
    except (OSError, ImportError, PlanMismatchError):
        return None
    except Exception as error:  # noqa: BLE001 - a user would get it raw
        *_, (frame, _) = traceback.walk_tb(error.__traceback__)
        last = Path(frame.f_code.co_filename).parts
        return None if isinstance(error, ValueError) and {"dpglm", "sklearn"} & {*last} else error
    return None


def raw_errors(call: Callable[..., Any], values: Sequence[Any] = JSON) -> dict[str, Any]:
    """Return the first raw error of each parameter of a call, with the value."""
    known, found = parameters_of(call), {}
    needed = {
        key: accepted(key, one)
        for key, one in known.items()
        if one.default is inspect.Parameter.empty
    }
    for key, value in itertools.product(known, values):
        error = raw_error(call, needed | {key: value})
        if error is not None:
            found.setdefault(key, (value, error))
    return found


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("package", PACKAGES)
def test_public_names_end_in_errors_of_ours(
    package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    raw = {}
    for name, call in public_names():
        if name.rpartition(".")[0] == package:
            # A page takes half a second.
            values = JSON[::15] if package == "dpglm.report.html" else JSON
            raw |= {(name, key): one for key, one in raw_errors(call, values).items()}
    assert raw == {}


@functools.cache
def results() -> tuple[Any, ...]:
    """Return results of every kind, with the methods that users call."""
    import dpglm
    from dpglm.study import Split
    from dpglm.tables.schema import Schema

    facts: dict[str, Any] = {"epsilon": 9.0, "delta": 1e-5}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = dpglm.LogisticRegression(
            classes=["no", "yes"], row_norm=200.0, inference=True, **facts | {"epsilon": 50.0}
        ).fit(samples()["X"], TABLE["ill"])
        described = dpglm.describe(TABLE, SCHEMA, **facts)
        evaluated = dpglm.evaluate(samples()["model"], samples()["X"], TABLE["ill"], **facts)
        additive = dpglm.AdditiveClassifier(SCHEMA, **facts).fit(TABLE)
        study = dpglm.Study(SCHEMA, split=Split(0.4), **facts)
        formula = dpglm.from_formula(
            "ill ~ age + C(g)", SCHEMA, inference=True, **facts | {"epsilon": 50.0}
        ).fit(TABLE)
    shapes = additive.shapes_
    return (
        fitted, fitted.inference_, described, described["age"], evaluated, evaluated.all_rows,
        additive, shapes, shapes["age"], fitted.privacy_, study, Schema.from_dict(SCHEMA),
        fitted.solution_, formula.inference_, formula.inference_.curve("age"), samples()["Plan"],
        samples()["PrivacyBudget"],
    )  # fmt: skip


@pytest.mark.parametrize("place", range(17))
def test_methods_of_results_end_in_errors_of_ours(
    place: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = results()[place]
    raw = {}
    for name in dir(type(result)):
        one = inspect.getattr_static(type(result), name)
        # scikit-learn's own take any settings, for the next fit to check.
        is_own = name[0] != "_" and not name.startswith(("set_", "get_metadata"))
        if is_own and isinstance(one, types.FunctionType | classmethod):
            raw |= {(name, key): found for key, found in raw_errors(getattr(result, name)).items()}
    assert raw == {}


def test_law_finds_raw_errors() -> None:
    assert len(dict(public_names())) > 200
    assert isinstance(raw_error(lambda one: one[0], {"one": 1}), TypeError)
    assert isinstance(raw_error(lambda one: float(one), {"one": "x"}), ValueError)
    assert set(raw_errors(lambda one, two=0: one + two)) == {"one", "two"}
