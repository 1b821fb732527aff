"""Where the partitions of a Dask collection are computed: a cluster, or this process."""

from __future__ import annotations

import abc
import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any, final

from threadpoolctl import ThreadpoolController

__all__ = ["Placement", "Workers", "current_workers", "here"]


class Workers(abc.ABC):
    """Runs functions where their arguments are, and hands out handles of results."""

    @abc.abstractmethod
    def start(self, delayed: Sequence[Any]) -> list[Any]:
        """Compute Dask's delayed values and keep them where they are computed."""

    @abc.abstractmethod
    def share(self, value: bytes) -> Any:
        """Send a value to all workers once; return what stands for it in ``map``."""

    @abc.abstractmethod
    def groups(self, handles: Sequence[Any]) -> list[list[int]]:
        """Group the positions of handles by the threads that have their results at hand."""

    @abc.abstractmethod
    def map(self, function: Callable[..., Any], name: str, *columns: Sequence[Any]) -> list[Any]:
        """Call a pure function for each position of columns of values, handles or lists of them.

        ``name`` is never given twice: with the position it names a result, so that what is
        computed twice replaces itself.
        """

    @abc.abstractmethod
    def collect(self, handles: Sequence[Any]) -> list[Any]:
        """Return the results of handles, in their order."""


@final
class _Cluster(Workers):
    def __init__(self, client: Any) -> None:
        self._client = client

    def start(self, delayed: Sequence[Any]) -> list[Any]:
        return list(self._client.compute(list(delayed)))

    def share(self, value: bytes) -> Any:
        # Copies on all workers outlive the death of some.
        return self._client.scatter(value, broadcast=True, hash=False)

    def groups(self, handles: Sequence[Any]) -> list[list[int]]:
        holders, threads = self._client.who_has(list(handles)), self._client.nthreads()
        places: dict[str, list[int]] = {}
        for place, handle in enumerate(handles):
            # Lost results are recomputed, on any worker.
            found = holders.get(handle.key) or [handle.key]
            least = min(found, key=lambda worker: len(places.get(worker, ())))
            places.setdefault(least, []).append(place)
        return [
            some[thread :: threads.get(worker, 1)]
            for worker, some in places.items()
            for thread in range(min(threads.get(worker, 1), len(some)))
        ]

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

    def groups(self, handles: Sequence[Any]) -> list[list[int]]:
        return [[place] for place in range(len(handles))]

    def map(self, function: Callable[..., Any], name: str, *columns: Sequence[Any]) -> list[Any]:
        with _blas_libraries().limit(limits=1, user_api="blas"):
            return list(map(function, *columns))

    def collect(self, handles: Sequence[Any]) -> list[Any]:
        return list(handles)


@final
class Placement:
    """Which partitions one task adds up; shared by all rows that lie in the same partitions."""

    def __init__(self, workers: Workers, partitions: Sequence[Any]) -> None:
        self._workers, self._partitions = workers, partitions
        self._groups: list[list[int]] = []
        self._where: list[str] = []
        self._held: list[Any] = []

    def groups(self) -> list[list[int]]:
        """Return the positions of partitions in groups that one task finds together."""
        if not self._groups:
            self._groups, self._where = self._workers.groups(self._partitions), []
        return self._groups

    def hold(self, handles: list[Any]) -> None:
        """Keep the handles of a sum that is under way, and release those of the one before.

        Releasing is a message, behind which the next one would have to wait.
        """
        self._held = handles

    def answered(self, where: list[str]) -> None:
        """Note which workers answered; if they differ from the last ones, partitions have moved."""
        if self._where and self._where != where:
            self._groups = []
        self._where = where


def here() -> str:
    """Name the worker that runs this task; empty outside of workers."""
    try:
        from distributed import get_worker

        return str(get_worker().address)
    except (ImportError, ValueError):
        return ""


def current_workers() -> Workers:
    """Return the cluster that Dask would use now, or else this process."""
    from dask.base import get_scheduler

    client = getattr(get_scheduler(), "__self__", None)
    return _ThisProcess() if client is None else _Cluster(client)


@functools.cache
def _blas_libraries() -> ThreadpoolController:
    # Looking for libraries takes milliseconds, and NumPy's and SciPy's are loaded by now.
    return ThreadpoolController()


_LIMITED = threading.local()


def _with_one_blas_thread(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function with one BLAS thread: a worker runs a task in each of its threads.

    The limit stays: lifting it at the end of a task would lift it for the tasks beside it.
    """
    if not hasattr(_LIMITED, "limit"):
        _LIMITED.limit = _blas_libraries().limit(limits=1, user_api="blas")
    return function(*arguments)
