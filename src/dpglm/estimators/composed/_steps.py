"""Named steps with scikit-learn's parameter names."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Self

from sklearn.utils import Bunch

from dpglm._validation import in_one_line
from dpglm.preprocessing.base import Preprocessor

__all__ = ["NamedSteps", "private_shares"]


class NamedSteps:
    """Parameter access for an estimator with a parameter ``steps``.

    A step is an object, or a pair of a name and an object. The default name is the class in lower
    case, with a number if there are several.
    """

    steps: Any

    def _named(self) -> list[tuple[str, Any]]:
        """Return the steps with their names, unchecked; none if ``steps`` is not a list."""
        steps = self.steps if isinstance(self.steps, list | tuple) else []
        names = [step[0] if _is_pair(step) else type(step).__name__.lower() for step in steps]
        plain = Counter(name for step, name in zip(steps, names, strict=True) if not _is_pair(step))
        seen: Counter[str] = Counter()
        named = []
        for step, name in zip(steps, names, strict=True):
            if _is_pair(step):
                named.append(step)
                continue
            seen[name] += 1
            named.append((f"{name}-{seen[name]}" if plain[name] > 1 else name, step))
        return named

    def _checked(self) -> list[tuple[str, Any]]:
        """Return the steps with their names, which must differ."""
        named = self._named()
        if not named:
            raise ValueError(
                f"steps must be a list of at least one step, got {in_one_line(self.steps)}"
            )
        names = [name for name, _ in named]
        taken = set(super().get_params(deep=False))  # type: ignore[misc]
        if len(set(names)) < len(names) or taken & set(names) or any("__" in n for n in names):
            raise ValueError(
                "steps must have names that differ from each other and from the parameters, "
                f"without '__' in them, got {names!r}"
            )
        return named

    @property
    def named_steps(self) -> Bunch:
        """The steps by name."""
        return Bunch(**dict(self._named()))

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters.

        Parameters
        ----------
        deep : bool, default=True
            Whether to include each step by name, and its settings as ``name__setting``.

        Returns
        -------
        dict
        """
        parameters: dict[str, Any] = super().get_params(deep=False)  # type: ignore[misc]
        if deep:
            for name, step in self._named():
                parameters[name] = step
                for key, value in _settings(step).items():
                    parameters[f"{name}__{key}"] = value
        return parameters

    def set_params(self, **parameters: Any) -> Self:
        """Set parameters, steps by their names, and settings of steps as ``name__setting``.

        Parameters
        ----------
        **parameters
            Named as in ``get_params``.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If a parameter does not exist.
        """
        if "steps" in parameters:
            self.steps = parameters.pop("steps")
        steps = dict(self._named())
        own: dict[str, Any] = {}
        of_steps: dict[str, dict[str, Any]] = {}
        for key, value in parameters.items():
            name, _, setting = key.partition("__")
            if name not in steps:
                own[key] = value
            elif setting:
                of_steps.setdefault(name, {})[setting] = value
            else:
                steps[name] = value
        super().set_params(**own)  # type: ignore[misc]
        for name, settings in of_steps.items():
            steps[name] = _with_settings(steps[name], settings)
        if len(own) < len(parameters):
            self._checked()
            self.steps = list(steps.items())
        return self


def private_shares(steps: Sequence[tuple[str, Preprocessor]], shares: object) -> list[float | None]:
    """Read the budget shares of private steps; None where the step's own rule decides."""
    names = [name for name, _ in steps]
    given = {} if shares is None else shares
    if not isinstance(given, Mapping) or not set(given) <= set(names):
        raise ValueError(
            f"shares must be a mapping from names of private steps, {names!r}, to shares of the "
            f"budget, got {shares!r}"
        )
    return [given.get(name) for name in names]


def _is_pair(step: Any) -> bool:
    return isinstance(step, tuple) and len(step) == 2 and isinstance(step[0], str)


def _settings(step: Any) -> dict[str, Any]:
    if isinstance(step, Preprocessor):
        return {field.name: getattr(step, field.name) for field in _fields(step)}
    settings: dict[str, Any] = getattr(step, "get_params", dict)()
    return settings


def _with_settings(step: Any, settings: dict[str, Any]) -> Any:
    if not isinstance(step, Preprocessor):
        return step.set_params(**settings)
    unknown = set(settings) - {field.name for field in _fields(step)}
    if unknown:
        raise ValueError(f"{sorted(unknown)} are not settings of {step!r}")
    return dataclasses.replace(step, **settings)  # type: ignore[type-var]


def _fields(step: Any) -> list[dataclasses.Field[Any]]:
    return [field for field in dataclasses.fields(step) if field.init]
