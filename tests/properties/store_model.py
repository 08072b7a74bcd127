"""The store contract as the simplest program that keeps it: what the real stores are compared with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from service.errors import SessionExists
from service.store.base import (
    AlreadyApplied,
    AlreadyWaiting,
    Appended,
    Behind,
    Event,
    Gone,
    Head,
    Held,
    Page,
    Reading,
    TooManyWaiting,
    Waiting,
)


@dataclass
class Session:
    head: Head
    journal: list[Event] = field(default_factory=list)
    snapshot: bytes | None = None
    waiting: dict[str, Waiting] = field(default_factory=dict)
    expired: dict[str, Waiting] = field(default_factory=dict)
    forget_at: dict[str, float] = field(default_factory=dict)
    applied: dict[str, bytes] = field(default_factory=dict)

    def reading(self, after: int) -> Reading:
        head, ends = self.describe(), {event.round - event.count for event in self.journal} | {self.head.round}
        if after in ends:
            return Reading(head, [event for event in self.journal if event.round > after])
        start = max(head.snapshot_round, 0)
        return Reading(head, [e for e in self.journal if e.round > start], self.snapshot, head.snapshot_round)

    def describe(self) -> Head:
        newer = [event for event in self.journal if event.round > self.head.snapshot_round]
        return replace(
            self.head,
            waiting=len(self.waiting),
            journal_rounds=sum(event.count for event in newer),
            journal_bytes=sum(len(event.blob) for event in newer),
        )

    def sweep(self, now: float) -> None:
        for id in [id for id, prediction in self.waiting.items() if prediction.expires_at <= now]:
            self.expired[id] = self.waiting.pop(id)
        for id in [id for id in self.expired if self.forget_at[id] <= now]:
            del self.expired[id]


class StoreModel:
    def __init__(self, *, tail_events: int, applied_kept: int) -> None:
        self.sessions: dict[str, Session] = {}
        self.tail_events = tail_events
        self.applied_kept = applied_kept

    def find(self, name: str, uid: str | None) -> Session | None:
        session = self.sessions.get(name)
        return session if session and uid in (None, session.head.uid) else None

    async def create(self, head: Head, snapshot: bytes | None = None) -> None:
        if snapshot is not None:
            kept = {"snapshot_round": head.round, "snapshot_at": head.created_at, "snapshot_bytes": len(snapshot)}
            head = replace(head, **kept)
        session = self.sessions.setdefault(head.name, Session(head, snapshot=snapshot))
        if session.head.uid != head.uid:
            raise SessionExists(head.name)

    async def read(self, name: str, uid: str | None = None, after: int = -1) -> Reading | Gone:
        session = self.find(name, uid)
        return session.reading(after) if session else Gone()

    async def head(self, name: str) -> Head | Gone:
        session = self.find(name, None)
        return session.describe() if session else Gone()

    async def hold(
        self, name: str, uid: str, expected: int, waiting: Waiting, *, now: float, limit: int
    ) -> Held | Behind | AlreadyWaiting | AlreadyApplied | TooManyWaiting | Gone:
        session = self.find(name, uid)
        if session is None:
            return Gone()
        session.sweep(now)
        if waiting.id in session.applied:
            return AlreadyApplied(waiting.id, session.applied[waiting.id])
        if held := session.waiting.get(waiting.id) or session.expired.get(waiting.id):
            return AlreadyWaiting(held)
        if expected != session.head.round:
            return Behind(session.reading(expected))
        if len(session.waiting) >= limit:
            return TooManyWaiting()
        session.waiting[waiting.id] = waiting
        session.forget_at[waiting.id] = waiting.expires_at + max(waiting.expires_at - now, 0)
        return Held()

    async def append(
        self, name: str, uid: str, expected: int, events: Sequence[Event], *, now: float
    ) -> Appended | Behind | AlreadyApplied | Gone:
        session = self.find(name, uid)
        if session is None:
            return Gone()
        if all(event in session.journal for event in events):
            return Appended(replayed=True)
        for event in events:
            if event.id in session.applied:
                return AlreadyApplied(event.id, session.applied[event.id])
        if expected != session.head.round:
            return Behind(session.reading(expected))
        session.journal += events
        session.head = replace(session.head, round=events[-1].round, updated_at=now)
        for event in events:
            if event.id is not None:
                session.waiting.pop(event.id, None)
                session.expired.pop(event.id, None)
                session.applied[event.id] = event.answer
        session.applied = dict(list(session.applied.items())[-self.applied_kept :])
        return Appended()

    async def look_up(self, name: str, uid: str, id: str) -> Waiting | AlreadyApplied | Gone | None:
        session = self.find(name, uid)
        if session is None:
            return Gone()
        if id in session.applied:
            return AlreadyApplied(id, session.applied[id])
        return session.waiting.get(id) or session.expired.get(id)

    async def snapshot(self, name: str, uid: str, round: int, blob: bytes, *, now: float) -> bool:
        session = self.find(name, uid)
        ends = {0} | {event.round for event in session.journal} if session else set()
        if session is None or round <= session.head.snapshot_round or round not in ends:
            return False
        session.snapshot = blob
        session.head = replace(session.head, snapshot_round=round, snapshot_at=now, snapshot_bytes=len(blob))
        older = [event for event in session.journal if event.round <= round]
        session.journal = session.journal[max(len(older) - self.tail_events, 0) :]
        return True

    async def list(self, cursor: str | None, limit: int) -> Page:
        names = sorted(name for name in self.sessions if cursor is None or name > cursor)
        heads = [self.sessions[name].describe() for name in names[:limit]]
        return Page(heads, names[limit - 1] if len(names) > limit else None)

    async def count(self) -> int:
        return len(self.sessions)

    async def delete(self, name: str) -> bool:
        return self.sessions.pop(name, None) is not None
