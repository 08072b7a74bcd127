"""Tables outside any session, such as the API keys, each with one version for all its rows."""

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
    """A table with the primary key `key` and a column `record`; `version_table` holds its version."""

    name: str
    key: str
    version_table: str

    def set_version(self, db: sqlite3.Cursor, version: str) -> None:
        db.execute(
            f"INSERT INTO {self.version_table} VALUES (1, ?1) ON CONFLICT DO UPDATE SET version = ?1", (version,)
        )

    def delete(self, db: sqlite3.Cursor, key: str, version: str) -> bool:
        """Delete a row and set the version; False, and the version stays, if there is no such row."""
        existed = db.execute(f"DELETE FROM {self.name} WHERE {self.key} = ?", (key,)).rowcount > 0
        if existed:
            self.set_version(db, version)
        return existed

    def read(self, db: sqlite3.Cursor, version: str) -> tuple[str, dict[str, bytes]] | None:
        """The version, empty if there never was a row, and all records by key; None if `version` is current."""
        found = db.execute(f"SELECT version FROM {self.version_table}").fetchone()
        current = "" if found is None else found[0]
        if current == version:
            return None
        records = dict(db.execute(f"SELECT {self.key}, record FROM {self.name}").fetchall())
        if not all(isinstance(key, str) and isinstance(record, bytes) for key, record in records.items()):
            raise StoreCorrupt(f"The {self.name} cannot be read from the SQLite file: a row is damaged.")
        return current, records
