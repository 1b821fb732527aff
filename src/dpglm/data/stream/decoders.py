"""Columns of record batches as matrices: numbers as they are, or encoded by a schema."""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, final

import numpy as np
from numpy.typing import NDArray

from dpglm.data.rows import Floats
from dpglm.data.spec import FloatType
from dpglm.tables.cells import MISSING_CURE, check_no_dates, normal, plain_column
from dpglm.tables.schema import Schema


class Part(Protocol):
    """A part of a table with columns of its own, such as one of several files."""

    @property
    def title(self) -> str:
        """The part in words."""

    @property
    def types(self) -> Mapping[str, Any]:
        """Types of pyarrow by the normal names of columns."""


class Decoder(abc.ABC):
    """Turns columns of a batch into a matrix."""

    dtype: FloatType
    """Type of the matrix."""
    columns: tuple[str, ...]
    """Names of the feature columns."""
    names: tuple[str, ...]
    """Names of the columns of the matrix."""

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """Names that a table of the same columns would have, if each is one feature."""
        return None

    @abc.abstractmethod
    def features(self, batch: Any) -> Floats:
        """Return the features of a batch, shape ``(rows, len(names))``."""

    @abc.abstractmethod
    def targets(self, column: Any) -> NDArray[Any]:
        """Return the targets of a batch, in the user's units."""


@final
class NumberColumns(Decoder):
    """Columns of numbers, true or false, or lists of numbers of one length, alike in all parts."""

    def __init__(self, columns: tuple[str, ...], parts: Sequence[Part], dtype: FloatType) -> None:
        if not columns:
            raise ValueError("columns must name at least one column of features, got none")
        self.columns, self.dtype = columns, dtype
        self._widths = [_width(parts[0], name) for name in columns]
        for part in parts[1:]:
            for name, width in zip(columns, self._widths, strict=True):
                if _width(part, name) != width:
                    raise ValueError(
                        f"{part.title}: column {name!r} is not of the length that it has in "
                        f"{parts[0].title}"
                    )
        self.names = tuple(
            name if width is None else f"{name}[{i}]"
            for name, width in zip(columns, self._widths, strict=True)
            for i in range(width or 1)
        )

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        return self.columns if self.names == self.columns else None

    def features(self, batch: Any) -> Floats:
        if len(self.columns) == 1:
            shape = batch.num_rows, self._widths[0] or 1
            return _numbers(batch, self.columns[0], self.dtype).reshape(shape)
        X: Floats = np.empty((batch.num_rows, len(self.names)), self.dtype)
        start = 0
        for name, width in zip(self.columns, self._widths, strict=True):
            stop = start + (width or 1)
            values = _numbers(batch, name, self.dtype)
            X[:, start:stop] = values.reshape(batch.num_rows, width or 1)
            start = stop
        return X

    def targets(self, column: Any) -> NDArray[Any]:
        return np.asarray(column.to_numpy(zero_copy_only=False))


@final
class EncodedColumns(Decoder):
    """Columns that a schema encodes."""

    def __init__(self, schema: Schema, dtype: FloatType) -> None:
        self._schema, self.dtype = schema, dtype
        self.columns, self.names = schema.column_names, schema.feature_names

    def features(self, batch: Any) -> Floats:
        table = {name: plain_column(batch.column(name)) for name in self.columns}
        return self._schema.encode(table, self.dtype)

    def targets(self, column: Any) -> NDArray[Any]:
        if not self._schema.has_target:
            return np.asarray(plain_column(column))
        return self._schema.encode_target(column)


class RowEncoder(Protocol):
    """Turns a table of the columns ``names`` into ``width`` numbers for each row."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns."""

    @property
    def width(self) -> int:
        """Number of columns of the result."""

    def encode(self, table: Any) -> NDArray[np.float64]:
        """Encode rows, each by itself."""


@final
class TableColumns(Decoder):
    """Columns that an encoder of whole tables reads."""

    def __init__(self, encoder: RowEncoder) -> None:
        self._encoder, self.dtype = encoder, "float64"
        self.columns = encoder.names
        self.names = tuple(map(str, range(encoder.width)))

    def features(self, batch: Any) -> Floats:
        return self._encoder.encode(
            {name: plain_column(batch.column(name)) for name in self.columns}
        )

    def targets(self, column: Any) -> NDArray[Any]:
        raise AssertionError("a column of targets is missing")


def _width(part: Part, name: str) -> int | None:
    """Length of the lists in a column of numbers; None for plain numbers."""
    import pyarrow as pa

    kind, width = part.types[normal(name)], None
    check_no_dates(f"{part.title}: column {name!r}", kind)
    if pa.types.is_fixed_size_list(kind):
        kind, width = kind.value_type, kind.list_size
    tests = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_decimal)
    if not any(test(kind) for test in tests):
        raise ValueError(
            f"{part.title}: column {name!r} has the type {kind}, but features must be "
            "numbers, true/false or lists of numbers of one fixed length (pyarrow.list_(type, "
            "length)): leave it out of columns=, or give a schema= that encodes it"
        )
    return width


def _numbers(batch: Any, name: str, dtype: FloatType) -> NDArray[Any]:
    """Read a column as numbers; lists one after the other."""
    import pyarrow as pa

    column = batch.column(name)
    require_values(column, name)
    if pa.types.is_fixed_size_list(column.type):
        column = column.flatten()
        require_values(column, name)
    numbers: NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return numbers.astype(dtype, copy=False)


def require_values(column: Any, name: str, cure: str = MISSING_CURE) -> None:
    """Refuse missing values."""
    if column.null_count:
        row = int(np.argmin(column.is_valid().to_numpy(zero_copy_only=False)))
        raise ValueError(f"column {name!r}, row {row + 1}: the value is missing. {cure}")
