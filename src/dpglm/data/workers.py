"""Where the partitions of a Dask collection are computed: a cluster, or this process."""

from __future__ import annotations

import abc
import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any, final

from threadpoolctl import ThreadpoolController

__all__ = ["Workers", "current_workers"]


class Workers(abc.ABC):
    """Runs functions where their arguments are. What it hands out are handles of results."""

    @abc.abstractmethod
    def start(self, delayed: Sequence[Any]) -> list[Any]:
        """Compute Dask's delayed values and keep them where they are computed."""

    @abc.abstractmethod
    def share(self, value: bytes) -> Any:
        """Bring a value to everybody once; return what stands for it in ``map``."""

    @abc.abstractmethod
    def map(self, function: Callable[..., Any], name: str, *columns: Sequence[Any]) -> list[Any]:
        """Call a pure function for each place of the columns, of values and handles.

        ``name`` is never given twice: with the place it is the name of a result, so that what is
        computed twice replaces itself.
        """

    @abc.abstractmethod
    def collect(self, handles: Sequence[Any]) -> list[Any]:
        """Bring results here, one for each handle, in their order."""


@final
class _Cluster(Workers):
    def __init__(self, client: Any) -> None:
        self._client = client

    def start(self, delayed: Sequence[Any]) -> list[Any]:
        return list(self._client.compute(list(delayed)))

    def share(self, value: bytes) -> Any:
        # Copies on all workers outlive the death of some.
        return self._client.scatter(value, broadcast=True, hash=False)

    def map(self, function: Callable[..., Any], name: str, *columns: Sequence[Any]) -> list[Any]:
        names = [f"{name}-{place}" for place in range(len(columns[0]))]
        task = functools.partial(_with_one_blas_thread, function)
        return list(self._client.map(task, *columns, key=names, pure=False))

    def collect(self, handles: Sequence[Any]) -> list[Any]:
        return list(self._client.gather(list(handles)))


@final
class _ThisProcess(Workers):
    def start(self, delayed: Sequence[Any]) -> list[Any]:
        import dask

        return list(dask.compute(*delayed))

    def share(self, value: bytes) -> Any:
        return value

    def map(self, function: Callable[..., Any], name: str, *columns: Sequence[Any]) -> list[Any]:
        with _blas_libraries().limit(limits=1, user_api="blas"):
            return list(map(function, *columns))

    def collect(self, handles: Sequence[Any]) -> list[Any]:
        return list(handles)


def current_workers() -> Workers:
    """Return the cluster that Dask would use now, or this process if it would use none."""
    from dask.base import get_scheduler

    client = getattr(get_scheduler(), "__self__", None)
    return _ThisProcess() if client is None else _Cluster(client)


@functools.cache
def _blas_libraries() -> ThreadpoolController:
    # Looking for libraries takes milliseconds, and NumPy's and SciPy's are loaded by now.
    return ThreadpoolController()


_LIMITED = threading.local()


def _with_one_blas_thread(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call on a worker: it runs a task in each of its threads, which leaves one for BLAS.

    The limit stays: one that is lifted at the end of a task would be lifted for those beside it.
    """
    if not hasattr(_LIMITED, "limit"):
        _LIMITED.limit = _blas_libraries().limit(limits=1, user_api="blas")
    return function(*arguments)
