"""The store contract as the simplest program that keeps it: dictionaries, lists and a clock that is given.

The real stores are compared with it, and simulations run on it: `fork` and `restore` are a backup, and `pause` is awaited
before and after each operation, where a caller can be held up, lose the reply or crash.
"""

from __future__ import annotations

import copy
import itertools
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar, final

from okl.errors import SessionExists
from service.store.base import (
    LAST_BYTES,
    PAGE_BYTES,
    PAGE_ITEMS,
    REMEMBERED_AFTER_EXPIRY_S,
    SWEPT_AT_ONCE,
    Applied,
    Behind,
    Committed,
    Entry,
    Found,
    Full,
    Gone,
    Head,
    Hold,
    Limits,
    Page,
    Reading,
    Tip,
    Waiting,
    WaitingItem,
    WaitingPage,
)
from service.store.moving import (
    FOR_GOOD,
    Checkpoint,
    HeldItem,
    Luggage,
    RememberedItem,
    Whole,
    aside,
    check_note,
    is_aside,
    is_in_force,
    sealed,
)
from service.store.store_checks import (
    check_edges,
    check_entries,
    check_last,
    check_limit,
    check_number,
    check_reading,
    check_summary,
    cursor_after,
    split_cursor,
)

T = TypeVar("T")
Sessions = dict[str, "Session"]


@dataclass(frozen=True, slots=True)
class Held:
    """A prediction that waits or has expired. Whether it is counted as expired, a sweep decides."""

    id: str
    blob: bytes
    expires_at: float
    forget_at: float
    is_expired: bool = False


@dataclass(frozen=True, slots=True)
class Remembered:
    answer: bytes
    at: float


@dataclass
class Session:
    name: str
    record: bytes
    summary: bytes
    first: Tip
    created_at: float
    tip: Tip
    base: Tip
    updated_at: float | None = None
    snapshot: bytes | None = None
    snapshot_tip: Tip | None = None
    snapshot_at: float | None = None
    entries: list[Entry] = field(default_factory=list)
    held: dict[str, Held] = field(default_factory=dict)
    remembered: dict[str, Remembered] = field(default_factory=dict)
    never_came: int = 0
    summary_round: int = 0
    told: int = 0
    seal: bytes = b""
    sealed_until: float = 0.0
    kept: dict[str, tuple[Checkpoint, bytes]] = field(default_factory=dict)

    def check_open(self, now: float) -> None:
        if is_in_force(self.sealed_until, now):
            raise sealed(self.name, self.seal)

    @property
    def start(self) -> Tip:
        return self.snapshot_tip or self.first

    def chain(self) -> list[Tip]:
        """All tips that are still known."""
        return [self.base, *(entry.tip for entry in self.entries)]

    def entries_after(self, tip: Tip) -> list[Entry]:
        return [entry for entry in self.entries if entry.tip.round > tip.round]

    def waiting(self) -> list[Held]:
        return [held for held in self.held.values() if not held.is_expired]

    def expired(self) -> list[Held]:
        return sorted(
            (held for held in self.held.values() if held.is_expired), key=lambda held: (held.forget_at, held.id)
        )

    def items(self, now: float) -> list[WaitingItem]:
        """What waits and is not due."""
        waiting = [held for held in self.waiting() if held.expires_at > now]
        waiting.sort(key=lambda held: (held.expires_at, held.id))
        return [WaitingItem(held.id, held.blob, held.expires_at) for held in waiting]

    def what_is_under(self, id: str, now: float, limits: Limits) -> Waiting | Applied | None:
        remembered, held = self.remembered.get(id), self.held.get(id)
        if remembered and remembered.at + limits.remembered_s > now:
            return Applied(id, remembered.answer)
        if held and held.forget_at > now:
            return Waiting(id, held.blob, held.expires_at <= now)
        return None

    def head(self) -> Head:
        waiting, after = self.waiting(), self.entries_after(self.start)
        behind = self.entries[: len(self.entries) - len(after)]
        return Head(
            name=self.name,
            summary=self.summary,
            tip=self.tip,
            created_at=self.created_at,
            updated_at=self.updated_at,
            snapshot_tip=self.snapshot_tip,
            snapshot_at=self.snapshot_at,
            snapshot_bytes=len(self.snapshot or b""),
            journal_rounds=self.tip.round - self.start.round,
            journal_bytes=sum(len(entry.blob) for entry in after),
            tail_bytes=sum(len(entry.blob) for entry in behind),
            waiting=len(waiting),
            waiting_bytes=sum(len(held.blob) for held in waiting),
            remembered=len(self.remembered),
            remembered_bytes=sum(len(remembered.answer) for remembered in self.remembered.values()),
            never_came=self.never_came,
            summary_round=self.summary_round,
            told=self.told,
            seal=self.seal if self.sealed_until == FOR_GOOD else b"",
        )

    def reading(self, after: Tip | None) -> Reading:
        is_whole = after not in self.chain()
        start = self.start if after is None or is_whole else after
        entries = [replace(entry, answer=None, is_fresh=False) for entry in self.entries_after(start)]
        if not is_whole:
            return check_reading(Reading(self.head(), start, entries))
        return check_reading(Reading(self.head(), start, entries, self.snapshot, self.record))

    def sweep_waiting(self, now: float, limits: Limits) -> None:
        due = sorted(self.waiting(), key=lambda held: held.expires_at)
        for held in [held for held in due if held.expires_at <= now][:SWEPT_AT_ONCE]:
            self.held[held.id] = replace(held, is_expired=True)
            self.never_came += 1
        expired = self.expired()
        size = sum(len(held.blob) for held in expired)
        for number, held in enumerate(expired[:SWEPT_AT_ONCE]):
            if held.forget_at <= now or len(expired) - number > limits.waiting or size > limits.waiting_bytes:
                del self.held[held.id]
                size -= len(held.blob)

    def sweep_remembered(self, now: float, limits: Limits) -> None:
        size = sum(len(remembered.answer) for remembered in self.remembered.values())
        for id, remembered in list(self.remembered.items())[:SWEPT_AT_ONCE]:
            is_over = len(self.remembered) > limits.remembered or size > limits.remembered_bytes
            if not is_over and remembered.at + limits.remembered_s > now:
                return
            del self.remembered[id]
            size -= len(remembered.answer)

    def append(self, entries: Sequence[Entry], now: float) -> None:
        for entry in entries:
            self.entries.append(entry)
            held = self.held.pop(entry.id, None)
            self.never_came -= held is not None and held.is_expired
            if entry.answer is not None:
                self.remembered.pop(entry.id, None)
                self.remembered[entry.id] = Remembered(entry.answer, now)
        self.tip, self.updated_at = entries[-1].tip, now

    def hold(self, hold: Hold, now: float, limits: Limits) -> Waiting | Applied | Full | None:
        found = self.what_is_under(hold.id, now, limits)
        if found is not None:
            return None if found == Waiting(hold.id, hold.blob) else found
        left = self.held.pop(hold.id, None)
        self.never_came += left is not None and not left.is_expired
        waiting = self.waiting()
        size = sum([len(held.blob) for held in waiting])
        if len(waiting) >= limits.waiting or size + len(hold.blob) > limits.waiting_bytes:
            return Full()
        wait_s = max(hold.wait_s, 0.0)
        expires_at = now + wait_s
        self.held[hold.id] = Held(hold.id, hold.blob, expires_at, expires_at + min(wait_s, REMEMBERED_AFTER_EXPIRY_S))
        return None

    def trim(self, limits: Limits) -> None:
        """Keep of the entries behind the snapshot the newest, while both limits hold."""
        behind = [entry for entry in self.entries if entry.tip.round <= self.start.round]
        size = 0
        for number, entry in enumerate(reversed(behind)):
            size += len(entry.blob)
            if number == limits.tail or size > limits.tail_bytes:
                self.base = entry.tip
                self.entries = self.entries_after(entry.tip)
                return


@final
class ModelStore:
    def __init__(
        self,
        limits: Limits | None = None,
        clock: Callable[[], float] = time.time,
        pause: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self.limits = limits or Limits()
        self.clock = clock
        self.pause = pause
        self.sessions: Sessions = {}

    def fork(self) -> Sessions:
        """All that is stored, as it is now: a backup."""
        return copy.deepcopy(self.sessions)

    def restore(self, backup: Sessions) -> None:
        self.sessions = copy.deepcopy(backup)

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def ping(self) -> None:
        await self._run(lambda: None)

    async def warnings(self) -> Sequence[str]:
        return ()

    async def create(
        self, name: str, record: bytes, tip: Tip, snapshot: bytes | None = None, *, summary: bytes = b"", told: int = 0
    ) -> None:
        check_summary(summary)
        check_number(told)

        def operation() -> None:
            if name not in self.sessions:
                made = Session(name, record, summary, tip, self.clock(), tip=tip, base=tip, told=told)
                made.summary_round = tip.round
                self.sessions[name] = made
                if snapshot is not None:
                    made.snapshot, made.snapshot_tip, made.snapshot_at = snapshot, tip, self.clock()
            if self.sessions[name].first != tip:
                raise SessionExists(name)

        await self._run(operation)

    async def head(self, name: str) -> Head | Gone:
        return await self._ask(name, Session.head)

    async def read(self, name: str, after: Tip | None = None) -> Reading | Gone:
        return await self._ask(name, lambda session: session.reading(after))

    async def salvage(self, name: str) -> Reading | Gone:
        return await self.read(name)

    async def find(self, name: str, tip: Tip, id: str) -> Found | Gone:
        def operation(session: Session) -> Found:
            what = session.what_is_under(id, self.clock(), self.limits)
            return Found(what, None if session.tip == tip else session.reading(tip))

        return await self._ask(name, operation)

    async def commit(
        self, name: str, tip: Tip, entries: Sequence[Entry], holds: Sequence[Hold] = (), progress: Applied | None = None
    ) -> Committed | Applied | Waiting | Behind | Gone:
        def operation(session: Session) -> Committed | Applied | Waiting | Behind:
            now, limits = self.clock(), self.limits
            session.check_open(now)
            is_new = bool(entries) and entries[-1].tip not in session.chain()
            if is_new:
                for entry in entries:
                    found = session.what_is_under(entry.id, now, limits)
                    if isinstance(found, Applied):
                        return found
            if session.tip != tip and (is_new or not entries):
                return Behind(session.reading(tip))
            for entry in entries if is_new else ():
                found = session.what_is_under(entry.id, now, limits)
                if entry.is_fresh and isinstance(found, Waiting):
                    return found
            if not entries and not holds:
                return Committed([], len(session.waiting()), session.never_came)
            session.sweep_waiting(now, limits)
            if is_new:
                session.append(entries, now)
                if progress is not None:
                    session.remembered.pop(progress.id, None)
                    session.remembered[progress.id] = Remembered(progress.answer, now)
            session.sweep_remembered(now, limits)
            outcomes = [session.hold(hold, now, limits) for hold in holds]
            return Committed(outcomes, len(session.waiting()), session.never_came)

        check_entries(tip, entries)
        return await self._ask(name, operation)

    async def snapshot(self, name: str, tip: Tip, blob: bytes) -> bool:
        def operation(session: Session) -> bool:
            is_later = session.snapshot_tip is None or tip.round > session.snapshot_tip.round
            if tip not in session.chain() or not is_later:
                return False
            session.snapshot, session.snapshot_tip, session.snapshot_at = blob, tip, self.clock()
            session.trim(self.limits)
            return True

        return await self._ask(name, operation) is True

    async def rewind(self, name: str, tip: Tip, to: Tip, alarms: int = 0) -> bool:
        def operation(session: Session) -> bool:
            if session.tip != tip:
                return False
            session.check_open(self.clock())
            if to not in [session.start, *(e.tip for e in session.entries_after(session.start))]:
                return False
            taken = {entry.id for entry in session.entries_after(to)}
            since = list(itertools.dropwhile(lambda id: id not in taken, session.remembered))
            for id in [id for id in since if id in taken or f"{id}0" in session.remembered]:
                del session.remembered[id]
            session.entries = [entry for entry in session.entries if entry.tip.round <= to.round]
            session.tip = to
            session.summary_round = min(session.summary_round, to.round)
            session.told = min(session.told, alarms)
            return True

        return await self._ask(name, operation) is True

    async def replace(
        self,
        name: str,
        at: Tip,
        record: bytes,
        to: Tip,
        snapshot: bytes,
        *,
        summary: bytes = b"",
        told: int = 0,
        unless_waiting: bool = False,
    ) -> bool:
        def operation(session: Session) -> bool:
            session.check_open(self.clock())
            if session.tip == at and not (unless_waiting and session.items(self.clock())):
                session.record, session.summary, session.summary_round = record, summary, to.round
                session.snapshot, session.snapshot_tip, session.snapshot_at = snapshot, to, self.clock()
                session.tip = session.base = to
                session.entries, session.told = [], told
            return to in session.chain()

        check_summary(summary)
        check_number(told)
        return await self._ask(name, operation) is True

    async def last(self, name: str, rounds: int) -> Sequence[Entry] | Gone:
        def operation(session: Session) -> Sequence[Entry]:
            found: list[Entry] = []
            for entry in reversed(session.entries):
                size = sum(len(one.blob) for one in [*found, entry])
                if sum(one.count for one in found) >= rounds or size > LAST_BYTES:
                    break
                found.insert(0, replace(entry, answer=None, is_fresh=False))
            start = session.entries[-len(found) - 1].tip if len(found) < len(session.entries) else session.base
            return check_last(name, start, found, session.tip, session.seal)

        return await self._ask(name, operation)

    async def waiting(self, name: str, after: str | None, limit: int) -> WaitingPage | Gone:
        def operation(session: Session) -> WaitingPage:
            now = self.clock()
            items: list[WaitingItem] = []
            left = [item for item in session.items(now) if start is None or (item.expires_at, item.id) > start]
            for item in left[: min(limit, PAGE_ITEMS)]:
                if items and sum(len(one.blob) for one in [*items, item]) > PAGE_BYTES:
                    break
                items.append(item)
            cursor = cursor_after(items[-1].expires_at, items[-1].id) if len(items) < len(left) else None
            return WaitingPage(items, cursor, now)

        check_limit(limit)
        start = None if after is None else split_cursor(after)
        return await self._ask(name, operation)

    async def count_waiting(self, name: str, due_before: Sequence[float]) -> Sequence[int] | Gone:
        def operation(session: Session) -> Sequence[int]:
            now = self.clock()
            return [sum(item.expires_at <= now + edge for item in session.items(now)) for edge in due_before]

        check_edges(due_before)
        return await self._ask(name, operation)

    async def cancel(self, name: str, id: str) -> bool:
        def operation(session: Session) -> bool:
            now, held = self.clock(), session.held.get(id)
            if held is None or held.is_expired or held.expires_at <= now:
                return False
            session.check_open(now)
            forget_at = now + (held.forget_at - held.expires_at)
            session.held[id] = Held(id, held.blob, now, forget_at, is_expired=True)
            session.never_came += 1
            session.sweep_waiting(now, self.limits)
            return True

        return await self._ask(name, operation) is True

    async def summarize(self, name: str, tip: Tip, summary: bytes) -> bool:
        def operation(session: Session) -> bool:
            if tip not in session.chain() or session.summary_round > tip.round:
                return False
            session.summary, session.summary_round = summary, tip.round
            return True

        check_summary(summary)
        return await self._ask(name, operation) is True

    async def told(self, name: str, tip: Tip, count: int) -> bool:
        def operation(session: Session) -> bool:
            if tip not in session.chain():
                return False
            is_more = count > session.told
            session.told = max(session.told, count)
            return is_more

        check_number(count)
        return await self._ask(name, operation) is True

    async def list(self, cursor: str | None, limit: int) -> Page:
        def operation() -> Page:
            names = sorted(name for name in self.sessions if not is_aside(name) and (cursor is None or name > cursor))
            heads = [self.sessions[name].head() for name in names[:limit]]
            return Page(heads, names[limit - 1] if len(names) > limit else None)

        return await self._run(operation)

    async def count(self, prefix: str = "") -> int:
        return await self._run(lambda: sum(name.startswith(prefix) and not is_aside(name) for name in self.sessions))

    async def delete(
        self, name: str, at: Tip | None = None, *, unless_waiting: bool = False, remains: bytes = b""
    ) -> bool:
        def operation() -> bool:
            session = self.sessions.get(name)
            if session is None or (at is not None and session.tip != at):
                return False
            if remains and (
                session.sealed_until != FOR_GOOD or session.seal != remains or aside(name) in self.sessions
            ):
                return False
            if unless_waiting and session.items(self.clock()):
                return False
            if session.sealed_until != FOR_GOOD:
                session.check_open(self.clock())
            self.sessions.pop(aside(name), None)
            del self.sessions[name]
            return True

        return await self._run(operation)

    async def keep(
        self,
        name: str,
        identity: bytes,
        checkpoint: str,
        tip: Tip,
        blob: bytes,
        *,
        at: float | None = None,
        note: bytes = b"",
    ) -> bool | Full:
        def operation(session: Session) -> bool | Full:
            if session.first.digest != identity:
                return False
            now = self.clock()
            if not (session.sealed_until == FOR_GOOD and note and session.seal == note):
                session.check_open(now)
            others = [own.nbytes for other, (own, _) in session.kept.items() if other != checkpoint]
            if len(others) >= self.limits.checkpoints or sum(others) + len(blob) > self.limits.checkpoint_bytes:
                return Full()
            session.kept[checkpoint] = Checkpoint(checkpoint, tip, now if at is None else at, len(blob)), blob
            return True

        found = await self._ask(name, operation)
        return False if isinstance(found, Gone) else found

    async def kept(self, name: str) -> Sequence[Checkpoint] | Gone:
        return await self._ask(name, lambda session: [own for _, (own, _) in sorted(session.kept.items())])

    async def kept_state(self, name: str, checkpoint: str) -> bytes | None:
        found = await self._ask(name, lambda session: session.kept.get(checkpoint))
        return None if found is None or isinstance(found, Gone) else found[1]

    async def drop(self, name: str, checkpoint: str) -> bool:
        def operation(session: Session) -> bool:
            session.check_open(self.clock())
            return session.kept.pop(checkpoint, None) is not None

        return await self._ask(name, operation) is True

    async def seal(self, name: str, note: bytes, for_s: float, over: bytes | None = None) -> bool:
        def operation(session: Session) -> bool:
            now = self.clock()
            found = session.seal if is_in_force(session.sealed_until, now) else None
            if (found is None and over is not None) or found not in (None, note, over):
                return False
            session.seal, session.sealed_until = note, now + for_s
            return True

        check_note(note)
        return await self._ask(name, operation) is True

    async def unseal(self, name: str, note: bytes, identity: bytes = b"") -> bool:
        def operation(session: Session) -> bool:
            arrived = self.sessions.get(aside(name))
            if arrived is not None and arrived.seal == note:
                if session.sealed_until != FOR_GOOD:
                    return False
                del self.sessions[aside(name)]
                session, arrived.name = arrived, name
                self.sessions[name] = arrived
            if is_in_force(session.sealed_until, self.clock()) and session.seal != note:
                return False
            if identity not in (b"", session.first.digest):
                return False
            session.seal, session.sealed_until = b"", 0.0
            return True

        return await self._ask(name, operation) is True

    async def whole(self, name: str) -> Whole | Gone:
        def operation(session: Session) -> Whole:
            entries = [replace(entry, answer=None, is_fresh=False) for entry in session.entries]
            return Whole(session.head(), session.first, session.base, session.record, session.snapshot, entries)

        return await self._ask(name, operation)

    async def luggage(self, name: str, cursor: str | None = None) -> Luggage | Gone:
        """On one page."""

        def operation(session: Session) -> Luggage:
            held = sorted(
                session.held.values(), key=lambda one: (one.is_expired, one.is_expired and one.forget_at, one.id)
            )
            items = [
                HeldItem(one.id, one.blob, 0.0 if one.is_expired else one.expires_at, one.forget_at, one.is_expired)
                for one in held
            ]
            return Luggage(items, [RememberedItem(id, one.answer, one.at) for id, one in session.remembered.items()])

        return await self._ask(name, operation)

    async def arrive(self, name: str, whole: Whole, note: bytes) -> None:
        def operation() -> None:
            there, head = self.sessions.get(name), whole.head
            if there is not None and there.sealed_until != FOR_GOOD:
                raise SessionExists(name)
            made = Session(
                name, whole.record, head.summary, whole.first, head.created_at, tip=head.tip, base=whole.base
            )
            made.updated_at, made.never_came, made.told = head.updated_at, head.never_came, head.told
            made.snapshot, made.snapshot_tip, made.snapshot_at = whole.snapshot, head.snapshot_tip, head.snapshot_at
            made.summary_round, made.seal, made.sealed_until = head.summary_round, note, FOR_GOOD
            self.sessions[name] = made

        check_note(note)
        await self._run(operation)

    async def unload(
        self, name: str, note: bytes, entries: Sequence[Entry], luggage: Luggage, then: bytes = b""
    ) -> bool:
        def operation(session: Session) -> bool:
            if session.sealed_until != FOR_GOOD or session.seal not in (note, then or note):
                return False
            session.seal = then or note
            there = {entry.tip for entry in session.entries}
            session.entries += [entry for entry in entries if entry.tip not in there]
            for one in luggage.held:
                session.held.setdefault(one.id, Held(one.id, one.blob, one.expires_at, one.forget_at, one.is_expired))
            for one in luggage.remembered:
                session.remembered.setdefault(one.id, Remembered(one.answer, one.at))
            return True

        check_note(then)
        return await self._ask(name, operation) is True

    async def _ask(self, name: str, operation: Callable[[Session], T]) -> T | Gone:
        return await self._run(lambda: operation(self.sessions[name]) if name in self.sessions else Gone())

    async def _run(self, operation: Callable[[], T]) -> T:
        if self.pause is not None:
            await self.pause()
        result = operation()
        if self.pause is not None:
            await self.pause()
        return result
