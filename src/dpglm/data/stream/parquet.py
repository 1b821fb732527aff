"""A Parquet file, or a folder of them, as a collection."""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from typing import Any, final

from dpglm._validation import check_one_of, check_path
from dpglm.data.spec import FloatType
from dpglm.data.stream.parquet_source import (
    Decoder,
    EncodedColumns,
    NumberColumns,
    ParquetFile,
    ParquetSource,
    RowEncoder,
    TableColumns,
    column_of,
)
from dpglm.data.stream.stored import StoredRows
from dpglm.tables.cells import check_unique, normal
from dpglm.tables.offsets import OffsetColumn
from dpglm.tables.schema import Schema

__all__ = ["ParquetRows", "encoded_files"]


@final
class ParquetRows(StoredRows):
    """Rows of a Parquet data set that need not fit into memory.

    Parameters
    ----------
    path : path-like
        A file, or a folder whose files ending in .parquet or .pq, also in its subfolders, are
        read in the order of their names. Names that begin with ``.`` or ``_`` are left out, files
        and folders alike. A folder ``year=2024`` gives its rows the column ``year``, as text.
    target : str, optional
        Name of the target's column; with a schema, that of the schema. Rows that are only predicted
        need none: give ``columns``, or a schema.
    columns : sequence of str, optional
        Feature columns in order: numbers, true/false, or lists of numbers of one fixed length.
        By default all but target, weights and offsets; with a schema, those of the schema.
    schema : Schema, optional
        Encodes the columns, as ``Schema.encode`` does; then declare the estimator's ``row_norm``
        as ``schema.row_norm``, and its facts about the target as
        ``schema.target.estimator_parameters()``.
    sample_weight : str, optional
        Name of a column of weights; the estimator's ``weight_bound`` must be declared.
    offset : str, optional
        Name of a column of offsets, as of the estimator's ``fit``.
    exposure : str, optional
        Name of a column of exposures, whose logarithms are offsets. Predictions are for them.
    groups : str, optional
        Name of a column of numbers or texts that says whose each row is (a person, a household),
        where all rows of a group are protected together; it must not be among the features. A fit
        reads it into memory. Without a cache the rows of each group must stand together, in one
        file or across the end of one; no group is ever split.
    dtype : {"float32", "float64"}, default="float32"
        What features become.
    cache : path-like, optional
        Folder for a copy of the prepared rows while a fit lasts: decoding Parquet at every step
        takes several times as long as reading this copy. It holds private rows: keep it where
        you keep the file. It has no name, and vanishes with the process. By default there is
        none.

    Raises
    ------
    ValueError
        If there is no file, a column is missing or of a type that is no number, or the folder
        for the cache does not exist.
    ImportError
        If pyarrow is not installed.

    Notes
    -----
    Nothing but schemas and numbers of rows is read before a fit. Memory holds a few chunks of 16
    MiB, whatever the sizes of file and row groups. Rows can be visited in the order of the file
    only, so solvers that shuffle rows need a cache.

    Examples
    --------
    >>> import pyarrow as pa, pyarrow.parquet as pq, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     pq.write_table(pa.table({"a": [1.0, 2.0], "y": [0, 1]}), f"{folder}/part-0.parquet")
    ...     rows = ParquetRows(folder, target="y")
    >>> rows.shape, rows.feature_names
    ((2, 1), ('a',))
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        target: str | None = None,
        *,
        columns: Sequence[str] | None = None,
        schema: Schema | None = None,
        sample_weight: str | None = None,
        offset: str | None = None,
        exposure: str | None = None,
        groups: str | None = None,
        dtype: FloatType = "float32",
        cache: str | os.PathLike[str] | None = None,
    ) -> None:
        check_one_of("dtype", dtype, ("float32", "float64"))
        self._again = functools.partial(
            ParquetRows,
            path,
            target,
            sample_weight=sample_weight,
            offset=offset,
            exposure=exposure,
            groups=groups,
            dtype=dtype,
            cache=cache,
        )
        files = ParquetFile.all_in(check_path("path", path))
        if schema is not None:
            if columns is not None or (target is not None and schema.has_target):
                raise ValueError("target and columns must be None where a schema= is given")
            columns = schema.column_names
            if schema.has_target:
                target = schema.target.name
                if not any(normal(target) in file.types for file in files):
                    target = None
        elif target is None and columns is None:
            raise ValueError(
                "target must be the name of a column, or columns= the features of rows that are "
                "only predicted, got neither"
            )
        offsets = [name for name in (offset, exposure) if name is not None]
        if len(offsets) > 1:
            raise ValueError("offset and exposure must not both be given")
        given = (target, sample_weight, *offsets, groups)
        others = [name for name in given if name is not None]
        if columns is None:
            used = {normal(name) for name in others}
            columns = [name for name in files[0].columns if normal(name) not in used]
        check_unique([*columns, *others], "column")
        for file in files:
            file.require([*columns, *others])
        self._decoder: Decoder = (
            NumberColumns(tuple(columns), files, dtype)
            if schema is None
            else EncodedColumns(schema, dtype)
        )
        self._schema, self._stored_columns = schema, files[0].columns
        self._files, self._group_column = files, groups
        self._target = target
        self._offset_column = OffsetColumn(
            "offset" if exposure is None else "exposure", offset if exposure is None else exposure
        )
        source = ParquetSource(files, self._decoder, target, sample_weight, offset, exposure)
        super().__init__(source, cache, has_targets=target is not None)

    @property
    def group_ids(self) -> Any:
        if self._group_column is None:
            return None
        return column_of(self._files, self._group_column)

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        return self._decoder.feature_names

    @property
    def target_name(self) -> str | None:
        return self._target

    @property
    def schema(self) -> Schema | None:
        return self._schema

    @property
    def offset_column(self) -> OffsetColumn:
        return self._offset_column

    def with_schema(self, schema: Schema) -> ParquetRows:
        """Return the same rows, encoded by another schema.

        Parameters
        ----------
        schema : Schema
            It describes the same target, if any.

        Returns
        -------
        ParquetRows
        """
        return self._again(schema=schema)

    @property
    def stored_columns(self) -> tuple[str, ...]:
        """Names of all columns of the first file."""
        return self._stored_columns

    @property
    def files(self) -> Sequence[ParquetFile]:
        """The files, as their footers describe them."""
        return self._files


def encoded_files(files: Sequence[ParquetFile], encoder: RowEncoder) -> StoredRows:
    """Return the rows of files as an encoder of tables reads them, without targets."""
    for file in files:
        file.require(encoder.names)
    source = ParquetSource(files, TableColumns(encoder), None, None)
    return StoredRows(source, None, has_targets=True)
