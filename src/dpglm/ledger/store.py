"""The ledger's file: records that are written and synced one by one, whole or not at all."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, final

from dpglm._codec import decode
from dpglm._json import canonical_json, parse
from dpglm.exceptions import LedgerError

_MAGIC = b"SQLite format 3\x00"
_BESIDE = ("-journal", "-wal", "-shm")
_SECONDS_TO_WAIT = 120.0
_BEFORE_THE_FIRST = "0" * 64

# A record is never changed. The end is named in a second table, so that a ledger that lost its last
# records does not look whole.
_TABLES = f"""
CREATE TABLE records (number INTEGER PRIMARY KEY, text TEXT NOT NULL, digest TEXT NOT NULL);
CREATE TABLE head (number INTEGER NOT NULL, digest TEXT NOT NULL);
INSERT INTO head VALUES (-1, '{_BEFORE_THE_FIRST}');
CREATE TRIGGER no_change BEFORE UPDATE ON records BEGIN SELECT RAISE(ABORT, 'never'); END;
CREATE TRIGGER no_removal BEFORE DELETE ON records BEGIN SELECT RAISE(ABORT, 'never'); END;
"""
_STATEMENTS = {line.removesuffix(";") for line in _TABLES.splitlines() if line.startswith("CREATE")}


@final
@dataclass(frozen=True)
class Record:
    """One record: a JSON object, and the digest of it and of all records before.

    ``text`` is the object as ``canonical_json`` writes it; ``digest`` the SHA-256, in hexadecimal
    digits, of the digest before (64 zeros for the first), a line feed, and the text.
    """

    text: str
    digest: str

    @property
    def document(self) -> dict[str, Any]:
        """The object as plain JSON values."""
        try:
            return decode(dict[str, Any], parse(self.text))
        except ValueError as error:
            raise LedgerError(f"a record is not that of a ledger: {error}") from error


def check_chain(records: Sequence[Record]) -> None:
    """Check that records are those that were written, in order."""
    before = _BEFORE_THE_FIRST
    for number, record in enumerate(records):
        if record.digest != _digest(before, record.text):
            raise LedgerError(
                f"record {number} of the ledger was changed, or one before it is missing"
            )
        before = record.digest


def files_of(path: Path) -> tuple[Path, ...]:
    """Return a ledger's file and those that SQLite may create beside it."""
    # SQLite follows links before it names a journal.
    real = Path(os.path.realpath(path))
    return (path, *(real.with_name(real.name + suffix) for suffix in _BESIDE))


def refuse_ledger(path: Path) -> None:
    """Refuse to replace a ledger, or a file where SQLite keeps the journal of one."""
    for suffix in ("", *_BESIDE):
        if path.name.endswith(suffix):
            owner = path.with_name(path.name.removesuffix(suffix) or path.name)
            if owner.is_file() and _begins_as_database(owner):
                raise ValueError(
                    f"{os.fspath(path)!r} must not be an SQLite file, as budget ledgers are, nor "
                    f"one that belongs to {os.fspath(owner)!r}: a ledger is never replaced"
                )


def _begins_as_database(path: Path) -> bool:
    with path.open("rb") as stream:
        return stream.read(len(_MAGIC)) == _MAGIC


@contextlib.contextmanager
def writing(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a transaction that excludes all other writers; synced when the block ends.

    If the block fails, the file is as before.
    """
    with _connected(path, "rw") as connection:
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield connection
            connection.execute("COMMIT")
        except BaseException:
            # A process that is killed here, or a disk that is full, leaves this to the next opener.
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise


@contextlib.contextmanager
def read_only(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a transaction that sees one state of the file, whatever is written meanwhile."""
    # Not mode=ro: what a killed process left half-written is rolled back by the next reader.
    with _connected(path, "rw") as connection:
        connection.execute("BEGIN")
        yield connection
        connection.execute("ROLLBACK")


def create_file(path: Path, header: dict[str, Any]) -> None:
    """Make a ledger's file with its first record, whole or not at all.

    It is written under another name, and linked: a name that another process takes meanwhile is
    never replaced. An empty file counts as none, and is filled in one transaction.
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
            # Some file systems have no links.
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
    """Read all records, and check that they are those that were written."""
    _check_tables(connection)
    rows = connection.execute("SELECT number, text, digest FROM records ORDER BY number").fetchall()
    numbers = [number for number, _, _ in rows]
    records = [_record(text, digest) for _, text, digest in rows]
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
    record = _record(*row)
    check_chain([record])
    return record


def append(connection: sqlite3.Connection, document: dict[str, Any]) -> Record:
    """Add a record within a transaction; it is in the file when that has ended."""
    number, before = connection.execute("SELECT number, digest FROM head").fetchone()
    text = canonical_json(document)
    record = Record(text, _digest(before, text))
    connection.execute("INSERT INTO records VALUES (?, ?, ?)", (number + 1, text, record.digest))
    connection.execute("UPDATE head SET number = ?, digest = ?", (number + 1, record.digest))
    return record


def _exists(path: Path) -> LedgerError:
    return LedgerError(f"path must be that of a new file, got {str(path)!r}, which exists")


@contextlib.contextmanager
def _connected(path: Path, mode: str, name: Path | None = None) -> Iterator[sqlite3.Connection]:
    """Connect for one transaction, so that nothing is shared with threads or forked processes.

    Errors say ``name``, by default the path.
    """
    named = str(name or path)
    uri = f"{path.absolute().as_uri()}?mode={mode}"
    try:
        with contextlib.closing(
            sqlite3.connect(uri, uri=True, timeout=_SECONDS_TO_WAIT, isolation_level=None)
        ) as connection:
            # COMMIT returns when the records, and the removal of the journal, are on the disk.
            connection.execute("PRAGMA synchronous = EXTRA")
            connection.execute("PRAGMA fullfsync = ON")
            (journal,) = connection.execute("PRAGMA journal_mode = DELETE").fetchone()
            if journal != "delete":
                raise LedgerError(f"the ledger {named!r} must have journal mode 'delete'")
            yield connection
    except sqlite3.Error as error:
        raise LedgerError(f"{named!r} cannot be used as a ledger: {error}") from error


def _check_tables(connection: sqlite3.Connection) -> None:
    """Check that tables are tables: a view in place of one might compute forever."""
    found = {sql for (sql,) in connection.execute("SELECT sql FROM sqlite_master")}
    if not found <= _STATEMENTS:
        raise LedgerError("the tables are not those of a ledger")


def _record(text: Any, digest: Any) -> Record:
    # SQLite keeps any type in any column.
    if not isinstance(text, str) or not isinstance(digest, str):
        raise LedgerError("a record of the ledger is not text")
    return Record(text, digest)


def _digest(before: str, text: str) -> str:
    return hashlib.sha256(f"{before}\n{text}".encode()).hexdigest()


# Files that appear whole or not at all, and never in the place of a ledger.


@contextlib.contextmanager
def replacing(path: Path, mode: int = 0o666) -> Iterator[IO[bytes]]:
    """Write a file durably in place of the one before, or leave that one as it is."""
    # In the same folder, because a rename is atomic only within a file system.
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with open(draft, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    except OSError as error:
        # A full disk names no file, and the draft's name says nothing.
        if error.errno is not None:
            error.filename = os.fspath(path)
        raise
    finally:
        draft.unlink(missing_ok=True)
    # The name is durable once the folder is.
    sync_folder(path.parent)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a file in UTF-8 as ``replacing`` does, but never over a ledger."""
    target = Path(path)
    refuse_ledger(target)
    with replacing(target) as file:
        file.write(text.encode())


def write_json(path: str | os.PathLike[str], document: Any) -> None:
    """Write a JSON file as ``write_text`` does; floats come back bit for bit."""
    text = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)
    write_text(path, text + "\n")
