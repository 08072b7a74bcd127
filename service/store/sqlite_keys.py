"""Keys in the SQLite file of the sessions, over the store's connections."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import final

from okl.errors import LimitReached

from .key_store import MOST_KEYS, Grant, KeyRecords, check_record
from .sqlite_whole import Runs, Table

KEY_TABLES = """
CREATE TABLE IF NOT EXISTS keys (id TEXT PRIMARY KEY, record BLOB NOT NULL, tokens REAL, at REAL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS key_version (one INTEGER PRIMARY KEY CHECK (one = 1), version TEXT NOT NULL);
"""
"""Not part of the sessions' schema, so that a program without keys can read the same file."""

_KEYS = Table("keys", "id", "key_version")


@final
class SqliteKeys:
    def __init__(self, run: Runs, clock: Callable[[], float]) -> None:
        self._run = run
        self._clock = clock

    async def add(self, id: str, record: bytes, version: str) -> bool:
        check_record(record)
        outcome = await self._run(lambda db: _add(db, id, record, version), writes=True)
        if outcome is None:
            raise LimitReached(f"There are {MOST_KEYS} keys; revoke one first.")
        return outcome

    async def revoke(self, id: str, version: str) -> bool:
        return await self._run(lambda db: _KEYS.delete(db, id, version), writes=True)

    async def read(self, version: str) -> KeyRecords | None:
        found = await self._run(lambda db: _KEYS.read(db, version))
        return None if found is None else KeyRecords(*found)

    async def take(self, id: str, owed: float, wanted: float, rate: float, burst: float) -> Grant:
        return await self._run(lambda db: _take(db, self._clock(), id, owed, wanted, rate, burst), writes=True)


def _add(db: sqlite3.Cursor, id: str, record: bytes, version: str) -> bool | None:
    found = db.execute("SELECT record FROM keys WHERE id = ?", (id,)).fetchone()
    if found is not None:
        return found[0] == record
    if db.execute("SELECT COUNT(*) FROM keys").fetchone()[0] >= MOST_KEYS:
        return None
    db.execute("INSERT INTO keys (id, record) VALUES (?, ?)", (id, record))
    _KEYS.set_version(db, version)
    return True


def _take(db: sqlite3.Cursor, now: float, id: str, owed: float, wanted: float, rate: float, burst: float) -> Grant:
    found = db.execute("SELECT tokens, at FROM keys WHERE id = ?", (id,)).fetchone()
    tokens, at = found if found is not None and None not in found else (burst, now)
    tokens = min(burst, min(burst, tokens + max(0.0, now - at) * rate) - owed)
    granted = min(tokens, wanted) if tokens >= 1.0 else 0.0
    db.execute("UPDATE keys SET tokens = ?, at = ? WHERE id = ?", (tokens - granted, now, id))
    return Grant(granted, 0.0 if granted else (1.0 - tokens) / rate)
