"""The SQLite file: opening, schema, transactions, detection of a replaced file, and mapping of driver errors."""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar, final

from okl.errors import StoreCorrupt, StoreTimeout, StoreUnavailable

from .sqlite_keys import KEY_TABLES
from .sqlite_tables import SCHEMA, SCHEMA_VERSION
from .sqlite_templates import TEMPLATE_TABLES

T = TypeVar("T")

OF_CONTENT = frozenset(
    {
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_NOTADB,
        sqlite3.SQLITE_ERROR,
        sqlite3.SQLITE_MISMATCH,
        sqlite3.SQLITE_CONSTRAINT,
    }
)
"""Errors caused by the content of the file, not by the file system."""
DRIVER_ERRORS = (sqlite3.Error, OSError, UnicodeDecodeError)
"""The driver's exceptions; the last if it quotes text from a damaged file."""

MEMORY = ":memory:"
SYNCHRONOUS = ("off", "normal", "full", "extra")
PAGE_BYTES = 2048
"""A commit writes each changed page as a whole: half of SQLite's default makes a small commit a quarter faster."""
WAL_KEPT_BYTES = 64 << 20
"""The size to which the write-ahead log on disk shrinks after a burst of large snapshots."""
NETWORK_FILE_SYSTEMS = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "ceph", "glusterfs", "lustre", "fuse.sshfs"}
)
MOUNTS = Path("/proc/self/mounts")


@final
class SqliteFile:
    """The file that the path named when it was opened."""

    def __init__(self, path: str, synchronous: str, timeout_s: float) -> None:
        self.path = path
        self._synchronous = synchronous
        self.timeout_s = timeout_s
        self._identity: tuple[int, ...] | None = None

    def prepare(self) -> sqlite3.Connection:
        """The first connection: creates the file, switches it to write-ahead logging and creates the tables."""
        if self.path != MEMORY:
            Path(self.path).parent.mkdir(parents=True, exist_ok=True)
        connection = self.connect(self.timeout_s)
        try:
            connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
            _use_wal(connection, time.monotonic() + self.timeout_s)
            _make_tables(connection, self.path)
            if self.path != MEMORY:
                self._identity = _identity(self.path)
        except BaseException:
            connection.close()
            raise
        return connection

    def connect(self, timeout_s: float) -> sqlite3.Connection:
        """Open a connection. Takes no lock, so it returns at once even while others write."""
        connection = sqlite3.connect(self.path, timeout=timeout_s, isolation_level=None)
        try:
            connection.execute(f"PRAGMA synchronous = {self._synchronous}")
            connection.execute("PRAGMA wal_autocheckpoint = 0")
            connection.execute(f"PRAGMA journal_size_limit = {WAL_KEPT_BYTES}")
            # Some builds overwrite deleted content with zeros.
            connection.execute("PRAGMA secure_delete = OFF")
        except BaseException:
            connection.close()
            raise
        return connection

    def check(self) -> None:
        """Raises StoreUnavailable if the path no longer names the open file, as writes to that would be lost."""
        if self._identity is None:
            return
        try:
            is_same = _identity(self.path) == self._identity
        except OSError:
            is_same = False
        if not is_same:
            raise StoreUnavailable(
                f"The SQLite file {self.path}, or its log, was deleted or replaced while it was in use, and nothing is "
                "acknowledged any more: put the file back, or restart the service to go on with what is there now."
            )

    def warnings(self) -> Sequence[str]:
        found: list[str] = []
        if self._synchronous == "off" and self.path != MEMORY:
            found.append(
                "SQLite runs with synchronous=off: a power cut may lose acknowledged rounds and damage the file; "
                "set synchronous=normal or full."
            )
        if self.path != MEMORY and (kind := _network_file_system(Path(self.path))):
            found.append(
                f"The SQLite file lies on a network file system ({kind}), where several machines may damage it and lose "
                "all sessions: set a path on a local disk, or a Redis store."
            )
        return found


def transact(db: sqlite3.Cursor, file: SqliteFile, operation: Callable[[sqlite3.Cursor], T], *, writes: bool) -> T:
    """Run the operation in one transaction. Raises the contract's errors."""
    try:
        db.execute("BEGIN IMMEDIATE" if writes else "BEGIN")
        result = operation(db)
        db.execute("COMMIT")
        file.check()
    except DRIVER_ERRORS as error:
        _roll_back(db)
        raise store_error(error) from error
    except BaseException:
        _roll_back(db)
        raise
    return result


def _roll_back(db: sqlite3.Cursor) -> None:
    with contextlib.suppress(sqlite3.Error):
        if db.connection.in_transaction:
            db.execute("ROLLBACK")


def store_error(error: Exception) -> StoreTimeout | StoreCorrupt | StoreUnavailable:
    """The contract's error for a driver's exception; its own errors are returned unchanged."""
    if isinstance(error, StoreTimeout | StoreCorrupt | StoreUnavailable):
        return error
    code = getattr(error, "sqlite_errorcode", None)
    if code is None:
        # Raised by the driver, not by SQLite: text that is not UTF-8, or a value that it cannot store.
        code = sqlite3.SQLITE_CORRUPT if "decode" in str(error) else sqlite3.SQLITE_CANTOPEN
    if code & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StoreTimeout(f"The SQLite file stayed locked by another process: {error}.")
    if code & 0xFF in OF_CONTENT:
        return StoreCorrupt(f"The SQLite file is not a store that this version can read: {error}.")
    return StoreUnavailable(f"The SQLite file cannot be used: {error}.")


def _use_wal(connection: sqlite3.Connection, deadline: float) -> None:
    # Processes that open a new file at the same time lock each other out here, and SQLite itself does not wait.
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL").fetchone()
        except sqlite3.OperationalError as error:
            if not isinstance(store_error(error), StoreTimeout) or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
        else:
            return


def _make_tables(connection: sqlite3.Connection, path: str) -> None:
    connection.execute("BEGIN IMMEDIATE")
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (tables,) = connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
    if version > SCHEMA_VERSION:
        raise StoreCorrupt(
            f"The SQLite file {path} has schema version {version}, this program knows version {SCHEMA_VERSION}: "
            "upgrade the program, or point it at another file."
        )
    if version < SCHEMA_VERSION and (version or tables):
        raise StoreCorrupt(
            f"The SQLite file {path} has schema version {version}, of a program before the first release, or of another "
            f"program; this one reads version {SCHEMA_VERSION}: move the file away, or point the program at another."
        )
    if version == 0:
        for statement in _statements(SCHEMA):
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    for statement in _statements(KEY_TABLES + TEMPLATE_TABLES):
        connection.execute(statement)
    connection.execute("COMMIT")


def _statements(script: str) -> Iterator[str]:
    """Split a script, as `executescript` would commit the open transaction."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def _identity(path: str) -> tuple[int, ...]:
    """What changes once the file or its log, which is there while the file is open, is deleted or replaced, or emptied."""
    found, log = os.stat(path), os.stat(f"{path}-wal")
    return found.st_dev, found.st_ino, log.st_ino, min(found.st_size, 1)


def _network_file_system(path: Path) -> str | None:
    """The kind of network file system that holds the path; None if there is none or it is unknown."""
    try:
        lines = MOUNTS.read_bytes().split(b"\n")
    except OSError:
        return None
    mounts = [line.split(b" ")[1:3] for line in lines if line]
    parents = {str(parent) for parent in path.resolve().parents}
    kinds = {name: kind.decode() for point, kind in mounts if (name := _mounted_at(point)) in parents}
    kind = kinds[max(kinds, key=len)] if kinds else ""
    return kind if kind in NETWORK_FILE_SYSTEMS else None


def _mounted_at(point: bytes) -> str:
    """A mount point as a path: the kernel writes a space as \\040, and other bytes as they are."""
    return os.fsdecode(re.sub(rb"\\([0-7]{3})", lambda escape: bytes([int(escape[1], 8)]), point))
