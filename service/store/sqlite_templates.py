"""Templates in the SQLite file of the sessions, over the store's connections."""

from __future__ import annotations

import sqlite3
from typing import final

from .sqlite_whole import Runs, Table
from .template_store import MOST_TEMPLATES, TemplateRecords, check_template, too_many

TEMPLATE_TABLES = """
CREATE TABLE IF NOT EXISTS templates (name TEXT PRIMARY KEY, record BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS template_version (one INTEGER PRIMARY KEY CHECK (one = 1), version TEXT NOT NULL);
"""
"""Not part of the sessions' schema, so that a program without templates can read the same file."""

_TEMPLATES = Table("templates", "name", "template_version")
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
        return await self._run(lambda db: _TEMPLATES.delete(db, name, version), writes=True)

    async def read(self, version: str) -> TemplateRecords | None:
        found = await self._run(lambda db: _TEMPLATES.read(db, version))
        return None if found is None else TemplateRecords(*found)


def _put(db: sqlite3.Cursor, name: str, record: bytes, version: str) -> bool:
    (others,) = db.execute("SELECT COUNT(*) FROM templates WHERE name <> ?", (name,)).fetchone()
    if others >= MOST_TEMPLATES:
        return False
    db.execute(_PUT, (name, record))
    _TEMPLATES.set_version(db, version)
    return True
