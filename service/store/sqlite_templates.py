"""Templates in the SQLite file of the sessions, by the store's own connections."""

from __future__ import annotations

import sqlite3
from typing import final

from okl.errors import StoreCorrupt

from .sqlite_keys import Runs
from .template_store import MOST_TEMPLATES, TemplateRecords, check_template, too_many

TEMPLATE_TABLES = """
CREATE TABLE IF NOT EXISTS templates (name TEXT PRIMARY KEY, record BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS template_version (one INTEGER PRIMARY KEY CHECK (one = 1), version TEXT NOT NULL);
"""
"""Not part of the sessions' schema: a program that knows no templates reads the same file."""

_SET_VERSION = "INSERT INTO template_version VALUES (1, ?1) ON CONFLICT DO UPDATE SET version = ?1"
_PUT = "INSERT INTO templates VALUES (?1, ?2) ON CONFLICT DO UPDATE SET record = ?2"


@final
class SqliteTemplates:
    def __init__(self, run: Runs) -> None:
        self._run = run

    async def put(self, name: str, record: bytes, version: str) -> None:
        check_template(record)
        if not await self._run(lambda db: _put(db, name, record, version), writes=True):
            raise too_many()

    async def drop(self, name: str, version: str) -> bool:
        def operation(db: sqlite3.Cursor) -> bool:
            db.execute("DELETE FROM templates WHERE name = ?", (name,))
            was_there = db.rowcount > 0
            if was_there:
                db.execute(_SET_VERSION, (version,))
            return was_there

        return await self._run(operation, writes=True)

    async def read(self, version: str) -> TemplateRecords | None:
        return await self._run(lambda db: _read(db, version))


def _put(db: sqlite3.Cursor, name: str, record: bytes, version: str) -> bool:
    (others,) = db.execute("SELECT COUNT(*) FROM templates WHERE name <> ?", (name,)).fetchone()
    if others >= MOST_TEMPLATES:
        return False
    db.execute(_PUT, (name, record))
    db.execute(_SET_VERSION, (version,))
    return True


def _read(db: sqlite3.Cursor, version: str) -> TemplateRecords | None:
    found = db.execute("SELECT version FROM template_version").fetchone()
    now = "" if found is None else found[0]
    if now == version:
        return None
    records = dict(db.execute("SELECT name, record FROM templates").fetchall())
    if not all(isinstance(name, str) and isinstance(record, bytes) for name, record in records.items()):
        raise StoreCorrupt("The templates cannot be read from the SQLite file: a row is damaged.")
    return TemplateRecords(now, records)
