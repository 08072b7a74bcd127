"""Tables that are no session's, such as that of all API keys, each with a version of all its rows beside it."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable
from typing import NamedTuple, Protocol, TypeVar

from okl.errors import StoreCorrupt

T = TypeVar("T")


class Runs(Protocol):
    """Runs an operation in a transaction."""

    def __call__(self, operation: Callable[[sqlite3.Cursor], T], *, writes: bool = False) -> Awaitable[T]: ...


class Table(NamedTuple):
    """Its `name` and that of its primary key; a row has a `record`, and `version_table` the version."""

    name: str
    key: str
    version_table: str

    def set_version(self, db: sqlite3.Cursor, version: str) -> None:
        db.execute(
            f"INSERT INTO {self.version_table} VALUES (1, ?1) ON CONFLICT DO UPDATE SET version = ?1", (version,)
        )

    def delete(self, db: sqlite3.Cursor, key: str, version: str) -> bool:
        """False if there is no such row; the version stays then."""
        was_there = db.execute(f"DELETE FROM {self.name} WHERE {self.key} = ?", (key,)).rowcount > 0
        if was_there:
            self.set_version(db, version)
        return was_there

    def read(self, db: sqlite3.Cursor, version: str) -> tuple[str, dict[str, bytes]] | None:
        """The version, empty where there never was a row, and all records by key; None if it still is this version."""
        found = db.execute(f"SELECT version FROM {self.version_table}").fetchone()
        now = "" if found is None else found[0]
        if now == version:
            return None
        records = dict(db.execute(f"SELECT {self.key}, record FROM {self.name}").fetchall())
        if not all(isinstance(key, str) and isinstance(record, bytes) for key, record in records.items()):
            raise StoreCorrupt(f"The {self.name} cannot be read from the SQLite file: a row is damaged.")
        return now, records
