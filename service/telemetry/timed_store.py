"""A store whose calls are counted and timed."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from time import perf_counter
from typing import TypeVar, final

from okl.errors import StoreError

from ..store.base import (
    Applied,
    Behind,
    Committed,
    Entry,
    Found,
    Full,
    Gone,
    Head,
    Hold,
    Page,
    Reading,
    Store,
    Tip,
    Waiting,
    WaitingPage,
)
from ..store.moving import Checkpoint, Luggage, Whole
from .counts import Counts

T = TypeVar("T")


@final
class TimedStore:
    """Forwards every call to a store, and counts and times it."""

    def __init__(self, store: Store, counts: Counts) -> None:
        self._store = store
        self._counts = counts

    async def _timed(self, call: str, answer: Awaitable[T]) -> T:
        started = perf_counter()
        try:
            return await answer
        except StoreError:
            errors = self._counts.store_errors
            errors[call] = errors.get(call, 0) + 1
            raise
        finally:
            self._counts.called(call, perf_counter() - started)

    async def open(self) -> None:
        await self._store.open()

    async def close(self) -> None:
        await self._store.close()

    async def ping(self) -> None:
        await self._timed("ping", self._store.ping())

    async def warnings(self) -> Sequence[str]:
        return await self._store.warnings()

    async def create(
        self, name: str, record: bytes, tip: Tip, snapshot: bytes | None = None, *, summary: bytes = b"", told: int = 0
    ) -> None:
        await self._timed("create", self._store.create(name, record, tip, snapshot, summary=summary, told=told))

    async def head(self, name: str) -> Head | Gone:
        return await self._timed("head", self._store.head(name))

    async def read(self, name: str, after: Tip | None = None) -> Reading | Gone:
        return await self._timed("read", self._store.read(name, after))

    async def salvage(self, name: str) -> Reading | Gone:
        return await self._timed("salvage", self._store.salvage(name))

    async def find(self, name: str, tip: Tip, id: str) -> Found | Gone:
        return await self._timed("find", self._store.find(name, tip, id))

    async def commit(
        self, name: str, tip: Tip, entries: Sequence[Entry], holds: Sequence[Hold] = (), progress: Applied | None = None
    ) -> Committed | Applied | Waiting | Behind | Gone:
        return await self._timed("commit", self._store.commit(name, tip, entries, holds, progress))

    async def snapshot(self, name: str, tip: Tip, blob: bytes) -> bool:
        return await self._timed("snapshot", self._store.snapshot(name, tip, blob))

    async def rewind(self, name: str, tip: Tip, to: Tip, alarms: int = 0) -> bool:
        return await self._timed("rewind", self._store.rewind(name, tip, to, alarms))

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
        options = {"summary": summary, "told": told, "unless_waiting": unless_waiting}
        answer = self._store.replace(name, at, record, to, snapshot, **options)
        return await self._timed("replace", answer)

    async def last(self, name: str, rounds: int) -> Sequence[Entry] | Gone:
        return await self._timed("last", self._store.last(name, rounds))

    async def waiting(self, name: str, after: str | None, limit: int) -> WaitingPage | Gone:
        return await self._timed("waiting", self._store.waiting(name, after, limit))

    async def count_waiting(self, name: str, due_before: Sequence[float]) -> Sequence[int] | Gone:
        return await self._timed("count_waiting", self._store.count_waiting(name, due_before))

    async def cancel(self, name: str, id: str) -> bool:
        return await self._timed("cancel", self._store.cancel(name, id))

    async def summarize(self, name: str, tip: Tip, summary: bytes) -> bool:
        return await self._timed("summarize", self._store.summarize(name, tip, summary))

    async def told(self, name: str, tip: Tip, count: int) -> bool:
        return await self._timed("told", self._store.told(name, tip, count))

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
        answer = self._store.keep(name, identity, checkpoint, tip, blob, at=at, note=note)
        return await self._timed("keep", answer)

    async def kept(self, name: str) -> Sequence[Checkpoint] | Gone:
        return await self._timed("kept", self._store.kept(name))

    async def kept_state(self, name: str, checkpoint: str) -> bytes | None:
        return await self._timed("kept_state", self._store.kept_state(name, checkpoint))

    async def drop(self, name: str, checkpoint: str) -> bool:
        return await self._timed("drop", self._store.drop(name, checkpoint))

    async def seal(self, name: str, note: bytes, for_s: float, over: bytes | None = None) -> bool:
        return await self._timed("seal", self._store.seal(name, note, for_s, over))

    async def unseal(self, name: str, note: bytes, identity: bytes = b"") -> bool:
        return await self._timed("unseal", self._store.unseal(name, note, identity))

    async def whole(self, name: str) -> Whole | Gone:
        return await self._timed("whole", self._store.whole(name))

    async def luggage(self, name: str, cursor: str | None = None) -> Luggage | Gone:
        return await self._timed("luggage", self._store.luggage(name, cursor))

    async def arrive(self, name: str, whole: Whole, note: bytes) -> None:
        await self._timed("arrive", self._store.arrive(name, whole, note))

    async def unload(
        self, name: str, note: bytes, entries: Sequence[Entry], luggage: Luggage, then: bytes = b""
    ) -> bool:
        return await self._timed("unload", self._store.unload(name, note, entries, luggage, then))

    async def list(self, cursor: str | None, limit: int) -> Page:
        return await self._timed("list", self._store.list(cursor, limit))

    async def count(self, prefix: str = "") -> int:
        return await self._timed("count", self._store.count(prefix))

    async def delete(
        self, name: str, at: Tip | None = None, *, unless_waiting: bool = False, remains: bytes = b""
    ) -> bool:
        deleted = self._store.delete(name, at, unless_waiting=unless_waiting, remains=remains)
        return await self._timed("delete", deleted)
