"""The interface to scikit-learn of transformers that learn nothing from data."""

from __future__ import annotations

import abc
from typing import Generic, TypeVar

from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils import Tags

__all__ = ["PublicTransformer"]

S = TypeVar("S")


class PublicTransformer(TransformerMixin, BaseEstimator, abc.ABC, Generic[S]):
    """Maps each row by itself with public settings, so it need not be fitted."""

    def _settings(self) -> S:
        """Return the settings of ``fit``, or before it those that were given."""
        return vars(self).get("settings_") or self._checked()

    @abc.abstractmethod
    def _checked(self) -> S:
        """Check the settings that were given."""

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return True
