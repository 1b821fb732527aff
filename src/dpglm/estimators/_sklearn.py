"""scikit-learn's base classes with types, so that constructors are type-checked."""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = [
    "BaseEstimator",
    "ClassifierMixin",
    "MetaEstimatorMixin",
    "RegressorMixin",
    "TransformerMixin",
]

if TYPE_CHECKING:
    from typing import Any, Self

    from sklearn.utils import Tags

    class BaseEstimator:
        def get_params(self, deep: bool = True) -> dict[str, Any]: ...
        def set_params(self, **params: Any) -> Self: ...
        def __sklearn_clone__(self) -> Self: ...
        def __sklearn_tags__(self) -> Tags: ...

    class ClassifierMixin: ...

    class MetaEstimatorMixin: ...

    class RegressorMixin: ...

    class TransformerMixin:
        def fit_transform(self, X: Any, y: Any = None, **fit_params: Any) -> Any: ...
        def set_output(self, *, transform: str | None = None) -> Self: ...

else:
    from sklearn.base import (
        BaseEstimator,
        ClassifierMixin,
        MetaEstimatorMixin,
        RegressorMixin,
        TransformerMixin,
    )
