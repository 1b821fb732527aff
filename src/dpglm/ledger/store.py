"""The file of a ledger: records that are written and synced atomically."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, final

from dpglm._codec import decode
from dpglm._json import canonical_json, parse
from dpglm.exceptions import LedgerError

_MAGIC = b"SQLite format 3\x00"
_SUFFIXES = ("-journal", "-wal", "-shm")
_SECONDS_TO_WAIT = 120.0
_FIRST_DIGEST = "0" * 64

# A record is never changed. A second table names the last one, so that its loss is detected.
_TABLES = f"""
CREATE TABLE records (number INTEGER PRIMARY KEY, text TEXT NOT NULL, digest TEXT NOT NULL);
CREATE TABLE head (number INTEGER NOT NULL, digest TEXT NOT NULL);
INSERT INTO head VALUES (-1, '{_FIRST_DIGEST}');
CREATE TRIGGER no_change BEFORE UPDATE ON records BEGIN SELECT RAISE(ABORT, 'never'); END;
CREATE TRIGGER no_removal BEFORE DELETE ON records BEGIN SELECT RAISE(ABORT, 'never'); END;
"""
_STATEMENTS = {line.removesuffix(";") for line in _TABLES.splitlines() if line.startswith("CREATE")}


@final
@dataclass(frozen=True)
class Record:
    """One record: a JSON object, and the digest of it and of all records before.

    ``digest`` is the SHA-256, in hexadecimal digits, of the digest before (64 zeros for the first),
    a line feed, and the object as ``canonical_json`` writes it.
    """

    record: Mapping[str, Any]
    digest: str


def check_chain(records: Sequence[Record]) -> None:
    """Check the digests of records, in order."""
    before = _FIRST_DIGEST
    for number, record in enumerate(records):
        if record.digest != _digest(before, canonical_json(record.record)):
            raise LedgerError(
                f"record {number} of the ledger was changed, or one before it is missing"
            )
        before = record.digest


def files_of(path: Path) -> tuple[Path, ...]:
    """Return the file of a ledger, and those that SQLite may create next to it."""
    # SQLite follows links before it names a journal.
    real = Path(os.path.realpath(path))
    return (path, *(real.with_name(real.name + suffix) for suffix in _SUFFIXES))


def refuse_ledger(path: Path) -> None:
    """Refuse to replace a ledger or its journal."""
    for suffix in ("", *_SUFFIXES):
        if path.name.endswith(suffix):
            owner = path.with_name(path.name.removesuffix(suffix) or path.name)
            if owner.is_file():
                with owner.open("rb") as stream:
                    is_database = stream.read(len(_MAGIC)) == _MAGIC
                if not is_database:
                    continue
                raise ValueError(
                    f"{os.fspath(path)!r} must not be an SQLite file such as a ledger, or belong "
                    f"to {os.fspath(owner)!r}: a ledger is never replaced"
                )


@contextlib.contextmanager
def writing(path: Path) -> Iterator[sqlite3.Connection]:
    """Open an exclusive transaction, which is synced at the end or rolled back."""
    with _connected(path, "rw") as connection:
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield connection
            connection.execute("COMMIT")
        except BaseException:
            # After a crash or on a full disk, the next process rolls back.
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise


@contextlib.contextmanager
def read_only(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a transaction that reads one state of the file."""
    # Not mode=ro: a reader must be able to roll back after a crash.
    with _connected(path, "rw") as connection:
        connection.execute("BEGIN")
        yield connection
        connection.execute("ROLLBACK")


def create_file(path: Path, header: dict[str, Any]) -> None:
    """Create the file of a ledger with its first record, atomically.

    The file is written under another name and linked, so that a file of another process is never
    replaced. An empty file is filled in one transaction.
    """
    if path.exists():
        if not path.is_file() or path.stat().st_size:
            raise _exists(path)
        _fill(path, path, header)
        return
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        _fill(draft, path, header)
        try:
            os.link(draft, path)
        except FileExistsError:
            raise _exists(path) from None
        except OSError:
            # Some file systems lack links.
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
            os.replace(draft, path)
        sync_folder(path.parent)
    finally:
        for one in files_of(draft):
            one.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Make the names of new files in a folder durable."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _fill(file: Path, path: Path, header: dict[str, Any]) -> None:
    """Write the tables and the first record of a ledger at ``path`` to a file."""
    with _connected(file, "rwc", path) as connection:
        connection.execute("BEGIN IMMEDIATE")
        if connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            connection.execute("ROLLBACK")
            raise _exists(path)
        for statement in _TABLES.strip().splitlines():
            connection.execute(statement)
        append(connection, header)
        connection.execute("COMMIT")


def read(connection: sqlite3.Connection) -> list[Record]:
    """Read all records, and check their digests."""
    _check_tables(connection)
    rows = connection.execute("SELECT number, text, digest FROM records ORDER BY number").fetchall()
    numbers = [number for number, _, _ in rows]
    records = [_read(text, digest) for _, text, digest in rows]
    ends = connection.execute("SELECT number, digest FROM head").fetchall()
    if numbers != list(range(len(numbers))):
        raise LedgerError("records of the ledger are missing")
    if not records or ends != [(numbers[-1], records[-1].digest)]:
        raise LedgerError("the last records of the ledger are missing, or were changed")
    check_chain(records)
    return records


def read_first(connection: sqlite3.Connection) -> Record:
    """Read the first record only, and check it."""
    _check_tables(connection)
    row = connection.execute("SELECT text, digest FROM records WHERE number = 0").fetchone()
    if row is None:
        raise LedgerError("the first record of the ledger is missing")
    record = _read(*row)
    check_chain([record])
    return record


def append(connection: sqlite3.Connection, document: dict[str, Any]) -> Record:
    """Add a record within a transaction."""
    number, before = connection.execute("SELECT number, digest FROM head").fetchone()
    text = canonical_json(document)
    record = Record(document, _digest(before, text))
    connection.execute("INSERT INTO records VALUES (?, ?, ?)", (number + 1, text, record.digest))
    connection.execute("UPDATE head SET number = ?, digest = ?", (number + 1, record.digest))
    return record


def _exists(path: Path) -> LedgerError:
    return LedgerError(f"path must be a new file, got {str(path)!r}, which exists")


@contextlib.contextmanager
def _connected(path: Path, mode: str, name: Path | None = None) -> Iterator[sqlite3.Connection]:
    """Connect for one transaction; ``name`` replaces the path in errors."""
    named = str(name or path)
    uri = f"{path.absolute().as_uri()}?mode={mode}"
    try:
        with contextlib.closing(
            sqlite3.connect(uri, uri=True, timeout=_SECONDS_TO_WAIT, isolation_level=None)
        ) as connection:
            # COMMIT returns when the records and the removal of the journal are on disk.
            connection.execute("PRAGMA synchronous = EXTRA")
            connection.execute("PRAGMA fullfsync = ON")
            (journal,) = connection.execute("PRAGMA journal_mode = DELETE").fetchone()
            if journal != "delete":
                raise LedgerError(f"the ledger {named!r} must have journal mode 'delete'")
            yield connection
    except sqlite3.Error as error:
        raise LedgerError(f"{named!r} cannot be used as a ledger: {error}") from error


def _check_tables(connection: sqlite3.Connection) -> None:
    """Refuse other tables and views: a view might compute forever."""
    found = {sql for (sql,) in connection.execute("SELECT sql FROM sqlite_master")}
    if not found <= _STATEMENTS:
        raise LedgerError("the tables are not the tables of a ledger")


def _read(text: Any, digest: Any) -> Record:
    # SQLite allows any type in any column.
    if not isinstance(text, str) or not isinstance(digest, str):
        raise LedgerError("a record of the ledger is not text")
    try:
        return Record(decode(dict[str, Any], parse(text)), digest)
    except ValueError as error:
        raise LedgerError(f"a record of the ledger was changed: {error}") from error


def _digest(before: str, text: str) -> str:
    return hashlib.sha256(f"{before}\n{text}".encode()).hexdigest()


# Atomic writes of other files, which never replace a ledger.


@contextlib.contextmanager
def replacing(path: Path, mode: int = 0o666) -> Iterator[IO[bytes]]:
    """Replace a file durably and atomically."""
    # In the same folder: renaming is atomic only within a file system.
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with open(draft, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    except OSError as error:
        # Name the file: the error of a full disk does not.
        if error.errno is not None:
            error.filename = os.fspath(path)
        raise
    finally:
        draft.unlink(missing_ok=True)
    # The name is durable once the folder is synced.
    sync_folder(path.parent)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a UTF-8 file atomically, but never over a ledger."""
    target = Path(path)
    refuse_ledger(target)
    with replacing(target) as file:
        file.write(text.encode())


def write_json(path: str | os.PathLike[str], document: Any) -> None:
    """Write a JSON file atomically; floats are exact."""
    text = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)
    write_text(path, text + "\n")
