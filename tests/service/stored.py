"""Sessions as a store holds them: with something of everything, or rewritten, as another build or a fault may leave them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

from service.archive.transport import names_in
from service.session.codec import RoundEntry, decode_entry, encode_round
from service.session.definition import Definition
from service.session.record import encode_record
from service.store.base import Entry, Gone, Head, Reading, Store, Tip, WaitingPage
from service.store.moving import Whole
from tests.contract.store_calls import STATE, append, chain, entry, head, hold, ids_from
from tests.oracles.model_store import ModelStore

IDENTITY = bytes(range(16))
FIRST = Tip(0, IDENTITY)
IDS = ["p", "q", "gone", "cancelled", "many", "silent", "nothing", *ids_from(0, 9)]

Change = Callable[[bytes], bytes]


async def rewritten(reading: Reading, changes: dict[int, Change], store: ModelStore | None = None) -> ModelStore:
    """A store with the same session, some of whose entries say something else: their chain is sound all the same.

    `changes` are by the entries' places, -1 is the last.
    """
    store = store or ModelStore()
    head, tip = reading.head, reading.start
    assert reading.record is not None
    await store.create(head.name, reading.record, tip, reading.snapshot, summary=head.summary)
    places = {place % len(reading.entries): change for place, change in changes.items()}
    entries: list[Entry] = []
    for place, old in enumerate(reading.entries):
        blob = places[place](old.blob) if place in places else old.blob
        entries.append(entry := Entry.after(tip, old.count, old.id, blob))
        tip = entry.tip
    await store.commit(head.name, reading.start, entries)
    return store


def saying(**values: Any) -> Change:
    """A round that says this, well-formed."""

    def change(blob: bytes) -> bytes:
        entry = decode_entry(blob)
        assert isinstance(entry, RoundEntry)
        return encode_round(entry._replace(**values))

    return change


def flipped(blob: bytes, bit: int) -> bytes:
    place = bit // 8
    return blob[:place] + bytes([blob[place] ^ (1 << bit % 8)]) + blob[place + 1 :]


def bits(blob: bytes, step: int = 1) -> Sequence[int]:
    return range(0, 8 * len(blob), step)


async def filled(store: Store, name: str = "s") -> None:
    """A session with something of everything."""
    record = encode_record(Definition(name), IDENTITY)
    await store.create(name, record, FIRST, summary=b"summary")
    holds = [hold("p"), hold("q", blob=bytes(5000)), hold("gone", wait_s=0.0), hold("cancelled")]
    await store.commit(name, FIRST, [], holds)
    entries = chain(FIRST, *ids_from(0, 9))
    await append(store, entries, name)
    await store.snapshot(name, entries[6].tip, STATE)
    await append(store, [entry(entries[-1].tip, "many", count=7, blob=bytes(3000), answer=bytes(2000))], name)
    await append(store, [entry((await head(store, name)).tip, "silent", answer=None)], name)
    await store.cancel(name, "cancelled")
    await store.keep(name, IDENTITY, "kept", entries[3].tip, bytes(range(256)) * 8000)


class Unexamined:
    """Lets pass what `filled` has made up."""

    def see(self, part: object) -> None: ...

    def end(self) -> None: ...


async def told(store: Store, name: str = "s") -> list[Any]:
    """All that a caller can find out."""
    reading, page, whole = await store.read(name), await store.waiting(name, None, 10), await store.whole(name)
    assert isinstance(reading, Reading)
    assert isinstance(page, WaitingPage)
    assert isinstance(whole, Whole)
    checkpoints = await store.kept(name)
    assert not isinstance(checkpoints, Gone)
    found = reading.head
    times = [found.created_at, found.updated_at, found.snapshot_at, *(one.expires_at for one in page.items)]
    return [
        times,
        [getattr(found, field) for field in Head.__slots__ if not field.endswith("_at") and field != "name"],
        (reading.start, reading.entries, reading.snapshot),
        (whole.first, whole.base, whole.entries),
        await store.last(name, 100),
        [(one.id, one.blob) for one in page.items],
        [await store.find(name, found.tip, id) for id in IDS],
        [(one.name, one.tip, one.nbytes, await store.kept_state(name, one.name)) for one in checkpoints],
    ]


class Died(Exception):
    """The process is gone: it cleans up nothing."""


class Dying:
    """A store whose caller dies at its n-th call, before the store has done it or before the reply comes."""

    def __init__(self, store: Store, calls: Sequence[int], *, is_after: bool, count: itertools.count[int]) -> None:
        self._store = store
        self._calls = calls
        self._is_after = is_after
        self._count = count

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)

        async def call(*given: Any, **named: Any) -> Any:
            number = next(self._count)
            if number > self._calls[0] or (number == self._calls[0] and not self._is_after):
                raise Died
            answer = await method(*given, **named)
            if number == self._calls[0]:
                raise Died
            return answer

        return call


def is_live(found: object) -> bool:
    return isinstance(found, Head) and not found.seal


async def forget_leases(*stores: Store) -> None:
    """As if the time of all seals for a while had passed."""
    for store in stores:
        file = getattr(store, "_file", None)
        if file is not None:
            connection = file.connect(5.0)
            connection.execute("UPDATE sessions SET sealed_until = 0 WHERE sealed_until < 9e300")
            connection.close()
            continue
        for name in await names_in(store):
            key = b"okl:{%b}:head" % name.encode()
            until = await store._on_session(name, "HGET", key, "sealed_until")  # type: ignore[attr-defined]
            if until is not None and int(until) < 2**53:
                await store._on_session(name, "HDEL", key, "sealed_until", "seal")  # type: ignore[attr-defined]
