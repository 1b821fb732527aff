"""Constructors are declared once, and described once: for users, scikit-learn, type checkers."""

from __future__ import annotations

import inspect
import typing
from dataclasses import field
from pathlib import Path

import pytest
from sklearn.base import BaseEstimator, clone

import dpglm.estimators
from dpglm import LogisticRegression, PrivateGridSearchCV, PrivatePipeline, Ridge
from dpglm.estimators._parameters import Declared
from dpglm.privacy import PrivacyBudget

PUBLIC = [getattr(dpglm.estimators, name) for name in dpglm.estimators.__all__]
every_class = pytest.mark.parametrize("kind", PUBLIC, ids=lambda kind: kind.__name__)


def described(kind, section="Parameters"):
    """Names that a section of the docstring describes, in order."""
    text = inspect.getdoc(kind).partition(f"\n{section}\n---")[2].partition("\n\n")[0]
    lines = [line for line in text.splitlines()[1:] if line and not line.startswith(" ")]
    return [line.partition(" : ")[0] for line in lines]


@every_class
def test_each_parameter_is_described_once_and_typed(kind):
    signature = inspect.signature(kind)
    assert sorted(described(kind)) == sorted(signature.parameters)
    hints = typing.get_type_hints(kind.__init__)
    assert set(hints) - {"return"} == set(signature.parameters)
    positional = [
        name
        for name, one in signature.parameters.items()
        if one.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
    ]
    assert described(kind)[: len(positional)] == positional
    assert issubclass(kind, BaseEstimator)


def test_own_parameters_come_first_then_the_budget():
    assert described(Ridge)[:4] == ["alpha", "target_bounds", "offset_bounds", "epsilon"]
    assert described(Ridge, "Attributes")[:2] == ["coef_", "intercept_"]
    assert described(LogisticRegression)[:3] == ["l1_ratio", "multi_class", "C"]
    assert described(PrivatePipeline)[:3] == ["steps", "shares", "epsilon"]
    assert described(PrivateGridSearchCV)[:2] == ["estimator", "param_grid"]


def test_positional_parameters_are_those_of_before():
    model = Ridge()
    assert PrivatePipeline([model]).steps == [model]
    assert PrivateGridSearchCV(model, {"alpha": [1.0]}).param_grid == {"alpha": [1.0]}
    for wrong in (lambda: Ridge(1.0), lambda: PrivatePipeline([model], 1.0)):
        with pytest.raises(TypeError, match="positional argument"):
            wrong()


def test_known_types_are_shown_as_written():
    assert inspect.signature(Ridge).parameters["budget"].annotation == "PrivacyBudget | None"
    assert typing.get_type_hints(Ridge.__init__)["budget"] == PrivacyBudget | None


class Base(Declared):
    """A base.

    Parameters
    ----------
    shared : int
        Shared.

    Notes
    -----
    Notes of the base.
    """

    shared: int = 1


class Own(Base):
    """A class.

    Parameters
    ----------
    first : str
        Positional.
    own : float
        Its own.
    """

    first: str = field(kw_only=False)
    own: float = 2.0


class Overriding(Own):
    """Another.

    Parameters
    ----------
    shared : int
        Other words.
    """

    shared: int = 3


class ByHand(Own):
    """A user's own, with a constructor of its own."""

    def __init__(self, extra: int = 0) -> None:
        super().__init__("x")
        self.extra = extra


def test_sections_and_entries_are_inherited_unless_overridden():
    assert described(Own) == ["first", "own", "shared"]
    assert "Notes of the base." in Own.__doc__
    assert described(Overriding) == ["first", "shared", "own"]
    assert "Other words." in Overriding.__doc__
    assert "        Shared." not in Overriding.__doc__
    assert Overriding("a").get_params() == {"first": "a", "own": 2.0, "shared": 3}
    assert list(inspect.signature(ByHand).parameters) == ["extra"]
    assert clone(ByHand(4)).extra == 4


ACCEPTED = """
from dpglm import LogisticRegression, PrivateGridSearchCV, PrivatePipeline, Ridge
from dpglm.privacy import ApproximateDP

model = Ridge(alpha=1.0, budget=ApproximateDP(1.0, 1e-6), feature_bounds={"age": (0, 99)})
PrivatePipeline([model], epsilon=2.0)
PrivateGridSearchCV(model, {"alpha": [1.0]})
LogisticRegression(multi_class="ovr").fit([[1.0]], [1]).privacy_.epsilon
"""
REFUSED = {
    'Ridge(alpha="a")': 'Argument "alpha" to "Ridge" has incompatible type "str"',
    "Ridge(C=1.0)": 'Unexpected keyword argument "C" for "Ridge"',
    "Ridge(1.0)": "Too many positional arguments",
    'LogisticRegression(multi_class="all")': 'Argument "multi_class"',
    "PrivatePipeline()": 'Missing positional argument "steps"',
}


@pytest.mark.slow
def test_type_checkers_see_constructors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    api = pytest.importorskip("mypy.api")
    source = Path(dpglm.__file__).parents[1]
    monkeypatch.setenv("MYPYPATH", str(source))
    program = tmp_path / "program.py"
    program.write_text(ACCEPTED + "\n".join(REFUSED) + "\n")
    out, err, _ = api.run(["--strict", "--cache-dir", str(tmp_path / "cache"), str(program)])
    found = [line for line in out.splitlines() if "program.py" in line and "error:" in line]
    assert len(found) == len(REFUSED), out + err
    for line, message in zip(found, REFUSED.values(), strict=True):
        assert message in line
