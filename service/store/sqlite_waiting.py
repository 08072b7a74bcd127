"""Waiting predictions in SQL, inside the caller's transaction: pages of them, and counts by expiry."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from .base import PAGE_BYTES, PAGE_ITEMS, Gone, WaitingItem, WaitingPage
from .sqlite_tables import corrupt, find_session
from .store_checks import cursor_after

FIND_WAITING = """
SELECT CAST(id AS BLOB), due, COALESCE(blob, (SELECT blob FROM large WHERE key = waiting.large)) FROM waiting
WHERE session = ? AND is_expired = 0 AND (due, id) > (?, ?) ORDER BY due, id
"""
AFTER_EVERY_ID = b""
"""SQLite orders every blob after any text."""
COUNT_WAITING = "SELECT COUNT(*) FROM waiting WHERE session = ? AND is_expired = 0 AND due > ? AND due <= ?"


def waiting(
    db: sqlite3.Cursor, now: float, name: str, after: tuple[float, str] | None, limit: int
) -> WaitingPage | Gone:
    """Raises StoreCorrupt for a damaged row."""
    session = find_session(db, name)
    if session is None:
        return Gone()
    start = after if after is not None and after[0] > now else (now, AFTER_EVERY_ID)
    items: list[WaitingItem] = []
    size = 0
    for id, due, blob in db.execute(FIND_WAITING, (session.key, *start)):
        if (type(id), type(due), type(blob)) != (bytes, float, bytes):
            raise corrupt(name, "a waiting prediction is damaged")
        size += len(blob)
        if items and (len(items) == min(limit, PAGE_ITEMS) or size > PAGE_BYTES):
            return WaitingPage(items, cursor_after(items[-1].expires_at, items[-1].id), now)
        items.append(WaitingItem(id.decode(), blob, due))
    return WaitingPage(items, None, now)


def count_waiting(db: sqlite3.Cursor, now: float, name: str, due_before: Sequence[float]) -> Sequence[int] | Gone:
    """Scan each part of the index once, however many edges there are."""
    session = find_session(db, name)
    if session is None:
        return Gone()
    counted, start, number = dict[float, int](), now, 0
    for edge in sorted({now + seconds for seconds in due_before}):
        number += db.execute(COUNT_WAITING, (session.key, start, edge)).fetchone()[0]
        counted[edge], start = number, max(start, edge)
    return [counted[now + seconds] for seconds in due_before]
