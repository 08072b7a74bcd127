"""Shared helpers of the store tests: chains of entries, and calls whose answer is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from service.store.base import Behind, Committed, Entry, Found, Head, Hold, Reading, Store, Tip

NAME = "prices"
RECORD = b'{"kind": "kons"}\x00\xff'
SUMMARY = b"kons \xff\x00"
FIRST = Tip(0, bytes(range(16)))
OTHER = Tip(0, b"another session!")
STATE = b"state\x00\xff"


def entry(tip: Tip, id: str, *, count: int = 1, blob: bytes | None = None, answer: bytes | None = b"") -> Entry:
    """An entry that follows `tip`; by default its answer contains its id."""
    blob = f"blob of {id}".encode() if blob is None else blob
    answer = f"answer to {id}".encode() if answer == b"" else answer
    return Entry.after(tip, count, id, blob, answer)


def chain(
    tip: Tip, *ids: str, count: int = 1, blob: bytes | None = None, answer: bytes | None = b""
) -> Sequence[Entry]:
    entries: list[Entry] = []
    for id in ids:
        entries.append(entry(tip, id, count=count, blob=blob, answer=answer))
        tip = entries[-1].tip
    return entries


def ids_from(first: int, last: int) -> Sequence[str]:
    return [f"r{number}" for number in range(first, last + 1)]


def bare(entries: Sequence[Entry]) -> Sequence[Entry]:
    """The entries without their answers, as a reading returns them."""
    return [replace(entry, answer=None, is_fresh=False) for entry in entries]


def hold(id: str, *, wait_s: float = 3600.0, blob: bytes | None = None) -> Hold:
    return Hold(id, f"\x00forecast of {id}".encode() if blob is None else blob, wait_s)


def outcomes_of(answer: object) -> Sequence[object]:
    """The outcomes of the predictions in a successful commit."""
    assert isinstance(answer, Committed)
    return list(answer.holds)


async def append(store: Store, entries: Sequence[Entry], name: str = NAME) -> Tip:
    """Commit entries that follow the session's tip. Returns the new tip."""
    found = await head(store, name)
    assert outcomes_of(await store.commit(name, found.tip, entries)) == []
    return entries[-1].tip


async def append_ids(store: Store, *ids: str, blob: bytes | None = None, answer: bytes | None = b"") -> Sequence[Entry]:
    entries = chain((await head(store)).tip, *ids, blob=blob, answer=answer)
    await append(store, entries)
    return entries


async def wait(store: Store, *holds: Hold) -> Sequence[object]:
    """Commit predictions without entries at the session's tip. Returns their outcomes."""
    return outcomes_of(await store.commit(NAME, (await head(store)).tip, [], holds))


async def head(store: Store, name: str = NAME) -> Head:
    found = await store.head(name)
    assert isinstance(found, Head)
    return found


async def read(store: Store, after: Tip | None = None, name: str = NAME) -> Reading:
    reading = await store.read(name, after)
    assert isinstance(reading, Reading)
    return reading


async def what(store: Store, id: str, name: str = NAME) -> object:
    """The store's answer for an id."""
    found = await store.find(name, (await head(store, name)).tip, id)
    assert isinstance(found, Found)
    assert found.missed is None
    return found.what


def missed(answer: object) -> Reading:
    assert isinstance(answer, Behind)
    return answer.reading
