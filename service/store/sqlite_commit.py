"""Commits in SQL, inside the caller's transaction: append, settle, remember, expire, forget, hold; also cancel."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from .base import (
    REMEMBERED_AFTER_EXPIRY_S,
    SWEPT_AT_ONCE,
    Applied,
    Behind,
    Committed,
    Entry,
    Full,
    Gone,
    Hold,
    Limits,
    Tip,
    Waiting,
)
from .sqlite_tables import (
    SessionRow,
    check_open,
    corrupt,
    find_applied,
    find_session,
    find_waiting,
    is_on_chain,
    keep,
    read,
    save_commit,
)

SWEPT_HERE = 100
"""Predictions and remembered ids that one commit expires and forgets, plus twice as many as it adds: 10 us each."""
NEVER = float("inf")

ADD_ENTRY = "INSERT INTO journal (session, round, count, size, digest, id, blob, large) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
SETTLE = "DELETE FROM waiting WHERE session = ? AND id = ? RETURNING is_expired, size"
REMEMBER = """
INSERT INTO remembered (session, id, round, at, size, blob, large) VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (session, id) DO NOTHING
"""
FORGET_ID = "DELETE FROM remembered WHERE session = ? AND id = ? RETURNING size"
FIND_OLDEST = "SELECT id, at, size FROM remembered WHERE session = ? ORDER BY round"
FORGET = "DELETE FROM remembered WHERE session = ? AND id = ?"
HOLD = """
INSERT INTO waiting (session, id, due, forget_at, size, blob, large) SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7
WHERE NOT EXISTS (SELECT 1 FROM remembered WHERE session = ?1 AND id = ?2) ON CONFLICT (session, id) DO NOTHING
"""
FIND_DUE = "SELECT id, due, size FROM waiting WHERE session = ? AND is_expired = ? ORDER BY due, id"
EXPIRE = "UPDATE waiting SET is_expired = 1, due = forget_at WHERE session = ? AND id = ?"
FIND_CANCELLED = "SELECT due, forget_at, size FROM waiting WHERE session = ? AND id = ? AND is_expired = 0"
CANCEL = "UPDATE waiting SET is_expired = 1, due = ?1, forget_at = ?1 WHERE session = ?2 AND id = ?3"
FORGET_WAITING = "DELETE FROM waiting WHERE session = ? AND id = ?"


def commit(
    db: sqlite3.Cursor,
    limits: Limits,
    now: float,
    name: str,
    tip: Tip,
    entries: Sequence[Entry],
    holds: Sequence[Hold],
    progress: Applied | None,
    most_read: tuple[int, int],
) -> Committed | Applied | Waiting | Behind | Gone:
    """Raises TooMuchHere, before writing, if the caller is behind by more than `most_read` rounds or bytes."""
    session = find_session(db, name)
    if session is None:
        return Gone()
    check_open(db, session, now)
    is_new = bool(entries) and not is_on_chain(db, session, entries[-1].tip)
    if is_new:
        since = now - limits.remembered_s
        for entry in entries:
            if applied := find_applied(db, session, entry.id, since):
                return applied
    if not session.is_at(tip) and (is_new or not entries):
        return Behind(read(db, session, tip, *most_read))
    for entry in entries if is_new else ():
        if entry.is_fresh and (waits := find_waiting(db, session, entry.id, now)):
            return waits
    if not entries and not holds:
        return Committed([], session.waiting, session.never_came)
    most = min(SWEPT_HERE + 2 * (len(entries) + len(holds)), SWEPT_AT_ONCE)
    _sweep_waiting(db, session, limits, now, most)
    if is_new:
        _append(db, session, now, entries)
        if progress is not None:
            # It takes its own place in the order of remembered ids, after the entries.
            session.shift += 1
            _remember(db, session, now, session.round, progress.id, progress.answer)
    _forget_oldest(db, session, limits, now, most)
    if session.due_next <= now and not _has_room(session, limits, len(holds), sum(len(hold.blob) for hold in holds)):
        _sweep_waiting(db, session, limits, now, SWEPT_AT_ONCE)
    outcomes = [_hold(db, session, limits, now, hold) for hold in holds]
    save_commit(db, session)
    return Committed(outcomes, session.waiting, session.never_came)


def cancel(db: sqlite3.Cursor, limits: Limits, now: float, name: str, id: str) -> bool:
    """Expire one prediction early, then those that are due."""
    session = find_session(db, name)
    found = None if session is None else db.execute(FIND_CANCELLED, (session.key, id)).fetchone()
    if session is None or found is None:
        return False
    if tuple(map(type, found)) != (float, float, int):
        raise corrupt(name, "a waiting prediction is damaged")
    due, forget_at, size = found
    if due <= now:
        return False
    check_open(db, session, now)
    forget_at = now + (forget_at - due)
    db.execute(CANCEL, (forget_at, session.key, id))
    session.expire(size)
    session.due_next = now
    _sweep_waiting(db, session, limits, now, SWEPT_HERE)
    save_commit(db, session)
    return True


def _find(db: sqlite3.Cursor, session: SessionRow, limits: Limits, now: float, id: str) -> Applied | Waiting | None:
    return find_applied(db, session, id, now - limits.remembered_s) or find_waiting(db, session, id, now)


def _append(db: sqlite3.Cursor, session: SessionRow, now: float, entries: Sequence[Entry]) -> None:
    for entry in entries:
        round, digest, size = entry.tip.round, entry.tip.digest, len(entry.blob)
        db.execute(ADD_ENTRY, (session.key, round, entry.count, size, digest, entry.id, *keep(db, entry.blob)))
        session.journal_bytes += size
        if _settle(db, session, entry.id):
            session.never_came -= 1
        if entry.answer is not None:
            _remember(db, session, now, entry.tip.round, entry.id, entry.answer)
    session.round, session.digest = entries[-1].tip.round, entries[-1].tip.digest
    session.updated_at = now


def _settle(db: sqlite3.Cursor, session: SessionRow, id: str) -> bool | None:
    """Remove the prediction under an id. Return whether it had expired; None if there was none."""
    settled = db.execute(SETTLE, (session.key, id)).fetchone()
    if settled is None:
        return None
    is_expired, size = settled
    if is_expired:
        session.expired -= 1
        session.expired_bytes -= size
    else:
        session.waiting -= 1
        session.waiting_bytes -= size
    return bool(is_expired)


def _remember(db: sqlite3.Cursor, session: SessionRow, now: float, round: int, id: str, answer: bytes) -> None:
    row = (session.key, id, round + session.shift, now, len(answer), *keep(db, answer))
    if db.execute(REMEMBER, row).rowcount == 0:
        _forget(db, session, id)
        db.execute(REMEMBER, row)
    session.remembered += 1
    session.remembered_bytes += len(answer)
    session.remembered_since = min(session.remembered_since, now)


def _forget(db: sqlite3.Cursor, session: SessionRow, id: str) -> None:
    forgotten = db.execute(FORGET_ID, (session.key, id)).fetchone()
    if forgotten is not None:
        session.remembered -= 1
        session.remembered_bytes -= forgotten[0]


def _hold(
    db: sqlite3.Cursor, session: SessionRow, limits: Limits, now: float, hold: Hold
) -> Waiting | Applied | Full | None:
    has_room = _has_room(session, limits, 1, len(hold.blob))
    if has_room and _keep(db, session, now, hold):
        return None
    found = _find(db, session, limits, now, hold.id)
    if found is not None:
        is_same = isinstance(found, Waiting) and not found.is_expired and found.blob == hold.blob
        return None if is_same else found
    if not has_room:
        return Full()
    # The id is stored, but past its retention.
    _forget(db, session, hold.id)
    if _settle(db, session, hold.id) is False:
        session.never_came += 1
    _keep(db, session, now, hold)
    return None


def _has_room(session: SessionRow, limits: Limits, number: int, size: int) -> bool:
    return session.waiting + number <= limits.waiting and session.waiting_bytes + size <= limits.waiting_bytes


def _keep(db: sqlite3.Cursor, session: SessionRow, now: float, hold: Hold) -> bool:
    """Store a waiting prediction; False if the id is stored already."""
    due = now + hold.wait_s
    forget_at = due + min(max(hold.wait_s, 0.0), REMEMBERED_AFTER_EXPIRY_S)
    size = len(hold.blob)
    kept = keep(db, hold.blob)
    if db.execute(HOLD, (session.key, hold.id, due, forget_at, size, *kept)).rowcount == 0:
        db.execute("DELETE FROM large WHERE key = ?", kept[1:])
        return False
    session.waiting += 1
    session.waiting_bytes += size
    session.due_next = min(session.due_next, due)
    return True


def _sweep_waiting(db: sqlite3.Cursor, session: SessionRow, limits: Limits, now: float, most: int) -> None:
    """Expire and forget up to `most` predictions that are due. Expired ones have as much room as waiting ones; beyond it
    they are forgotten early."""
    if session.due_next > now:
        return
    session.due_next = NEVER
    swept: list[tuple[int, str]] = []
    for id, due, size in db.execute(FIND_DUE, (session.key, 0)):
        if due > now or len(swept) == most:
            session.due_next = due
            break
        swept.append((session.key, id))
        session.expire(size)
    db.executemany(EXPIRE, swept)
    swept.clear()
    for id, due, size in db.execute(FIND_DUE, (session.key, 1)):
        is_over = session.expired > limits.waiting or session.expired_bytes > limits.waiting_bytes
        if not (due <= now or is_over) or len(swept) == most:
            session.due_next = min(session.due_next, now if is_over else due)
            break
        swept.append((session.key, id))
        session.expired, session.expired_bytes = session.expired - 1, session.expired_bytes - size
    db.executemany(FORGET_WAITING, swept)


def _forget_oldest(db: sqlite3.Cursor, session: SessionRow, limits: Limits, now: float, most: int) -> None:
    """Forget up to `most` ids that are too old, or are the oldest beyond the limits."""
    since = now - limits.remembered_s
    if not _is_over(session, limits) and session.remembered_since > since:
        return
    session.remembered_since = NEVER
    forgotten: list[tuple[int, str]] = []
    for id, at, size in db.execute(FIND_OLDEST, (session.key,)):
        if not (at <= since or _is_over(session, limits)) or len(forgotten) == most:
            session.remembered_since = at
            break
        session.remembered -= 1
        session.remembered_bytes -= size
        forgotten.append((session.key, id))
    db.executemany(FORGET, forgotten)


def _is_over(session: SessionRow, limits: Limits) -> bool:
    return session.remembered > limits.remembered or session.remembered_bytes > limits.remembered_bytes
