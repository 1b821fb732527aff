"""Queries of databases, by a connection or by an address (``duckdb:bank.duckdb?table=loans``)."""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, final
from urllib.parse import parse_qsl, unquote, urlencode

_ALIAS = "dpglm_rows"
_EXTRAS: Mapping[str, str] = MappingProxyType(
    {"duckdb": "'dpglm[duckdb]'", "adbc_driver_manager": "'dpglm[adbc]'"}
)
# DuckDB would keep the pages of a file in most of the machine's memory.
_DUCKDB_MEMORY = "512MB"


@final
@dataclass(frozen=True, eq=False)
class Query:
    """A query of a database, which is run again for each pass over its rows.

    Parameters
    ----------
    connect : callable
        Returns a new connection, which is closed after each pass: of DuckDB, or of an ADBC driver
        (``adbc_driver_postgresql.dbapi.connect``). It takes no arguments.
    sql : str
        The query. Its rows need the same order each time: add ORDER BY unless the database keeps
        the order of the rows of a table.

    Notes
    -----
    Only the columns that are used are read, by a query around this one. Another order, and rows
    that changed, end a fit with ``RowsChangedError``.

    Examples
    --------
    >>> import duckdb
    >>> query = Query(duckdb.connect, "select range as age from range(3)")
    >>> query.count()
    3
    """

    connect: Callable[[], Any]
    sql: str

    def count(self) -> int:
        """Return the number of rows.

        Returns
        -------
        int
        """
        with self._run("count(*) as n") as found:
            return int(found.read_all()["n"][0].as_py())

    def schema(self) -> Any:
        """Return names and types of the columns.

        Returns
        -------
        pyarrow.Schema
        """
        with self._run("*") as found:
            return found.schema

    @contextlib.contextmanager
    def stream(self, columns: Sequence[str]) -> Iterator[Any]:
        """Run the query for some columns.

        Parameters
        ----------
        columns : sequence of str
            Names in the query's spelling.

        Yields
        ------
        pyarrow.RecordBatchReader
            It is closed, and so is the connection, at the end of the block.
        """
        with self._run(", ".join(map(quoted, columns))) as found:
            yield found

    @contextlib.contextmanager
    def _run(self, what: str) -> Iterator[Any]:
        inner = self.sql.strip().rstrip(";")
        sql = f"select {what} from (\n{inner}\n) as {_ALIAS}"
        with contextlib.ExitStack() as closing:
            with _named():
                connection = closing.enter_context(contextlib.closing(self.connect()))
                found = _reader(connection, sql, closing)
            yield closing.enter_context(contextlib.closing(found))


@contextlib.contextmanager
def _named() -> Iterator[None]:
    """Turn errors of drivers, which have classes of their own, into ValueErrors."""
    try:
        yield
    except (ImportError, ValueError):
        raise
    except Exception as error:
        raise ValueError(f"the query cannot be run: {' '.join(str(error).split())}") from error


def _reader(connection: Any, sql: str, closing: contextlib.ExitStack) -> Any:
    import pyarrow as pa

    if type(connection).__module__.partition(".")[0].lstrip("_") == "duckdb":
        return pa.RecordBatchReader.from_stream(connection.sql(sql))
    cursor = closing.enter_context(contextlib.closing(connection.cursor()))
    cursor.execute(sql)
    return cursor.fetch_record_batch()


def quoted(name: str) -> str:
    """Return an identifier of SQL in quotes."""
    return '"' + name.replace('"', '""') + '"'


@final
@dataclass(frozen=True)
class Address:
    """A table or query in a database, by a text.

    ``scheme:place?table=name`` or ``scheme:place?query=sql``; ``place`` is a file of DuckDB or
    SQLite, or the rest of a URI of PostgreSQL.
    """

    text: str
    scheme: str
    place: str
    sql: str

    @classmethod
    def of(cls, text: Any) -> Address | None:
        """Read an address; None for the name of a file. ValueError if it names no table."""
        if isinstance(text, Address):
            return text
        if not isinstance(text, str):
            return None
        scheme, _, rest = text.partition(":")
        if scheme not in _CONNECT:
            return None
        place, _, query = rest.partition("?")
        options = dict(parse_qsl(query, keep_blank_values=True))
        table, sql = options.pop("table", None), options.pop("query", None)
        if (not table) == (not sql):
            raise ValueError(
                f"{_hidden(text)}: must end in ?table=NAME or ?query=SQL, such as "
                "duckdb:bank.duckdb?table=loans"
            )
        if table:
            sql = f"select * from {'.'.join(map(quoted, table.split('.')))}"
        place = f"{place}?{urlencode(options)}" if options else place
        return cls(text, scheme, place, str(sql))

    def __fspath__(self) -> str:
        return _hidden(self.text)

    __str__ = __fspath__

    @property
    def files(self) -> list[Path]:
        """The files of the database, if it is one of files."""
        return [] if self.scheme.startswith("postgres") else [Path(unquote(self.place))]

    @property
    def query(self) -> Query:
        """The query that reads the rows."""
        for path in self.files:
            # SQLite would make a new file.
            if not path.is_file():
                raise ValueError(f"the file {path} does not exist")
        with _named():
            return Query(_CONNECT[self.scheme](self.place), self.sql)

    def read(self, columns: Sequence[str]) -> Any:
        """Return some columns as a pyarrow.Table."""
        with self.query.stream(columns) as rows:
            return rows.read_all()


# Each returns a function that connects.


def _duckdb(place: str) -> Callable[[], Any]:
    duckdb = _imported("duckdb")
    # Opened once, as a new instance reads its file anew. Rows in order are read by one thread.
    config = {"memory_limit": _DUCKDB_MEMORY, "threads": 1}
    connection = duckdb.connect(unquote(place), read_only=True, config=config)
    cursor: Callable[[], Any] = connection.cursor
    return cursor


def _sqlite(place: str) -> Callable[[], Any]:
    driver = _imported("adbc_driver_sqlite.dbapi")
    # The driver reads a file by its URI, which may forbid writing.
    path = Path(unquote(place)).absolute().as_uri()
    return functools.partial(driver.connect, f"{path}?mode=ro")


def _postgresql(place: str) -> Callable[[], Any]:
    driver = _imported("adbc_driver_postgresql.dbapi")
    return functools.partial(driver.connect, f"postgresql:{place}")


_CONNECT: Mapping[str, Callable[[str], Callable[[], Any]]] = MappingProxyType(
    {"duckdb": _duckdb, "sqlite": _sqlite, "postgresql": _postgresql, "postgres": _postgresql}
)


def _imported(name: str) -> Any:
    import importlib

    package = name.partition(".")[0]
    try:
        return importlib.import_module(name)
    except ImportError as error:
        extra = _EXTRAS.get(package, f"'dpglm[adbc]' {package.replace('_', '-')}")
        raise ImportError(
            f"this needs {package}, which is not installed: pip install {extra}"
        ) from (error)


def _hidden(text: str) -> str:
    """Return an address without its password."""
    return re.sub(r"(//[^/:@]*):[^/@]*@", r"\1:***@", text)
