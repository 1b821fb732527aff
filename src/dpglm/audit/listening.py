"""Runs that are listened to: everything released, and what it would have been on other rows."""

from __future__ import annotations

import abc
import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, final
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from dpglm.audit.laws import GaussianLaw, L2Law, Law, UnknownLaw, choice_law, flip_law
from dpglm.oracle import gradients
from dpglm.oracle.gradient_sums import differences, projection
from dpglm.privacy import curator as mechanisms
from dpglm.privacy.noise import NoiseSource
from dpglm.privacy.selection.choices import generalized_scores

__all__ = ["OutOfStepError", "Recording", "Release", "Replay", "listening"]

Draw = Callable[[NoiseSource], Any]


class OutOfStepError(Exception):
    """A replay asked for a release that the recorded run does not have."""


@final
@dataclass(frozen=True, eq=False)
class Release:
    """Something that left, and its law on the rows of the run.

    Parameters
    ----------
    value : ndarray
        What left; a choice is an array without dimensions.
    law : Law
        What an attacker who knows the rows expects. With a sampling rate, that of a sample that
        happens to have every row.
    sampling_rate : float
        With which each row entered.
    """

    value: NDArray[Any]
    law: Law
    sampling_rate: float


class _Listener(NoiseSource):
    """A noise source that hears of every release that draws from it."""

    is_private: ClassVar[bool] = False

    @abc.abstractmethod
    def release(self, law: Law, draw: Draw) -> Any:
        """Hand out a release, drawn with ``draw`` or known already."""

    @abc.abstractmethod
    def sample(self, size: int, rate: float, draw: Draw) -> NDArray[np.bool_]:
        """Hand out a Poisson sample."""


@final
class Recording(_Listener):
    """Draws from another source and keeps what is released.

    Parameters
    ----------
    source : NoiseSource
        What the run would have drawn from.

    Attributes
    ----------
    releases : list of Release
        In order.
    public : list of ndarray
        Random words that are not noise: the public randomness of the run.
    """

    name: ClassVar[str] = "recorded"

    def __init__(self, source: NoiseSource) -> None:
        self._source = source
        self._rate = 1.0
        self.releases: list[Release] = []
        self.public: list[NDArray[np.uint64]] = []

    def words(self, count: int) -> NDArray[np.uint64]:
        self.public.append(self._source.words(count))
        return self.public[-1]

    def release(self, law: Law, draw: Draw) -> Any:
        value = draw(self._source)
        self.releases.append(Release(np.array(value), law, self._rate))
        self._rate = 1.0
        return value

    def sample(self, size: int, rate: float, draw: Draw) -> NDArray[np.bool_]:
        self._rate = rate
        sampled: NDArray[np.bool_] = draw(self._source)
        return sampled

    @property
    def is_sampled(self) -> bool:
        """Whether a release was about a secret sample, so that its law here is not known."""
        return any(release.sampling_rate < 1.0 for release in self.releases)


@final
class Replay(_Listener):
    """Releases again what a recorded run released, and keeps what the law would have been.

    Parameters
    ----------
    recording : Recording
        Of a run, on these or on other rows.

    Attributes
    ----------
    laws : list of Law
        Of each release on the rows of the replay, given all releases before it. Samples have
        every row.
    """

    name: ClassVar[str] = "replayed"

    def __init__(self, recording: Recording) -> None:
        self._public = iter(recording.public)
        self._releases = iter(recording.releases)
        self.laws: list[Law] = []

    def words(self, count: int) -> NDArray[np.uint64]:
        words = next(self._public, None)
        if words is None or words.size != count:
            raise OutOfStepError
        return words

    def release(self, law: Law, draw: Draw) -> Any:
        release = next(self._releases, None)
        if release is None:
            raise OutOfStepError
        self.laws.append(law)
        # Methods may change arrays that they are given.
        return release.value.copy() if release.value.ndim else release.value.item()

    def sample(self, size: int, rate: float, draw: Draw) -> NDArray[np.bool_]:
        return np.ones(size, dtype=bool)


def _gaussian(value: Any, std: float, *_: Any) -> Law:
    return GaussianLaw(np.array(value, dtype=np.float64), std)


def _l2(value: Any, scale: float, *_: Any) -> Law:
    return L2Law(np.array(value, dtype=np.float64), scale)


def _generalized(scores: Any, sensitivities: Any, epsilon: float, failure: float) -> Law:
    return choice_law(generalized_scores(scores, sensitivities, epsilon, failure), 1.0, epsilon)


def _in_runs(scores: Any, lengths: Any, sensitivity: float, epsilon: float) -> Law:
    return choice_law(scores, sensitivity, epsilon, lengths)


def _unknown(*_: Any) -> Law:
    return UnknownLaw()


# All ways in which a curator lets something out, and the law of each from its arguments.
_RELEASES: Mapping[str, Callable[..., Law]] = MappingProxyType(
    {
        "add_gaussian": _gaussian,
        "add_l2_noise": _l2,
        "exponential_mechanism": choice_law,
        "exponential_mechanism_in_runs": _in_runs,
        "first_above": _unknown,
        "generalized_exponential_mechanism": _generalized,
        "permute_and_flip": flip_law,
    }
)
_SAMPLERS = (differences, gradients, projection)


@contextlib.contextmanager
def listening() -> Iterator[None]:
    """Let ``Recording`` and ``Replay`` hear what curators release.

    Notes
    -----
    Only curators with such a source are heard: fits in other threads are as always. One of these
    at a time in a process.
    """
    with contextlib.ExitStack() as stack:
        for name, law in _RELEASES.items():
            heard = _heard(getattr(mechanisms, name), law)
            stack.enter_context(mock.patch.object(mechanisms, name, heard))
        for module in _SAMPLERS:
            sampled = _sampled(module.bernoulli)
            stack.enter_context(mock.patch.object(module, "bernoulli", sampled))
        yield


def _heard(original: Callable[..., Any], law: Callable[..., Law]) -> Callable[..., Any]:
    def release(*arguments: Any) -> Any:
        *given, source = arguments
        if not isinstance(source, _Listener):
            return original(*arguments)
        return source.release(law(*given), lambda inner: original(*given, inner))

    return release


def _sampled(original: Callable[..., Any]) -> Callable[..., Any]:
    def bernoulli(source: NoiseSource, size: int, probability: float) -> Any:
        if not isinstance(source, _Listener):
            return original(source, size, probability)
        return source.sample(size, probability, lambda inner: original(inner, size, probability))

    return bernoulli
