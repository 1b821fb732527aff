"""Rows that are not one matrix in memory: what estimators ask of them, and who brings them."""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, TypeAlias, TypeVar

from numpy.typing import NDArray

from dpglm.data.prepare import ColumnScaling
from dpglm.data.registry import maker_of_collections
from dpglm.data.rows import Rows
from dpglm.data.spec import DataSpec, FloatType
from dpglm.tables.schema import Schema

__all__ = ["NO_TARGETS", "Collection", "TargetMap", "as_collection"]

T = TypeVar("T")

NO_TARGETS = "y must be given, got None: rows without targets can only be predicted"

TargetMap: TypeAlias = Callable[[NDArray[Any]], NDArray[Any]]
"""From the user's targets of some rows to one number for each, row by row; can be pickled."""


class Collection(abc.ABC):
    """Rows with their targets and weights: streamed from files, on a device, or on a cluster.

    Notes
    -----
    Nothing public is guessed from such rows: an estimator asks for every bound to be declared.
    """

    copies_cheaply: ClassVar[bool] = False
    """Whether a solver may make copies of all rows in memory."""
    is_numpy: ClassVar[bool] = True
    """Whether sums over rows are NumPy's, or compiled for its arrays."""

    @property
    @abc.abstractmethod
    def shape(self) -> tuple[int, int]:
        """Rows and features; the number of rows is the true one, private under ``add_remove``."""

    @property
    @abc.abstractmethod
    def dtype(self) -> FloatType:
        """What the rows are stored as."""

    @property
    def is_sparse(self) -> bool:
        """Whether prepared rows will be stored as CSR."""
        return False

    @property
    def is_weighted(self) -> bool:
        """Whether rows have weights of their own."""
        return False

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """Names of the features, where they have any."""
        return None

    @property
    def schema(self) -> Schema | None:
        """What encoded a table's columns as these features, where that is known."""
        return None

    def longest_row(self) -> float:
        """Norm of the longest row, for estimators that were told no bound.

        Raises
        ------
        ValueError
            Unless the rows are one matrix in memory.
        """
        raise ValueError(
            "row_norm or feature_bounds must be declared for rows that are not one matrix in "
            "memory, got neither"
        )

    @abc.abstractmethod
    def prepared(
        self,
        spec: DataSpec,
        scaling: ColumnScaling | None,
        targets: TargetMap,
        weights: TargetMap | None = None,
    ) -> Rows:
        """Make rows satisfy the bounds of ``spec``; nothing is released here.

        Parameters
        ----------
        spec : DataSpec
            The public facts; its dtype may be finer than the stored one.
        scaling : ColumnScaling, optional
            Applied to the columns first.
        targets : callable
            From the user's targets to the loss's convention, within the bounds of ``spec``.
        weights : callable, optional
            From the user's targets to a factor on each row's weight (class weights).

        Returns
        -------
        Rows
            As ``dpglm.data.prepare.prepare_rows`` prepares them.

        Raises
        ------
        ValueError
            If a value is not a finite number, or a target is not allowed. All rows are looked at
            before anything is returned.
        """

    @abc.abstractmethod
    def apply(self, function: Callable[[Any], NDArray[Any]]) -> Any:
        """Apply a function to the features of each row.

        Parameters
        ----------
        function : callable
            From the features of some rows, where these are, to an array on the host with one
            entry or row for each; row by row; can be pickled.

        Returns
        -------
        array
            The results of all rows, of the kind that the rows are of: an array of Dask is
            computed when it is asked for, and numbers about a tensor are where that is.

        Raises
        ------
        ValueError
            If a value is not a finite number.
        """

    @abc.abstractmethod
    def parts(self, function: Callable[[Any, Any, Any], T]) -> Iterable[T]:
        """Call a function for some rows at a time, where they are.

        Parameters
        ----------
        function : callable
            Of features, targets and weights, or None for weights; can be pickled.

        Returns
        -------
        iterable
            One result for each part of the rows, in order.

        Raises
        ------
        ValueError
            If there are no targets, or a value is not a finite number.
        """


def as_collection(X: Any, y: Any = None, weights: Any = None) -> Collection | None:
    """Return the collection that the arguments of a fit are, or the rows of a prediction.

    Parameters
    ----------
    X : Collection, or an object of a package that has a backend
        The rows.
    y, weights : array_like, optional
        Their targets and weights, of a kind that the backend takes; None for a ``Collection``,
        which has its own, and where nothing but features is asked for.

    Returns
    -------
    Collection or None
        None for what is one matrix in memory.

    Raises
    ------
    ValueError
        If the arguments do not go together.
    """
    if isinstance(X, Collection):
        if y is not None or weights is not None:
            raise ValueError(
                f"y and sample_weight must be None for {type(X).__name__}, which has its own"
            )
        return X
    make = maker_of_collections(type(X))
    found: Collection | None = None if make is None else make(X, y, weights)
    return found
